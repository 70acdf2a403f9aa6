#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/never_slower: random rows on the software GPU, its table and JSON; ranks that fail; wrong
# results; wrong use.
# usage: never_slower.sh BUILD
set -u
build=$1
. "$(dirname "$0")/common.sh"
root=$here/../..
program=("$here/../never_slower" --build "$build" --json "$work/json")

# fake WANTED PATTERN OPTIONS...: with ranks that speak as PyTorch's do.
fake() {
    local want=$1 pattern=$2
    shift 2
    status "$want" "$pattern" --python "$here/fake_rank.py" --program torch --device cpu "$@"
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

# ---- the software GPU: exact, what slipring did is read from its log, the table is well formed ----
status 0 '^- results: all exact, 6 rows, [1-9]' --rows 6 --set min_bytes=0 --markdown "$work/md"
awk -F'|' '/^\|/ { if (cells && NF != cells) bad = 1; cells = NF; lines++ } !/^\|/ { cells = 0 } END { exit bad || lines < 12 }' "$work/out" ||
    fail "a row with too few cells or too many"
diff <(cat "$work/md" && echo) "$work/out" >&2 || fail "--markdown is not what is printed"
says 'sorted(row["number"] for row in rows) == list(range(6))' 'r["stopped"] is None and r["wrong"] == 0' \
    'rows == sorted(rows, key=lambda row: row["ratio"])' \
    'all(row["slipring"].startswith("ring") and "fused" in row["slipring"] for row in rows if row["form"] != "none")' \
    'all(row["ratio"] == row["ms"]["nccl"]["median"] / row["ms"]["slipring"]["median"] for row in rows)' \
    'abs(r["distribution"]["all"]["50"] - statistics.median(row["ratio"] for row in rows)) < 1e-9' \
    'r["distribution"]["all"]["0"] == rows[0]["ratio"] and r["distribution"]["all"]["100"] == rows[-1]["ratio"]' \
    'all(row["m" if row["form"] != "weight" else "n"] % 2 == 0 for row in rows)' \
    '{row["form"] for row in rows} == {"activations", "weight", "none"}'
cp "$work/json" "$work/first"
status 0 'left to NCCL: below_min_bytes' --rows 6 --only 1 4
says '[row["number"] for row in sorted(rows, key=lambda row: row["number"])] == [1, 4]' \
    'all(any(row["title"] == other["title"] for other in json.load(open(sys.argv[1].replace("json", "first")))["rows"]) for row in rows)'
status 0 '^| 0: gradient .*joined: gemm_sum_short' --rows 1 --forms gradient --set min_bytes=0
status 3 'failed: ag_gemm: .*there is no setting NO_SUCH' --rows 1 --set no_such=1

# ---- ranks that stay, as PyTorch's ----
fake 0 '^- worst ratio 2.000 (row [0-9]*: .*), median 2.000$' --rows 8
says 'all(row["ratio"] == 2 and row["rounds"] == [2, 2] for row in rows)' 'any(row["barrier"] for row in rows)'
# Which part of an iteration is longer; two NCCL groups; where the ranks run.
FAKE_HOST_MS=1 fake 0 '^| bound by the host | 8 | 2.000 ' --rows 8
says 'all(row["bound"] == "host" and row["parts"]["nccl"] == {"host_ms": 1, "device_ms": 2} for row in rows)'
fake 0 '^| bound by the device | 2 | 1.000 ' --rows 2 --control --logs "$work/logs"
says 'all(row["ratio"] == 1 and list(row["ms"]) == ["nccl", "control"] for row in rows)' 'r["ratio"].startswith("nccl / control")'
grep -q '^| NCCL / control | rows ' "$work/out" && grep -q ' NCCL ms | control ms | ' "$work/out" || fail "the control has another name"
same=$(grep -h '^cores ' "$work/logs/nccl.rank0.log") || fail "a rank does not say on which cores it runs"
for rank in 0 1; do
    cmp -s "$work/logs/nccl.rank$rank.log" "$work/logs/control.rank$rank.log" || fail "rank $rank runs on other cores on the other side"
done
if [ "$(nproc)" -gt 1 ]; then
    [ "$(cat "$work/logs/nccl.rank1.log")" != "$same" ] || fail "both ranks run on the same cores"
    grep -q '^- cores: rank 0 on [0-9].*; rank 1 on [0-9]' "$work/out" || fail "it does not say where ranks run"
fi
fake 0 '^- cores: not pinned$' --rows 1 --no-pin
# A row that seems slower is measured again by other processes, which may be faster.
FAKE_SLOW_ONCE=$work/slow fake 0 '^| 1: .* | 1.000 | device | 0.25 + 2 | 0.25 + 2 | 0.667-2.000 | 0.667, 2.000 | nothing logged | - |$' --rows 3
says '[row["groups"] for row in rows if row["number"] == 1] == [[2 / 3, 2]]' 'all(len(row["groups"]) == 1 for row in rows if row["number"] != 1)'
rm "$work/slow"
FAKE_SLOW_ONCE=$work/slow fake 0 'worst ratio 0.667' --rows 3 --below 0
fake 0 '^| gradient of a weight | 2 | 2.000 ' --forms gradient none --rows 4
FAKE_WRONG=1 fake 1 '^- results: 0: activations .*slipring.: 5' --rows 1
says 'r["wrong"] == 10'
FAKE_REFUSED=2 fake 3 '^- left out: 2: .*too large$' --rows 4
says 'sorted(row["number"] for row in rows) == [0, 1, 3]'
FAKE_ENDED=2 fake 3 '^- failed: rank 1 has ended, status 1: ValueError: no more$' --rows 4
says 'sorted(row["number"] for row in rows) == [0, 1]'
FAKE_SILENT=1 fake 3 '^- stopped at the limit of 2 s' --rows 1 --limit 2

# ---- the counters are those of the header ----
python3 - "$root" <<'P' || fail "bench/peerlib/counters.py has other counters than plugin/slipring.h"
import re, sys
sys.path.insert(0, sys.argv[1] + "/bench/peerlib")
sys.dont_write_bytecode = True
import counters
text = open(sys.argv[1] + "/plugin/slipring.h", encoding="utf-8").read()
struct = re.search(r"struct slipring_counters \{(.*?)\};", text, re.S).group(1)
struct = re.sub(r"/\*.*?\*/", "", struct, flags=re.S)
names = [name.strip() for line in re.findall(r"uint64_t ([^;]*);", struct) for name in line.split(",")]
assert names == counters.NAMES, names
P

# ---- wrong use ----
status 2 'argument --rows: a number from 1 on, not 0' --rows 0
status 2 'rows are numbered from 0 to 3' --rows 4 --only 4
status 2 '64 is below --least, 128' --least 128 --most 64
status 2 '/nonexistent/x can not be written: No such file' --markdown /nonexistent/x
status 3 'libslipring.so is not there' --build /nonexistent
LD_LIBRARY_PATH='' status 3 'no usable GPU.*software GPU' --rows 1
exit 0
