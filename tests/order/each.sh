#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program once for each case of a list, and says which ones failed.
#
#   each.sh PROGRAM LIST RANKS -- COMMAND...     runs COMMAND -- PROGRAM CASE RANKS
# RANKS may be several words.
#
# LIST is CASE,CASE,... or an argument that begins with "list" and makes the program print its cases.
# MUTANT=1: each case must fail instead, with wrong results, misuse of the software GPU, or a log that says something else than the
# command expects; a case is given eight tries, because a mutant may be lucky.
set -u
program=$1 list=$2
read -ra ranks <<<"$3"
shift 4
case $list in
  list*) cases=$(LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$program" "$list") || exit 2 ;;
  *) cases=${list//,/ } ;;
esac
[ -n "$cases" ] || { echo "no cases" >&2; exit 2; }
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
failed=0
one() { "$@" >"$out" 2>&1; }
for c in $cases; do
  if [ "${MUTANT:-0}" = 0 ]; then
    one "$@" -- "$program" "$c" "${ranks[@]}" || { echo "FAILED: $c"; cat "$out"; failed=1; }
    continue
  fi
  caught=0
  for _ in {1..8}; do
    one "$@" -- "$program" "$c" "${ranks[@]}" && continue
    grep -qE '^wrong: |misuse|^FAILED: .*log line' "$out" && { caught=1; break; }
    echo "$c ended in another way:"
    cat "$out"
  done
  [ "$caught" = 1 ] || { echo "FAILED: the mutant passes $c"; failed=1; }
done
exit $failed
