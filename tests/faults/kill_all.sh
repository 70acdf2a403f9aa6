#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills all ranks of a busy program at random moments and looks for what is left.   kill_all.sh ROUNDS LAUNCH GATHERS [SEED]
set -u
rounds=$1 launch=$2 gathers=$3 seed=${4:-$RANDOM}
echo "seed $seed"
for ((i = 0; i < rounds; i++)); do
  RANDOM=$((seed + i))
  ms=$((RANDOM % 300)) ranks=$((RANDOM % 3 + 2))
  echo "round $i: $ranks ranks, killed after $ms ms"
  ends=()
  for ((r = 0; r < ranks; r++)); do ends+=(--end $r kill); done
  "$(dirname "$0")"/fault.sh --set SLIPRING_MIN_BYTES=0 --set SLIPRING_SLOT_BYTES=64K -- \
    "$launch" --kill-at $ms "${ends[@]}" $ranks -- "$gathers" --comms 3 --rounds 100000 || exit
done
