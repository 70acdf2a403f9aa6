#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program with a mutant of the library by ../programs/run.sh, once for each case: the race oracle has to report it, at the first try.
# What else goes wrong does not count.
#
#   race_caught.sh [run.sh-options...] -- PROGRAM ARGUMENT...     the argument @ stands for the case
#
# CASES: the cases, separated by commas.
set -u
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
failed=0
for c in ${CASES//,/ }; do
  "$(dirname "$0")/../programs/run.sh" "${@/#@/$c}" >"$out" 2>&1
  if ! grep -q 'softgpu: misuse: .*: race: ' "$out"; then
    echo "FAILED: no race is reported in $c; what happened:"
    cat "$out"
    failed=1
  fi
done
exit $failed
