#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program by ../programs/run.sh and then looks at the counters that each rank logged at its end.
#
#   zero_counts.sh [--want EXPRESSION]... [--always EXPRESSION]... run.sh-arguments... -- PROGRAM...
#
# EXPRESSION is arithmetic over NAME_RANK (staged_0, zero_copy_1, ...) and NAME (the sum over all ranks). --always: it does
# not depend on the machine's load (CMakeLists.txt leaves out --want). MUTANT=1: the program has to
# fail instead, with wrong results or misuse of the software GPU; it is given MUTANT_TRIES (20).
set -u
want=() has=() hasnt=() args=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in # run.sh does not see the log
    --want | --always) want+=("$2"); shift ;;
    --has) has+=("$2"); shift ;;
    --hasnt) hasnt+=("$2"); shift ;;
    *) args+=("$1") ;;
  esac
  shift
done
shift
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
run=$(dirname "$0")/../programs/run.sh
if [ "${MUTANT:-0}" = 1 ]; then
  for _ in $(seq "${MUTANT_TRIES:-20}"); do
    "$run" "${args[@]+"${args[@]}"}" -- "$@" >"$dir/out" 2>&1 && continue
    grep -qE '^wrong: |: first wrong: |misuse' "$dir/out" && exit 0
    echo "ended in another way:"; cat "$dir/out"
  done
  echo "FAILED: the mutant passes"
  exit 1
fi
"$run" "${args[@]+"${args[@]}"}" -- env SLIPRING_LOG_FILE="$dir/log.%r" "$@" || { cat "$dir"/log.* >&2; exit 1; }
shopt -s nullglob
counters="calls substituted staged zero_copy pushed mapped exports imports import_hits import_closes"
for name in $counters; do
  declare "$name=0"
done
for log in "$dir"/log.*; do
  rank=${log##*.}
  summary=$(grep '"event":"summary"' "$log")
  for name in $counters; do
    n=0
    [[ ! $summary =~ .*\"$name\":([0-9]+) ]] || n=${BASH_REMATCH[1]}
    declare "${name}_$rank=$n" "$name=$((name + n))"
  done
done
status=0
for e in "${want[@]+"${want[@]}"}"; do
  (( $e )) || { echo "FAILED: $e"; status=1; }
done
for e in "${has[@]+"${has[@]}"}"; do
  grep -qE "$e" "$dir"/log.* /dev/null || { echo "FAILED: no log line matches: $e"; status=1; }
done
hasnt+=('"event":"(stalled|communicator_failed)"')
grep -hE "${hasnt[@]/#/-e}" "$dir"/log.* /dev/null && { echo "FAILED: a log line matches one of: ${hasnt[*]}"; status=1; }
[ $status = 1 ] && cat "$dir"/log.*
[ -n "${ZERO_SHOW:-}" ] && grep -h '"event":"summary"' "$dir"/log.* /dev/null
exit $status
