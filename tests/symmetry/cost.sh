#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions that publishing adds to one ncclAllGather, and that the analysis takes for one call, in the background on each of two ranks: a
# program with both ranks in one process, counted by callgrind. Usage: cost.sh LIBRARY SOFTGPU_DIR LIMIT PROGRAM... Fails when publishing takes more.
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

run info "$@"
calls=$(sed -n 's/.* summary .* substituted=\([0-9]*\) .*/\1/p' "$work/slipring.log")

# per_call FUNCTION: with all that it calls
per_call() {
    awk -v f=":$1 " -v n="$calls" 'index($0, f) { sum += $1 } END { printf "%.0f", sum / n }' "$work/functions"
}

cost=$(per_call slr_symmetry_publish)
echo "$calls calls: publishing $cost instructions a call; analysis $(per_call slr_phases_take) on each rank"
[ "$cost" -ge 20 ] && [ "$cost" -le "$limit" ] || { echo "publishing: expected 20 to $limit instructions" >&2; exit 1; }

# Nobody reads what no rank's log shows.
run warn "$@"
grep -q slr_gather_ring "$work/functions" || { echo "no gather went to the ring at SLIPRING_LOG=warn" >&2; exit 1; }
! grep slr_symmetry_publish "$work/functions" || { echo "calls are published although no log shows them" >&2; exit 1; }
