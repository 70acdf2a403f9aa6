#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions that the hooks add to a driver call when nothing is pending: a program that calls N and 2N times, with and without the preload,
# counted by callgrind. `alloc` is a cuMemAlloc below SLIPRING_ALLOC_MIN, `graph` a cuGraphLaunch while no graph holds a gather.
# Usage: interpose_cost.sh LIBRARY PROGRAM DRIVER_DIRECTORY WHAT[=LIMIT]... Fails above a limit.
set -eu
library=$1 program=$2 driver=$3
shift 3
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without debug information, which older versions of valgrind can not read when it is clang's.
strip -g -o "$work/libslipring.so" "$library"
strip -g -o "$work/program" "$program"
library=$work/libslipring.so program=$work/program

# per_call PRELOAD WHAT: instructions of one call
per_call() {
    for n in 10000 20000; do
        LD_LIBRARY_PATH=$driver LD_PRELOAD=$1 valgrind --tool=callgrind --callgrind-out-file="$work/out.$n" \
            "$program" "$2" $n >/dev/null 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    done
    a=$(sed -n 's/^summary: //p' "$work/out.10000") b=$(sed -n 's/^summary: //p' "$work/out.20000")
    awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", (b - a) / 10000 }'
}

status=0
for item in "$@"; do
    what=${item%%=*} limit=${item#"$what"}
    limit=${limit#=}
    without=$(per_call "" $what) with=$(per_call "$library" $what)
    added=$(awk -v a="$without" -v b="$with" 'BEGIN { printf "%.2f", b - a }')
    echo "$what: $without instructions a call without, $with with libslipring: $added added"
    if [ -n "$limit" ] && awk -v a="$added" -v l="$limit" 'BEGIN { exit !(a > l || a < 1) }'; then
        echo "$what: $added added, expected 1 to $limit" >&2
        status=1
    fi
done
exit $status
