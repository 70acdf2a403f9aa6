#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program by ../e2e/run.sh and then looks at what each rank's log says of its call sites (check.py).
#
#   run.sh [--line "N EVENT: EXPRESSION"]... [--alone] [--without RANK] run.sh-arguments... -- PROGRAM...
set -u
lines=() args=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --line) lines+=("$1" "$2"); shift ;;
    --alone) lines+=("$1") ;;
    --without) lines+=("$1" "$2"); shift ;;
    *) args+=("$1") ;;
  esac
  shift
done
shift
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
here=$(dirname "$0")
"$here/../e2e/run.sh" "${args[@]+"${args[@]}"}" -- env SLIPRING_LOG_FILE="$dir/log.%r" "$@" || { cat "$dir"/log.* >&2; exit 1; }
python3 "$here/check.py" "${lines[@]+"${lines[@]}"}" "$dir"/log.* || { grep -h symmetry "$dir"/log.* >&2; exit 1; }
