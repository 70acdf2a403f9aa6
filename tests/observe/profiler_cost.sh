#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions of the profiler for one collective of NCCL, and of a range for tools when there is no tool, counted by callgrind: a program
# that does it N and 2N times. Usage: profiler_cost.sh PLUGIN_PROGRAM MARK_PROGRAM OPERATION_LIMIT MARK_LIMIT. Fails above a limit.
set -eu
plugin=$1 mark=$2 operation_limit=$3 mark_limit=$4
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without debug information, which older versions of valgrind can not read when it is clang's.
for file in "$SLIPRING_LIB" "$plugin" "$mark"; do strip -g -o "$work/$(basename "$file")" "$file"; done
export SLIPRING_PROFILE=on SLIPRING_LOG_FILE="$work/log"

# each LIMIT NAME COMMAND...: with COST_OPERATIONS in the environment
each() {
    limit=$1 name=$2
    shift 2
    for n in 2000 4000; do
        COST_OPERATIONS=$n valgrind --tool=callgrind --callgrind-out-file="$work/out.$n" "$@" >/dev/null 2>"$work/err" ||
            { cat "$work/err" >&2; exit 1; }
    done
    a=$(sed -n 's/^summary: //p' "$work/out.2000") b=$(sed -n 's/^summary: //p' "$work/out.4000")
    awk -v a="$a" -v b="$b" -v name="$name" -v limit="$limit" 'BEGIN {
        each = (b - a) / 2000; printf "%s: %.1f instructions, at most %d\n", name, each, limit; exit each > limit || each < 1 }'
}
each "$operation_limit" "a profiled collective of two channels" "$work/$(basename "$plugin")" "$work/libslipring.so" cost
each "$mark_limit" "a range without a tool" "$work/$(basename "$mark")"
