#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library, the software GPU, ag_gemm and the callers' programs, built with CUDA 12's headers, and run:
#
#   the callers of CUDA 12 (libcudart.so.12, libcublas.so.12)   with the library of either build
#   those of the build's CUDA                                   with the library that was built with CUDA 12's headers
#
# The headers are those of scripts/setup.sh --tests, in .deps/cuda12.
#
#   cuda12.sh BUILD SOURCE CC            from CMake: CMAKE
set -euo pipefail
build=$1 source=$2 cc=$3
: "${CMAKE:=cmake}"
unset LD_PRELOAD LD_LIBRARY_PATH
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
cached() { sed -n "s/^$1:[^=]*=//p" "$build/CMakeCache.txt"; }

include=$source/.deps/cuda12/include
for header in cuda.h cuda_runtime_api.h cublas_v2.h cublasLt.h crt/host_defines.h nv/target cudaProfiler.h; do
    [ -e "$include/$header" ] || fail "no $include/$header: run scripts/setup.sh --tests"
done
sh "$source/tests/hooks/interpose_header.sh" "$source" "$cc" "$include"

# nccl.h alone: CUDA's headers may lie beside it. Not optimised, as that takes most of the time.
dir=$build/cuda12
mkdir -p "$dir/nccl" && cp "$(cached SLIPRING_NCCL_INCLUDE)/nccl.h" "$dir/nccl"
"$CMAKE" --fresh -S "$source" -B "$dir" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 \
    -DCMAKE_C_COMPILER_LAUNCHER="$(cached CMAKE_C_COMPILER_LAUNCHER)" -DSLIPRING_TESTS=ON -DSLIPRING_CUDA_INCLUDE="$include" \
    -DSLIPRING_NCCL_INCLUDE="$dir/nccl" -DSLIPRING_NVTX_INCLUDE=OFF >"$dir/configure.log" 2>&1 || { cat "$dir/configure.log" && exit 1; }
callers="callers_static callers_runtimes callers_module callers_local"
# shellcheck disable=SC2086
ninja -C "$dir" -j "$(nproc)" slipring slipring-doctor slipring-bench ag_gemm softgpu_cuda softgpu_cudart softgpu_cublas \
    softgpu_cublasLt softgpu_nccl $callers >"$dir/build.log" 2>&1 || { tail -n 40 "$dir/build.log" && exit 1; }

# As NVIDIA's libraries of CUDA 12 are: SONAMEs, and a version node of the SONAME's name.
for name in cudart cublas cublasLt; do
    library=$dir/softgpu/lib$name.so.12
    readelf -d "$library" | grep "SONAME.*\[lib$name.so.12\]" >/dev/null || fail "$library has another SONAME"
    readelf -V "$library" | grep "Name: lib$name.so.12" >/dev/null || fail "$library has no version node"
done
readelf -V "$(find "$dir" -name 'libcallers_module.so')" | grep 'File: libcudart.so.12' >/dev/null || fail "the callers are not CUDA 12's"
readelf -d "$dir/bench/ag_gemm" | grep 'libcublas.so.12' >/dev/null || fail "ag_gemm is not linked to CUDA 12"

# The same object for both: what is exported, and what is imported.
names() { readelf -W --dyn-syms "$1" | awk 'NR > 3 && $8 ~ /^(cu|nccl|slipring_)/ { print ($7 == "UND"), $8 }' | sort; }
diff <(names "$build/libslipring.so") <(names "$dir/libslipring.so") || fail "the exports depend on the headers"

# run BUILD-OF-THE-PROGRAMS LIBRARY: each caller
run() {
    local programs=$1/tests/hooks softgpu=$1/softgpu
    export SOFTGPU_DIR=$softgpu SLIPRING_LIB=$2 TEST_PRELOAD_FIRST=""
    local common=(--set SLIPRING_MIN_BYTES=0 --has '"event":"substitute"' --hasnt '"event":"pass","op":"allgather"')
    local fused=(--has '"event":"fused"' --hasnt '"event":"joined"') run=$source/tests/programs/run.sh
    echo "programs of $1, library $2"
    "$run" "${common[@]}" "${fused[@]}" -- "$programs/callers_static" 3 bn || fail "callers_static"
    "$run" "${common[@]}" "${fused[@]}" -- "$programs/callers_local" "$(find "$programs" -name 'libcallers_module.so')" 2 bn || fail "callers_local"
    "$run" "${common[@]}" -- "$programs/callers_runtimes" 3 || fail "callers_runtimes"
    GATHER_CUDA=$3 "$run" "${common[@]}" "${fused[@]}" -- python3 "$source/tests/hooks/callers_gather.py" 2 || fail "gather.py"
}
major=$(sed -nE 's/^#define CUDA_VERSION +([0-9]+)[0-9]{3}$/\1/p' "$(cached SLIPRING_CUDA_INCLUDE)/cuda.h")
run "$dir" "$dir/libslipring.so" 12
run "$dir" "$build/libslipring.so" 12
run "$build" "$dir/libslipring.so" "$major"
echo "ok"
