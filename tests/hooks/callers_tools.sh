#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that have nothing to do with CUDA do under the preload what they do without it: same output, same files, same exit status.
#
#   callers_tools.sh LIBRARY
set -u
library=$(readlink -f "$1") failed=0
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
export LC_ALL=C GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null

# both NAME COMMAND...: in two empty folders, without and with the preload.
both() {
  local name=$1 side preload
  shift
  for side in without with; do
    preload=${TEST_PRELOAD_FIRST:-}
    [ $side = without ] || preload="${preload:+$preload:}$library"
    rm -rf "$dir/work" && mkdir -p "$dir/work" && cd "$dir/work" || exit 2
    env ${preload:+LD_PRELOAD="$preload"} "$@" >"$dir/$side" 2>&1
    echo "status $?" >>"$dir/$side"
    find . -type f ! -path './.git/*' -exec cksum {} + | sort >>"$dir/$side"
  done
  cmp -s "$dir/without" "$dir/with" && return
  echo "FAILED: $name differs:"
  diff "$dir/without" "$dir/with" | head -n 20
  failed=1
}

need() { command -v "$1" >/dev/null || { echo "FAILED: $1 is not installed"; failed=1; return 1; }; }

both bash bash -c 'echo "$((6 * 7))"; for i in 1 2 3; do (echo $i; exit $i); done | sort -r; printf "%s\n" x >f; ulimit -c; umask; exit 3'
both pipeline sh -c 'seq 1000 | awk "{s += \$1} END {print s}" | sed "s/^/sum /"; kill -TERM $$'
need python3 && both python3 python3 -c '
import ctypes, hashlib, multiprocessing, os, subprocess, sys, threading
print(sys.version_info[:2], hashlib.sha256(b"x").hexdigest(), ctypes.CDLL(None).abs(-3))
print(subprocess.check_output(["sh", "-c", "echo child"]), multiprocessing.get_start_method())
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
sys.exit(4)'
need git && both git sh -c 'git init -q -b main . && echo a >a && git add a && GIT_AUTHOR_DATE=@0 GIT_COMMITTER_DATE=@0 git -c user.name=n -c user.email=e@e commit -qm m && git log --format=%H%s && git status'
need gcc && both gcc sh -c 'echo "int main(void) { return 6; }" >a.c && gcc -O1 -c a.c -o a.o && gcc a.o -o a && ./a; echo $?; gcc -x c /dev/null -o /dev/null 2>/dev/null; echo $?'
exit $failed
