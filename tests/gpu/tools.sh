#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slipring doctor, verify and bench on real GPUs.
#
# usage: tests/gpu/tools.sh [options]
#   --softgpu    on the software GPU: tests this script, not the hardware
#   --build DIR  use this build as it is instead of building in build-gpu; it needs slipring-verify and slipring-bench, which are
#                built where Jansson is
#   --limit S    start no further step after so many seconds [440]
#   --out DIR    where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

limit=440
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --build | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
open_logs
size=2048
[ $softgpu = 0 ] || size=128
find_device
find_build
ag_gemm=$build/bench/ag_gemm
export SLIPRING_LAUNCHER=$slipring SLIPRING_LIB=$build/libslipring.so

# The report of doctor is the log; warnings (PCIe, /dev/shm) are the machine's. What has to work was tried and works.
doctor() {
    local rc=0 check
    bounded "${plain[@]}" "$build/slipring-doctor" -- "$ag_gemm" || rc=$?
    [ $rc -le 1 ] || return 1
    bounded "${plain[@]}" "$build/slipring-doctor" --json >"$logs/doctor.json" || [ $? = 1 ] || return 1
    for check in driver driver_functions devices control_memory stream_memops ipc ipc_vmm sockets nccl nccl_functions library; do
        grep -q "\"check\": \"$check\".*\"result\": \"ok\"" "$logs/doctor.json" || { echo "$check is not ok" && return 1; }
    done
}

verify() {
    [ -x "$build/slipring-verify" ] || { echo "not built: Jansson was not found" && return 77; }
    bounded "${plain[@]}" "$build/slipring-verify" --set min_bytes=0 -- "$ag_gemm" --one-gpu --ranks 2 --m 512 --k 512 --n 512 \
        --iters 5 --check full
}

bench() {
    local kind=--gpu
    [ $softgpu = 0 ] || kind=--softgpu
    [ -x "$build/slipring-bench" ] || { echo "not built: Jansson was not found" && return 77; }
    bounded "${plain[@]}" "$build/slipring-bench" $kind --rounds 1 --ag-gemm "$ag_gemm" --json "$logs/bench.json" -- --one-gpu --ranks 2 \
        --m $size --k $size --n $size --iters 5
}

alone doctor 120 doctor
alone verify 120 verify
alone bench 120 bench
finish
