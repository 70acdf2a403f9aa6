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
step_seconds=60
bounded() { timeout -k 5 "$step_seconds" "$@"; }

# --- environment ----------------------------------------------------------------------------------------------------

find_build() {
    if [ -n "$build" ]; then
        build=$(cd "$build" && pwd) || exit 1
        return
    fi
    build=$SLR_ROOT/build-gpu
    local options=(-DSLIPRING_TESTS=ON)
    [ $softgpu = 1 ] || options=(-DSLIPRING_TESTS=OFF "-DCMAKE_LIBRARY_PATH=${cuda_libs//:/;}")
    say "building in $build"
    configure "$build" "${options[@]}" || die "cmake failed"
    ninja -C "$build" --quiet >"$logs/build.log" 2>&1 || { tail -n 40 "$logs/build.log" >&2 && die "the build failed"; }
}

find_device() {
    if [ $softgpu = 1 ]; then
        plain=("$slipring" softgpu -n 4 --)
        device="software GPU"
        return
    fi
    cuda_libs=$(cuda_lib_path) || die "CUDA, cuBLAS or NCCL libraries missing; scripts/setup.sh --gpu-libs installs them"
    [ -z "$cuda_libs" ] || export LD_LIBRARY_PATH=$cuda_libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
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
    preloaded "$name" --set min_bytes=0 "${more_settings[@]}" -- "$ag_gemm" --one-gpu --iters 2 --warmup 1 --timeout "$step_seconds" "$@"
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
        way_case "$ranks" in_place
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
    [ $quick = 0 ] || return 0
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
    bounded "${plain[@]}" python3 "$SLR_ROOT/bench/ag_gemm_pair" --ag-gemm "$ag_gemm" --with "$under --" \
        --rounds "$rounds" --json "$logs/$name.json" -- --one-gpu --check sample --check-rounds 1 --label "$name" "$@" |
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
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -isystem "$include" "$SLR_ROOT/tests/gpu/$1.c" -o "$program" -ldl
}

# memop NAME: the latency of a flag between two processes.
memop() {
    local program
    helper memop_latency || return
    bounded "${plain[@]}" "$program" "${memop_options[@]}" | tee "$logs/$1.table"
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

# ways NAME RANKS MIB... -- ag_gemm-options...: the gather alone, by each way of a shard.
ways() {
    local name=$1 ranks=$2 sizes=()
    shift 2
    while [ "$1" != -- ]; do sizes+=("$1") && shift; done
    bounded "${plain[@]}" python3 "$SLR_ROOT/bench/gather_ways" --ag-gemm "$ag_gemm" --ranks "$ranks" --mib "${sizes[@]}" \
        --slipring "$slipring run --lib $build/libslipring.so" --rounds "$rounds" --json "$logs/$name.json" -- --one-gpu "${@:2}" |
        tee "$logs/$name.table"
    return "${PIPESTATUS[0]}"
}

# NCCL gathers over sockets here: few iterations for the large ones.
ways_steps() { # prefix-of-the-name
    local ranks
    for ranks in $rank_counts; do
        # shellcheck disable=SC2086 # lists of sizes
        alone "$1-$ranks-ranks-small" 90 ways "$1-$ranks-ranks-small" "$ranks" $small_mib -- --warmup 60 --iters 100
        [ $quick = 1 ] || alone "$1-$ranks-ranks-large" 120 ways "$1-$ranks-ranks-large" "$ranks" $large_mib -- --warmup 3 --iters 5
        large_mib=${large_mib%% *}
    done
}

# The same with MPS, under which the ranks' kernels run side by side instead of taking turns.
start_mps() {
    have nvidia-cuda-mps-control || { echo "nvidia-cuda-mps-control is not installed" && return 77; }
    mkdir -p "$logs/mps"
    bounded nvidia-cuda-mps-control -d || { echo "the MPS daemon did not start" && return 77; }
    touch "$logs/mps/started"
}

stop_mps() { [ ! -e "$logs/mps/started" ] || { rm -f "$logs/mps/started" && echo quit | timeout 20 nvidia-cuda-mps-control; }; }

# All ranks share one GPU. Without MPS the driver gives it to one process after another, some milliseconds each, so that short
# steps measure the turn; with it copies, waits and kernels of all ranks run side by side.
timed_steps() {
    local pipes
    pipes=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$pipes CUDA_MPS_LOG_DIRECTORY=$logs/mps
    alone mps-start 20 start_mps
    if [ -e "$logs/mps/started" ]; then
        alone memop-mps 60 memop memop-mps
        ways_steps ways-mps
        timed_shapes time-mps
        stop_mps || warn "the MPS daemon did not stop"
    else
        ways_steps ways
    fi
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    rm -rf "$pipes"
    timed_shapes time
}

# --- report ---------------------------------------------------------------------------------------------------------

# One line for each kind of step (the name up to its first "-"), then one for each step that did not pass.
short_table() {
    cat "$logs"/*.result | awk '
        { kind = $4; sub(/[-:].*/, "", kind); total[kind]++; if ($1 == "PASS") passed[kind]++; if ($1 == "FAIL") failed[kind]++ }
        $1 != "PASS" { rest = rest $0 "\n" }
        END {
            for (kind in total)
                printf "%-4s  %-8s %d of %d\n", failed[kind] ? "FAIL" : passed[kind] ? "PASS" : "SKIP", kind, passed[kind], total[kind] | "sort -k2"
            close("sort -k2")
            printf "%s", rest
        }'
}

report() {
    local name
    echo "slipring on $device, $(date -u +%Y-%m-%dT%H:%MZ), $SECONDS s"
    [ $softgpu = 1 ] || echo "libraries: ${LD_LIBRARY_PATH:-found by the loader}"
    for name in "${names[@]}"; do
        [ ! -s "$logs/$name.table" ] || { echo && cat "$logs/$name.table"; }
    done
    echo
    for name in "${names[@]}"; do cat "$logs/$name.result"; done
}

# --------------------------------------------------------------------------------------------------------------------

rank_counts="2 4" size=512 rounds=2 iters=10 timed_sides="8192 16384" memop_options=(64 50) alloc_rounds=200
import_options=(100 1024) small_mib="1 16" large_mib="128 1024"
if [ $softgpu = 1 ]; then
    size=96 rounds=1 iters=2 timed_sides=256 memop_options=(8 5) alloc_rounds=20
    import_options=(5 16) small_mib=1 large_mib=2
fi
[ $quick = 0 ] || rank_counts="2"

find_device
find_build
ag_gemm=$build/bench/ag_gemm
[ -x "$ag_gemm" ] || die "$ag_gemm is not there: bench/ was not built (see $build/configure.log)"
say "$device; logs in $out"

alone memop-latency 60 memop memop-latency
alone alloc-cost 60 alloc alloc-cost
alone import-cost 60 import_cost import-cost
gather_cases
gemm_cases
timed_steps
wait

[ ${#names[@]} -gt 0 ] || die "no step is named like $only"
report >"$out/summary.txt"
printf '\n'
sed -n '/^PASS\|^FAIL\|^SKIP/!p' "$out/summary.txt"
short_table
if grep -qh '^FAIL' "$logs"/*.result; then
    for name in $(awk '$1 == "FAIL" { sub(/:$/, "", $4); print $4 }' "$logs"/*.result | head -n 3); do
        printf '\n--- end of the log of %s\n' "$name"
        tail -n 15 "$logs/$name.log" 2>/dev/null || true
    done
    die "FAIL; summary in $out/summary.txt"
fi
say "PASS; summary in $out/summary.txt"
