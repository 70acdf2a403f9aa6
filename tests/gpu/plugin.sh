#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libslipring.so as NCCL's plugin, with the NCCL at hand: NCCL loads it in each of the ways, a table changes what NCCL runs,
# results stay right, slipring tune measures; and what the profiler sees. Two ranks: on one GPU (loopback sockets: right, but
# slow), or with --spread on a GPU each.
#
# usage: tests/gpu/plugin.sh [options]
#   --softgpu     on the software GPU: tests this script
#   --spread      a GPU for each rank
#   --ranks N     [2]
#   --build DIR   use this build as it is instead of building in build-gpu
#   --only REGEX  only the steps whose name matches
#   --limit S     start no further step after so many seconds [540]
#   --out DIR     where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

spread=0 ranks=2
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --spread) spread=1 ;;
    --ranks | --build | --only | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
open_logs
find_device
find_build

library=$build/libslipring.so
small=65536 large=4194304
place=(--ranks "$ranks")
[ $spread = 1 ] || place+=(--one-gpu)
program=("$build/bench/collectives" "${place[@]}" --bytes "$small,$large")
short=(--rounds 4 --func allgather,allreduce)

# Rules that no NCCL would make by itself, for algorithms and protocols that it has everywhere.
table_ring=$logs/ring.tune table_tree=$logs/tree.tune
printf '%s\n' "any bytes=1.. : algorithm=ring protocol=ll channels=2" >"$table_ring"
printf '%s\n' "allreduce : algorithm=tree protocol=simple channels=3" "any : algorithm=ring protocol=simple channels=1" >"$table_tree"

# What NCCL says of itself goes to a file for each process.
nccl_says() { export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING,COLL,ENV NCCL_DEBUG_FILE="$logs/$1.nccl.%p"; }

# ran NAME: what it ran, without repetitions.
ran() {
    cat "$logs/$1".nccl.* | sed -n 's/.*NCCL INFO \([A-Za-z]*: [0-9]* Bytes -> Algo .* channel{Lo..Hi}={.*}\).*/\1/p' | sort | uniq -c
}

# all_ran NAME FUNC REGEX: every call of the collective ran so, and there was one.
all_ran() {
    ran "$1" | grep " $2:" >"$logs/$1.$2" || { echo "NCCL ran no $2" && return 1; }
    ! grep -viE "$3" "$logs/$1.$2" || { echo "$2: not as $3" && return 1; }
}

loaded() { grep -qiE "TUNER/Plugin: Using slipring" "$logs/$1".nccl.* || { echo "NCCL does not say that it uses the tuner" && return 1; }; }
decided() { grep -hqE "tuned .*from=$2" "$logs/$1"*.decisions || { echo "no decision from $2 in slipring's log" && return 1; }; }

# tuned NAME SETTINGS... -- OPTIONS...: under slipring.
tuned() {
    local name=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=(--set "$1") && shift; done
    shift
    nccl_says "$name"
    preloaded "$name" --set min_bytes=1T "${settings[@]}" -- "${program[@]}" "$@"
}

as_ring() {
    loaded "$1" && decided "$1" "$table_ring:1" && all_ran "$1" AllGather 'RING proto LL channel.*={[0-9]+\.\.[01]}' &&
        all_ran "$1" AllReduce 'RING proto LL channel.*={[0-9]+\.\.[01]}'
}

baseline() { tuned baseline -- "${short[@]}" && ran baseline; }
mode_preloaded() { tuned mode-preloaded tune_file="$table_ring" -- "${short[@]}" && as_ring mode-preloaded; }
mode_static() { NCCL_TUNER_PLUGIN=STATIC_PLUGIN tuned mode-static tune_file="$table_ring" -- "${short[@]}" && as_ring mode-static; }

mode_copy() {
    cp "$library" "$logs/another-copy.so"
    NCCL_TUNER_PLUGIN=$logs/another-copy.so tuned mode-copy tune_file="$table_ring" -- "${short[@]}" || return
    rm -f "$logs/another-copy.so"
    as_ring mode-copy && grep -hq plugin_copy "$logs"/mode-copy*.decisions
}

mode_named() {
    nccl_says mode-named
    SLIPRING_TUNE_FILE=$table_ring SLIPRING_LOG=info SLIPRING_LOG_FILE=$logs/mode-named.%p.decisions NCCL_TUNER_PLUGIN=$library \
        bounded "${plain[@]}" "${program[@]}" "${short[@]}" || return
    as_ring mode-named && grep -hq 'tuner .*interposed=0' "$logs"/mode-named.*.decisions || return
    ! grep -hE ' (communicator|pass|substitute|summary) ' "$logs"/mode-named.*.decisions
}

# Another table: another algorithm, protocol and number of channels. All five collectives, all results checked.
table_case() {
    tuned table tune_file="$table_tree" -- --rounds 20 || return
    loaded table && decided table "$table_tree:1" && decided table "$table_tree:2" &&
        all_ran table AllReduce 'TREE proto SIMPLE channel.*={[0-9]+\.\.[012]}' &&
        all_ran table AllGather 'RING proto SIMPLE channel.*={0\.\.0}' && all_ran table Broadcast 'RING proto SIMPLE channel.*={0\.\.0}'
}

# A relative path, and a rank that is started elsewhere. (Its environment can not be changed here: real libraries have
# slipring read its settings when they are loaded, before the ranks are forked.)
differs_case() {
    mkdir -p "$logs/here" "$logs/elsewhere"
    cp "$table_ring" "$logs/here/a.tune"
    cp "$table_tree" "$logs/elsewhere/a.tune"
    (cd "$logs/here" && tuned differs tune_file=a.tune -- "${short[@]}" --rank-folder "1:$logs/elsewhere") || return
    grep -hq 'tune_differs .*peer=1' "$logs"/differs*.decisions || { echo "nothing noticed" && return 1; }
    ! grep -h ' tuned ' "$logs"/differs*.decisions || return
    diff <(ran baseline | sed 's/^ *[0-9]* //') <(ran differs | sed 's/^ *[0-9]* //') || { echo "not NCCL's defaults" && return 1; }
}

# slipring tune, and the same program without and with its table.
tune_case() {
    local options=(--func allgather,allreduce --rounds 80)
    unset NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE
    bounded "${plain[@]}" "$slipring" tune --lib "$library" --rounds 3 --set min_bytes=1T -o "$logs/measured.tune" -- \
        "${program[@]}" "${options[@]}" >"$logs/tune.out" || return
    cat "$logs/tune.out" "$logs/measured.tune"
    preloaded tune-without --set min_bytes=1T -- "${program[@]}" "${options[@]}" >"$logs/tune.without" || return
    preloaded tune-with --set min_bytes=1T --set tune_file="$logs/measured.tune" -- "${program[@]}" "${options[@]}" >"$logs/tune.with" || return
    {
        echo "slipring tune ($device, $ranks ranks):"
        cat "$logs/tune.out"
        sed 's/^/without the table: /' "$logs/tune.without"
        sed 's/^/with the table:    /' "$logs/tune.with"
    } >"$logs/tune.table"
}

alone baseline 60 baseline
alone mode-preloaded 60 mode_preloaded
alone mode-static 60 mode_static
alone mode-copy 60 mode_copy
alone mode-named 60 mode_named
alone table 90 table_case
alone differs 60 differs_case
alone tune 240 tune_case
profiler_steps=$(dirname "$0")/profiler_steps.sh
if [ -f "$profiler_steps" ]; then
    # shellcheck source=/dev/null
    . "$profiler_steps"
    unset NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE
    profiler_cases
fi
finish
