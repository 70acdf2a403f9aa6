#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program with faults of the driver, each of the first calls of one function in turn, alone and with all that follow, on all ranks
# and on the last one only. The results have to be exact every time.
#
#   zero_faults.sh FUNCTION FIRST LAST LAST-RANK -- COMMAND...
set -u
name=$1 first=$2 last=$3 rank=$4 status=0
shift 5
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
for n in $(seq "$first" "$last"); do
  for more in "" +; do
    for where in SOFTGPU_FAIL "ZERO_SET_$rank=SOFTGPU_FAIL"; do
      env "$where=$name:$n$more" "$@" >"$out" 2>&1 || { echo "FAILED: $where=$name:$n$more"; cat "$out"; status=1; }
    done
  done
done
exit $status
