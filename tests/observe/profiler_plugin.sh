#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One case of profile_plugin with a log of its own. Usage: profiler_plugin.sh PROGRAM CASE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SLIPRING_LOG=error SLIPRING_LOG_FORMAT=json SLIPRING_LOG_FILE="$work/log" SLIPRING_PROFILE=on
[ "$2" != off ] || SLIPRING_PROFILE=off
"$1" "$SLIPRING_LIB" "$2" || { [ ! -f "$work/log" ] || head -n 40 "$work/log" >&2; exit 1; }
[ "$2" != exit ] || [ "$(grep -c '"event":"nccl_sum".*"calls":1,"timed":1,"min_ns":500,' "$work/log")" = 1 ]
