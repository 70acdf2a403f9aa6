#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/steady on the software GPU: ag_gemm stages nothing in the long run, with zero copies off it does;
# programs that fail or gather nothing; wrong use.
# usage: steady.sh BUILD
set -u
build=$1
. "$(dirname "$0")/common.sh"
program=("$here/../steady" --build "$build" --json "$work/json") seconds=150

# says PYTHON-EXPRESSION...: each is true of the JSON, `r`; `programs` are its programs.
says() {
    python3 - "$work/json" "$@" <<'P' || fail "the JSON is not as expected"
import json, sys
r = json.load(open(sys.argv[1]))
programs = r["programs"]
for expression in sys.argv[2:]:
    assert eval(expression), expression
P
}

# In the place of nccl-tests: as one process with threads, or as the first of two processes.
mkdir "$work/tests"
cat >"$work/tests/all_gather_perf" <<P
#!/bin/sh
[ "\$RANK" = 0 ] || exit 0
case "\$WORLD_SIZE \$*" in 1*"-t 2") ;; 1* | *"-t 2") exit 1 ;; esac
exec "$build/bench/ag_gemm" --ranks 2 --m 64 --n 2048 --k 1024 --iters 30
P
chmod +x "$work/tests/all_gather_perf"

# ---- steady, with a trace of every gather; the counters agree with it ----
# The ranks map each other's memory in the background, for which a loaded machine takes its time: more
# calls than ten may stage.
status 0 '^- nothing is staged later$' --first 40 --logs "$work/logs" --markdown "$work/md" --nccl-tests "$work/tests"
awk -F'|' '/^\|/ { if (cells && NF != cells) bad = 1; cells = NF; lines++ } END { exit bad || lines != 9 }' "$work/out" ||
    fail "a row with too few cells or too many"
diff <(cat "$work/md" && echo) "$work/out" >&2 || fail "--markdown is not what is printed"
says 'len(programs) == 7 and all(one["failed"] is None and one["not_traced"] == 0 for one in programs)' \
    'all(one["early"] > 0 and one["late"] == one["after"] == 0 and one["late_calls"] > 40 for one in programs)' \
    'all(one["counted"] == one["early"] and one["ranks"] == 2 and one["apart"] >= 1 for one in programs)' \
    'all(one["longest"]["pull"] >= 1 for one in programs)'
status 0 'nothing is staged later' --first 40 --read "$work/logs/0.ag_gemm"
status 1 'NOT STEADY' --read "$work/logs/0.ag_gemm" --first 0
# Of a program that takes steps, the first steps count: half of the calls.
python3 - "$here/../peerlib" "$work/logs/0.ag_gemm" <<'P' || fail "steps"
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from staged import Staged
calls = Staged(sys.argv[2], 0).late_calls
half = Staged(sys.argv[2], 10, steps=20)
assert half.late_calls in (calls // 2, calls // 2 + 1) and half.late == 0 and half.early == half.counted, half.json()
P
small="$build/bench/ag_gemm --ranks 2 --bytes 4194304 --iters 12 --check off"
status 1 'NOT STEADY' --set zero_copy=off "off=$small"
says 'programs[0]["late"] == programs[0]["counted"] - programs[0]["early"] > 0'

# ---- nothing to be seen ----
status 3 'short: no shape was gathered more than 100 times' --first 100 "short=$small"
status 3 'broken: failed: status 1' "broken=false"
status 3 'none: failed: status 127' "none=/nonexistent/x"
status 3 'slow: failed: not ended after 1 s' --seconds 1 "slow=sleep 30"

# ---- time is up, for one program or for all; a signal: the table comes all the same ----
status 3 '^| slow | 0 | .* | 2 |$' --limit 2 "slow=sleep 30" "off=$small"
grep -q '^- off: failed: not started, after 2 s$' "$work/out" && grep -q '^- not known of all programs$' "$work/out" || fail "after the limit"
"${program[@]}" --logs "$work/stopped" "slow=sleep 30" "off=$small" >"$work/out" 2>"$work/err" &
pid=$! tries=0
until [ -e "$work/stopped/0.slow/said.0" ] || [ $((tries += 1)) -gt 400 ]; do sleep 0.05; done
sleep 0.2
kill -TERM $pid
wait $pid
[ $? = 3 ] || fail "status after a signal"
grep -q '^- slow: failed: stopped by signal 15' "$work/out" && grep -q '^- off: failed: not started, stopped by signal 15' "$work/out" ||
    fail "no table after a signal"

# ---- wrong use ----
status 2 'NAME=COMMAND, not ag_gemm' ag_gemm
status 2 'argument --read: /nonexistent is no folder' --read /nonexistent
status 2 '/nonexistent/x can not be written: No such file' --markdown /nonexistent/x
status 3 'libslipring.so is not there' --build /nonexistent
LD_LIBRARY_PATH='' status 3 'no usable GPU.*software GPU'
exit 0
