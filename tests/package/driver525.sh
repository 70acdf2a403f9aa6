#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the library needs of the driver is in the driver of CUDA 12.0 (525). driver525.txt holds the names that its cuda.h
# declares; `driver525.sh --list CUDA_H` makes the list from the cuda.h of the wheel nvidia-cuda-runtime-cu12 12.0.107.
#
#   driver525.sh SOURCE CC CUDA_INCLUDE NCCL_INCLUDE
set -euo pipefail
if [ "$1" = --list ]; then
    for define in __CUDA_API_VERSION_INTERNAL CUDA_API_PER_THREAD_DEFAULT_STREAM SLIPRING_NOTHING; do
        gcc -E -P -x c -D$define "$2"
    done | tr -s ' \t\n' '   ' | tr ';' '\n' | sed -nE 's/.*CUresult (__attribute__ ?\(\(.*\)\) ?)?(cu\w+) ?\((.*)\)[^)]*$/\2/p' | LC_ALL=C sort -u
    exit
fi
source=$1 cc=$2 cuda=$3 nccl=$4
list=$(dirname "$0")/driver525.txt
# As resolve.c makes them: the headers' macros, applied.
needs=$(printf '%s\n' '#include "base/real.h"' '#define D(need, fn) SLR_NEEDS need fn' '#define N(need, fn)' '#define B(need, fn)' \
    '#define T(need, fn)' '#include "base/real.def"' |
    "$cc" -E -P -x c -I"$source" -isystem "$cuda" -isystem "$nccl" - | sed -nE 's/^ ?SLR_NEEDS ([RO]) (\w+).*/\1 \2/p')
[ "$(wc -l <<<"$needs")" -gt 60 ] || { echo "FAILED: base/real.def was not understood" && exit 1; }
status=0 without=""
while read -r need fn; do
    grep -qx "$fn" "$list" && continue
    if [ "$need" = R ]; then
        echo "FAILED: $fn must exist, and driver 525 has none"
        status=1
    else
        without="$without $fn"
    fi
done <<<"$needs"
echo "$(grep -c '^R' <<<"$needs") functions must exist, $(grep -c '^O' <<<"$needs") may; driver 525 is without:$without"
exit $status
