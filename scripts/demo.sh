#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slipring's main job on this machine: installs what is missing, builds, and runs bench/ag_gemm, an ordinary NCCL and
# cuBLAS program, alternately without and with slipring; on a GPU when there is a usable one, else on the software GPU.
#
# usage: scripts/demo.sh [options]
#   --ranks N   ranks [the number of GPUs; 2 when there is one GPU; 4 on the software GPU]
#   --softgpu   the software GPU even when there is a GPU
#   --gpu       a real GPU, or fail
#   --quick     fewer repetitions
#   --model     then also how the schedules compare in the software GPU's model of 8 H100s, which moves no data: a minute more
#
# On the software GPU the only times shown are those of that model, and they are called modelled: times of the run itself
# are those of this CPU, which computes the GEMMs and makes the copies, and would look like a loss.
#
# Fails when a result is wrong, or when the decision log of a rank does not show the gather substituted by slipring's
# ring and the GEMM fused with it. Logs: out/demo.
set -euo pipefail
. "$(dirname "$0")/common.sh"

ranks="" where=auto quick=0 model=0
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) need_value "$1" "$@" && ranks=$2 && shift ;;
    --softgpu) where=softgpu ;;
    --gpu) where=gpu ;;
    --quick) quick=1 ;;
    --model) model=1 ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
case $ranks in *[!0-9]* | 0 | 1) bad_usage "--ranks: a number of at least 2, not $ranks" ;; esac

# The software GPU's folder goes into LD_LIBRARY_PATH; nothing is built before that is known to be possible.
case $SLR_ROOT in *[:\;]*) die "$SLR_ROOT: the dynamic loader can not search a folder with a colon or a semicolon in its path" ;; esac

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

# The library, the launcher's commands, two programs and the software GPU, not the tests.
build_demo() {
    say "building in $build"
    # Ninja configures a folder anew by itself where it has to.
    [ -e "$build/build.ninja" ] && grep -qs '^SLIPRING_TESTS:BOOL=ON$' "$build/CMakeCache.txt" ||
        configure "$build" -DSLIPRING_TESTS=ON
    ninja -C "$build" --quiet libslipring.so slipring-{tables,doctor,bench,verify,tune,report,trace,top} bench/ag_gemm bench/collectives \
        examples/gather_gemm softgpu_cuda softgpu_cudart softgpu_cublas softgpu_cublasLt softgpu_nccl
}

# Sets `prefix`, the command that gives the program its device; `options`, ag_gemm's; and `shard`, bytes of a rank's part.
choose_problem() {
    local size=2048 iters=3 libs
    rounds=1 # on the software GPU nobody looks at the times
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
    if [ $quick = 1 ]; then iters=2 rounds=1; fi
    # The gathered matrix has n columns of k bf16 elements, n / ranks of them on each rank. On the software GPU m is small
    # because the CPU computes the GEMMs.
    local m=$size columns=$((size / ranks))
    [ $where = gpu ] || m=64
    shard=$((columns * size * 2))
    options=(--ranks "$ranks" --m "$m" --k "$size" --n $((columns * ranks)) --iters "$iters")
    if [ $where = gpu ] && [ "$ranks" -gt "$devices" ]; then options+=(--one-gpu); fi
}

# show REGEX: rank 0's line that matches; fails when a rank has none.
show() {
    local rank
    for ((rank = 0; rank < ranks; rank++)); do
        grep -qE "$1" "$out/rank$rank.log" 2>/dev/null || { warn "rank $rank's decision log has no line with '$1'" && return 1; }
    done
    grep -hE -m 1 "$1" "$out/rank0.log"
}

# run_pair JSON rounds ag_gemm-options...: prints the table. What slipring needs is in SLIPRING_* variables, which the side
# without it does not look at, so that the command shown is the one that a user types.
run_pair() {
    local json=$1 rounds=$2
    shift 2
    (cd "$SLR_ROOT" && "${prefix[@]}" LD_PRELOAD/slipring bench --ag-gemm "$build/bench/ag_gemm" --rounds "$rounds" \
        --with "LD_PRELOAD/slipring run --" --json "$json" -- "$@") || die "bench/ag_gemm failed (status $?)"
}

# How the schedules would compare on a real machine: the software GPU's timing model, which moves no data.
run_model() {
    say "the schedules in the software GPU's model of 8 H100s (modelled times, no data)"
    (cd "$SLR_ROOT" && SLIPRING_LOG=warn SLIPRING_LOG_FILE= bench/modelled_node --build "$build" --rounds 1 --scale 30) ||
        die "bench/modelled_node failed (status $?)"
}

"$SLR_ROOT/scripts/setup.sh"
choose_device # needs Python
[ $where = softgpu ] || "$SLR_ROOT/scripts/setup.sh" --gpu-libs
build_demo
choose_problem
rm -rf "$out"
mkdir -p "$out"
export SLIPRING_LIB=$build/libslipring.so SLIPRING_LOG=info SLIPRING_LOG_FILE=$out/rank%r.log

say "running bench/ag_gemm without and with slipring, on $([ $where = gpu ] && echo "$devices GPU(s)" || echo softgpu)"
if [ $where = gpu ]; then
    printf '\n'
    run_pair "$out/results.json" "$rounds" "${options[@]}"
else
    run_pair "$out/results.json" "$rounds" "${options[@]}" >"$out/cpu_times.txt"
fi
printf '\nFrom the decision log of rank 0 (all ranks: out/demo):\n'
show " substitute .*shard=$shard .*reason=ring" || exit 1
show " fused .*shard=$shard " || exit 1
printf '\n'
if [ $where = gpu ]; then
    say "ran on $devices real GPU(s), $ranks ranks: results exact, gather substituted, GEMM fused"
else
    say "ran on the software GPU, $ranks ranks: results exact, gather substituted, GEMM fused" \
        "(its own times, those of this CPU, say nothing about a GPU: out/demo/cpu_times.txt; modelled ones: --model)"
fi
if [ $model = 1 ]; then
    printf '\n'
    run_model
fi
