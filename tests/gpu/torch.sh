#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch, the wheel as it is, on one GPU: training of a sequence-parallel MLP (torch_mlp.py) and of a transformer under
# torch.distributed.tensor.parallel (torch_tp.py), without slipring, with it, and with SLIPRING_STRICT=on. Compares the
# losses of all steps, counts what was substituted and fused, and times steps under MPS, in turn without and with slipring.
#
# usage: tests/gpu/torch.sh [options]
#   --quick       2 ranks only, and fewer cases
#   --build DIR   use this build of slipring as it is instead of building in build-gpu
#   --only REGEX  only the steps whose name matches
#   --limit S     start no further step after so many seconds [540]
#   --out DIR     where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when all losses are right and every all-gather of the MLP was substituted and fused, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --build | --only | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
programs=$SLR_ROOT/tests/gpu

# trained NAME SIDE RANKS PROGRAM OPTIONS...: one training. SIDE: plain, slipring or strict. Leaves NAME.SIDE.json and logs.
trained() {
    local run=$1.$2 side=$2 ranks=$3 program=$4 under=()
    shift 4
    [ "$side" = plain ] || under=("$slipring" run --lib "$build/libslipring.so" --set log=info --set log_format=json
        --set "log_file=$logs/$run.rank%r.decisions" --set "strict=$([ "$side" = strict ] && echo on || echo off)" --)
    bounded "${under[@]}" python3 -m torch.distributed.run --nproc-per-node "$ranks" --master-addr 127.0.0.1 \
        --master-port $((20000 + RANDOM % 20000)) "$programs/$program" --one-gpu --json "$logs/$run.json" "$@" 2>&1
}

# same NAME RANKS TOLERANCE OPTION PROGRAM OPTIONS...: all three sides at once, then the comparison; OPTION is torch_table.py's.
same() {
    local name=$1 ranks=$2 tolerance=$3 option=$4 side rc=0 pids=()
    shift 4
    for side in plain slipring strict; do
        trained "$name" $side "$ranks" "$@" >"$logs/$name.$side.log" &
        pids+=($!)
    done
    for side in "${pids[@]}"; do wait "$side" || rc=$?; done
    [ $rc = 0 ] || { tail -n 25 "$logs/$name".*.log && echo "a training ended with status $rc" && return $rc; }
    python3 "$programs/torch_table.py" check "$name" "$logs/$name".{plain,slipring,strict}.json --logs "$logs/$name.slipring" \
        --tolerance "$tolerance" ${option:+"$option"} | tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

# timed NAME RANKS PROGRAM OPTIONS...: one after the other, in turn.
timed() {
    local name=$1 ranks=$2 round
    shift 2
    for ((round = 0; round < rounds; round++)); do
        trained "$name-$round" plain "$ranks" "$@" || return
        trained "$name-$round" slipring "$ranks" "$@" || return
    done
    python3 "$programs/torch_table.py" times "$name" "$logs/$name"-[0-9].plain.json --with "$logs/$name"-[0-9].slipring.json |
        tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

# mlp NAME RANKS TOLERANCE OPTIONS...
mlp() {
    local name=mlp-$2-ranks-$1 ranks=$2 tolerance=$3
    shift 3
    alone "$name" 120 same "$name" "$ranks" "$tolerance" --all-fused torch_mlp.py "$@"
}

same_losses() {
    local ranks
    for ranks in $rank_counts; do
        mlp bf16 "$ranks" 1e-2
        mlp bf16-async-bias "$ranks" 1e-2 --async-op --bias
        alone "tp-$ranks-ranks-bf16" 120 same "tp-$ranks-ranks-bf16" "$ranks" 1e-2 "" torch_tp.py
        [ $quick = 0 ] || continue
        mlp fp32-async "$ranks" 1e-5 --dtype fp32 --async-op
        mlp fp32-bias "$ranks" 1e-5 --dtype fp32 --bias
        alone "tp-$ranks-ranks-fp32-batch-2" 120 same "tp-$ranks-ranks-fp32-batch-2" "$ranks" 1e-5 "" torch_tp.py --dtype fp32 --batch 2 --tokens 2048
    done
    [ $quick = 0 ] || return 0
    mlp bf16-own-stream 2 1e-2 --own-stream
    mlp fp16-async 2 1e-2 --dtype fp16 --async-op
    mlp tf32-async 2 1e-4 --dtype fp32 --tf32 --async-op
}

times() {
    local ranks
    for ranks in $rank_counts; do
        alone "time-mlp-$ranks-ranks-async" 200 timed "time-mlp-$ranks-ranks-async" "$ranks" torch_mlp.py "${large[@]}" --async-op
    done
    [ $quick = 0 ] || return 0
    alone "time-mlp-2-ranks" 200 timed "time-mlp-2-ranks" 2 torch_mlp.py "${large[@]}"
    alone "time-tp-2-ranks" 200 timed "time-tp-2-ranks" 2 torch_tp.py --hidden 4096 --head 128 --layers 1 --steps 15
}

under_mps() {
    times
    same_losses
}

rank_counts="2 4" rounds=2
large=(--tokens 8192 --hidden 4096 --inner 16384 --layers 1 --steps 15)
[ $quick = 0 ] || rank_counts="2" rounds=1

open_logs
find_device
find_build
say "$device; logs in $out"
with_mps under_mps
finish
