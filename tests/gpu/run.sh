#!/bin/bash
# The proof on a real GPU, in one call: builds, checks that results are exact, times the main shapes, and prints a table.
# All ranks share the first GPU (NCCL then talks over loopback sockets: right, but slow), so one GPU is enough.
#
# usage: tests/gpu/run.sh [options]
#   --softgpu     on the software GPU, with small sizes: tests this script, not the hardware
#   --quick       fewer cases
#   --build DIR   use this build as it is instead of building in build-gpu
#   --only REGEX  only the steps whose name matches
#   --jobs N      checks at a time [4; 1 with --softgpu]; timed steps always run alone
#   --limit S     start no further step after so many seconds [440]
#   --out DIR     where logs go [$OUT, else out/gpu]: summary.txt, timed results as JSON, and logs.tar.gz with the output
#                 and the decision log of every step
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/../../scripts/common.sh"

softgpu=0 quick=0 build="" only="" jobs="" limit=440 out=${OUT:-$SLR_ROOT/out/gpu}
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --quick) quick=1 ;;
    --build | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $1; see --help" ;;
    esac
    shift
done
jobs=${jobs:-$([ $softgpu = 1 ] && echo 1 || echo 4)}
slipring=$SLR_ROOT/LD_PRELOAD/slipring
mkdir -p "$out"
out=$(cd "$out" && pwd)
logs=$out/logs
rm -rf "$logs" "$out/logs.tar.gz" "$out/summary.txt"
mkdir -p "$logs"

pack_logs() {
    local job
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
    [ -d "$logs" ] && tar -C "$out" -czf "$out/logs.tar.gz" logs && rm -rf "$logs"
}
trap pack_logs EXIT

# --- steps ----------------------------------------------------------------------------------------------------------
# A step is a function or command that writes to its own log. Its result line goes to NAME.result, so that steps which
# run side by side are listed in the order in which they were started.

names=()

wanted() { [ -z "$only" ] || [[ $1 =~ $only ]]; }

# timed_step NAME SECONDS COMMAND...: in the foreground or, from `side_by_side`, in the background.
timed_step() {
    local name=$1 seconds=$2 begin rc=0 verdict=PASS why=""
    shift 2
    begin=$(date +%s.%N)
    step_seconds=$seconds "$@" >"$logs/$name.log" 2>&1 || rc=$?
    case $rc in
    0) ;;
    77) verdict=SKIP why=$(tail -n 1 "$logs/$name.log") ;;
    124 | 137) verdict=FAIL why="did not end within $seconds s" ;;
    *) verdict=FAIL why=$(grep -v '^ *$' "$logs/$name.log" | tail -n 1 | cut -c1-150) ;;
    esac
    printf '%-4s  %6.1f s  %s%s\n' $verdict "$(elapsed "$begin")" "$name" "${why:+: $why}" >"$logs/$name.result"
    cat "$logs/$name.result"
}

elapsed() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { print b - a }'; }

in_time() {
    [ $SECONDS -lt "$limit" ] && return 0
    printf 'FAIL     0.0 s  %s: not started, the limit of %s s was reached\n' "$1" "$limit" >"$logs/$1.result"
    cat "$logs/$1.result"
    return 1
}

# alone NAME SECONDS COMMAND...
alone() {
    wanted "$1" || return 0
    wait
    names+=("$1")
    in_time "$1" && timed_step "$@"
    return 0
}

# side_by_side NAME SECONDS COMMAND...: returns at once while fewer than `jobs` are running.
side_by_side() {
    wanted "$1" || return 0
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    names+=("$1")
    in_time "$1" && timed_step "$@" &
}

# bounded COMMAND...: with the step's time limit.
bounded() { timeout -k 5 "$step_seconds" "$@"; }

# --- environment ----------------------------------------------------------------------------------------------------

find_build() {
    if [ -n "$build" ]; then
        build=$(cd "$build" && pwd) || exit 1
        return
    fi
    build=$SLR_ROOT/build-gpu
    local tests=OFF
    [ $softgpu = 0 ] || tests=ON
    say "building in $build"
    configure "$build" -DSLIPRING_TESTS=$tests || die "cmake failed"
    ninja -C "$build" --quiet >"$logs/build.log" 2>&1 || { tail -n 40 "$logs/build.log" >&2 && die "the build failed"; }
}

find_device() {
    local path
    if [ $softgpu = 1 ]; then
        plain=("$slipring" softgpu -n 4 --)
        device="software GPU"
        return
    fi
    path=$(cuda_lib_path) || die "CUDA, cuBLAS or NCCL libraries missing; scripts/setup.sh --gpu-libs installs them"
    [ -z "$path" ] || export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    [ "$(cuda_device_count)" -gt 0 ] || die "no usable GPU; --softgpu runs on the software GPU"
    plain=(env)
    device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
    device=${device:-GPU}
}

# preloaded NAME COMMAND...: under slipring, with a decision log for each rank.
preloaded() {
    local name=$1
    shift
    bounded "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" --set log=info \
        --set "log_file=$logs/$name.rank%r.decisions" "$@"
}

# --- exactness ------------------------------------------------------------------------------------------------------

# counted NAME REASON: some rank counted such a decision.
counted() { grep -hqE "count.*reason=($2) " "$logs/$1".rank*.decisions; }

# exact NAME EXPECTED REFUSED ag_gemm-options...: right results, and the decision logs count a reason that matches
# EXPECTED and none that matches REFUSED (- for no such condition). Without this a run that NCCL did would pass too.
exact() {
    local name=$1 expected=$2 refused=$3
    shift 3
    preloaded "$name" --set min_bytes=0 -- "$ag_gemm" --one-gpu --iters 2 --warmup 1 --timeout "$step_seconds" "$@"
    local rc=$?
    [ $rc = 0 ] || return $rc
    counted "$name" ring || { echo "no gather was substituted" && return 1; }
    counted "$name" "$expected" || { echo "no decision counted as $expected" && return 1; }
    if [ "$refused" != - ] && counted "$name" "$refused"; then
        echo "a decision counted as $refused" && return 1
    fi
}

gather_case() { # ranks bytes dtype place
    local options=(--ranks "$1" --bytes "$2" --dtype "$3" --poison)
    [ "$4" = out ] || options+=(--in-place)
    [ "$2" -gt 67108864 ] && options+=(--check sample) || options+=(--check full)
    side_by_side "gather-$1-ranks-$3-$2-bytes-$4-of-place" 60 \
        exact "gather-$1-ranks-$3-$2-bytes-$4-of-place" ring - "${options[@]}"
}

gather_cases() {
    local ranks bytes place sizes="1 3 4096 1048581 67108864 268435456"
    [ $softgpu = 0 ] || sizes="1 3 4096 1048581"
    [ $quick = 0 ] || sizes="3 1048581"
    for ranks in $rank_counts; do
        for bytes in $sizes; do
            for place in in out; do gather_case "$ranks" "$bytes" int8 $place; done
        done
        gather_case "$ranks" 4096 fp32 out
        [ $quick = 1 ] || gather_case "$ranks" 1048584 bf16 in
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
    [ $quick = 0 ] || return 0
    gemm_case bn-beta fused - --form bn --beta 2 --in-place
    gemm_case at-beta fused - --form at --beta 1
    gemm_case bn-odd-n 'fused|gemm_shape' - --n $((size - 3))
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
    gemm_case two-streams 'fused|other_operation' - --streams 2
    gemm_case two-communicators 'fused|other_operation|next_gather' - --comms 2
}

# --- time -----------------------------------------------------------------------------------------------------------

build_memop() {
    gcc -std=gnu11 -D_GNU_SOURCE -O2 $(header_options) "$SLR_ROOT/tests/gpu/memop_latency.c" -o "$logs/memop_latency" -ldl
}

header_options() {
    sed -nE 's/^SLIPRING_(CUDA|NCCL)_INCLUDE:[A-Z]*=(.+)/-isystem \2/p' "$build/CMakeCache.txt"
}

memop() { # name
    build_memop && bounded "${plain[@]}" "$logs/memop_latency" "${memop_options[@]}"
}

timed_shape() { # ranks m k n
    local ranks=$1 m=$2 k=$3 n=$4 name
    shift 4
    name=time-$ranks-ranks-m$m-k$k-n$n
    alone "$name" 90 pair "$name" --ranks "$ranks" --m "$m" --k "$k" --n "$n" "$@"
}
