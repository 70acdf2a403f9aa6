# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts here that run on a real GPU: steps with a time limit and a log each, the build, the device, MPS, and the
# report. Source it, read the options into the variables below, then call open_logs.
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/common.sh"

# shellcheck disable=SC2034 # read by the scripts
softgpu=0 quick=0 one_gpu=0 build="" only="" jobs=1 limit=540 out=${OUT:-$SLR_ROOT/out/gpu}
slipring=$SLR_ROOT/LD_PRELOAD/slipring

# open_logs: $logs is an empty folder in $out; at the end it becomes $out/logs.tar.gz.
open_logs() {
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    logs=$out/logs
    rm -rf "$logs" "$out/logs.tar.gz" "$out/summary.txt"
    mkdir -p "$logs"
    trap pack_logs EXIT
}

pack_logs() {
    local job
    stop_mps
    for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
    [ -d "$logs" ] && tar -C "$out" -czf "$out/logs.tar.gz" logs && rm -rf "$logs"
}

# --- steps ----------------------------------------------------------------------------------------------------------
# A step is a function or command that writes to its own log. Its result line goes to NAME.result, so that steps which
# run side by side are listed in the order in which they were started.

names=()

wanted() { [ -z "$only" ] || [[ $1 =~ $only ]]; }

# timed_step NAME SECONDS COMMAND...: in the foreground or, from `side_by_side`, in the background.
timed_step() {
    local name=$1 allowed=$2 begin rc=0 verdict=PASS why=""
    shift 2
    begin=$(date +%s.%N)
    step_seconds=$allowed "$@" >"$logs/$name.log" 2>&1 || rc=$?
    case $rc in
    0) ;;
    77) verdict=SKIP why=$(tail -n 1 "$logs/$name.log") ;;
    124 | 137) verdict=FAIL why="did not end within $allowed s" ;;
    *) verdict=FAIL why=$(grep -v '^ *$' "$logs/$name.log" | tail -n 1 | cut -c1-150) ;;
    esac
    printf '%-4s  %6.1f s  %s%s\n' $verdict "$(elapsed "$begin")" "$name" "${why:+: $why}" >"$logs/$name.result"
    cat "$logs/$name.result"
}

elapsed() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { print b - a }'; }

in_time() { # a table is made of what there is
    [ $SECONDS -lt "$limit" ] || [ "$1" = table ] && return 0
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

# The file of the first library of that name among CUDA's folders and the loader's.
library_file() {
    local dir folders
    mapfile -t folders < <(cuda_lib_folders)
    for dir in "${folders[@]}"; do
        [ ! -e "$dir/$1" ] || { echo "$dir/$1" && return; }
    done
    { /sbin/ldconfig -p || ldconfig -p; } 2>/dev/null | awk -v lib="$1" '$1 == lib { file = $NF } END { print file }'
}

# The folder with nccl.h that belongs to the NCCL at hand.
nccl_include() {
    local dir
    for dir in "$(dirname "$(library_file libnccl.so.2)")/../include" /usr/include /usr/local/cuda/include; do
        [ ! -e "$dir/nccl.h" ] || { readlink -f "$dir" && return; }
    done
    return 1
}

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

# rank_program NAME FOLDER SOURCE...: sets `program`, one with several ranks of tests/FOLDER; compiles it where the tests were not built.
# shellcheck disable=SC2034 # read by the scripts
rank_program() {
    local name=$1 include driver
    program=$build/tests/$2/$name
    [ ! -x "$program" ] || return 0
    shift 2
    program=$logs/$name
    driver=$(library_file libcuda.so.1)
    include=$(sed -nE 's/^SLIPRING_CUDA_INCLUDE:[A-Z]*=//p' "$build/CMakeCache.txt")
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -fPIE -pie -I "$SLR_ROOT" -isystem "$include" -isystem "$(nccl_include)" -o "$program" "$@" \
        "$SLR_ROOT/tests/programs/ranks.c" "$(library_file "libcudart.so.$(cuda_major)")" "$(library_file "libcublas.so.$(cuda_major)")" \
        "$(library_file libnccl.so.2)" ${driver:+"$driver"} -Wl,--allow-shlib-undefined -lpthread -ldl
}

# find_fuzz_plan: sets `fuzz_plan`, the random C programs.
# shellcheck disable=SC2034 # read by the scripts
find_fuzz_plan() {
    local of=("$SLR_ROOT"/tests/fuzz/{fuzz_plan,ways_runtime,plan*,play*}.c "$SLR_ROOT/tests/order/forms.c" "$logs/ptsz.o")
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -fPIE -I "$SLR_ROOT" -isystem "$(sed -nE 's/^SLIPRING_CUDA_INCLUDE:[A-Z]*=//p' "$build/CMakeCache.txt")" \
        -DWAY=way_ptsz -DCUDA_API_PER_THREAD_DEFAULT_STREAM -c -o "$logs/ptsz.o" "$SLR_ROOT/tests/fuzz/ways_runtime.c" || die "ways_runtime.c does not compile"
    rank_program fuzz_plan fuzz "${of[@]}" "$SLR_ROOT/tests/programs/fuse_api.c" "$(library_file "libcublasLt.so.$(cuda_major)")" >"$logs/make.log" 2>&1 ||
        { tail -n 20 "$logs/make.log" >&2 && die "fuzz_plan does not compile"; }
    fuzz_plan=$program
}

# two NAME COMMAND...: both ranks, with the environment that frameworks read; the status of the first one that fails.
two() {
    local name=$1 rank rc=0 pids=() port=$((20000 + RANDOM % 20000))
    shift
    for rank in 0 1; do
        bounded env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >"$logs/$name.rank$rank.out" 2>&1 &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || rc=$?; done
    tail -n 12 "$logs/$name".rank[01].out
    return $rc
}

find_device() {
    if [ $softgpu = 1 ]; then
        plain=("$slipring" softgpu -n $([ $one_gpu = 1 ] && echo 1 || echo 4) --)
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

# two_gpus_or_one: ends the script where there are too few. With --one-gpu all ranks are processes on the first GPU.
two_gpus_or_one() {
    [ $softgpu = 1 ] || [ $one_gpu = 1 ] || [ "$(cuda_device_count)" -ge 2 ] || die "two GPUs are needed; --one-gpu runs what one is enough for"
    [ $one_gpu = 1 ] || return 0
    export SLIPRING_PROTOCOL=pull # as between GPUs
    [ $softgpu = 1 ] || export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
}

# preloaded NAME COMMAND...: under slipring, with a decision log for each rank.
preloaded() {
    local name=$1
    shift
    bounded "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" --set log=info \
        --set "log_file=$logs/$name.rank%r.decisions" "$@"
}

# counted NAME REASON: some rank counted such a decision.
counted() { grep -hqE "count.*reason=($2) " "$logs/$1".rank*.decisions; }

# right_rows FILE: the verdict of one of nccl-tests' programs, and each row of its table: no wrong element.
right_rows() {
    grep -q 'Out of bounds values : 0 OK' "$1" || { echo "nccl-tests found wrong data or did not end" && return 1; }
    awk '$1 ~ /^[0-9]+$/ { rows++; if ($9 + $13 != 0 || NF < 13) bad++ } END { exit rows == 0 || bad > 0 }' "$1" ||
        { echo "a row with wrong elements, or none" && return 1; }
}

# --- MPS ------------------------------------------------------------------------------------------------------------
# All ranks share one GPU. Without MPS the driver gives it to one process after another, some milliseconds each, so that short
# steps measure the turn; with it copies, waits and kernels of all ranks run side by side.

start_mps() {
    have nvidia-cuda-mps-control || { echo "nvidia-cuda-mps-control is not installed" && return 77; }
    mkdir -p "$logs/mps"
    bounded nvidia-cuda-mps-control -d || { echo "the MPS daemon did not start" && return 77; }
    touch "$logs/mps/started"
}

stop_mps() { [ ! -e "$logs/mps/started" ] || { rm -f "$logs/mps/started" && echo quit | timeout 20 nvidia-cuda-mps-control; }; }

# with_mps COMMAND...: with the daemon of MPS where it starts, else without.
with_mps() {
    local pipes
    pipes=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$pipes CUDA_MPS_LOG_DIRECTORY=$logs/mps
    alone mps-start 20 start_mps
    "$@"
    wait
    stop_mps || warn "the MPS daemon did not stop"
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    rm -rf "$pipes"
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

# finish: the report, the short table, and the exit status.
finish() {
    local name
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
}

# The wheels of the folder `wheels`, for the command in `python`, without what they depend on.
install_wheels() {
    local wheel
    site=$(mktemp -d)
    trap 'rm -rf "$site"; pack_logs' EXIT
    for wheel in "$wheels"/*.whl; do
        "${python[@]}" -m pip install --quiet --no-deps --no-index --disable-pip-version-check \
            --root-user-action=ignore --upgrade --target "$site" "$wheel" >>"$logs/wheels.log" 2>&1 ||
            warn "$wheel was not installed: $(tail -n 1 "$logs/wheels.log")"
    done
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
}
