#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Frameworks with each allocator that they have: what they stage when they have become steady (bench/steady), and whether
# they compute the same. All gathers go over the ring.
#
#   default      as the framework is: PyTorch's caching allocator, JAX's BFC allocator
#   expandable   PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
#   async        PyTorch's backend:cudaMallocAsync, JAX's cuda_async
#   platform     JAX's: cudaMalloc for each buffer
#   nap          an allocator whose memory sleeps every 40 steps, and wakes up with other memory at the same addresses
#
# usage: tests/gpu/allocators.sh [options]
#   --one-gpu      two ranks on the first GPU (NCCL over loopback sockets), with smaller sizes
#   --build DIR    use this build as it is instead of building in build-gpu
#   --steps N      of each run [120]
#   --only REGEX   only the runs whose name matches, as c10d-expandable
#   --set NAME=VALUE  a setting of slipring; may be given again
#   --jobs N       runs at a time [1]
#   --each S       most seconds of one run [150]
#   --limit S      start no further run after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every program ended, all of one kind computed the same, and nothing was staged later; else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

steps=120 each=150 settings=()
while [ $# -gt 0 ]; do
    case $1 in
    --one-gpu) one_gpu=1 ;;
    --set) need_value "$1" "$@" && settings+=(--set "$2") && shift ;;
    --build | --steps | --only | --jobs | --each | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
programs=$SLR_ROOT/tests/gpu/frameworks
python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "${PYTHON:-python3}" -u) # with the wheels' own libraries
open_logs

# ranks_of NAME VARIABLE=VALUE... -- FILE OPTION...: both ranks; the status of the first one that fails.
ranks_of() {
    local name=$1 rank rc=0 pids=() set=() port=$((20000 + RANDOM % 20000)) file
    shift
    while [ "$1" != -- ]; do set+=("$1") && shift; done
    file=$2
    shift 2
    for ((rank = 0; rank < ranks; rank++)); do
        bounded env RANK=$rank LOCAL_RANK=$rank WORLD_SIZE="$ranks" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${set[@]}" \
            "$slipring" run --lib "$build/libslipring.so" --record "$logs/$name.record" --set trials=0 --set min_bytes=512K "${settings[@]}" -- \
            "${python[@]}" "$programs/$file" --steps "$steps" --settle 20 "${device_option[@]}" "$@" >"$logs/$name.rank$rank.out" 2>&1 &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || rc=$?; done
    grep -h "^rank " "$logs/$name".rank*.out || tail -n 5 "$logs/$name".rank*.out
    return $rc
}

run() { side_by_side "$1" "$each" ranks_of "$@"; }

conf=PYTORCH_CUDA_ALLOC_CONF
jax=XLA_PYTHON_CLIENT_ALLOCATOR
all_runs() {
    local allocator program
    for allocator in default= expandable=expandable_segments:True async=backend:cudaMallocAsync; do
        run "c10d-${allocator%%=*}" "$conf=${allocator#*=}" -- functional.py --form c10d
        for program in fsdp2 dtensor; do
            run "$program-${allocator%%=*}" "$conf=${allocator#*=}" -- $program.py
        done
    done
    run c10d-nap -- functional.py --form c10d --nap 40
    for allocator in default platform cuda_async; do run "jax-${allocator#cuda_}" $jax=$allocator -- jax_tp.py; done
}

# same_losses KIND: the last loss is that with the default allocator.
same_losses() {
    local file loss want
    for file in "$logs/$1"-*.rank0.out; do
        loss=$(sed -nE 's/^rank 0: loss .* -> ([^,]*),.*/\1/p' "$file")
        want=${want:-$loss}
        [ "$loss" = "$want" ] || { echo "WRONG: $(basename "$file"): $loss, elsewhere $want" && return 1; }
    done
}

the_table() {
    local read=() one rc=0
    for one in "$logs"/*.record; do
        mv "$one" "${one%.record}" && read+=(--read "${one%.record}")
    done
    [ ${#read[@]} -gt 0 ] || { echo "no program has run" && return 77; }
    "${python[@]}" "$SLR_ROOT/bench/steady" "${read[@]}" --markdown "$logs/table.table" || rc=$?
    for one in c10d jax; do same_losses $one || rc=1; done
    return $rc
}

device_option=() ranks=2
find_device
two_gpus_or_one
if [ $one_gpu = 1 ]; then device_option=(--one-gpu); else ranks=$(cuda_device_count); fi
find_build
say "$device, $ranks ranks; logs in $out"
all_runs
wait
only="" alone table 60 the_table # whatever was wanted
finish
