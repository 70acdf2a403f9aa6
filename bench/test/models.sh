#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/models with ranks that speak as PyTorch's do: what it makes of times, losses and counters; ranks
# that fail; wrong use.
# usage: models.sh BUILD
set -u
build=$1
. "$(dirname "$0")/common.sh"
program=("$here/../models" --build "$build" --json "$work/json" --python "$here/fake_rank.py" --device cpu)

# says PYTHON-EXPRESSION...: each is true of the JSON, `r`; `models` are its models.
says() {
    python3 - "$work/json" "$@" <<'P' || fail "the JSON is not as expected"
import json, sys
r = json.load(open(sys.argv[1]))
models = r["models"]
for expression in sys.argv[2:]:
    assert eval(expression), expression
P
}

# ---- all models; what is saved is told as a share of NCCL's gathers; the rank with most counts ----
status 0 '| fsdp2 | 2 (2-2) | 1 (1-1) | 2.000 | 2 | 3 | .* | 200% | equal | 60 of 80 | 40 | 20 | 3 | 0 |$' --markdown "$work/md"
awk -F'|' '/^\|/ { if (cells && NF != cells) bad = 1; cells = NF; lines++ } END { exit bad || lines != 6 }' "$work/out" ||
    fail "a row with too few cells or too many"
diff <(cat "$work/md" && echo) "$work/out" >&2 || fail "--markdown is not what is printed"
says '[one["model"] for one in models] == ["tp-forward", "tp-train", "tp-async-wgrad", "fsdp2"]' \
    'all(one["gone"] == 2 and one["losses_apart"] == 0 and len(one["steps"]) == 20 for one in models)' \
    'all(one["staged_first"] == 3 and one["staged_later"] == 0 for one in models)' 'r["stopped"] is None'
FAKE_STAGED=1 status 0 '| 3 | 1 |$' tp-train
FAKE_APART=1 status 0 ' within 2.5e-01 ' tp-train --hidden 32
says '[one["model"] for one in models] == ["tp-train"]' 'models[0]["sizes"]["hidden"] == 32'
status 0 '| tp-train | - | - | - | - | - | - | - | - | equal | 60 of 80 | 40 | 20 | 3 | 0 |$' tp-train --losses-only
status 0 '^| tp-train | - | - | - | - | - | - | - | - | - | 60 of 80 | 40 | 20 | 3 | 0 |$' tp-train --alone --logs "$work/logs"
[ "$(ls "$work/logs")" = "slipring.rank0.log
slipring.rank1.log" ] || fail "the other side has run as well"

# ---- ranks that fail ----
FAKE_REFUSED=tp-train status 3 '^- left out: tp-train: .*too large$' tp-train fsdp2
says '[one["model"] for one in models if one["ratio"]] == ["fsdp2"]' 'len(models) == 2'
FAKE_ENDED=fsdp2 status 3 '^- failed: rank 1 has ended, status 1: ValueError: no more$'
says 'sum(one["ratio"] == 2 for one in models) == 3'
FAKE_SILENT=1 status 3 '^- stopped at the limit of 2 s' tp-train fsdp2 --limit 2
grep -q '^- left out: tp-train: did not come to its end: [0-9]* s (starting [0-9]' "$work/out" || fail "how far it came"
grep -q '^- left out: fsdp2: not begun$' "$work/out" || fail "a model that was not begun"

# ---- slow models: fewer steps where a model's share of the time is short; what one would have needed ----
FAKE_STEP_S=0.1 status 0 '^- tp-forward: .*losses [0-9].*, 12 steps with losses, 2 rounds$' tp-forward fsdp2 --limit 24
says '[len(one["steps"]) for one in models] in ([12, 20], [12, 12])' 'all(one["ratio"] == 2 for one in models)' \
    'models[0]["seconds"]["losses"] >= 2.4'
FAKE_STEP_S=0.2 status 3 '^- left out: tp-train: needs about [0-9]* s more with steps of [0-9]* ms, and [0-9]* s were left; ' \
    tp-train --settle 40 --limit 18
FAKE_STEP_S=0.1 status 0 ', 8 steps with losses$' tp-train --losses-only --loss-steps 8 --limit 30

# ---- wrong use ----
status 2 "invalid choice: 'gpt'.*fsdp2" gpt
status 2 'argument --loss-steps: a number from 1 on, not 0' --loss-steps 0
status 2 '/nonexistent/x can not be written: No such file' --markdown /nonexistent/x
status 3 'libslipring.so is not there' --build /nonexistent
status 3 'needs GPUs and PyTorch' --device cuda
exit 0
