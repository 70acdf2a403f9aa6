#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gathers below SLIPRING_MIN_BYTES: where the user has not set it, the ring is tried for the larger ones of them.
#
#   small.sh CASE CALL_SITES      environment: that of run.sh
set -eu
case=$1 sites=$2 here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "small.sh: $*" >&2; exit 1; }
event() { echo "\"event\":\"$1\"${2:+.*$2}"; }
count() { event count "\"reason\":\"$1\",\"n\":$2[,}]"; }
# Columns of 256 bytes: with 2 ranks 8192 gather 4 MiB, the least by default; 1024 an eighth of that.
run() { "$here/run.sh" --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=4 "$@" || fail "$*"; }
trial=(--has '"reason":"trial"') none=(--hasnt '"reason":"trial"' --hasnt "$(event tried)")
small='"shard":262144'

# 4 calls stay with NCCL, 16 map memory, then each way has its turn, and in a duel NCCL again. Below an eighth nothing is tried.
case_tried() {
    run "${trial[@]}" --has "$(event tried "$small")" --has "$(event substitute "$small")" --has "$(count trial '([4-9]|1[0-6])')" -- "$sites" 2 alone/8192:1 alone/1024:100
    run --has "$(event pass "$small.*below_min_bytes")" --has "$(count below_min_bytes 4)" --hasnt '"reason":"trial"' -- "$sites" 2 alone/8192:1 alone/1024:20
    run "${none[@]}" --has "$(count below_min_bytes 100)" -- "$sites" 2 alone/8192:1 alone/1023:100
    run "${trial[@]}" --has "$(event tried "$small")" -- "$sites" 3 alone/8192:1 gemm/1024:120
}

# A communicator that gathers nothing larger takes no device memory.
case_alone() {
    run "${none[@]}" --has "$(count below_min_bytes 100)" --hasnt "$(event connected)" -- "$sites" 2 alone/1024:100
}

# What the user has set counts, on whichever rank it is; and so without trials.
case_obeyed() {
    run "${none[@]}" --set SLIPRING_MIN_BYTES=4M --has "$(count below_min_bytes 100)" -- "$sites" 2 alone/8192:1 alone/1024:100
    run "${none[@]}" --set SLIPRING_TRIALS=0 --has "$(count below_min_bytes 100)" -- "$sites" 2 alone/8192:1 alone/1024:100
    run "${none[@]}" --set TEST_RANK_ENV=1:SLIPRING_MIN_BYTES=4M --has "$(count below_min_bytes 100)" -- "$sites" 2 alone/8192:1 alone/1024:100
}

# More sizes than are tried: what is not decided stays with NCCL. Large ones are tried as ever.
case_many() {
    run --has "$(count below_min_bytes 99)" "${none[@]}" -- \
        "$sites" 2 alone/8192:1 alone/1024:15 alone/1025:15 alone/1026:15 alone/1027:15 alone/1028:15 alone/1029:15 alone/1030:15 alone/1024:60
    run "${trial[@]}" --has "$(event tried '"shard":2097152')" -- "$sites" 2 alone/8192:1 alone/1024:1 alone/1025:1 alone/1026:1 alone/1027:1 alone/1028:1 alone/1029:1 \
        alone/1030:1 alone/8192:60
}

# NCCL is better: it has all gathers of that size, and smaller ones are not tried any more.
case_nccl() {
    export SOFTGPU_TIMING=1 SOFTGPU_COMPUTE=0 SOFTGPU_MEMOP_US=3000
    run "${trial[@]}" --has "$(event tried '"shard":262656,.*"by":"nccl"')" --hasnt "$(event substitute '"shard":262400')" --hasnt "$(event tried '"shard":262400')" \
        --has "$(count below_min_bytes '[0-9]*')" -- "$sites" 2 unchecked/8192:1 unchecked/1026:120 unchecked/1025:60
}

# A rule gives it to the ring: from the first call on, without a larger one.
case_known() {
    echo 'site bytes=524288 : way=ring' >"$work/t"
    run "${none[@]}" --set SLIPRING_TUNE_FILE="$work/t" --has "$(event site_known)" --has "$(count ring 20)" --has "$(count below_min_bytes 20)" -- "$sites" 2 alone/1024:20 alone/1025:20
    run "${none[@]}" --set SLIPRING_TUNE_FILE="$work/t" --set SLIPRING_MIN_BYTES=4M --has "$(count below_min_bytes 20)" -- "$sites" 2 alone/1024:20
}

"case_$case"
