#!/bin/bash
# slipring's main job on this machine: installs what is missing, builds, and runs bench/ag_gemm, an ordinary NCCL and
# cuBLAS program, alternately without and with slipring; on a GPU when there is a usable one, else on the software GPU.
#
# usage: scripts/demo.sh [options]
#   --ranks N   ranks [the number of GPUs; 2 when there is one GPU; 4 on the software GPU]
#   --softgpu   the software GPU even when there is a GPU
#   --gpu       a real GPU, or fail
#   --quick     a smaller problem and fewer repetitions
#
# Fails when a result is wrong, or when the decision log of a rank does not show the gather substituted by slipring's
# ring and the GEMM fused with it. Logs: out/demo.
set -euo pipefail
. "$(dirname "$0")/common.sh"

ranks="" where=auto quick=0
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) need_value "$1" "$@" && ranks=$2 && shift ;;
    --softgpu) where=softgpu ;;
    --gpu) where=gpu ;;
    --quick) quick=1 ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $1; see --help" ;;
    esac
    shift
done
case $ranks in *[!0-9]* | 0 | 1) die "--ranks: a number of at least 2, not $ranks" ;; esac

build=$SLR_ROOT/build out=$SLR_ROOT/out/demo slipring=$SLR_ROOT/LD_PRELOAD/slipring

# Sets `devices` and settles `where`.
choose_device() {
    devices=0
    [ $where = softgpu ] || devices=$(cuda_device_count)
    if [ "$devices" -gt 0 ]; then
        where=gpu
    elif [ $where = gpu ]; then
        die "no usable GPU: libcuda.so.1 is missing or offers no device"
    else
        [ $where = softgpu ] || say "no usable GPU here: the software GPU is used"
        where=softgpu
    fi
}

# The libraries, the benchmark and the software GPU, not the tests.
build_demo() {
    say "building in $build"
    configure "$build" -DSLIPRING_TESTS=ON
    ninja -C "$build" --quiet libslipring.so slipring-tables bench/ag_gemm \
        softgpu/libcuda.so.1 softgpu/libcudart.so.13 softgpu/libcublas.so.13 softgpu/libcublasLt.so.13 softgpu/libnccl.so.2
}

# Sets `prefix`, the command that gives the program its device, and `options`, ag_gemm's.
choose_problem() {
    local size=2048 iters=3 libs
    rounds=2
    if [ $where = gpu ]; then
        size=8192 iters=20 rounds=3
        libs=$(cuda_lib_path)
        [ -z "$libs" ] || export LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        ranks=${ranks:-$((devices > 1 ? devices : 2))}
        prefix=(env)
    else
        ranks=${ranks:-4}
        prefix=("$slipring" softgpu -n "$ranks" --)
    fi
    if [ $quick = 1 ]; then size=$((size / 2)) iters=2 rounds=1; fi
    # The gathered matrix is n x k; on the software GPU m is small because the CPU computes the GEMMs.
    options=(--ranks "$ranks" --m "$([ $where = gpu ] && echo $size || echo 256)" --k "$size" --n "$size" --iters "$iters")
    if [ $where = gpu ] && [ "$ranks" -gt "$devices" ]; then options+=(--one-gpu); fi
}

# show EVENT: the line of rank 0; fails when a rank has none.
show() {
    local rank
    for ((rank = 0; rank < ranks; rank++)); do
        grep -qE "$1" "$out/rank$rank.log" 2>/dev/null || { warn "rank $rank's decision log shows no '$1'" && return 1; }
    done
    grep -hE -m 1 "$1" "$out/rank0.log"
}

choose_device
want=()
[ $where = softgpu ] || want+=(--gpu-libs)
"$SLR_ROOT/scripts/setup.sh" "${want[@]}"
build_demo
choose_problem
rm -rf "$out"
mkdir -p "$out"

say "running bench/ag_gemm without and with 'slipring run --'"
"${prefix[@]}" python3 "$SLR_ROOT/bench/ag_gemm_pair" --ag-gemm "$build/bench/ag_gemm" --rounds "$rounds" \
    --with "$slipring run --lib $build/libslipring.so --set log=info --set log_file=$out/rank%r.log --" \
    --json "$out/results.json" -- "${options[@]}" || die "bench/ag_gemm failed (status $?)"

printf '\nFrom the decision log of rank 0 (all ranks: %s):\n' "$out"
show substitute || exit 1
show fused || exit 1
printf '\n'
if [ $where = gpu ]; then
    say "ran on $devices real GPU(s), $ranks ranks; results exact"
else
    say "ran on the software GPU (the CPU's times, which say nothing about a GPU), $ranks ranks; results exact"
fi
