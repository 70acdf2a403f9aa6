#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions of libslipring.so in one gather of a group, on the application's thread, without SLIPRING_TRACE, with it for other calls, and with
# it: a program with both ranks in one process and all shards staged, counted by callgrind for a few and for more calls.
# Usage: trace_cost.sh LIBRARY SOFTGPU_DIR PROGRAM LIMIT: fails when a gather that is not measured costs more than LIMIT instructions more with
# SLIPRING_TRACE than without.
set -eu
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
softgpu=$2 limit=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without debug information, which older versions of valgrind can not read when it is clang's.
strip -g -o "$work/libslipring.so" "$1"
strip -g -o "$work/program" "$3"

# count TRACE ROUNDS: "calls instructions"
count() {
    rm -f "$work"/out* "$work/slipring.log"
    SLIPRING_TRACE=$1 SLIPRING_LOG=info SLIPRING_LOG_FILE=$work/slipring.log SLIPRING_MIN_BYTES=0 SLIPRING_ZERO_COPY=off SLIPRING_SLOT_BYTES=64K \
        LD_LIBRARY_PATH=$softgpu LD_PRELOAD=$work/libslipring.so valgrind --tool=callgrind --separate-threads=yes \
        --toggle-collect=slr_group_end --callgrind-out-file="$work/out" "$work/program" 2 group "$2" >/dev/null 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
    calls=$(sed -n 's/.* summary .* substituted=\([0-9]*\) .*/\1/p' "$work/slipring.log")
    callgrind_annotate --threshold=100 "$work/out-01" | tr -d , | awk -v n="$calls" '/libslipring/ { s += $1 } END { print n, s }'
}

# per_call TRACE
per_call() {
    few=$(count "$1" 4) more=$(count "$1" 20)
    echo "$few $more" | awk '{ printf "%.0f", ($4 - $2) / ($3 - $1) }'
}

off=$(per_call 0) other=$(per_call 1000000) on=$(per_call 1)
spans=$(grep -c ' span ' "$work/slipring.log") gathers=$(grep -c ' gather ' "$work/slipring.log")
echo "a gather: $off instructions without SLIPRING_TRACE, $other when it measures others, $on when measured ($((spans / gathers)) spans)"
[ $((other - off)) -le "$limit" ] || { echo "not measured: expected at most $limit more" >&2; exit 1; }
