#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gathers in CUDA graphs (SLIPRING_GRAPHS=on) on two real GPUs: the programs of tests/graphs, whose results are exact to the bit, with
# a process for each GPU and with a thread for each; ranks that do not do the same; and a soak.
#
#   processes-*, threads-*  each case of tests/graphs/graphs*.c; captures, and captures that are thrown away
#   scatters-*              the lists of tests/scatter that capture GEMMs and reduce-scatters: exact, and sent part by part
#   left-*                  SLIPRING_GRAPHS=off: one rank runs a gather from a graph, the other calls it: both are told
#   nccl-*                  ranks that do not do the same, without slipring: for the table, no verdict
#   traced-*                what SLIPRING_TRACE says of some cases is whole, in order and of one clock for both ranks
#   table                   ranks that do not do the same: what happens, and whether all bytes were right
#   soak-kept-*             20 graphs in random turn with gathers, buffers freed and allocated, graphs recorded again: exact,
#                           memory, descriptors and mappings constant
#   soak-*, soak-mixed-*    the same, where graphs get new buffers as well; and each rank decides what it replays and what it calls
#
# usage: tests/gpu/graphs.sh [options]
#   --softgpu      on the software GPU, with a short soak: tests this script
#   --one-gpu      all ranks are processes on the first GPU (NCCL over loopback sockets): no threads
#   --build DIR    use this build as it is instead of building in build-gpu
#   --replays N    of each soak [10000; 300 with --softgpu]
#   --only REGEX   only the steps whose name matches
#   --jobs N       cases at a time [3; 1 with --softgpu]; a soak runs alone
#   --limit S      start no further step after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

jobs="" replays=""
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --one-gpu) one_gpu=1 ;;
    --build | --replays | --only | --jobs | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
jobs=${jobs:-$([ "$softgpu" = 1 ] && echo 1 || echo 3)} replays=${replays:-$([ "$softgpu" = 1 ] && echo 300 || echo 10000)}
open_logs

# --- one run of a program ---------------------------------------------------------------------------------------------

# Small buffers are blocks, small slots make pieces, and every gather and GEMM is for the ring, at any time.
settings=(--set min_bytes=0 --set alloc_min=1 --set slot_bytes=16K --set flop_per_byte=0 --set trials=0 --set reduce_scatter=always)

# with_slipring NAME GRAPHS PROGRAM...: a decision log for each process.
with_slipring() {
    local name=$1 graphs=$2
    shift 2
    bounded "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" --set "graphs=$graphs" --set log=info \
        --set "log_file=$logs/$name.%p.decisions" -- "$@"
}

decided() { cat /dev/null "$logs/$1".*.decisions | grep -E "$2"; }

# recorded NAME: gathers were replayed by the ring, and no capture was left to NCCL.
recorded() {
    decided "$1" 'count reason=graph n=[1-9]' >/dev/null || { echo "no replay was counted" && return 1; }
    ! decided "$1" 'reason=stream_capture|graph_lost|capture_failed' | tail -n 3 | cut -c1-150 | grep . ||
        { echo "a capture was not the ring's" && return 1; }
}

# far CASE: how many launches a rank is ahead there. A GPU's queue has room for a hundred of two gathers
# (docs/measurements/2026-11-24.md), the software GPU's for all that a case asks for.
far() { [[ $softgpu = 1 || $1 != far-* ]] || echo 20; }

# case_of NAME CASE MODE [REPLAYS]: of forms_graphs, with two ranks.
case_of() {
    local name=$1
    shift
    [ $# = 3 ] || set -- "$@" $(far "$1")
    with_slipring "$name" on "${programs[graphs]}" "$1" 2 "${@:2}" || return
    recorded "$name"
}

# What is to happen: nothing special, an error that the program waits for, or a refused launch.
errors=" killed more scatter-killed scatter-more " refusals=" destroyed child-set scatter-destroyed "
ends=" killed destroyed " # what NCCL does then is no question of graphs

checked_case() { # NAME CASE MODE
    case_of "$@" || return
    [[ $errors != *" $2 "* ]] || return 0
    ! decided "$1" ' communicator_failed ' || { echo "the communicator has failed" && return 1; }
    [[ $refusals == *" $2 "* ]] || ! decided "$1" ' replay_refused ' || { echo "a launch was refused" && return 1; }
}

other_form() { # NAME GRAPHS REASON PROGRAM...: some gather was decided so, and no communicator failed
    local name=$1 reason=$3
    with_slipring "$name" "$2" "${@:4}" || return
    decided "$name" "reason=$reason" >/dev/null || { echo "no gather has the reason $reason" && return 1; }
    ! decided "$name" ' communicator_failed ' || { echo "the communicator has failed" && return 1; }
}

told() { # NAME HOW
    with_slipring "$1" off "${programs[left_some]}" "$2" || return
    decided "$1" ' communicator_failed .*only some ranks' >/dev/null || { echo "nobody was told why" && return 1; }
}

traced() { # NAME CASE MODE
    bounded "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" --set graphs=on --set trace=1 --set log_format=json \
        --set "log_file=$logs/$1.%p.json" -- "${programs[graphs]}" "$2" 2 "$3" || return
    grep -q '"reason":"graph"' "$logs/$1".*.json || { echo "no replay was measured" && return 1; }
    python3 "$SLR_ROOT/tests/observe/trace_check.py" --table "$1" "$logs/$1".*.json >"$logs/$1.table"
}

nccl_alone() { # NAME CASE; no verdict
    local rc=0
    bounded "${plain[@]}" "${programs[graphs]}" "$2" 2 processes $(far "$2") || rc=$?
    case $rc in
    0) echo right ;;
    124 | 137 | 4) echo "does not end" ;;
    *) echo "ends with status $rc" ;;
    esac >"$logs/$1.outcome"
}

# --- the table --------------------------------------------------------------------------------------------------------

# What one rank does otherwise, and the case.
unlike="mixed|captures the call, the other makes it
mixed-anew|calls with new buffers what the other replays
crossed|launches graphs of one size in another order
uneven|has two gathers in one graph, the other in two, or calls them
otherwise|updates, or clones; the other has the graph itself
thrown|records more, and throws the graph away
idle|records more, and never launches it
ahead|replays four times before the other comes to its calls
behind|calls 300 times before the other comes to its replays
far-ahead|launches 20 graphs of two gathers (300 on the software GPU), and returns, before the other launches its first
far-ahead-mixed|the same, and the other calls
far-ahead-both|the same, calls and launches in turns
other-kind|calls from NCCL's virtual memory, the other replays with cudaMalloc's
more|replays once more than the other calls; then an abort
destroyed|(both) launch when the communicator has ended
killed|is killed, the other replays"

outcome() { # NAME
    local verdict
    verdict=$(awk '{ print $1 }' "$logs/$1.result" 2>/dev/null || true)
    case $verdict in
    PASS) ;;
    FAIL) echo "FAILS | no" && return ;;
    *) echo "- | -" && return ;;
    esac
    if decided "$1" ' communicator_failed ' >/dev/null; then
        echo "an error, no hang | before it"
    elif decided "$1" ' replay_refused ' >/dev/null; then
        echo "the launch is refused | before it"
    else
        echo "the same call | yes"
    fi
}

table() {
    local name text
    {
        echo "| case | one rank ... | two processes | exact | two threads | exact | NCCL alone |"
        echo "| --- | --- | --- | --- | --- | --- | --- |"
        while IFS="|" read -r name text; do
            echo "| $name | $text | $(outcome "processes-$name") | $(outcome "threads-$name") | $(cat "$logs/nccl-$name.outcome" 2>/dev/null || echo -) |"
        done <<<"$unlike"
        for name in graph-0-1 graph-1-0; do
            echo "| left-$name | graphs=off: rank ${name:6:1} replays, the other calls | $(outcome "left-$name") | - | - | - |"
        done
    } >"$logs/table.table"
}

# ----------------------------------------------------------------------------------------------------------------------

cases_steps() {
    local name mode form reason
    for name in $cases; do
        for mode in $modes; do
            [[ "$name-$mode" != *killed-threads ]] || continue # all of them would be
            side_by_side "$mode-$name" 60 checked_case "$mode-$name" "$name" "$mode"
        done
    done
    for name in on:graph off:stream_capture; do
        side_by_side "processes-capture-${name%:*}" 60 other_form "processes-capture-${name%:*}" "${name%:*}" "${name#*:}" "${programs[capture]}"
        side_by_side "processes-thrown-${name%:*}" 60 other_form "processes-thrown-${name%:*}" "${name%:*}" "${name#*:}" "${programs[thrown]}"
    done
    # Graphs of the program's, which are NCCL's, and bodies of conditional nodes: graphs, a reason that is in the log, case.
    for name in on:stream_capture:body-{loop,scan,within,crowd} off:stream_capture:body-unlike on:ring:{body,nccl}-streams \
        on:ring:nccl-streams-{embedded,set}; do
        IFS=: read -r mode reason name <<<"$name"
        # NCCL over sockets captures functions of the host, which the body of a conditional node can not have (CUDA).
        [[ $one_gpu = 0 || $name != body-* ]] || continue
        for form in $modes; do
            side_by_side "$form-$name" 60 other_form "$form-$name" "$mode" "$reason" "${programs[graphs]}" "$name" 2 "$form"
        done
    done
    for name in first-{grouped,in-region}; do
        [[ $modes != *threads* ]] || side_by_side "threads-$name" 60 other_form "threads-$name" on nccl_first "${programs[graphs]}" "$name" 2 threads
    done
    for name in gemm-stream gemm-event several clone child update mixed streams late; do
        for mode in $modes; do side_by_side "traced-$name-$mode" 60 traced "traced-$name-$mode" "$name" "$mode"; done
    done
    for name in graph-0-1 graph-1-0 clone-0-1 update-0-1; do side_by_side "left-$name" 60 told "left-$name" "$name"; done
}

# scattered NAME LIST RANKS: each case, the captures' GEMMs in parts, or, of wrong guesses and groups, never.
scattered() {
    local name=$1 list=$2 ranks=$3 one failed=()
    for one in $("${plain[@]}" "${programs[scatter]}" "list-$list"); do
        with_slipring "$name.$one" on "${programs[scatter]}" "$one" "$ranks" || failed+=("$one")
    done
    [ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" && return 1; }
    ! decided "$name" ' communicator_failed | replay_refused |graph_lost|capture_failed' | head -n 3 | cut -c1-150 | grep . ||
        { echo "the log tells of a failure" && return 1; }
    decided "$name" 'scatter_count reason=graph n=[1-9]' >/dev/null || { echo "no replay was counted" && return 1; }
    local parts
    parts=$(decided "$name" ' scatter_captured .*parts=[1-9]' | wc -l)
    case $list in
    graphs-wrong | group-graphs) [ "$parts" = 0 ] || { echo "a wrong guess was sent" && return 1; } ;;
    *) [ "$parts" != 0 ] || { echo "no GEMM was sent in parts" && return 1; } ;;
    esac
    rm -f "$logs/$name".*.decisions
}

scatter_steps() {
    local list mode
    for list in graphs graphs-mixed graphs-wrong group-graphs; do
        for mode in $scatter_modes; do side_by_side "scatters-$list-$mode" 240 scattered "scatters-$list-$mode" "$list" "$mode"; done
    done
    wait
}

soak_steps() {
    local name mode
    [ $softgpu = 0 ] || settings+=(--set alloc_idle=200ms) # there each block that is kept is a descriptor
    for name in soak-kept soak soak-mixed; do
        for mode in $modes; do
            alone "$name-$mode" 240 case_of "$name-$mode" $name $mode "$replays"
            [ ! -s "$logs/$name-$mode.log" ] || grep '^rank' "$logs/$name-$mode.log" >"$logs/$name-$mode.table" || true
        done
    done
}

modes="processes threads" scatter_modes="2 2t"
[ $one_gpu = 0 ] || modes=processes scatter_modes=2
find_device
two_gpus_or_one
find_build
declare -A programs
for form in graphs capture thrown left_some; do
    sources=("$SLR_ROOT/tests/graphs/$form.c" "$SLR_ROOT/tests/order/forms.c")
    [ $form != graphs ] || sources+=("$SLR_ROOT"/tests/graphs/graphs_{ahead,bodies,first,group,life,memory,scatter,shape,soak,tried,unlike}.c)
    rank_program "forms_$form" graphs "${sources[@]}" >"$logs/make.log" 2>&1 ||
        { tail -n 20 "$logs/make.log" >&2 && die "forms_$form did not compile"; }
    programs[$form]=$program
done
rank_program scatter scatter "$SLR_ROOT"/tests/scatter/*.c "$SLR_ROOT/tests/order/forms.c" "$(library_file "libcublasLt.so.$(cuda_major)")" \
    >"$logs/make.log" 2>&1 || { tail -n 20 "$logs/make.log" >&2 && die "tests/scatter does not compile"; }
programs[scatter]=$program
cases=$("${plain[@]}" "${programs[graphs]}" list | grep -vE '^(soak|body-|nccl-)')
say "$device; logs in $out"

cases_steps
scatter_steps
while IFS="|" read -r name _; do
    [[ $ends == *" $name "* ]] || side_by_side "nccl-$name" 40 nccl_alone "nccl-$name" "$name"
done <<<"$unlike"
alone table 10 table
soak_steps
finish
