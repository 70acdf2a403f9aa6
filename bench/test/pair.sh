#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slipring-bench: a table, JSON and markdown; prefixes with quotes; progress; failures are passed on, and wrong use is told.
# usage: pair.sh BUILD LAUNCHER
build=$1 launcher=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export TMPDIR="$folder/tmp"
mkdir "$TMPDIR"
bench=$build/slipring-bench
unset SLIPRING_LAUNCHER

fail() {
    echo "pair.sh: $*"
    cat "$folder/text" "$folder/progress" 2>/dev/null
    exit 1
}

# status WANTED PATTERN COMMAND...: the exit status, and a line on stderr that matches.
status() {
    want=$1 pattern=$2 got=0
    shift 2
    "$@" >"$folder/text" 2>"$folder/progress" || got=$?
    [ $got -eq "$want" ] || fail "status $got, not $want: $*"
    grep -qe "$pattern" "$folder/progress" || fail "no \"$pattern\" on stderr: $*"
    [ -z "$(ls "$TMPDIR")" ] || fail "temporary files were left: $*"
}

set -- --ranks 2 --m 16 --n 16 --k 16 --iters 2 --check full
status 0 'slipring bench: 2 of 4 (50 %).*round 1, with it' "$bench" --rounds 2 --with "env MARK='a b'" --json "$folder/json" \
    --markdown "$folder/md" -- "$@" --label "it's one"
grep -q 'softgpu\|software GPU' "$folder/progress" || fail "it does not say what it runs on"
grep -q '^ *whole ' "$folder/text" && grep -q '| whole' "$folder/md" || fail "no row for whole"
python3 - "$folder/json" <<'P' || fail "the JSON is not as expected"
import json, shlex, statistics, sys
r = json.load(open(sys.argv[1]))
assert list(r) == "device modelled ranks rounds prefix options label check rows runs".split(), list(r)
assert r["rounds"] == 2 and r["check"] == "exact" and r["ranks"] == 2 and r["label"] == "it's one", r
assert shlex.split(r["prefix"]) == ["env", "MARK=a b"] and r["modelled"] is False
options = shlex.split(r["options"])
assert options == "--ranks 2 --m 16 --n 16 --k 16 --iters 2 --check full --label".split() + ["it's one"], options
whole = r["rows"]["whole"]
assert abs(whole["ratio"] - whole["without"] / whole["with"]) < 1e-9
assert r["rows"]["TFLOP/s"]["ratio"] == r["rows"]["TFLOP/s"]["with"] / r["rows"]["TFLOP/s"]["without"]
for side in "without", "with":
    values = [run["worst"]["whole"]["gpu_ms"] for run in r["runs"][side]]
    assert len(values) == 2 and whole["spread"][side] == {"median": statistics.median(values), "min": min(values), "max": max(values)}
    assert whole[side] == statistics.median(values)
P

# Without --with it is slipring, through the launcher; the problem is chosen for what it runs on.
SLIPRING_LAUNCHER=$launcher SLIPRING_LOG=info SLIPRING_LOG_FILE=$folder/log.%r SLIPRING_MIN_BYTES=0 SLIPRING_LIB=$build/libslipring.so \
    status 0 'software GPU' "$bench" --rounds 1 -- --bytes 4096 --iters 1 --warmup 0
grep -q '^ag_gemm --bytes 4096 --iters 1 --warmup 0 --ranks 4$' "$folder/text" || fail "the problem is not as expected"
grep -q '^without: ag_gemm; with: slipring run -- ag_gemm$' "$folder/text" || fail "the prefix is not shown"
[ "$(ls "$folder"/log.* | wc -l)" -eq 4 ] || fail "slipring was not in one of the two runs"
grep -q ' substitute ' "$folder/log.0" || fail "nothing was substituted"

# What fails keeps its status and its words.
status 7 'status 7 from: sh -c .exit 7. ' "$bench" --rounds 1 --with "sh -c 'exit 7'" -- "$@"
status 3 'status 127 from: /nonexistent/x' "$bench" --rounds 1 --with /nonexistent/x -- "$@"
status 2 'ag_gemm: there is no option: --colour' "$bench" --rounds 1 --with env -- --colour
grep -q 'stopped' "$folder/progress" || fail "the progress does not end"
status 3 'can not be read' "$bench" --rounds 1 --with true --ag-gemm /bin/true
status 2 'whole number from 1' "$bench" --rounds none --with env
status 2 'there is no option: --colour' "$bench" --colour
status 2 'needs a value: --json' "$bench" --json
status 2 'quote is not closed' "$bench" --with "env 'x" -- "$@"
status 2 'exclude each other' "$bench" --gpu --softgpu
status 2 'or give --with' "$bench" --rounds 1
status 3 'no usable GPU (--gpu)' "$bench" --gpu --with env
status 3 '/nonexistent/json can not be written' "$bench" --rounds 1 --with "touch $folder/ran" --json /nonexistent/json -- "$@"
[ ! -e "$folder/ran" ] || fail "the output was not tried before the work"
status 2 'takes a number of devices, not x' "$bench" --softgpu=x
status 2 'takes a number of devices, not 0' "$bench" --softgpu=0
SLIPRING_LAUNCHER=$launcher SLIPRING_LIB=$build/libslipring.so status 0 'software GPU' env LD_LIBRARY_PATH= "$bench" --softgpu=1 --rounds 1 -- \
    --bytes 4096 --iters 1 --warmup 0
grep -q '^ag_gemm .* --ranks 4 --one-gpu' "$folder/text" || fail "not one device"

# A signal reaches the run, and nothing is left.
rm "$folder/progress"
: >"$folder/progress"
"$bench" --rounds 1 --with 'sh -c "exec sleep 60"' -- "$@" >"$folder/text" 2>"$folder/progress" &
pid=$!
tries=0
until grep -q '50 %' "$folder/progress" || [ $((tries += 1)) -gt 200 ]; do sleep 0.05; done
kill -TERM $pid
got=0
wait $pid || got=$?
[ $got -eq 143 ] || fail "status $got after a signal"
[ -z "$(ls "$TMPDIR")" ] || fail "temporary files were left after a signal"
exit 0
