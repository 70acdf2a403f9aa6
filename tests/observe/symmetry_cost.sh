#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions that recording adds to one ncclAllGather: a program with both ranks in one process, counted by callgrind. Usage:
# symmetry_cost.sh LIBRARY SOFTGPU_DIR LIMIT PROGRAM ARGUMENT... and it gets a number of iterations. Fails when a call takes more. What the first ones take
# (new places) is left out: of a run and of a longer one the difference counts.
set -eu
library=$1 softgpu=$2 limit=$3
shift 3
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without debug information, which older versions of valgrind can not read when it is clang's.
strip -g -o "$work/libslipring.so" "$library"
strip -g -o "$work/program" "$1"
shift

# run LEVEL PROGRAM...: the program under callgrind with that SLIPRING_LOG; its functions are in $work/functions
run() {
    level=$1
    shift
    rm -f "$work/slipring.log"
    SLIPRING_LOG=$level SLIPRING_LOG_FILE=$work/slipring.log SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC_MIN=4K SLIPRING_SLOT_BYTES=64K LD_LIBRARY_PATH=$softgpu \
        LD_PRELOAD=$work/libslipring.so valgrind --tool=callgrind --callgrind-out-file="$work/out" "$work/program" "$@" >/dev/null 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
    callgrind_annotate --inclusive=yes --threshold=100 "$work/out" | tr -d , >"$work/functions"
}

# What recording took in all, and how often; without making its memory, which the heap has zeroed or has not.
count() {
    calls=$(sed -n 's/.* summary .* substituted=\([0-9]*\) .*/\1/p' "$work/slipring.log")
    all=$(awk 'index($0, ":place_call ") { sum += $1 } index($0, ":make_places ") { sum -= $1 } END { printf "%.0f", sum }' "$work/functions")
}

run info "$@" 10
count
few=$calls first=$all
run info "$@" 40
count
cost=$(((all - first) / (calls - few)))
echo "$calls calls: recording takes $cost instructions a call; $first for the first $few"
[ "$cost" -ge 20 ] && [ "$cost" -le "$limit" ] || { echo "recording: expected 20 to $limit instructions" >&2; exit 1; }

# Where the log does not show it, nothing is recorded.
run warn "$@" 10
grep -q slr_gather_ring "$work/functions" || { echo "no gather went to the ring at SLIPRING_LOG=warn" >&2; exit 1; }
! grep place_call "$work/functions" || { echo "calls are recorded although no log shows them" >&2; exit 1; }
