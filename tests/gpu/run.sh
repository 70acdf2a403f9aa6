#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The proof on a real GPU, in one call: builds, checks that results are exact, times the main shapes, and prints a table.
# All ranks share the first GPU (NCCL then talks over loopback sockets: right, but slow), so one GPU is enough. With --spread each
# rank has a GPU of its own, and what is timed without slipring is NCCL as it is used.
#
# usage: tests/gpu/run.sh [options]
#   --softgpu     on the software GPU, with small sizes: tests this script, not the hardware
#   --quick       fewer cases
#   --spread      a GPU for each rank; with as many of 2 and 4 ranks as there are GPUs for
#   --build DIR   use this build as it is instead of building in build-gpu
#   --only REGEX  only the steps whose name matches
#   --jobs N      checks at a time [4; 1 with --softgpu]; timed steps always run alone
#   --limit S     start no further step after so many seconds [440]
#   --out DIR     where logs go [$OUT, else out/gpu]: summary.txt, timed results as JSON, and logs.tar.gz with the output
#                 and the decision log of every step
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs="" limit=440 spread=0
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --quick) quick=1 ;;
    --spread) spread=1 ;;
    --build | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
jobs=${jobs:-$([ $softgpu = 1 ] && echo 1 || echo 4)}
open_logs

# --- exactness ------------------------------------------------------------------------------------------------------

# exact NAME EXPECTED REFUSED ag_gemm-options...: right results, and the decision logs count a reason that matches
# EXPECTED and none that matches REFUSED (- for no such condition). Without this a run that NCCL did would pass too.
exact() {
    local name=$1 expected=$2 refused=$3
    shift 3
    preloaded "$name" --set min_bytes=0 "${more_settings[@]}" -- "$ag_gemm" "${devices_of[@]}" --iters 2 --warmup 1 --timeout "$step_seconds" "$@"
    local rc=$?
    [ $rc = 0 ] || return $rc
    counted "$name" ring || { echo "no gather was substituted" && return 1; }
    counted "$name" "$expected" || { echo "no decision counted as $expected" && return 1; }
    if [ "$refused" != - ] && counted "$name" "$refused"; then
        echo "a decision counted as $refused" && return 1
    fi
}

more_settings=() # slipring's, of the cases that follow

gather_case() { # ranks bytes dtype place
    local options=(--ranks "$1" --bytes "$2" --dtype "$3" --poison)
    [ "$4" = out-of-place ] || options+=(--in-place)
    [ "$2" -gt 67108864 ] && options+=(--check sample) || options+=(--check full)
    side_by_side "gather-$1-ranks-$3-$2-bytes-$4" 60 \
        exact "gather-$1-ranks-$3-$2-bytes-$4" ring - "${options[@]}"
}

# went NAME FIELD ag_gemm-options...: exact, and the summary of a rank counts shards that went that way.
went() {
    local name=$1 field=$2
    shift 2
    exact "$name" ring - "$@" || return
    grep -hqE "summary .*$field=[1-9]" "$logs/$name".rank*.decisions || { echo "no shard counted as $field" && return 1; }
}

# The ways of a shard. Enough iterations for the peers to have mapped the buffers.
way_case() { # ranks field slipring-options...
    local name=way-$1-ranks-$2 ranks=$1 field=$2
    shift 2
    more_settings=("$@")
    side_by_side "$name" 60 went "$name" "$field" --ranks "$ranks" --bytes 1048581 --dtype int8 --poison --check full \
        --check-rounds 20 --iters 500
    more_settings=()
}

gather_cases() {
    local ranks bytes place sizes="1 3 4096 1048581 67108864 268435456"
    [ $softgpu = 0 ] || sizes="1 3 4096 1048581"
    [ $quick = 0 ] || sizes="3 1048581"
    for ranks in $rank_counts; do
        for bytes in $sizes; do
            for place in in-place out-of-place; do gather_case "$ranks" "$bytes" int8 $place; done
        done
        gather_case "$ranks" 4096 fp32 out-of-place
        [ $quick = 1 ] || gather_case "$ranks" 1048584 bf16 in-place
        way_case "$ranks" staged --set zero_copy=off
        way_case "$ranks" zero_copy
        way_case "$ranks" pushed --set protocol=put
    done
}

gemm_case() { # name expected refused options...
    local ranks name=$1 expected=$2 refused=$3 full
    shift 3
    for ranks in $rank_counts; do
        full=gemm-$ranks-ranks-$name
        side_by_side "$full" 60 exact "$full" "$expected" "$refused" --ranks "$ranks" --m "$size" --k "$size" \
            --n "$size" --check full --poison "$@"
    done
}

gemm_cases() {
    gemm_case bn fused - --form bn
    gemm_case at fused - --form at
    gemm_case interposed-copy other_operation fused --interpose-op copy
    gemm_case side-stream fused - --side-stream
    [ $quick = 0 ] || return 0
    gemm_case side-default-stream fused - --side-stream --default-stream
    gemm_case bn-beta fused - --form bn --beta 2 --in-place
    gemm_case at-beta fused - --form at --beta 1
    gemm_case bn-odd-n 'fused|gemm_shape|gemm_other_operand' - --n $((size - 3))
    gemm_case bn-padded 'fused|gemm_leading_dimension' - --ld-pad 8
    gemm_case at-padded 'fused|gemm_leading_dimension' - --form at --ld-pad 8
    gemm_case interposed-memset other_operation fused --interpose-op memset
    gemm_case interposed-write other_operation fused --interpose-op write
    gemm_case default-stream 'fused|other_operation' - --default-stream
    gemm_case fp32 fused - --dtype fp32
    gemm_case sgemm-ilp64 fused - --dtype fp32 --api sgemm --ilp64
    gemm_case dgemm fused - --dtype fp64 --api dgemm
    gemm_case hgemm fused - --dtype fp16 --api hgemm --form at
    gemm_case batched fused - --api batched
    gemm_case lt fused - --api lt --beta 2
    gemm_case lt-bias fused - --api lt-bias
    gemm_case lt-bias-at fused - --api lt-bias --form at
    gemm_case lt-bias-fp16-in-place fused - --api lt-bias --form at --dtype fp16 --in-place
    gemm_case lt-fp32 fused - --api lt --dtype fp32
    gemm_case two-streams 'fused|other_operation' - --streams 2
    gemm_case two-communicators 'fused|other_operation|next_gather' - --comms 2
}

# --- time -----------------------------------------------------------------------------------------------------------

# pair NAME ag_gemm-options...: alternately without and with slipring. Its table is the end of the log.
pair() {
    local name=$1 under
    shift
    under="$slipring run --lib $build/libslipring.so --set log=info --set log_file=$logs/$name.rank%r.decisions"
    [ $softgpu = 0 ] || under="$under --set min_bytes=0" # the sizes are small there
    [ -z "$pair_settings" ] || under="$under --set $pair_settings"
    bounded "${plain[@]}" "$bench" --ag-gemm "$ag_gemm" --with "$under --" \
        --rounds "$rounds" --json "$logs/$name.json" -- "${devices_of[@]}" --check sample --check-rounds 1 --label "$name" "$@" |
        tee "$logs/$name.table"
    [ "${PIPESTATUS[0]}" = 0 ] || return 1
    counted "$name" ring && counted "$name" fused && return 0
    echo "the gather was not substituted or the GEMM not fused" && return 1
}

timed_shape() { # prefix-of-the-name ranks side: the same on every dimension, large enough to hide a gather behind
    local name=$1-$2-ranks-$3 iterations=$iters
    [ "$3" -le 8192 ] || iterations=$((iters / 2)) # the run without slipring gathers over sockets
    alone "$name" 120 pair "$name" --ranks "$2" --m "$3" --k "$3" --n "$3" --iters "$iterations"
}

timed_shapes() { # prefix-of-the-name
    local ranks side
    for side in $timed_sides; do
        for ranks in $rank_counts; do timed_shape "$1" "$ranks" "$side"; done
    done
}

# helper NAME: sets `program`, one of the small programs beside this script; builds it where the tests were not built.
helper() {
    local include
    program=$build/tests/gpu/$1
    [ -x "$program" ] && return
    program=$logs/$1
    include=$(sed -nE 's/^SLIPRING_CUDA_INCLUDE:[A-Z]*=//p' "$build/CMakeCache.txt")
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -isystem "$include" "$SLR_ROOT/tests/gpu/$1"*.c -o "$program" -ldl
}

# memop NAME: the latency of a flag between two processes.
memop() {
    local program
    helper memop_latency || return
    bounded "${plain[@]}" "$program" "${memop_options[@]}" | tee "$logs/$1.table"
    return "${PIPESTATUS[0]}"
}

# driver_costs NAME: what the driver's calls, copies and the steps of a stream cost.
driver_costs() {
    local program
    helper driver_costs || return
    bounded "${plain[@]}" "$program" "${costs_options[@]}" | tee "$logs/$1.table"
    return "${PIPESTATUS[0]}"
}

# alloc NAME: what cuMemAlloc and cuMemFree cost, without slipring and with every block kept.
alloc() {
    local program
    helper alloc_cost || return
    {
        echo "cuMemAlloc + cuMemFree, the driver alone:"
        bounded "${plain[@]}" "$program" "$alloc_rounds" || return
        echo "the same with SLIPRING_ALLOC=all:"
        preloaded "$1" --set alloc=all -- "$program" "$alloc_rounds"
    } >"$logs/$1.table" || return
    cat "$logs/$1.table"
}

# import_cost NAME: what mapping a peer's block costs.
import_cost() {
    local program
    helper import_cost || return
    bounded "${plain[@]}" "$program" "${import_options[@]}" | tee "$logs/$1.table"
    return "${PIPESTATUS[0]}"
}

# links NAME RANKS: what the copy engines give, by who copies and when.
links() {
    local program mib
    helper links || return
    for mib in $links_mib; do
        bounded "${plain[@]}" "$program" "$mib" $((mib / 8)) "$2" && echo || return
    done >"$logs/$1.table"
    cat "$logs/$1.table"
}

# lt_parts NAME: what a cublasLtMatmul in parts costs.
lt_parts() {
    bounded "${plain[@]}" "$build/bench/lt_parts" "${lt_shapes[@]}" | tee "$logs/$1.table"
    return "${PIPESTATUS[0]}"
}

# ways NAME RANKS MIB... -- ag_gemm-options...: the gather alone, by each way of a shard.
ways() {
    local name=$1 ranks=$2 sizes=()
    shift 2
    while [ "$1" != -- ]; do sizes+=("$1") && shift; done
    bounded "${plain[@]}" python3 "$SLR_ROOT/bench/gather_ways" --ag-gemm "$ag_gemm" --ranks "$ranks" --mib "${sizes[@]}" \
        --slipring "$slipring run --lib $build/libslipring.so" --rounds "$rounds" --json "$logs/$name.json" -- "${devices_of[@]}" "${@:2}" |
        tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

# NCCL gathers over sockets here: few iterations for the large ones.
ways_steps() { # prefix-of-the-name
    local ranks
    for ranks in $rank_counts; do
        # shellcheck disable=SC2086 # lists of sizes
        alone "$1-$ranks-ranks-small" 90 ways "$1-$ranks-ranks-small" "$ranks" $small_mib -- "${small_loop[@]}"
        [ $quick = 1 ] || alone "$1-$ranks-ranks-large" 120 ways "$1-$ranks-ranks-large" "$ranks" $large_mib -- --warmup 3 --iters 5
        large_mib=${large_mib%% *}
    done
}

# traced NAME RANKS N: what SLIPRING_TRACE says of ag_gemm is whole, in order and of one clock for all ranks; and the table of it.
traced() {
    local name=$1
    rm -f "$logs/$name".rank*.json
    bounded "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" --set log=info --set log_format=json --set trace=1 \
        --set min_bytes=0 --set "log_file=$logs/$name.rank%r.json" -- "$ag_gemm" "${devices_of[@]}" --ranks "$2" --m "$3" --k "$3" --n "$3" \
        --iters "$iters" --timeout "$step_seconds" || return
    python3 "$SLR_ROOT/tests/observe/trace_check.py" --ended fused --table "$name" "$logs/$name".rank*.json >"$logs/$name.table"
}

traced_steps() { # prefix
    local ranks
    for ranks in $rank_counts; do
        alone "$1-$ranks-ranks" 90 traced "$1-$ranks-ranks" "$ranks" "${timed_sides%% *}"
    done
}

mps_steps() {
    if [ ! -e "$logs/mps/started" ]; then
        ways_steps ways
        return
    fi
    alone memop-mps 60 memop memop-mps
    ways_steps ways-mps
    timed_shapes time-mps
    traced_steps trace-mps
}

# Between GPUs: also the shape that others report (nvFuser #5259), and how finely to cut. The gather alone: nccl_tests.sh --spread.
spread_steps() {
    local ranks
    for ranks in $rank_counts; do alone "links-$ranks-ranks" 60 links "links-$ranks-ranks" "$ranks"; done
    timed_shapes time
    for ranks in $rank_counts; do
        alone "time-$ranks-ranks-nvfuser" 120 pair "time-$ranks-ranks-nvfuser" --ranks "$ranks" "${nvfuser_shape[@]}" --iters "$iters"
    done
    pair_settings=flop_per_byte=0
    timed_shape time-all-parts "$ranks" "${timed_sides%% *}"
    pair_settings=protocol=pull
    timed_shapes time-pull
    pair_settings=""
}

timed_steps() {
    if [ $spread = 1 ]; then
        spread_steps
    else
        with_mps mps_steps
        timed_shapes time
    fi
    traced_steps trace
}

# --------------------------------------------------------------------------------------------------------------------

rank_counts="2 4" size=512 rounds=2 iters=10 timed_sides="8192 16384" memop_options=(64 50) alloc_rounds=200
costs_options=() import_options=(100 1024) small_mib="1 16" large_mib="128 1024" small_loop=(--warmup 60 --iters 100)
links_mib="64 512" pair_settings="" nvfuser_shape=(--m 8192 --k 16384 --n 32768)
lt_shapes=(bn 8192 16384 8192 8 bn 8192 16384 8192 4 bn 4096 8192 4096 4 bn 14336 8192 4096 8 bn 4096 16384 14336 4 at 16384 8192 8192 8
    at 16384 4096 4096 8 bn 2048 2048 8192 4 bn 1024 512 8192 4)
if [ $softgpu = 1 ]; then
    size=96 rounds=1 iters=2 timed_sides=256 links_mib=8 nvfuser_shape=(--m 64 --k 128 --n 256) memop_options=(8 5) alloc_rounds=20
    costs_options=(--quick) import_options=(5 16) small_mib=1 large_mib=2 small_loop=(--warmup 2 --iters 3) lt_shapes=(bn 40 64 64 4)
fi
[ $quick = 0 ] || rank_counts="2"

find_device
devices_of=(--one-gpu)
if [ $spread = 1 ]; then
    devices_of=() devices=4 iters=$((iters * 4)) # NCCL is fast there
    [ $softgpu = 1 ] || devices=$(cuda_device_count)
    [ "$devices" -ge 4 ] || rank_counts=2
    [ "$devices" -ge 2 ] || die "--spread needs two GPUs at least"
fi
find_build
ag_gemm=$build/bench/ag_gemm
[ -x "$ag_gemm" ] || die "$ag_gemm is not there: bench/ was not built (see $build/configure.log)"
bench=${BENCH_TOOL:-$build/slipring-bench}
[ -x "$bench" ] || die "$bench is not there: it needs Jansson (libjansson-dev); or name one that was built elsewhere in BENCH_TOOL"
say "$device; logs in $out"

alone memop-latency 60 memop memop-latency
alone driver-costs 60 driver_costs driver-costs
alone alloc-cost 60 alloc alloc-cost
alone import-cost 60 import_cost import-cost
alone lt-parts 60 lt_parts lt-parts
gather_cases
gemm_cases
timed_steps
finish
