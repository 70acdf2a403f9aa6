#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everyday programs do and print the same under the preload: no output, thread, descriptor or file comes from it.
# Usage: interpose_harmless.sh LIBRARY
set -eu
library=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/cwd"
cd "$work/cwd"
git init -q . 2>/dev/null || true
printf 'int main(void) { return 0; }\n' >main.c
cp -r "$work/cwd" "$work/start"

# same NAME COMMAND...: output, errors and exit status without and with the preload, and what is in the directory afterwards
same() {
    name=$1
    shift
    command -v "$1" >/dev/null || { echo "$name: $1 is not installed, left out"; return 0; }
    for preload in "" "$library"; do
        id=${preload:+with}
        id=${id:-without}
        rm -rf "$work/cwd/"* && cp -r "$work/start/." "$work/cwd"
        status=0
        LD_PRELOAD=$preload "$@" >"$work/$id.out" 2>"$work/$id.err" || status=$?
        echo "$status" >"$work/$id.status"
        find . -type f -not -path './.git/*' | LC_ALL=C sort >"$work/$id.files"
    done
    for part in out err status files; do
        diff "$work/without.$part" "$work/with.$part" || { echo "$name: $part differs" >&2; exit 1; }
    done
    [ "$(cat "$work/with.status")" = "${expect:-0}" ] || { echo "$name: failed" >&2; cat "$work/with.err" >&2; exit 1; }
    echo "$name: same"
}

same bash bash -c 'echo $((6 * 7)); x=$(echo sub | tr a-z A-Z); echo "$x" | cat; (exit 3) || echo $?'
same python3 python3 -c 'import ctypes, os, threading, subprocess
print(threading.active_count(), len(os.listdir("/proc/self/task")), sorted(os.listdir("/proc/self/fd")))
print(ctypes.CDLL(None).getpid() == os.getpid(), subprocess.check_output(["echo", "child"]))
pid = os.fork()
if pid == 0:
    os._exit(5)
print(os.waitpid(pid, 0)[1])'
same signals sh -c 'grep -E "^(Sig|Shd)(Blk|Ign|Cgt)" /proc/self/status'
same git git status --porcelain
same gcc gcc -Wall -o main main.c
expect=1
same failing sh -c 'echo text; echo error >&2; exit 1'
