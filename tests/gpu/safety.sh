#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Safe on two real GPUs: one process with both, ranks that are killed and stopped, random PyTorch programs, and what it all costs.
#
#   threads-*  ag_gemm with a thread for each GPU: gathers from 1 B to 512 MiB and GEMMs; every phase must end, all exact
#   nccl-*     nccl-tests' all_gather_perf in one process, with two threads and with one
#   ratio-*    the gather between threads against that between processes, in turn: at least 0.95 of the bandwidth
#   beside-*   the gather between threads by NCCL, by slipring, and by slipring with staged shards, in turn
#   jax-*      a JAX program in one process, against NCCL alone in turn; and how each rank's gathers ended
#   dead-*     SIGKILL and SIGSTOP of a rank in each phase: the error, the stream, the abort, the bytes
#   torch-*    random PyTorch programs in each mode, with glibc's malloc checks and without
#   cost-*     this library against another one, in turn: host time and latency of a gather, ag_gemm's times
#
# usage: tests/gpu/safety.sh [options]
#   --softgpu         on the software GPU, with small sizes: tests this script; without the JAX and PyTorch steps
#   --quick           fewer rounds and sizes
#   --one-gpu         all ranks are processes on the first GPU (NCCL over loopback sockets): dead-* only
#   --build DIR       use this build as it is instead of building in build-gpu
#   --nccl-tests DIR  the programs that `nccl_tests.sh --make DIR` has left there; without it there are no nccl-* steps
#   --old LIB         another libslipring.so; without it there are no cost-* steps
#   --seconds N       of random programs in each mode [120]
#   --seed N          of the random programs [1]
#   --only REGEX      only the steps whose name matches
#   --jobs N          PyTorch modes and exact runs at a time [7; 1 with --softgpu]; timed steps and dead ranks run alone
#   --limit S         start no further step after so many seconds [540]
#   --out DIR         where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs="" nccl_tests="" old="" seconds=120 seed=1
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --quick) quick=1 ;;
    --one-gpu) one_gpu=1 ;;
    --nccl-tests) need_value "$1" "$@" && nccl_tests=$2 && shift ;;
    --build | --old | --seconds | --seed | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
jobs=${jobs:-$([ $softgpu = 1 ] && echo 1 || echo 7)}
programs=$SLR_ROOT/tests/gpu
python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "${PYTHON:-python3}") # with the wheels' own libraries
open_logs

# --- one process, two GPUs --------------------------------------------------------------------------------------------

# exact NAME ag_gemm-options...: a thread for each GPU; right results, and gathers that were substituted.
exact() {
    local name=$1
    shift
    preloaded "$name" --set min_bytes=0 "${more_settings[@]}" -- "$ag_gemm" --threads 2 --warmup 2 --timeout "$step_seconds" \
        --poison "$@" || return
    counted "$name" ring || { echo "no gather was substituted" && return 1; }
}

more_settings=() # slipring's, of the cases that follow

gather_case() { # suffix-of-the-name bytes
    local check=full
    [ "$2" -le 67108864 ] || check=sample
    side_by_side "threads-gather-$2$1" 60 exact "threads-gather-$2$1" --bytes "$2" --iters 5 --check $check
}

gemm_case() { # name options...
    local name=threads-gemm-$1
    shift
    side_by_side "$name" 60 exact "$name" --m "$side" --k "$side" --n "$side" --iters 5 --check full "$@"
}

threads_steps() {
    local bytes setting
    for bytes in $gather_bytes; do gather_case "" "$bytes"; done
    for setting in zero_copy=off alloc=off protocol=put; do
        more_settings=(--set "$setting")
        gather_case "-${setting//=/-}" "${gather_bytes##* }"
        gemm_case "${setting//=/-}"
    done
    more_settings=()
    gemm_case bn --form bn
    gemm_case at --form at
    gemm_case in-place --in-place
    gemm_case beta --beta 2
    gemm_case fp32 --dtype fp32 --api sgemm
    gemm_case lt --api lt
    gemm_case lt-bias --api lt-bias --form at
    gemm_case odd-n --n $((side - 3))
    gemm_case copy-between --interpose-op copy
    gemm_case default-stream --default-stream
    gemm_case side-stream --side-stream
    gemm_case two-streams --streams 2
    gemm_case two-communicators --comms 2
}

# one_process NAME COMMAND...: nccl-tests built with MPI, as the only rank.
one_process() {
    local name=$1
    shift
    ONE_HOST_MPI_FILE=$(mktemp) && export ONE_HOST_MPI_FILE
    RANK=0 WORLD_SIZE=1 bounded "$@" | tee "$logs/$name.rows"
    rm -f "$ONE_HOST_MPI_FILE"
    right_rows "$logs/$name.rows"
}

# all_gather NAME OPTIONS...: without slipring. all_gather_with: with it, substituted.
all_gather() {
    local name=$1
    shift
    one_process "$name" "$nccl_tests/all_gather_perf" -d int8 -c 1 "$@"
}

all_gather_with() {
    local name=$1
    shift
    one_process "$name" "$slipring" run --lib "$build/libslipring.so" --set log=info --set min_bytes=0 \
        --set "log_file=$logs/$name.rank%r.decisions" -- "$nccl_tests/all_gather_perf" -d int8 -c 1 "$@" || return
    counted "$name" ring || { echo "no gather was substituted" && return 1; }
}

nccl_steps() {
    [ -n "$nccl_tests" ] || return 0
    local range=(-b 1 -e 1G -f 4 -n 10 -w 3)
    alone nccl-threads 120 all_gather_with nccl-threads -t 2 -g 1 "${range[@]}"
    alone nccl-one-thread 120 all_gather_with nccl-one-thread -t 1 -g 2 "${range[@]}"
    alone nccl-plain-threads 120 all_gather nccl-plain-threads -t 2 -g 1 "${range[@]}"
    alone nccl-plain-one-thread 120 all_gather nccl-plain-one-thread -t 1 -g 2 "${range[@]}"
    alone nccl-table 10 rows_table nccl-table plain-threads threads plain-one-thread one-thread
}

# rows_table NAME KIND...: one line a size, bandwidth of both places of every kind of run.
rows_table() {
    local name=$1 kind files=()
    shift
    for kind in "$@"; do [ ! -s "$logs/nccl-$kind.rows" ] || files+=("$logs/nccl-$kind.rows"); done
    [ ${#files[@]} -gt 0 ] || { echo "no rows" && return 1; }
    {
        echo "all_gather_perf in one process: GB/s (algbw), out of place and in place"
        awk '$1 ~ /^[0-9]+$/ { kind = FILENAME; sub(/.*nccl-/, "", kind); sub(/[.]rows$/, "", kind)
                 if (!(kind in known)) { known[kind] = 1; kinds[++k] = kind }
                 if (!($1 in seen)) { seen[$1] = 1; sizes[++n] = $1 }
                 cell[$1, kind] = sprintf(" %9s %9s", $7, $11) }
             END { printf "%12s", "bytes"; for (i = 1; i <= k; i++) printf " %19s", kinds[i]; print ""
                 for (s = 1; s <= n; s++) { printf "%12s", sizes[s]
                     for (i = 1; i <= k; i++) printf "%s", cell[sizes[s], kinds[i]]; print "" } }' "${files[@]}"
    } >"$logs/$name.table"
}

# in_turn NAME OPTIONS...: alternate.py's table.
in_turn() {
    local name=$1
    shift
    bounded "${python[@]}" -u "$programs/alternate.py" "$@" | tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

# The command of a side, as words of a shell. under LIB COMMAND...: with that library.
under() {
    local lib=$1 settings=()
    shift
    [ $softgpu = 0 ] || settings=(--set min_bytes=0) # the sizes are small there
    printf '%q ' "${plain[@]}" "$slipring" run --lib "$lib" "${settings[@]}" -- "$@"
}

ratio() { # name bytes
    local options=(--bytes "$2" --iters "$iters" --warmup 5 --check off --no-fill --timeout 50) lib=$build/libslipring.so
    in_turn "$1" --label "gather $2" --rounds "$rounds" --metric worst.gather.gpu_ms --at-least "$least_ratio" \
        --side processes "$(under "$lib" "$ag_gemm" --ranks 2 "${options[@]}")" \
        --side threads "$(under "$lib" "$ag_gemm" --threads 2 "${options[@]}")"
}

ratio_gemm() {
    local options=(--m "$large" --k "$large" --n "$large" --iters "$iters" --warmup 5 --check-rounds 1 --timeout 50)
    local lib=$build/libslipring.so
    in_turn "$1" --label "GEMM $large" --rounds "$rounds" --metric worst.whole.gpu_ms worst.gather.gpu_ms worst.gemm.gpu_ms \
        --side processes "$(under "$lib" "$ag_gemm" --ranks 2 "${options[@]}")" \
        --side threads "$(under "$lib" "$ag_gemm" --threads 2 "${options[@]}")" \
        --side "threads, NCCL" "$(printf '%q ' "${plain[@]}" "$ag_gemm" --threads 2 "${options[@]}")"
}

ratio_steps() {
    local bytes
    for bytes in $ratio_bytes; do alone "ratio-$bytes" 120 ratio "ratio-$bytes" "$bytes"; done
    alone ratio-gemm 120 ratio_gemm ratio-gemm
}

# beside NAME BYTES: all that is to move does, and is not tried against NCCL.
beside() {
    local options=(--threads 2 --bytes "$2" --iters "$iters" --warmup 8 --check off --no-fill --timeout 50)
    local ring=("${plain[@]}" "$slipring" run --lib "$build/libslipring.so" --set min_bytes=0 --set trials=0)
    in_turn "$1" --label "shards of $2" --rounds "$rounds" --metric worst.gather.gpu_ms \
        --side NCCL "$(printf '%q ' "${plain[@]}" "$ag_gemm" "${options[@]}")" \
        --side slipring "$(printf '%q ' "${ring[@]}" -- "$ag_gemm" "${options[@]}")" \
        --side staged "$(printf '%q ' "${ring[@]}" --set zero_copy=off -- "$ag_gemm" "${options[@]}")"
}

beside_steps() {
    local bytes
    for bytes in $beside_bytes; do alone "beside-$bytes" 120 beside "beside-$bytes" "$bytes"; done
}

jax_shape=(--m 8192 --k 4096 --n 4096)

# jax_time NAME LEAST: NCCL alone and slipring in turn; slower than that ratio fails.
jax_time() {
    in_turn "$1" --label "JAX ${jax_shape[*]}" --rounds "$rounds" --timeout 150 --metric ms --at-least "$2" \
        --side NCCL "$(printf '%q ' "${python[@]}" "$programs/jax_gather.py" "${jax_shape[@]}")" \
        --side slipring "$(under "$build/libslipring.so" "${python[@]}" "$programs/jax_gather.py" "${jax_shape[@]}")"
}

# jax_ended NAME: what became of each rank's gathers.
jax_ended() {
    local name=$1
    bounded "$slipring" run --lib "$build/libslipring.so" --set log=info --set log_format=json --set trace=1 \
        --set "log_file=$logs/$name.rank%r.json" -- "${python[@]}" "$programs/jax_gather.py" "${jax_shape[@]}" --calls 20 || return
    "${python[@]}" "$programs/ended.py" --alike "JAX" "$logs/$name".rank*.json | tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

jax_steps() {
    [ $softgpu = 0 ] || return 0
    alone jax-ended 150 jax_ended jax-ended
    alone jax-time 400 jax_time jax-time 0.97
}

# --- dead and stopped ranks -------------------------------------------------------------------------------------------

# dead_ranks NAME CASES [TRIALS [OPTIONS]]: the cases whose name begins with that. While ways are tried, a gather may be NCCL's; one
# that is NCCL's in the trials is followed.
dead_ranks() {
    local name=$1 trials=${3:-0} options=(--only "$2" --seed "$seed" --repeat "$repeat")
    shift $(($# < 3 ? $# : 3))
    options+=("$@")
    [ $softgpu = 0 ] || options+=(--quick)
    rank_program dead gpu "$programs"/dead*.c || return
    bounded "${plain[@]}" "${slow_link[@]}" "$slipring" run --lib "$build/libslipring.so" --set log=info --set min_bytes=0 --set "trials=$trials" --set gemm_timeout=500ms \
        --set trials_after=16 --set "log_file=$logs/$name.%p.decisions" -- "$program" "${options[@]}" | tee "$logs/$name.table"
    [ "${PIPESTATUS[0]}" = 0 ] || { grep -vE '\| pass \|$' "$logs/$name.table" | tail -n 3 && return 1; }
    grep -qE ' substitute .*reason=ring' "$logs/$name".*.decisions || { echo "no gather was substituted" && return 1; }
    grep -qE ' fused ' "$logs/$name".*.decisions || { echo "no GEMM was fused" && return 1; }
}

# What NCCL alone does when the peer is killed; no verdict.
dead_nccl() {
    rank_program dead gpu "$programs"/dead*.c || return
    { echo "NCCL alone" && bounded "${plain[@]}" "$program" --only "kill while"; } | tee "$logs/$1.table"
    grep -q '^| kill' "$logs/$1.table"
}

dead_steps() {
    local cases
    [ $softgpu = 1 ] || alone dead-nccl 100 dead_nccl dead-nccl
    for cases in kill stop abort; do alone dead-$cases 280 dead_ranks dead-$cases $cases; done
    # One thread, and every call in the trials: an error is told whoever has the gather.
    alone dead-tried 280 dead_ranks dead-tried "kill while ways" 5 --alone --repeat $((4 * repeat))
    # The rest: calls that stay with NCCL, of which nothing is told, and a GEMM that loads a kernel behind one of NCCL's. A second
    # thread aborts then.
    alone dead-trials 280 dead_ranks dead-trials "kill at any" 3 --untold
}

# --- random PyTorch programs ------------------------------------------------------------------------------------------

# ranks NAME N COMMAND...: N ranks as torchrun starts them, each with a GPU. When one fails the others get a while to end by
# themselves. NAME.rankR.out: what it printed; NAME.rankR.status: how it ended, not there when it was made to end.
ranks() (
    name=$1 n=$2 pids=() failed=0
    shift 2
    export WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000))
    for ((rank = 0; rank < n; rank++)); do
        # shellcheck disable=SC2016 # the inner shell's variables
        RANK=$rank LOCAL_RANK=$rank STATUS=$logs/$name.rank$rank.status \
            timeout -k 5 "$step_seconds" sh -c '"$@"; rc=$?; echo $rc >"$STATUS"; exit $rc' sh "$@" >"$logs/$name.rank$rank.out" 2>&1 &
        pids+=($!)
    done
    for ((rank = 0; rank < n; rank++)); do
        wait -n && continue
        failed=$?
        sleep 3
        kill "${pids[@]}" 2>/dev/null || true
        break
    done
    wait
    exit "$failed"
)

# malloc_checked: glibc's checks are there and see one byte written behind a block.
malloc_checks=("LD_PRELOAD=libc_malloc_debug.so.0" MALLOC_CHECK_=3 GLIBC_TUNABLES=glibc.malloc.check=3)
malloc_checked() {
    local rc=0 program=$logs/overrun
    gcc -x c -O0 -o "$program" - <<<'#include <stdlib.h>
int main(void) { volatile char *block = malloc(24); block[24] = 1; free((void *)block); return 0; }' || return
    env "${malloc_checks[@]}" "$program" || rc=$?
    rm -f "$program"
    [ $rc = 134 ] || { echo "glibc's malloc checks see nothing (status $rc)" && return 1; }
}

number_of() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$2" 2>/dev/null; }

# counted_as NAME REASON: over all ranks.
counted_as() {
    cat "$logs/$1".rank*.decisions 2>/dev/null | sed -n "s/.*count reason=$2 n=\([0-9]*\).*/\1/p" | awk '{ n += $1 } END { print n + 0 }'
}

# mode_row NAME: a line of the table.
mode_row() {
    local name=$1 file status programs="" wrong=0 aborts=0 ends=""
    for file in "$logs/$name".rank[0-9].out; do
        status=$(cat "${file%.out}.status" 2>/dev/null || echo stopped)
        ends="$ends $status"
        [ "$status" != 134 ] || aborts=$((aborts + 1))
        programs=$(number_of programs "${file%.out}.json")
        wrong=$((wrong + $(number_of wrong "${file%.out}.json" || echo 0) + 0))
    done
    printf '| %s | %s | %s | %s |%s | %s | %s |\n' "${name#torch-}" "${programs:-did not end}" "$wrong" "$aborts" "$ends" \
        "$(counted_as "$name" ring)" "$(counted_as "$name" fused)" >"$logs/$name.row"
}

# mode NAME SHARE CHECKED VARIABLE=VALUE...: random programs with this environment, SHARE of them with two streams a communicator.
mode() {
    local name=$1 share=$2 checked=$3 rc=0 checks=()
    shift 3
    if [ "$checked" = 1 ]; then # in front of everything else
        checks=(env "${malloc_checks[@]}" "LD_PRELOAD=libc_malloc_debug.so.0:$build/libslipring.so")
    fi
    ranks "$name" 2 env "$@" "$slipring" run --lib "$build/libslipring.so" --set log=info --set "log_file=$logs/$name.rank%r.decisions" -- \
        "${checks[@]}" "${python[@]}" -u "$programs/torch_programs.py" --seconds "$seconds" --seed "$seed" --two-streams "$share" \
        --json "$logs/$name" || rc=$?
    mode_row "$name"
    tail -n 6 "$logs/$name".rank[0-9].out
    cat "$logs/$name.row"
    [ $rc = 0 ] || { echo "status $rc: $(cat "$logs/$name.row")" && return $rc; }
    [ "$(counted_as "$name" ring)" -gt 0 ] || { echo "no gather was substituted" && return 1; }
    # Fewer GEMMs are fused where other things happen in between, but some must be.
    [ "$(counted_as "$name" fused)" -gt 0 ] || { echo "no GEMM was fused" && return 1; }
}

# both NAME SHARE VARIABLE=VALUE...: without glibc's checks and with them.
both() {
    local name=torch-$1 share=$2
    shift 2
    side_by_side "$name" $((seconds + 90)) mode "$name" "$share" 0 "$@"
    side_by_side "$name-checked" $((seconds + 150)) mode "$name-checked" "$share" 1 "$@"
}

modes_table() {
    {
        echo "| mode | programs | wrong | aborts | exit status of the ranks | substituted | fused |"
        echo "| --- | --- | --- | --- | --- | --- | --- |"
        cat "$logs"/torch-*.row
    } >"$logs/torch-table.table"
}

torch_steps() {
    [ $softgpu = 0 ] || return 0
    local all=SLIPRING_MIN_BYTES=0
    alone torch-malloc-checks 30 malloc_checked
    both expandable 0.1 $all PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    both streams 0.7 $all
    both default 0.1
    both put 0.1 $all SLIPRING_PROTOCOL=put
    both all 0.1 $all SLIPRING_ALLOC=all
    both async 0.1 $all PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync
    both expandable-default 0.1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    alone torch-table 10 modes_table
}

# --- what it costs ----------------------------------------------------------------------------------------------------

# old_new NAME LABEL LEAST METRICS -- COMMAND...: the other library and this one, in turn.
old_new() {
    local name=$1 label=$2 least=$3 metrics=()
    shift 3
    while [ "$1" != -- ]; do metrics+=("$1") && shift; done
    shift
    in_turn "$name" --label "$label" --rounds "$rounds" --metric "${metrics[@]}" --at-least "$least" \
        --side old "$(under "$old" "$@")" --side new "$(under "$build/libslipring.so" "$@")"
}

cost_calls() { # name
    local sizes bytes metrics=()
    for bytes in $call_bytes; do metrics+=("$bytes.host_us" "$bytes.latency_us"); done
    sizes=${call_bytes// /,}
    in_turn "$1" --label "a gather" --rounds "$rounds" --metric "${metrics[@]}" --at-least "$least_call" \
        --side old "$(under "$old" "$gather_cost" --bytes "$sizes")" \
        --side new "$(under "$build/libslipring.so" "$gather_cost" --bytes "$sizes")"
}

# What is compared is a program that has run for some 0.1 s: by then the peers have mapped its memory.
cost_steps() {
    [ -n "$old" ] || return 0
    local m n k bytes name
    alone cost-calls 200 cost_calls cost-calls
    for bytes in $cost_bytes; do
        alone "cost-gather-$bytes" 90 old_new "cost-gather-$bytes" "gather $bytes" "$least_cost" \
            worst.gather.gpu_ms worst.gather.host_ms -- \
            "$ag_gemm" --ranks 2 --bytes "$bytes" --iters "$iters" --warmup $((1 + warm_bytes / bytes)) --check off --no-fill --timeout 50
    done
    while read -r m n k; do
        name=cost-gemm-$m-$n-$k
        alone "$name" 120 old_new "$name" "(m, n, k) = ($m, $n, $k)" "$least_cost" \
            worst.whole.gpu_ms worst.whole.host_ms -- \
            "$ag_gemm" --ranks 2 --m "$m" --n "$n" --k "$k" --iters "$iters" --warmup "$warm_gemms" --check-rounds 1 --timeout 50
    done <<<"$cost_shapes"
}

# ----------------------------------------------------------------------------------------------------------------------

repeat=2 slow_link=() side=512 large=8192 rounds=3 iters=40 least_ratio=0.95 least_cost=0.97 least_call=0.9
gather_bytes="1 3 4096 1048581 16777216 67108864 268435456 536870912" ratio_bytes="67108864 268435456 536870912 1073741824"
beside_bytes="524288 8388608 33554432 134217728 536870912" # so that 1, 16, 64, 256 MiB and 1 GiB are gathered
call_bytes="65536 1048576 4194304 16777216 67108864 268435456" cost_bytes="4194304 67108864 536870912"
warm_bytes=$((16 << 30)) warm_gemms=300
cost_shapes="1280 16384 8192
1024 32768 8192
8192 8192 8192
4096 4096 4096"
[ $quick = 0 ] || repeat=1 rounds=2 iters=20 gather_bytes="1 4096 1048581 536870912"
if [ $softgpu = 1 ]; then
    slow_link=(env SOFTGPU_TIMING=1 SOFTGPU_LINK_GBS=0.02) # so that there is a middle of a gather
    warm_bytes=$((1 << 20)) warm_gemms=10 side=96 large=256 rounds=1 iters=3 least_ratio=0 least_cost=0 least_call=0
    gather_bytes="1 3 4096 1048581" ratio_bytes=1048576 beside_bytes="65536 1048576" call_bytes="4096 65536" cost_bytes=65536 cost_shapes="64 64 64"
fi

find_device
two_gpus_or_one
find_build
ag_gemm=$build/bench/ag_gemm gather_cost=$build/bench/gather_cost
[ -x "$ag_gemm" ] || die "$ag_gemm is not there: bench/ was not built (see $build/configure.log)"
[ -z "$nccl_tests" ] || nccl_tests=$(cd "$nccl_tests" && pwd)
[ -z "$old" ] || old=$(readlink -f "$old")
say "$device; logs in $out"

if [ $one_gpu = 0 ]; then
    threads_steps
    nccl_steps
    ratio_steps
    beside_steps
    jax_steps
fi
dead_steps
if [ $one_gpu = 0 ]; then
    torch_steps
    cost_steps
fi
finish
