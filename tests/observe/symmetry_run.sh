#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program by ../programs/run.sh and then looks at each rank's log, and at what the report says of all (symmetry_check.py).
#
#   symmetry_run.sh [--line "N EVENT: EXPRESSION"]... [--most "N EVENT"]... [--without RANK] run.sh-arguments... -- PROGRAM...
set -u
lines=() args=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --line | --most | --without) lines+=("$1" "$2"); shift ;;
    *) args+=("$1") ;;
  esac
  shift
done
shift
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
here=$(dirname "$0")
"$here/../programs/run.sh" "${args[@]+"${args[@]}"}" -- env SLIPRING_LOG_FILE="$dir/log.%r" "$@" || { cat "$dir"/log.* >&2; exit 1; }
python3 "$here/symmetry_check.py" --report "${REPORT_TOOL:-none}" "${lines[@]+"${lines[@]}"}" "$dir"/log.* || { grep -h '"place' "$dir"/log.* >&2; exit 1; }
