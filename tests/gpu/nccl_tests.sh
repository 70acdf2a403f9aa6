#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# NVIDIA's nccl-tests, unmodified, on one GPU: the all-gathers without and with slipring, and the other collectives with it.
# Every run checks all its data (-c 1). Its processes meet through the few MPI functions in mpi/, so no MPI is needed.
#
# usage: tests/gpu/nccl_tests.sh SOURCE [options]      SOURCE: a checkout of https://github.com/NVIDIA/nccl-tests
#   --make DIR    only compile the programs into DIR; needs nvcc and NCCL, no GPU
#   --built DIR   use the programs in DIR, which --make has left there
#   --arch N      compile for sm_N [90]
#   --quick       2 processes only, and fewer sizes
#   --spread      a GPU for each process; only all_gather_perf, by NCCL and by each way of a shard
#   --build DIR   use this build of slipring as it is instead of building in build-gpu
#   --only REGEX  only the steps whose name matches
#   --limit S     start no further step after so many seconds [540]
#   --out DIR     where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every run had right data and its all-gathers went where they should, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

source_folder="" make_only=0 built="" arch=90 spread=0
while [ $# -gt 0 ]; do
    case $1 in
    --make) need_value "$1" "$@" && built=$2 make_only=1 && shift ;;
    --quick) quick=1 ;;
    --spread) spread=1 ;;
    --built | --arch | --build | --only | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) bad_usage "unknown option $1; see --help" ;;
    *) source_folder=$1 ;;
    esac
    shift
done
[ -n "$source_folder" ] || { [ -n "$built" ] && [ $make_only = 0 ]; } || die "which nccl-tests? see --help"

# --- the programs ---------------------------------------------------------------------------------------------------

# A prefix folder with what the Makefile of nccl-tests looks for: our MPI, and NCCL with the names that a linker wants.
make_prefix() {
    local prefix=$1 include
    include=$(nccl_include) || { echo "nccl.h is not there" && return 1; }
    mkdir -p "$prefix/include" "$prefix/lib"
    ln -sf "$(library_file libnccl.so.2)" "$prefix/lib/libnccl.so"
    ln -sf "$include"/nccl* "$prefix/include/"
    cp "$SLR_ROOT/tests/gpu/mpi/mpi.h" "$prefix/include/"
    gcc -std=gnu11 -O2 -fPIC -c "$SLR_ROOT/tests/gpu/mpi/mpi.c" -o "$prefix/mpi.o"
    ar rcs "$prefix/lib/libmpi.a" "$prefix/mpi.o"
}

# The runtime is linked statically, as nvcc does it by default.
make_programs() {
    local home=/usr/local/cuda
    mkdir -p "$built"
    built=$(cd "$built" && pwd)
    make_prefix "$built/prefix" || return
    make -C "$source_folder" -j "$(nproc)" MPI=1 "MPI_HOME=$built/prefix" "NCCL_HOME=$built/prefix" "CUDA_HOME=${CUDA_HOME:-$home}" \
        CUDARTLIB=cudart_static "NVCC_GENCODE=-gencode=arch=compute_$arch,code=sm_$arch" "BUILDDIR=$built" || return
    rm -f "$built"/*.o "$built"/*/*.o
    strip "$built"/*_perf
}

# --- runs -----------------------------------------------------------------------------------------------------------

# processes RANKS COMMAND...: that many, on the first GPU, or on one each with --spread. The first one that fails ends the others.
processes() (
    ranks=$1 pids=() failed=0 placed=()
    shift
    export WORLD_SIZE=$ranks
    [ $spread = 1 ] || export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
    ONE_HOST_MPI_FILE=$(mktemp) && export ONE_HOST_MPI_FILE
    for ((rank = 0; rank < ranks; rank++)); do
        placed=("NCCL_HOSTID=rank$rank" NCCL_TESTS_DEVICE=0)
        [ $spread = 0 ] || placed=("NCCL_TESTS_DEVICE=$rank")
        RANK=$rank bounded env "${placed[@]}" "$@" &
        pids+=($!)
    done
    for ((rank = 0; rank < ranks; rank++)); do
        wait -n && continue
        failed=$?
        kill "${pids[@]}" 2>/dev/null || true
        break
    done
    wait
    rm -f "$ONE_HOST_MPI_FILE"
    exit "$failed"
)

# plain_run NAME RANKS PROGRAM OPTIONS...: without slipring.
plain_run() {
    local name=$1 ranks=$2 program=$3
    shift 3
    processes "$ranks" "$built/${program}_perf" "$@" | tee "$logs/$name.rows"
    [ "${PIPESTATUS[0]}" = 0 ] && right_rows "$logs/$name.rows"
}

# only_counted NAME REASONS: every rank's log has an end, and counts all of these reasons and no other.
only_counted() {
    local reason file
    for file in "$logs/$1".rank*.decisions; do
        for reason in ${2//|/ }; do
            grep -q "count reason=$reason " "$file" || { echo "$file: nothing counted as $reason" && return 1; }
        done
        ! grep -E 'count reason=' "$file" | grep -vE "reason=($2|$joins) " || { echo "$file: decided otherwise" && return 1; }
    done
}
joins='other_operation|host_observes|next_gather|destroy' # how a gather that nothing fuses ends

# with_slipring NAME RANKS MIN_BYTES REASONS PROGRAM OPTIONS...: REASONS: what the all-gathers have to be counted as; - for none.
with_slipring() {
    local name=$1 ranks=$2 min=$3 reasons=$4 program=$5
    shift 5
    processes "$ranks" "$slipring" run --lib "$build/libslipring.so" --set log=info --set min_bytes="$min" "${with_settings[@]}" \
        --set "log_file=$logs/$name.rank%r.decisions" -- "$built/${program}_perf" "$@" | tee "$logs/$name.rows"
    [ "${PIPESTATUS[0]}" = 0 ] && right_rows "$logs/$name.rows" || return 1
    if [ "$reasons" = - ]; then
        ! grep -hE 'count reason=' "$logs/$name".rank*.decisions || { echo "an all-gather was counted" && return 1; }
    else
        only_counted "$name" "$reasons"
    fi
}

# rows NAME KIND...: one line a size, the times of both places in us of every kind of run.
rows() {
    local name=$1 kind
    [ -s "$logs/allgather-nccl-$name.rows" ] || return 0
    shift
    {
        echo "all_gather_perf, $name: us a call, out of place and in place"
        printf '%12s' bytes
        for kind in "$@"; do printf ' %14s %14s' "$kind" "in place"; done
        echo
        for kind in "$@"; do sed -n "s/^ *\([0-9].*\)/$kind \1/p" "$logs/allgather-$kind-$name.rows" 2>/dev/null; done |
            awk -v kinds="$*" '{ time[$2 " " $1] = sprintf(" %14s %14s", $7, $11); if (!($2 in seen)) { seen[$2] = 1; order[++n] = $2 } }
                END { m = split(kinds, kind, " ")
                      for (i = 1; i <= n; i++) { line = sprintf("%12s", order[i])
                          for (k = 1; k <= m; k++) line = line (time[order[i] " " kind[k]] ? time[order[i] " " kind[k]] : sprintf(" %14s %14s", "-", "-"))
                          print line } }'
    } >"$logs/allgather-nccl-$name.table"
}

gathers() { # suffix-of-the-name
    local ranks name
    for ranks in $rank_counts; do
        name=$ranks-ranks$1
        alone "allgather-nccl-$name" 200 plain_run "allgather-nccl-$name" "$ranks" all_gather "${range[@]}"
        alone "allgather-slipring-$name" 120 with_slipring "allgather-slipring-$name" "$ranks" 0 "ring$zero" all_gather "${range[@]}"
        alone "allgather-default-$name" 120 with_slipring "allgather-default-$name" "$ranks" 4M "ring|below_min_bytes$zero" all_gather "${range[@]}"
        rows "$name" nccl slipring default
        alone "allgather-unaligned-$name" 60 with_slipring "allgather-unaligned-$name" "$ranks" 0 ring all_gather -u 1 "${few[@]}"
        alone "allgather-doubles-$name" 60 with_slipring "allgather-doubles-$name" "$ranks" 0 ring all_gather "${few[@]}" -d double
        alone "allgather-default-stream-$name" 60 with_slipring "allgather-default-stream-$name" "$ranks" 0 ring all_gather "${few[@]}" -y 1
        alone "allgather-registered-$name" 60 with_slipring "allgather-registered-$name" "$ranks" 0 ring all_gather "${few[@]}" -R 1
    done
}

others() { # suffix-of-the-name
    local ranks program
    for ranks in $rank_counts; do
        for program in $programs; do
            alone "$program-$ranks-ranks$1" 60 with_slipring "$program-$ranks-ranks$1" "$ranks" 0 - "$program" -t 1 -c 1 -n 2 -w 1 -b 64K -e 16M -f 16
        done
    done
}

# Between GPUs each way of a shard counts. The settings of a kind stand in `with_settings`.
spread_gathers() {
    local ranks name kind
    for ranks in $rank_counts; do
        name=$ranks-ranks
        alone "allgather-nccl-$name" 120 plain_run "allgather-nccl-$name" "$ranks" all_gather "${range[@]}"
        for kind in slots pull put; do
            with_settings=(--set protocol=pull)
            [ $kind = put ] && with_settings=(--set protocol=put)
            [ $kind = slots ] && with_settings+=(--set zero_copy=off)
            alone "allgather-$kind-$name" 120 with_slipring "allgather-$kind-$name" "$ranks" 0 ring all_gather "${range[@]}"
        done
        rows "$name" nccl slots pull put
    done
}

under_mps() {
    gathers -mps
    others -mps
}

with_settings=() rank_counts="2 4" programs="all_reduce reduce_scatter broadcast reduce sendrecv alltoall gather scatter"
range=(-d int8 -c 1 -n 5 -w 1 -b 1 -e 1G -f 2) zero='|count_zero' # shards are whole words of 16 bytes: below that they are empty
few=(-d int8 -c 1 -n 5 -w 1 -b 1K -e 4M -f 64)
[ $spread = 0 ] || range=(-d int8 -c 1 -n 20 -w 10 -b 64K -e 2G -f 2)
[ $quick = 0 ] || { rank_counts="2" programs="all_reduce sendrecv" && range=(-d int8 -c 1 -n 2 -w 1 -b 1 -e 16M -f 8); }

if [ $make_only = 1 ]; then
    make_programs
    exit
fi
open_logs
find_device
find_build
if [ -z "$built" ]; then
    built=$out/nccl-tests
    make_programs >"$logs/make.log" 2>&1 || { tail -n 20 "$logs/make.log" >&2 && die "nccl-tests did not compile"; }
fi
built=$(cd "$built" && pwd)
say "$device; logs in $out"
if [ $spread = 1 ]; then
    spread_gathers
else
    with_mps under_mps
    range=("${few[@]}") zero=""
    gathers "" # without MPS the processes take turns on the GPU
fi
finish
