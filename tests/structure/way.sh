#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows the way of one ncclAllGather through the library on the software GPU: each function that it enters, in order, and the files.
# For ARCHITECTURE.md, and for whoever wants to see it.
#
# usage: tests/structure/way.sh [N]    the N-th gather of a rank (12: what is made once has been made by then)
set -euo pipefail
cd "$(dirname "$0")/../.."
nth=${1:-12} work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S . -B build-way -G Ninja -DSLIPRING_TESTS=ON "-DCMAKE_C_FLAGS=-finstrument-functions -finstrument-functions-exclude-file-list=/softgpu/,/tests/,/bench/,/tools/" >"$work/cmake" || { cat "$work/cmake"; exit 1; }
ninja -C build-way --quiet slipring ag_gemm softgpu_cuda softgpu_cudart softgpu_nccl softgpu_cublas softgpu_cublasLt
cc -D_GNU_SOURCE -O1 -shared -fPIC -o "$work/way.so" tests/structure/way.c
export LD_LIBRARY_PATH=$PWD/build-way/softgpu SLIPRING_MIN_BYTES=0 SLIPRING_LOG=warn
export WAY_FILE=$work/way WAY_CALL=ncclAllGather WAY_NTH=$nth
LD_PRELOAD=$work/way.so:$PWD/build-way/libslipring.so build-way/bench/ag_gemm --ranks 2 --m 256 --n 256 --k 256 >"$work/out" ||
    { cat "$work/out"; exit 1; }
set -- "$work"/way.*[0-9]
python3 tests/structure/structure.py way build-way/libslipring.so "$1"
