#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Code of frameworks as they are on PyPI, with and without slipring: whether the losses are the same, what was moved,
# whether calls go the way that was measured to be best, and how long a step takes. The programs are in
# tests/gpu/frameworks.
#
#   megatron      megatron-core: column and row parallel linears, sequence parallel
#   megatron-whole  the same without: all-reduces in place
#   ddp           an MLP under DistributedDataParallel
#   dtensor       torch.distributed.tensor.parallel, eager
#   functional    gather, products, reduce-scatter by torch.distributed's functional collectives;
#   c10d          by all_gather_into_tensor and reduce_scatter_tensor;
#   compiled      the functional ones under torch.compile;
#   captured      those of c10d in a CUDA graph;
#   replayed      the functional ones in one;
#   coalesced     those of c10d, two in a group;
#   nonblocking   those of c10d, and coalesced-nonblocking, with TORCH_NCCL_USE_COMM_NONBLOCKING=1
#   fsdp2         a Llama of transformers under fully_shard
#   transformers  a Llama of transformers, loaded with tp_plan="auto"
#   deepspeed     an MLP under ZeRO-3
#   jax           an MLP by jit, with shardings
#
# usage: tests/gpu/frameworks.sh [options]
#   --one-gpu      two ranks on the first GPU (NCCL over loopback sockets), with smaller sizes
#   --cpu          two ranks over gloo, tiny sizes: tries the programs and this script; nothing is moved
#   --build DIR    use this build as it is instead of building in build-gpu
#   --wheels DIR   install the wheels of this folder in a temporary one, without what they depend on
#   --runs N       of each program without and with slipring, in turn [1]
#   --plain N      of those without, no more; of fsdp2 and transformers, whose own runs differ in their losses, at least
#                  two
#   --with OPTION  of the programs themselves, such as --tokens=16384; may be given again
#   --steps N      of each run [120]
#   --settle N     steps before anything is judged [50]
#   --trace N      N more steps of the first run of each side under PyTorch's profiler; a file for each rank among the logs
#   --set NAME=VALUE  a setting of slipring; may be given again
#   --only REGEX   only the programs whose name matches
#   --jobs N       programs at a time [1]; with more than one, times say nothing
#   --each S       most seconds of one run [150]
#   --limit S      start no further run after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# A program whose framework is not installed is skipped. Exit status: 0 when every other one ended and computed the
# same, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs=1 runs=1 plain_runs="" steps=120 settle=50 trace=0 each=150 wheels="" cpu=0 settings=() with=()
while [ $# -gt 0 ]; do
    case $1 in
    --one-gpu) one_gpu=1 ;;
    --cpu) cpu=1 ;;
    --set) need_value "$1" "$@" && settings+=(--set "$2") && shift ;;
    --plain) need_value "$1" "$@" && plain_runs=$2 && shift ;;
    --with) need_value "$1" "$@" && with+=("$2") && shift ;;
    --build | --wheels | --runs | --steps | --settle | --trace | --only | --jobs | --each | --limit | --out)
        need_value "$1" "$@" && declare "${1#--}=$2" && shift
        ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
programs=$SLR_ROOT/tests/gpu/frameworks
python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "${PYTHON:-python3}" -u) # with the wheels' own libraries
open_logs

# last_words TITLE RANK: what the program said at its end, or else whatever came last.
last_words() {
    grep "^rank $2: " "$logs/$1.rank$2.out" | tail -n 1 | grep . || grep -v '^ *$' "$logs/$1.rank$2.out" | tail -n 1
}

# ranked TITLE FILE OPTION...: all ranks, under the command in `under`; the status of the first one that fails. The
# others have some seconds then.
ranked() {
    local title=$1 file=$2 rank status rc=0 end="" why="" pids=() world
    world=(WORLD_SIZE="$ranks" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1)
    world+=(MASTER_PORT=$((20000 + RANDOM % 20000)))
    shift 2
    for ((rank = 0; rank < ranks; rank++)); do
        timeout -k 5 "$each" env RANK=$rank LOCAL_RANK=$rank "${world[@]}" "${under[@]//%RANK/$rank}" "${python[@]}" \
            "$programs/$file" --json "$logs/$title" "$@" >"$logs/$title.rank$rank.out" 2>&1 </dev/null &
        pids[rank]=$!
    done
    while [ ${#pids[@]} -gt 0 ]; do
        sleep 0.2
        for rank in "${!pids[@]}"; do
            ! kill -0 "${pids[rank]}" 2>/dev/null || continue
            status=0
            wait "${pids[rank]}" || status=$?
            unset "pids[rank]"
            [ $status = 0 ] || [ $rc != 0 ] || rc=$status why=$rank end=$((SECONDS + 15))
        done
        [ -z "$end" ] || [ $SECONDS -lt "$end" ] || kill "${pids[@]}" 2>/dev/null || true
    done
    if [ $rc = 0 ]; then
        echo "$title: $(last_words "$title" 0)"
    else
        tail -n 60 "$logs/$title.rank$why.out"
        echo "$title: status $rc: $(last_words "$title" "$why")"
    fi
    return $rc
}

# one NAME SIDE NUMBER FILE OPTION...: one run of it.
one() {
    local title=$1.$2-$3 side=$2 number=$3 file=$4 under=()
    shift 4
    [ $SECONDS -lt "$limit" ] || { echo "$title: not started, the limit of $limit s was reached" && return 0; }
    if [ "$side" != plain ]; then
        under=("$slipring" run --lib "$build/libslipring.so" --set log=info --set log_format=json
            --set "log_file=$logs/$title.rank%RANK.decisions")
        [ $one_gpu = 0 ] || under+=(--set min_bytes=512K)
        under+=("${settings[@]}" --)
    fi
    [ "$number" != 1 ] || set -- "$@" --trace "$trace"
    ranked "$title" "$file" "$@"
}

# program NAME FILE OPTION...: all runs of it. What fails without slipring is not run with it.
program() {
    local name=$1 run alone=${plain_runs:-$runs} rc=0
    [[ " $own_runs_differ " != *" $name "* ]] || [ "$alone" -gt 1 ] || alone=2
    set -- "${@:2}" --steps "$steps" --settle "$settle" --patience $((each - 10)) "${device_option[@]}" "${with[@]}"
    for ((run = 1; run <= alone || run <= runs; run++)); do
        [ $run -gt "$alone" ] || one "$name" plain $run "$@" || return
        [ $run -gt "$runs" ] || one "$name" slipring $run "$@" || rc=$?
    done
    return $rc
}

# Whose losses differ from run to run without slipring, too: how far is known from two such runs.
own_runs_differ="fsdp2 transformers"

all_programs() {
    local form
    add megatron megatron_tp.py
    add megatron-whole megatron_tp.py --form whole
    add ddp ddp.py
    add dtensor dtensor.py
    for form in functional c10d compiled captured replayed coalesced; do add $form functional.py --form $form; done
    add nonblocking functional.py --form c10d --non-blocking
    add coalesced-nonblocking functional.py --form coalesced --non-blocking
    add fsdp2 fsdp2.py
    add transformers transformers_tp.py
    add transformers-prefill transformers_tp.py --form prefill
    add deepspeed zero3.py
    add jax jax_tp.py
}

add() { side_by_side "$1" "$each" program "$@"; }

the_table() {
    local name ran=()
    for name in "${names[@]}"; do [ ! -e "$logs/$name.slipring-1.rank0.out" ] || ran+=("$name"); done
    [ ${#ran[@]} -gt 0 ] || { echo "no program has run with slipring" && return 77; }
    python3 "$programs/table.py" "$logs" "${ran[@]}" >"$logs/table.table" ||
        { grep '^WRONG' "$logs/table.table" && return 1; }
}

device_option=() ranks=2
if [ $cpu = 1 ]; then
    [ -n "$build" ] || die "--cpu needs --build"
    device=CPU softgpu=1 device_option=(--device cpu)
else
    find_device
    two_gpus_or_one
    if [ $one_gpu = 1 ]; then device_option=(--one-gpu); else ranks=$(cuda_device_count); fi
fi
find_build
[ -z "$wheels" ] || install_wheels
say "$device, $ranks ranks; logs in $out"
if [ $one_gpu = 1 ] && [ $cpu = 0 ]; then
    only=${only:+$only|^mps-start} # whatever is wanted: times without it are the driver's turns
    with_mps all_programs
else
    all_programs
fi
wait
only="" alone table 60 the_table # whatever was wanted
finish
