#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh LIBRARY PATTERN: every function that the library exports matches PATTERN, there is at least one, and
# libcuda is not among the libraries that it needs.
set -eu
names=$(nm -D --defined-only "$1" | awk '$2 ~ /[TW]/ { sub(/@.*/, "", $3); print $3 }')
[ -n "$names" ] || { echo "$1 exports nothing"; exit 1; }
# Sanitized builds add their own symbols.
if other=$(echo "$names" | grep -Ev "$2" | grep -Ev '^(__asan|__ubsan|__tsan|_init|_fini)'); then
    echo "$1 also exports:" $other
    exit 1
fi
if readelf -d "$1" | grep -q 'NEEDED.*libcuda'; then
    echo "$1 needs libcuda"
    exit 1
fi
