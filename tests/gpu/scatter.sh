#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Reduce-scatters behind GEMMs on two real GPUs: exact, what is beside them, dead ranks' phases, times, and training.
#
#   plain-*                 lists of tests/scatter with NCCL alone: the programs are right
#   processes-*, threads-*  the same under slipring, a process or a thread for each GPU: substituted from the first call on
#   tried-*                 the same as it is by default: ways are tried and measured
#   time                    scatter.py's table: NCCL, slipring, PyTorch's own overlap
#   train                   scatter_train.py: losses beside NCCL's, and every reduce-scatter against fp64
#   train-tp, time-tp       torch_tp.py without and with slipring, in turn
#
# usage: tests/gpu/scatter.sh [options]
#   --softgpu      on the software GPU: tests this script; without the PyTorch steps
#   --quick        fewer shapes and rounds
#   --one-gpu      all ranks are processes on the first GPU (NCCL over loopback sockets): no threads, and no times
#   --build DIR    use this build as it is instead of building in build-gpu
#   --only REGEX   only the steps whose name matches
#   --jobs N       lists at a time [3; 1 with --softgpu]; timed steps run alone
#   --limit S      start no further step after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs=""
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --quick) quick=1 ;;
    --one-gpu) one_gpu=1 ;;
    --build | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
jobs=${jobs:-$([ "$softgpu" = 1 ] && echo 1 || echo 3)}
programs=$SLR_ROOT/tests/gpu
python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "${PYTHON:-python3}") # with the wheels' own libraries
open_logs

# --- exact ------------------------------------------------------------------------------------------------------------

# find_program: sets `program`.
find_program() {
    local sources=("$SLR_ROOT"/tests/scatter/*.c)
    rank_program scatter scatter "${sources[@]}" "$SLR_ROOT/tests/order/forms.c" "$(library_file "libcublasLt.so.$(cuda_major)")"
}

always=(env SLIPRING_REDUCE_SCATTER=always) # not by --set: an older slipring would not start
settings=(--set min_bytes=0 --set alloc_min=1 --set flop_per_byte=0 --set trials=0)
by_default=(--set min_bytes=0 --set alloc_min=1 --set trials=1 --set trials_after=2)

# Over sockets NCCL hangs when ranks group their calls differently; between GPUs it does not.
not_over_sockets=group-uneven

# listed NAME LIST RANKS UNDER...: every case of the list; names those that fail.
listed() {
    local name=$1 list=$2 ranks=$3 one failed=()
    shift 3
    for one in $("${plain[@]}" "$program" "list-$list"); do
        [ $one_gpu = 0 ] || [ "$one" != $not_over_sockets ] || [[ $name == processes-* ]] || continue
        timeout -k 5 60 "$@" "$program" "$one" "$ranks" >"$logs/$name.$one.out" 2>&1 || failed+=("$one")
        cat "$logs/$name.$one.out"
        rm -f "$logs/$name.$one.out"
    done
    [ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" && return 1; }
}

# with_slipring NAME LIST RANKS SETTINGS...
with_slipring() {
    local name=$1 list=$2 ranks=$3 how=()
    shift 3
    [[ $name == tried-* ]] || how=("${always[@]}")
    listed "$name" "$list" "$ranks" "${plain[@]}" "${how[@]}" "$slipring" run --lib "$build/libslipring.so" "$@" --set log=info \
        --set "log_file=$logs/$name.%p.decisions" -- || return
    ! grep -hE 'stalled|communicator_failed|cuda_error' "$logs/$name".*.decisions | head -n 3 | grep . ||
        { echo "the log tells of a failure" && return 1; }
    rm -f "$logs/$name".*.decisions
}

exact_steps() {
    local list
    for list in $lists; do
        side_by_side "plain-$list" 300 listed "plain-$list" "$list" 2 "${plain[@]}"
        side_by_side "processes-$list" 300 with_slipring "processes-$list" "$list" 2 "${settings[@]}"
        [ $one_gpu = 1 ] || side_by_side "threads-$list" 300 with_slipring "threads-$list" "$list" 2t "${settings[@]}"
        side_by_side "tried-$list" 300 with_slipring "tried-$list" "$list" 2 "${by_default[@]}"
    done
    wait
}

# --- PyTorch ----------------------------------------------------------------------------------------------------------

timed() { # name options...
    local name=$1
    shift
    bounded "${python[@]}" -u "$programs/scatter.py" --lib "$build/libslipring.so" --limit $((step_seconds - 5)) --json "$logs/$name.json" \
        --logs "$logs/$name.runs" "$@" | tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

# trained NAME SIDE PROGRAM OPTIONS...: leaves NAME.SIDE.json.
trained() {
    local run=$1.$2 side=$2 program=$3 under=()
    shift 3
    [ "$side" = nccl ] || under=("$slipring" run --lib "$build/libslipring.so" --set log=info --set "log_file=$logs/$run.rank%r.decisions" --)
    bounded "${under[@]}" "${python[@]}" -m torch.distributed.run --nproc-per-node 2 --master-addr 127.0.0.1 \
        --master-port $((20000 + RANDOM % 20000)) "$programs/$program" "${one_gpu_option[@]}" --json "$logs/$run.json" "$@"
}

train() { # name options...
    local name=$1 side
    shift
    for side in nccl slipring; do trained "$name" $side scatter_train.py "$@" || return; done
    "${python[@]}" "$programs/scatter_train.py" --compare "$logs/$name.nccl.json" "$logs/$name.slipring.json" | tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

time_tp() { # name options...
    local name=$1 round side
    shift
    for ((round = 0; round < rounds; round++)); do
        for side in nccl slipring; do trained "$name-$round" $side torch_tp.py "$@" || return; done
    done
    "${python[@]}" "$programs/torch_table.py" times "$name" "$logs/$name"-[0-9].nccl.json --with "$logs/$name"-[0-9].slipring.json |
        tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

torch_steps() {
    [ "$softgpu" = 0 ] || return 0
    [ $one_gpu = 1 ] || alone time 420 timed time --rounds "$rounds" --iters "$iters" --shapes "${shapes[@]}"
    alone train 200 train train --steps "$steps"
    alone train-fp16 200 train train-fp16 --steps "$steps" --dtype fp16
    [ $one_gpu = 1 ] || alone time-tp 200 time_tp time-tp --hidden 4096 --head 128 --layers 1 --steps 15
}

# ----------------------------------------------------------------------------------------------------------------------

lists="forms small plain nccl wrong look group unlike loop graphs graphs-wrong" rounds=3 iters=30 steps=200
shapes=(8192,8192,8192 8192,4096,8192 16384,1024,8192 16384,4096,4096 4096,4096,4096)
[ "$quick" = 0 ] || rounds=1 iters=15 steps=50 shapes=(8192,8192,8192 16384,1024,8192)
if [ "$softgpu" = 1 ]; then lists="small look group"; fi

one_gpu_option=()
[ $one_gpu = 0 ] || one_gpu_option=(--one-gpu)
find_device
two_gpus_or_one
find_build
find_program || die "tests/scatter does not compile"
say "$device; logs in $out"

torch_steps
exact_steps
finish
