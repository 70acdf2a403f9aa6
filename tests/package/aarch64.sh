#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library, the software GPU and the callers' programs for aarch64, cross-built; under qemu-user the tests of what is written
# in assembly: dlsym and the gate's stubs. By hand. Ranks do not run there: the software GPU's processes wait for each other
# forever under qemu-user 7.2, without slipring too. Needs (Debian): gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user,
# and what setup.sh --tests installs.
#
#   aarch64.sh [FOLDER]        default: build-aarch64
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"
dir=$(readlink -m "${1:-$SLR_ROOT/build-aarch64}") sysroot=/usr/aarch64-linux-gnu cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64; do
    have $tool || die "$tool is missing (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"
done

# No OpenBLAS for aarch64 here: two plain functions in its place. Criterion and Jansson are named, and nothing is built with them.
mkdir -p "$dir/blas"
$cc -O2 -shared -fPIC -Wl,-soname,libplainblas.so -o "$dir/blas/libplainblas.so" "$SLR_ROOT/tests/package/blas/cblas.c"
configure "$dir" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=$cc -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG=-O1 -DSLIPRING_TESTS=ON -DOPENBLAS_INCLUDE="$SLR_ROOT/tests/package/blas" \
    -DOPENBLAS_LIBRARY="$dir/blas/libplainblas.so" -DCRITERION_INCLUDE="$dir/blas" -DCRITERION_LIBRARY="$dir/blas/none.so" \
    -DJANSSON_LIBRARY="$dir/blas/none.so" -DJANSSON_FOR_TOOLS=OFF
ninja -C "$dir" -j "$(nproc)" --quiet slipring softgpu_cuda softgpu_cudart softgpu_cublas softgpu_cublasLt softgpu_nccl \
    callers_static callers_runtimes callers_module callers_local interpose_gate interpose_next interpose_next1 interpose_next2 \
    interpose_fake_driver slipring_recorder

failed="" passed=0
# check NAME COMMAND...
check() {
    local name=$1
    shift
    if timeout 300 "$@" >"$dir/$name.log" 2>&1; then
        passed=$((passed + 1))
        say "passed $name"
    else
        failed="$failed $name"
        tail -n 5 "$dir/$name.log"
        say "FAILED $name: $dir/$name.log"
    fi
}
# emulate PRELOAD LIBRARIES PROGRAM...: qemu's own process gets neither of the two
emulate() { echo qemu-aarch64 -L $sysroot -E "LD_PRELOAD=$1" -E "LD_LIBRARY_PATH=$2" "${@:3}"; }

# dlsym and the gate's stubs: all arguments, all rows of the table.
driver=$dir/tests/hooks/driver preload=$dir/tests/hooks
recorder=$(find "$dir" -name libslipring_recorder.so)
export SLIPRING_LOG=error
for what in all proc threads; do
    # shellcheck disable=SC2046
    check gate_$what env SLIPRING_ALLOC=off SLIPRING_ZERO_COPY=off $(emulate "$recorder" "$driver" "$preload/interpose_gate" $what)
done
next="$preload/libinterpose_next1.so:$preload/libinterpose_next2.so"
# shellcheck disable=SC2046
check next_before $(emulate "$next:$recorder" "$driver" "$preload/interpose_next" before)
# shellcheck disable=SC2046
check next_after $(emulate "$recorder:$next" "$driver" "$preload/interpose_next" after)

say "$passed passed${failed:+, failed:$failed}"
[ -z "$failed" ]
