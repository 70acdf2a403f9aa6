#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/peers: its small form on the software GPU, its table, JSON and picture; sides that fail; wrong
# use.
# usage: peers.sh BUILD MUTANT
set -u
build=$1
. "$(dirname "$0")/common.sh"
peers=$here/../peers
program=("$peers" --build "$build")

# fake WANTED PATTERN OPTIONS...: with ranks that speak as PyTorch's do.
fake() {
    local want=$1 pattern=$2
    shift 2
    status "$want" "$pattern" --python "$here/fake_rank.py" --program torch --device cpu --pause 0 --cool 0 "$@"
}

# says PYTHON-EXPRESSION...: each is true of the JSON, `r`; `rows` are its rows.
says() {
    python3 - "$work/json" "$@" <<'P' || fail "the JSON is not as expected"
import json, statistics, sys
r = json.load(open(sys.argv[1]))
rows = r["rows"]
for expression in sys.argv[2:]:
    assert eval(expression), expression
P
}

# well_formed: every table has rows of as many cells as its head; the picture is XML and has a bar for
# each time.
well_formed() {
    awk -F'|' '/^\|/ { if (cells && NF != cells) bad = 1; cells = NF; lines++ } !/^\|/ { cells = 0 } END { exit bad || lines < 3 }' "$work/out" ||
        fail "a row with too few cells or too many"
    cmp -s <(sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' "$work/md") <(sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' "$work/out") || fail "--markdown is not what is printed"
    python3 - "$work/json" "$work/svg" <<'P' || fail "the picture is not as expected"
import json, sys
from xml.etree import ElementTree
rows = json.load(open(sys.argv[1]))["rows"]
tags = [e.tag.split("}")[1] for e in ElementTree.parse(sys.argv[2]).iter()]
sides = len({side for row in rows for side in row["ms"]})
assert tags[0] == "svg" and tags.count("rect") == 1 + sides + sum(len(row["ms"]) for row in rows), (tags.count("rect"), sides)
P
}
files=(--json "$work/json" --svg "$work/svg" --markdown "$work/md")

# ---- ag_gemm and gather_cost on the software GPU ----
status 0 '^| 192, 64, 48 | event |' --set min_bytes=0 --nccl "$build/softgpu/libnccl.so.2" --gathers "${files[@]}"
well_formed
grep -q '^- left out: fused: needs PyTorch$' "$work/out" || fail "it does not say why a side is missing"
grep -q '^- results: all exact, 12 cells, [1-9]' "$work/out" && grep -q '^- gathers alone: exact, [1-9]' "$work/out" || fail "not checked"
grep -q 'wrong\|WRONG' "$work/out" && fail "wrong results"
says 'r["sides"] == ["nccl", "slipring"]' 'len(rows) == 6' 'r["stopped"] is None' 'r["wrong"] == 0 and r["checked"] > 0' \
    '[(row["m"], row["k"], row["n"], row["form"]) for row in rows][1] == (192, 64, 48, "event")' \
    'all(len(row["ms"][side]["samples"]) == 2 for row in rows for side in r["sides"])' \
    'all(row["ms"]["nccl"]["median"] == statistics.median(row["ms"]["nccl"]["samples"]) for row in rows)' \
    'all(abs(row["ratio"]["nccl"] - row["ms"]["nccl"]["median"] / row["ms"]["slipring"]["median"]) < 1e-9 for row in rows)' \
    'all(row["bound_ms"] == max(row["gemm_ms"]["median"], min(g["median"] for g in row["gather_ms"].values())) for row in rows)' \
    'all(len(row["gemm_warm_ms"]["samples"]) == 2 and row["gemm_warm_ms"] != row["gemm_ms"] for row in rows)' \
    'all(row["warm_bound_ms"] == max(row["gemm_warm_ms"]["median"], min(g["median"] for g in row["gather_ms"].values())) for row in rows)' \
    '{g["side"] for g in r["gathers"]} == {"nccl", "slipring", "slipring, all sizes", "zero-cta"}' \
    '{g["bytes"] for g in r["gathers"]} == {65536, 262144} and len(r["gathers"]) == 24'
status 3 'left out: slipring: .*there is no setting NO_SUCH' --set no_such=1 --shapes 64,64,64 --forms stream --sides slipring
status 0 'left out: broken: ag_gemm: status 1' --shapes 64,64,64 --forms stream --sides nccl --also broken false
status 0 "left out: none: .*No such file.*'/nonexistent/x'" --shapes 64,64,64 --forms stream --sides nccl --also none /nonexistent/x
status 1 'WRONG' --shapes 64,64,64 --forms stream --sides nccl "${files[@]}" \
    --also liar "sh -c '\"\$@\"; rc=\$?; for f; do :; done; sed -i s/\\\"wrong\\\":.0/\\\"wrong\\\":\\ 3/ \$f; exit \$rc' sh"
says 'r["wrong"] == 3 and rows[0]["wrong"] == {"liar": 3}'
# What is said of a gather's wrong bytes: the mutant copies a byte too few.
status 1 "gathers alone: WRONG: short: gather_cost: status 1: .*byte [0-9]* of rank" --shapes --sides nccl --gathers 65536 --rounds 1 \
    --also short "$here/../../LD_PRELOAD/slipring run --lib $2 --set min_bytes=0 --"

# ---- gather_cost's ranks keep to their cores ----
cost=("$build/bench/gather_cost" --ranks 2 --bytes 65536 --calls 5)
program=("${cost[@]}")
core=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
status 0 '^ *65536 ' --cores "$core/$core:$core/$core"
status 2 'for each of 2 ranks.*not 0-3/4 ' --cores 0-3/4
status 2 'not 0,/4:0/1 ' --cores 0,/4:0/1
status 1 'cores, rank [01]: Invalid argument' --cores 1023/1023:1023/1023
"${cost[@]}" --calls 10000 --cores "$core/$core:$core/$core" >"$work/out" 2>"$work/err" &
pid=$! tries=0 kept=
until [ -n "$kept" ] || [ $((tries += 1)) -gt 200 ]; do
    sleep 0.02
    for rank in $(pgrep -P $pid); do
        [ "$(sort -u <(sed -n 's/^Cpus_allowed_list:\t//p' /proc/"$rank"/task/*/status 2>/dev/null))" = "$core" ] && kept=1
    done
done
kill $pid 2>/dev/null
wait $pid
[ -n "$kept" ] || fail "gather_cost's ranks do not keep to their cores"
program=("$peers" --build "$build")

# ---- ranks that stay, as PyTorch's ----
fake 0 '^| 192, 64, 48 | fresh |' --sides nccl slipring fused async-tp --also "slow one" "env FAKE_MS=3" "${files[@]}"
well_formed
grep -q '^- left out: fused (own, 192,64,48): RuntimeError: not here$' "$work/out" || fail "a refused job"
[ "$(grep -c '^- left out: fused' "$work/out")" = 1 ] || fail "the same reason twice"
grep -q '^- left out: async-tp: rank 1 has ended, status 1: ValueError: no compiler$' "$work/out" || fail "a rank that has ended"
says 'r["sides"] == ["nccl", "slipring", "slow one"]' 'rows[0]["ms"]["nccl"]["median"] == 2 and rows[0]["gemm_ms"]["median"] == 1' \
    'rows[0]["ratio"] == {"nccl": 1, "slow one": 1.5}' 'rows[0]["gather_ms"]["nccl"]["median"] == 0.5' 'rows[0]["above_bound"] == 2' \
    'rows[0]["above_warm_bound"] == 2'
grep -q '^- rows more than 1.08 above the warm bound, of 6 whose .*: (192,64,48) stream: 2.000; ' "$work/out" || fail "rows above the warm bound"
FAKE_WRONG=1 fake 1 'nccl fresh (64,64,64): 5 wrong' --sides nccl --shapes 64,64,64
fake 0 'stopped at the limit of 8 s' --sides nccl --shapes 64,64,64 --forms stream --limit 8 --also mute "env FAKE_SILENT=1" "${files[@]}"
says '"limit" in r["stopped"] and rows[0]["ms"]["nccl"]["median"] == 2 and "mute" not in rows[0]["ms"]'
fake 3 'left out: fused (own, 64,64,64)' --sides fused --shapes 64,64,64

# ---- a signal ends it, with the table of what there is ----
"$peers" --python "$here/fake_rank.py" --program torch --device cpu --sides nccl --shapes 64,64,64 --forms stream --rounds 1 \
    --also mute "env FAKE_SILENT=1" --build "$build" --logs "$work/logs" >"$work/out" 2>"$work/err" &
pid=$! tries=0
until grep -qs silent "$work/logs/mute.rank0.log" || [ $((tries += 1)) -gt 400 ]; do sleep 0.05; done
kill -TERM $pid
wait $pid || fail "status $? after a signal"
grep -q '^- stopped by signal 15' "$work/out" && grep -q '^| 64, 64, 64 | stream |' "$work/out" || fail "no table after a signal"

# ---- wrong use ----
status 2 "invalid choice: 'nkkl'.*fused" --sides nkkl
status 2 'a shape is M,K,N, three whole numbers from 1 on, not 8192,8192' --shapes 8192,8192
status 2 'M is gathered from 2 ranks, and 63 is no multiple of that' --shapes 63,64,64
status 2 'argument --limit: a number from 1 on, not 0' --limit 0
status 2 "invalid choice: 'sideways'" --forms sideways
status 2 'there is a side of that name' --also nccl env
status 2 '/nonexistent/x can not be written: No such file' --json /nonexistent/x
status 0 'left out: zero-cta: there is no file /nonexistent/lib' --nccl /nonexistent/lib --shapes 64,64,64 --forms stream --sides nccl zero-cta
LD_LIBRARY_PATH='' status 3 'no usable GPU.*software GPU' --quick
exit 0
