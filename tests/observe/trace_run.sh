#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program with SLIPRING_TRACE=1 by ../programs/run.sh and then looks at what was measured (trace_check.py).
#
#   trace_run.sh trace_check.py-arguments... -- run.sh-arguments... -- PROGRAM...
#
# MUTANT=1: trace_check.py has to find something, although the program's results are right.
set -u
checks=() args=()
while [ "$1" != -- ]; do checks+=("$1"); shift; done
shift
while [ "$1" != -- ]; do args+=("$1"); shift; done
shift
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
here=$(dirname "$0")
export SLIPRING_TRACE=${SLIPRING_TRACE:-1}
"$here/../programs/run.sh" "${args[@]+"${args[@]}"}" -- env SLIPRING_LOG_FILE="$dir/log.%p" "$@" || { cat "$dir"/log.* >&2; exit 1; }
if [ "${MUTANT:-0}" = 1 ]; then
  python3 "$here/trace_check.py" "${checks[@]+"${checks[@]}"}" "$dir"/log.* 2>&1 | grep '^FAILED' && exit 0
  echo "FAILED: the mutant passes" >&2
  exit 1
fi
python3 "$here/trace_check.py" "${checks[@]+"${checks[@]}"}" "$dir"/log.* || { grep -h trace_ "$dir"/log.* >&2; exit 1; }
