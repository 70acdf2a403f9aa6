#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Streams and memory of other contexts than the primary one, on two ranks: every byte is compared (tests/order/order_context.c says what
# each case is). The table says what became of the calls, and what NCCL alone does.
#
#   green-*    gathers, GEMMs, and waits for all of a context, on streams of a green context
#   foreign-*  streams and memory of a context of cuCtxCreate, default streams of either: nothing may be left to NCCL
#   streams-*  other programs with their streams in green contexts (tests/programs/contexts.c), as
#   current-*  ... with a green context current
#   torch-*    PyTorch on a stream of a green context, and of one of cuCtxCreate (torch_contexts.py)
#   nccl-*     the same without slipring: for the table, no verdict
#
# usage: tests/gpu/contexts.sh [options]
#   --softgpu      on the software GPU, the C programs alone: tests this script
#   --one-gpu      all ranks are processes on the first GPU (NCCL over loopback sockets)
#   --build DIR    use this build as it is instead of building in build-gpu
#   --only REGEX   only the steps whose name matches
#   --jobs N       cases at a time [3; 1 with --softgpu]
#   --limit S      start no further step after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs=""
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --one-gpu) one_gpu=1 ;;
    --build | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
jobs=${jobs:-$([ $softgpu = 1 ] && echo 1 || echo 3)}
one_gpu_option=()
[ $one_gpu = 0 ] || one_gpu_option=(--one-gpu)
open_logs

settings=(--set min_bytes=0 --set flop_per_byte=0 --set trials=0 --set all_reduce=always --set log=info)

with_slipring() { # NAME COMMAND...
    local name=$1
    shift
    bounded "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" --set "log_file=$logs/$name.%p.decisions" -- "$@"
}

# counts NAME EVENT: of all ranks, by reason.
counts() {
    cat /dev/null "$logs/$1".*.decisions | sed -nE "s/.* $2 reason=([a-z_]+) n=([0-9]+).*/\1 \2/p" |
        awk '{ n[$1] += $2 } END { for (r in n) printf "%s%s %d", i++ ? ", " : "", r, n[r] }'
}

# Of each rank's counts, `ring` and `fused` say how many were moved, and consumed in parts; the others why they were joined, or left.
row() { # NAME COMMAND...
    local name=$1 rc=0
    shift
    "$@" || rc=$?
    printf '| %s | %s | %s | %s |\n' "$name" "$([ $rc = 0 ] && echo exact || echo "status $rc")" "$(counts "$name" count)" \
        "$(counts "$name" 'reduce_count')" >"$logs/$name.row"
    [ $rc = 0 ] || return $rc
    [[ "$(counts "$name" count)" =~ (^|, )ring\  ]] || { echo "no gather was substituted" && return 1; }
}

one() { # NAME CASE
    row "$1" with_slipring "$1" "$order" "$2" 2
}

nothing_left() { # NAME CASE
    one "$@" || return
    ! grep -hE 'pass op=|communicator_failed' "$logs/$1".*.decisions | head -n 3 | cut -c1-150 | grep . || { echo "a call was left to NCCL" && return 1; }
}

moved() { # NAME HOW CASE: the program's streams are of green contexts
    TEST_CONTEXTS=$2 LD_PRELOAD=$contexts row "$1" with_slipring "$1" "$order" "$3" 2
}

nccl_alone() { # NAME CASE; no verdict
    local rc=0
    bounded "${plain[@]}" "$order" "$2" 2 || rc=$?
    printf '| %s | %s | - | - |\n' "$1" "$([ $rc = 0 ] && echo exact || echo "status $rc")" >"$logs/$1.row"
}

find_programs() {
    local of=("$SLR_ROOT"/tests/order/{order,order_comm,order_context,order_event,order_group,order_host,order_overtake,order_send,order_small,order_stream,forms}.c)
    local include
    include=$(sed -nE 's/^SLIPRING_CUDA_INCLUDE:[A-Z]*=//p' "$build/CMakeCache.txt")
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -fPIE -I "$SLR_ROOT" -isystem "$include" -isystem "$(nccl_include)" -DCUDA_API_PER_THREAD_DEFAULT_STREAM -c \
        -o "$logs/thread.o" "$SLR_ROOT/tests/order/order_thread.c" >"$logs/make.log" 2>&1 || { tail -n 20 "$logs/make.log" >&2 && die "order_thread.c does not compile"; }
    rank_program forms_order order "${of[@]}" "$logs/thread.o" >"$logs/make.log" 2>&1 || { tail -n 20 "$logs/make.log" >&2 && die "forms_order does not compile"; }
    order=$program
    contexts=$logs/libcontexts.so
    gcc -std=gnu11 -D_GNU_SOURCE -O2 -fPIC -shared -isystem "$include" -o "$contexts" "$SLR_ROOT/tests/programs/contexts.c" >"$logs/make.log" 2>&1 ||
        { tail -n 20 "$logs/make.log" >&2 && die "contexts.c does not compile"; }
}

torch_of() { # NAME KIND
    row "$1" two "$1" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" --set "log_file=$logs/$1.%p.decisions" -- \
        "${PYTHON:-python3}" -u "$SLR_ROOT/tests/gpu/torch_contexts.py" "$2" "${one_gpu_option[@]}"
}

table() {
    {
        echo "| case | bytes | gathers of both ranks, by decision and by what joined them | all-reduces |"
        echo "| --- | --- | --- | --- |"
        for name in "${names[@]}"; do cat "$logs/$name.row" 2>/dev/null || true; done
    } >"$logs/table.table"
}

green=(context-sync context-sync-named context-record context-record-green context-record-primary context-wait context-wait-green context-gemm
    context-gemm-event)
foreign=(foreign-see foreign-overwrite foreign-event foreign-sync foreign-group foreign-memory foreign-both foreign-sum default-of-green
    default-of-created default-of-either)
others=(copy-async stream-sync gemm gemm-after-event event-framework event-two-waiters overwrite-memset produce-elsewhere chain-all broadcast
    send-recv)

find_device
two_gpus_or_one
find_build
say "$device; logs in $out"
find_programs
for case in "${green[@]}"; do side_by_side "green-$case" 60 one "green-$case" "$case"; done
for case in "${foreign[@]}"; do side_by_side "foreign-$case" 60 nothing_left "foreign-$case" "$case"; done
for how in streams current; do
    for case in "${others[@]}"; do side_by_side "$how-$case" 60 moved "$how-$case" $how "$case"; done
done
if [ $softgpu = 0 ]; then
    for kind in green current created; do side_by_side torch-$kind 120 torch_of torch-$kind $kind; done
fi
for case in "${green[@]}" "${foreign[@]}"; do side_by_side "nccl-$case" 60 nccl_alone "nccl-$case" "$case"; done
wait
only="" alone table 10 table # whatever was wanted
finish
