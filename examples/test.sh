#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs an example without and with slipring on the software GPU: the same results, and the log says that slipring had a part.
#
#   test.sh PROGRAM RANKS SIZE         from CMake: what tests/programs/run.sh wants
set -euo pipefail
program=$1 ranks=$2 size=$3
run=$(dirname "$0")/../tests/programs/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$run" --plain --hasnt . -- "$program" "$ranks" "$size" >"$work/plain"
each=()
for ((rank = 0; rank < ranks; rank++)); do
    for event in substitute fused; do each+=(--has "\"event\":\"$event\",.*\"crank\":$rank,"); done
done
"$run" --set SLIPRING_MIN_BYTES=0 "${each[@]}" --has '"event":"summary".*"passed":0,' -- "$program" "$ranks" "$size" >"$work/under"
for side in plain under; do grep 'are right, checksum' "$work/$side" | LC_ALL=C sort >"$work/$side.results"; done
[ "$(wc -l <"$work/plain.results")" = "$ranks" ] || {
    echo "FAILED: not a line for each of $ranks ranks: $(cat "$work/plain")" >&2
    exit 1
}
diff "$work/plain.results" "$work/under.results" || {
    echo "FAILED: < without slipring, > with it" >&2
    exit 1
}
