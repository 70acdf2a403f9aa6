#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random programs on two ranks: whatever the order in which they do things, every value is compared.
#
#   torch-*  random PyTorch programs (torch_programs.py), in each mode
#   jax-*    random JAX programs (jax_programs.py), with and without command buffers, cublasLt and cublas, with each allocator
#   c-*      random C programs (tests/fuzz/fuzz_plan), one seed after the other, of two to four ranks
#
# usage: tests/gpu/orders.sh [options]
#   --softgpu      on the software GPU, the C programs alone: tests this script
#   --one-gpu      all ranks are processes on the first GPU (NCCL over loopback sockets)
#   --build DIR    use this build as it is instead of building in build-gpu
#   --seconds N    of random programs in each mode [100]
#   --seed N       of the random programs [1]
#   --only REGEX   only the steps whose name matches
#   --jobs N       modes at a time [5]
#   --limit S      start no further step after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs=5 seconds=100 seed=1
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --one-gpu) one_gpu=1 ;;
    --build | --seconds | --seed | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
one_gpu_option=()
[ $one_gpu = 0 ] || one_gpu_option=(--one-gpu)
python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "${PYTHON:-python3}" -u) # with the wheels' own libraries
open_logs

sum_of() { # NAME FIELD
    cat "$logs/$1".rank[01].json 2>/dev/null | grep -oE "\"$2\": [0-9]+" | awk '{ n += $2 } END { print n + 0 }'
}

counted_as() { # NAME EVENT REASON: of both ranks
    cat /dev/null "$logs/$1".*.decisions | sed -nE "s/.* $2 reason=$3 n=([0-9]+).*/\1/p" | awk '{ n += $1 } END { print n + 0 }'
}

# programs NAME PROGRAM VARIABLE=VALUE... -- OPTION...: of one mode, and its line of the table.
programs() {
    local name=$1 program=$2 rc=0 set=()
    shift 2
    while [ "$1" != -- ]; do set+=("$1") && shift; done
    shift
    two "$name" env "${set[@]}" "$slipring" run --lib "$build/libslipring.so" --set log=info --set "log_file=$logs/$name.rank%r.decisions" -- \
        "${python[@]}" "$SLR_ROOT/tests/gpu/$program" --seconds "$seconds" --seed "$seed" "${one_gpu_option[@]}" --json "$logs/$name" "$@" || rc=$?
    printf '| %s | %s | %s | %s | %s | %s |\n' "$name" "$(sum_of "$name" programs)" "$(sum_of "$name" wrong)" "$(counted_as "$name" count ring)" \
        "$(counted_as "$name" count fused)" "$(counted_as "$name" scatter_count ring)" >"$logs/$name.row"
    [ $rc = 0 ] || { echo "status $rc: $(cat "$logs/$name.row")" && return $rc; }
    [ "$(counted_as "$name" count ring)" -gt 0 ] || { echo "no gather was substituted" && return 1; }
}

mode() { # NAME PROGRAM ...
    side_by_side "$1" $((seconds + 150)) programs "$@"
}

all=(SLIPRING_MIN_BYTES=0 SLIPRING_REDUCE_SCATTER=always SLIPRING_TRIALS=0)

torch_steps() {
    mode torch-default torch_programs.py -- --two-streams 0.1
    mode torch-small torch_programs.py SLIPRING_MIN_BYTES=64K -- --two-streams 0.3
    mode torch-always torch_programs.py "${all[@]}" -- --two-streams 0.3
    mode torch-expandable torch_programs.py "${all[@]}" PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True -- --two-streams 0.1
    mode torch-async torch_programs.py "${all[@]}" PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync -- --two-streams 0.1
}

# Not in bodies of conditional nodes: NCCL over sockets has host functions there, which such a body can not hold.
buffers=--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,COLLECTIVES
jax_steps() {
    mode jax-default jax_programs.py "${all[@]}" --
    mode jax-platform jax_programs.py "${all[@]}" XLA_PYTHON_CLIENT_ALLOCATOR=platform --
    mode jax-async jax_programs.py "${all[@]}" XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async --
    mode jax-buffers jax_programs.py "${all[@]}" "XLA_FLAGS=$buffers --xla_gpu_graph_min_graph_size=1" --
    mode jax-cublas jax_programs.py "${all[@]}" "XLA_FLAGS=--xla_gpu_enable_cublaslt=false --xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0" --
}

# one_program LOG SEED OPTION...: under the launcher. Longer than the program's own limit, which says what it was in.
under=()
one_program() {
    local log=$1
    shift
    timeout -k 5 100 "${under[@]}" "$fuzz_plan" "$@" >"$log" 2>&1
}

with_slipring() { # NAME COMMAND...
    local name=$1 under=("${plain[@]}" "$slipring" run --lib "$build/libslipring.so" --set min_bytes=0 --set alloc_min=1 --set reduce_scatter=always
        --set trials=0 --set log=info --set "log_file=$logs/$1.%p.decisions" --)
    shift
    "$@"
}

# c_programs NAME FIRST-SEED OPTION...: as many as fit into the time. One that fails without slipring as well is counted apart.
c_programs() {
    local name=$1 at=$2 n=0 wrong=0 without=0 end=$((SECONDS + seconds)) log=$logs/$1.one under=("${plain[@]}")
    shift 2
    for (( ; SECONDS < end; at++)); do
        if with_slipring "$name" one_program "$log" "$at" "$@"; then
            n=$((n + 1))
        elif one_program "$log.plain" "$at" "$@"; then
            n=$((n + 1)) wrong=$((wrong + 1))
            echo "seed $at, wrong:" && tail -n 20 "$log"
        else
            without=$((without + 1))
            echo "seed $at fails without slipring, too:" && tail -n 3 "$log.plain"
        fi
    done
    printf '| %s | %s | %s | %s | %s | %s |\n' "$name" $n $wrong "$(counted_as "$name" count ring)" "$(counted_as "$name" count fused)" \
        "$(counted_as "$name" scatter_count ring)" >"$logs/$name.row"
    rm -f "$logs/$name".*.decisions
    echo "$n programs, $wrong wrong; $without more fail without slipring, too"
    [ $n -gt 0 ] && [ $wrong = 0 ] && [ $without -lt $n ]
}

c_steps() {
    local part
    for part in 0 1; do # no threads, which need a device each, no ranks that die, and nothing that only the software GPU has
        side_by_side "c-$part" $((seconds + 130)) c_programs "c-$part" $((seed * 10000 + part * 5000)) --no threads,kill,freeze,stop,deepbind,conditional
    done
}

modes_table() {
    {
        echo "| mode | programs of both ranks | wrong | gathers over the ring | fused | reduce-scatters over the ring |"
        echo "| --- | --- | --- | --- | --- | --- |"
        cat "$logs"/*.row
    } >"$logs/table.table"
}

find_device
two_gpus_or_one
find_build
say "$device; logs in $out"
find_fuzz_plan
[ $softgpu = 1 ] || torch_steps
[ $softgpu = 1 ] || jax_steps
c_steps
wait
only="" alone table 10 modes_table # whatever was wanted
finish
