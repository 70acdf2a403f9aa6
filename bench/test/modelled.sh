#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/modelled_node in a small form: a row for each side and number of ranks, none faster than the
# model allows.
# usage: modelled.sh BUILD
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "modelled.sh: $*"
    cat "$work/out" "$work/err"
    exit 1
}

timeout 100 "$here/../modelled_node" --build "$1" --ranks 2 4 --rounds 1 --iters 3 --scale 20 --json "$work/json" --markdown "$work/md" \
    -- --m 2048 --n 8192 --k 4096 --form bn --dtype bf16 >"$work/out" 2>"$work/err" || fail "status $?"
cmp -s "$work/md" "$work/out" || fail "--markdown is not what is printed"
[ "$(grep -c '^| [24] ranks | ' "$work/out")" = 6 ] || fail "not a row for each side and number of ranks"
! grep -v '^modelled_node: ' "$work/err" || fail "more than what it does next is on stderr"
# A loaded machine makes modelled times longer, never shorter.
python3 - "$work/json" <<'P' || fail "the JSON is not as expected"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
assert [(row["ranks"], row["side"].split(",")[0]) for row in rows] == [(n, side) for n in (2, 4) for side in ("NCCL", "ring", "ring")]
gemm, whole = 2 * 2048 * 8192 * 4096 / 700e9, 8192 * 4096 * 2
for row in rows:
    link = whole * (row["ranks"] - 1) / row["ranks"] / 348e6
    assert row["gemm_ms"] >= gemm * 0.98 and row["gather_ms"] >= link * 0.98 and row["whole_ms"] >= max(gemm, link) * 0.98, row
    assert (row["parts"] or 0) >= (2 if "fused" in row["side"] else 0), row
    assert abs(row["gather_bound_ms"] - link) < 1e-6 and row["of_bound"] == row["whole_ms"] / max(link, row["gemm_ms"]), row
    assert row["nccl"] == rows[3 * (row["ranks"] == 4)]["whole_ms"] / row["whole_ms"], row
P
# Two hosts: NCCL's ring brings each half of the shards that are elsewhere over each of a host's two adapters.
timeout 100 "$here/../modelled_node" --build "$1" --hosts 2 --ranks 2 --net 10 --rounds 1 --iters 3 --scale 20 --json "$work/json" \
    -- --m 2048 --n 8192 --k 4096 --form bn --dtype bf16 >"$work/out" 2>"$work/err" || fail "status $?"
python3 - "$work/json" <<'P' || fail "two hosts: the JSON is not as expected"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
assert [(row["place"], row["hosts"], row["ranks"]) for row in rows] == [("2 x 2 ranks, 10 GB/s", 2, 4)] * 3, rows
shard = 8192 * 4096 * 2 / 4
for row, net in zip(rows, (1.5, 1, 1)):
    assert abs(row["gather_bound_ms"] - shard / 10e6) < 1e-6 and row["gather_ms"] >= net * shard / 10e6 * 0.98, row
    assert (row["parts"] or 0) >= (2 if "fused" in row["side"] else 0), row
P
timeout 20 "$here/../modelled_node" --build "$1" --ranks 1 >"$work/out" 2>"$work/err"
[ $? = 2 ] && grep -q 'a number from 2 on, not 1' "$work/err" || fail "one rank"
