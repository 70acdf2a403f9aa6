#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Instructions of one slr_block_find, by the number of blocks: a program that looks up N and 2N random addresses, counted by callgrind, less the
# same without the look-ups. Usage: lookup_cost.sh PROGRAM BLOCKS=LIMIT...
set -eu
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip -g -o "$work/program" "$1" # older versions of valgrind can not read all debug information
shift

# per_call BLOCKS WHAT
per_call() {
    for n in 5000 10000; do
        valgrind --tool=callgrind --callgrind-out-file="$work/out.$n" "$work/program" "$1" $n "$2" >/dev/null 2>"$work/log" ||
            { cat "$work/log" >&2; exit 1; }
    done
    a=$(sed -n 's/^summary: //p' "$work/out.5000") b=$(sed -n 's/^summary: //p' "$work/out.10000")
    awk -v a="$a" -v b="$b" 'BEGIN { printf "%.1f", (b - a) / 5000 }'
}

status=0
for item in "$@"; do
    blocks=${item%%=*} limit=${item#*=}
    with=$(per_call "$blocks" find) without=$(per_call "$blocks" nothing)
    cost=$(awk -v a="$without" -v b="$with" 'BEGIN { printf "%.1f", b - a }')
    echo "$blocks blocks: $cost instructions a look-up"
    if awk -v c="$cost" -v l="$limit" 'BEGIN { exit !(c > l || c < 10) }'; then
        echo "$blocks blocks: $cost instructions, expected 10 to $limit" >&2
        status=1
    fi
done
exit $status
