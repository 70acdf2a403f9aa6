#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/floor in a small form on two software GPUs: the schedules compute the product and the
# gather, and order all that they do; the table and the JSON say the same; what goes wrong is told.
# usage: floor.sh FLOOR
# shellcheck source=bench/test/common.sh
. "$(dirname "$0")/common.sh"
program=("$1")
small=(--shapes "256,64,48" --rounds 1)

# All elements: 34 products, 12 gathers without the own shard and 22 with it, on two GPUs.
compared=$((2 * 256 * (34 * 48 + 12 * 64 / 2 + 22 * 64)))
export SOFTGPU_REPORT=$work/misuse SOFTGPU_RACE=$work/race
status 0 "^256,64,48: $compared elements of 35 schedules' results are exact; 2 rounds of 24" \
    --shapes 256,64,48:2048,16,8 --rounds 2 --json "$work/json"
[ ! -s "$work/misuse" ] || fail "misuse: $(head -n 3 "$work/misuse")"
grep -q 'accesses [1-9].* races 0, .*excused 0, dropped 0' "$work/race.stats" || fail "the race oracle: $(cat "$work/race.stats")"
unset SOFTGPU_REPORT SOFTGPU_RACE
python3 - "$work/json" "$work/out" <<'P' || fail "the table is not what the JSON says"
import json, sys
shapes = json.load(open(sys.argv[1]))
rows = [line.strip("| \n").split(" | ") for line in open(sys.argv[2]) if line.startswith("| ")][2:]
assert list(shapes) == ["256,64,48", "2048,16,8"] == [row[0].replace(" ", "") for row in rows], rows
for row, result in zip(rows, shapes.values()):
    gemm, copy = (way["ms"] for way in result["ways"][:2])
    close = lambda text, ms: abs(float(text) - ms) < 1e-3
    assert result["rounds"] == 2 and result["bound_ms"] == max(gemm, copy) > 0, result
    assert close(row[1], gemm) and close(row[2], copy) and close(row[3], result["bound_ms"]), row
    for cell, own in zip(row[4::2], ("in place", "by memcpy", "pulled back")):
        ways = {way["way"]: way["ms"] for way in result["ways"] if way["own"] == own}
        ms, name = cell.rstrip(")").split(" (")
        assert len(ways) == 11 and ways[name] == min(ways.values()) and close(ms, ways[name]), (cell, ways)
P

status 0 '^2048,16,8: left out, the time is up' --shapes 256,64,48:2048,16,8 --rounds 99 --limit 1
[ "$(grep -c '^| [0-9]' "$work/out")" = 1 ] || fail "not the one row that there was time for"

SOFTGPU_P2P_BROKEN=1 status 1 'wrong result: GPU [01], copy alone.*: gathered: row [0-9]*, column' "${small[@]}"
SOFTGPU_REFUSE_GEMM=50 status 3 'cublasGemmEx.*: status 15' "${small[@]}"
SOFTGPU_DEVICES=1 status 77 'no two GPUs' "${small[@]}"
status 2 'can not write /nonexistent/x' "${small[@]}" --json /nonexistent/x
status 2 'unexpected argument: 256,64,48' 256,64,48
for wrong in 256,64 257,64,48 256,60,48 256,64,48: 256,64,48,8 ''; do
    status 2 '.' --shapes "$wrong"
done
