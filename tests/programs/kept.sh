#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What call sites have found is kept in the tune file, and used from the first call of the next run.
#
#   kept.sh CASE CALL_SITES COLLECTIVES SCATTER      environment: that of run.sh
set -eu
case=$1 sites=$2 collectives=$3 scatter=$4 here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "kept.sh: $*" >&2; cat "$work"/*.tune >&2 2>/dev/null; exit 1; }
event() { echo "\"event\":\"$1\"${2:+.*$2}"; }
# Without trials each gather takes the ring; with, each way comes four times. Where something is to be kept there are enough
# calls for a duel.
tried=(--has "$(event tried)" --has '"reason":"trial"')
untried=(--hasnt "$(event tried)" --hasnt '"reason":"trial"')
run() { # ARGUMENTS of run.sh
    "$here/run.sh" --set SLIPRING_MIN_BYTES=0 --set SLIPRING_TRIALS=1 --set SLIPRING_TRIALS_AFTER=4 --set SLIPRING_TUNE_FILE="$work/a.tune" "$@" || fail "$*"
}
rules() { grep -c '^site ' "$1" || true; }

# What the first run has found the second one goes by; it tries nothing, and writes nothing.
case_next() {
    run --set SLIPRING_TUNE_KEEP=on "${tried[@]}" --has "$(event tune_kept)" --hasnt "$(event tune_table_broken)" -- "$sites" 2 gemm:260 alone/30:260
    grep -qE '^site bytes=12288 ranks=2 gpu=softgpu ways=[0-9]+ setup=[0-9a-f]+ gemm=32x48x64 trans=nn type=fp32 gathered=b batch=1 : way=(ring cut=[a-z]+[0-9]*|nccl) # kept by slipring$' "$work/a.tune" ||
        fail "no rule for the GEMM"
    grep -qE '^site bytes=15360 .* gemm=none : way=(ring|nccl) # kept by slipring$' "$work/a.tune" || fail "no rule for the gathers alone"
    cp "$work/a.tune" "$work/before"
    run --set SLIPRING_TUNE_KEEP=on "${untried[@]}" --hasnt "$(event tune_kept)" --has "$(event tune_sites '"used":2')" --has "$(event site_known '"shard":6144')" \
        -- "$sites" 2 gemm:100 alone/30:100
    cmp "$work/a.tune" "$work/before" || fail "rewritten"
    # Other ranks, or other settings: what was measured says nothing.
    run "${tried[@]}" --has "$(event tune_sites '"used":0,"other_ranks":2')" -- "$sites" 3 gemm:100
    run "${tried[@]}" --set SLIPRING_CHUNKS=2 --has "$(event tune_sites '"used":0,.*"other_setup":2')" -- "$sites" 2 gemm:100
    sed -i 's/ ways=[0-9]* / ways=4294967295 /' "$work/a.tune"
    run "${tried[@]}" --has "$(event tune_sites '"used":0,.*"other_ways":2')" -- "$sites" 2 gemm:100
}

# Only who asks for it gets a file.
case_off() {
    run "${tried[@]}" --hasnt "$(event tune_kept)" -- "$sites" 2 gemm:100
    [ ! -e "$work/a.tune" ] || fail "a file was written"
    SLIPRING_TUNE_KEEP=on run --set SLIPRING_TUNE_FILE= "${tried[@]}" --has "$(event tune_not_kept 'names no file')" -- "$sites" 2 gemm:260
    run --set SLIPRING_TUNE_KEEP=on --set SLIPRING_TRIALS=0 "${untried[@]}" -- "$sites" 2 gemm:100
    [ ! -e "$work/a.tune" ] || fail "a file was written without trials"
}

# Each choice by hand, from the first call on, and for the GEMMs that it names.
case_by_hand() {
    echo 'site bytes=..12288 : way=nccl' >"$work/a.tune"
    run "${untried[@]}" --has '"event":"count".*"reason":"measured","n":100[,}]' --hasnt "$(event substitute)" -- "$sites" 2 gemm:100
    echo 'site : way=ring cut=p4' >"$work/a.tune"
    run "${untried[@]}" --has "$(event fused '"parts":4,')" --hasnt "$(event fused '"parts":[^4],')" -- "$sites" 2 gemm:100
    echo 'site : way=ring cut=whole' >"$work/a.tune"
    run "${untried[@]}" --has '"reason":"gemm_whole"' --hasnt "$(event fused)" -- "$sites" 2 gemm:100
    printf '%s\n' 'site gemm=32x48x64 trans=tn : way=ring cut=p2' 'site gemm=any : way=ring cut=p4' >"$work/a.tune"
    run "${untried[@]}" --has "$(event fused '"parts":4,')" --hasnt "$(event fused '"parts":2,')" -- "$sites" 2 gemm:60
    run "${untried[@]}" --has "$(event fused '"parts":2,')" --hasnt "$(event fused '"parts":4,')" -- "$sites" 2 turned:60
}

# A gather that is left to NCCL comes between a gather and its GEMM.
case_between() {
    printf '%s\n' 'site bytes=12288 : way=ring cut=p4' 'site bytes=11776 : way=nccl' >"$work/a.tune"
    run "${untried[@]}" --has "$(event fused '"parts":4,')" --hasnt "$(event fused '"parts":[^4],')" --has "$(event pass '"shard":5888.*measured')" -- "$sites" 2 between:30
}

# The GEMM that consumes the gathers is not the known one: tried again. Or it is: not.
case_changed() {
    for known in gemm=none 'gemm=32x48x64 trans=tn'; do
        echo "site $known : way=ring cut=whole" >"$work/a.tune"
        run "${tried[@]}" --has "$(event site_known)" -- "$sites" 2 gemm:200
        SLIPRING_TUNE_KEEP=on run "${tried[@]}" -- "$sites" 2 gemm:320
        grep -q 'trans=nn .*# kept' "$work/a.tune" || fail "not kept"
        [ "$(rules "$work/a.tune")" = 2 ] || fail "not two rules"
        run "${untried[@]}" -- "$sites" 2 turned:10 # too few to be seen
    done
    echo 'site gemm=32x48x64 trans=nn : way=ring' >"$work/a.tune"
    run "${untried[@]}" -- "$sites" 2 gemm:300
    # The first rule has given the site to the ring, so one for NCCL says nothing about its GEMMs.
    printf '%s\n' 'site gemm=32x48x64 trans=tn : way=ring' 'site : way=nccl' >"$work/a.tune"
    run "${tried[@]}" -- "$sites" 2 gemm:200
}

# Calls in groups with others have no times of their own: what the program takes has decided, whichever GEMM there is.
case_grouped() {
    export SOFTGPU_TIMING=1 SOFTGPU_COMPUTE=0 SOFTGPU_MEMOP_US=3000 # the ring is slow
    SLIPRING_TUNE_KEEP=on run --set SLIPRING_TRIALS=3 --has "$(event duel '"by":"nccl"')" --has "$(event tune_kept)" --hasnt "$(event tried)" -- "$sites" 2 two+unchecked:450
    grep -qE '^site bytes=12288 .* gemm=any : way=nccl # kept by slipring$' "$work/a.tune" || fail "no rule for any GEMM"
    run --set SLIPRING_TRIALS=3 "${untried[@]}" --has "$(event site_known '"by":"nccl"')" --hasnt "$(event substitute)" -- "$sites" 2 two+unchecked:30
}

# Reduce-scatters have rules of their own, which name the GEMM that makes what they send.
case_scatter() {
    local ring='"op":"reducescatter".*"reason":"ring"' small=(--set SLIPRING_SLOT_BYTES=64K --set SLIPRING_FLOP_PER_BYTE=0)
    SLIPRING_TUNE_KEEP=on run "${small[@]}" "${tried[@]}" --has "$(event tune_kept)" -- "$scatter" tried-gemms 2
    grep -qE '^site op=reducescatter bytes=384 ranks=2 gpu=softgpu ways=[0-9]+ setup=[0-9a-f]+ gemm=8x24x24 trans=nn type=bf16 batch=1 : way=(ring cut=(pace|whole|b[1248])|nccl) # kept by slipring$' \
        "$work/a.tune" || fail "no rule for the second GEMM"
    # By that alone: the other GEMM is a stranger.
    sed -i '/8x24x16/d' "$work/a.tune"
    run "${small[@]}" --has "$(event tried '"k":16,')" --has "$(event tune_sites '"used":1')" --has "$(event site_known '"op":"reducescatter".*"shard":192')" -- "$scatter" tried-gemms 2
    echo 'site op=reducescatter bytes=..384 : way=ring cut=b2' >"$work/a.tune"
    run "${small[@]}" "${untried[@]}" --has "$ring" --hasnt "$(event pass '"op":"reducescatter"')" --has "$(event produced '"parts":4[,}]')" --hasnt "$(event produced '"parts":[^4]')" \
        -- "$scatter" tried-gemms 2
    echo 'site op=reducescatter gemm=8x24x24 trans=nn type=bf16 batch=1 : way=ring cut=whole' >"$work/a.tune"
    run "${small[@]}" --has "$ring" --has "$(event tried '"k":16,')" -- "$scatter" tried-gemms 2
    echo 'site op=reducescatter : way=nccl' >"$work/a.tune"
    run "${small[@]}" "${untried[@]}" --hasnt "$ring" --has "$(event pass '"op":"reducescatter".*"reason":"measured"')" -- "$scatter" tried-gemms 2
    # What is for gathers is not for them, and the other way round.
    printf '%s\n' 'site : way=ring cut=whole' 'site op=allgather : way=nccl' >"$work/a.tune"
    run "${small[@]}" "${tried[@]}" --hasnt "$(event site_known)" -- "$scatter" tried-gemms 2
    echo 'site op=reducescatter : way=nccl' >"$work/a.tune"
    run "${tried[@]}" --hasnt "$(event site_known)" -- "$sites" 2 alone:100
    printf '%s\n' '#' 'site op=alltoall : way=nccl' >"$work/a.tune"
    run "${small[@]}" "${tried[@]}" --has "$(event tune_table_broken "a.tune.*\"line\":2,.*op=alltoall: expected allgather, reducescatter or allreduce")" -- "$scatter" tried-gemms 2
    echo 'site op=reducescatter : way=ring cut=p4' >"$work/a.tune"
    run "${small[@]}" "${tried[@]}" --has "$(event tune_rule_unusable '"line":1,.*"cut":"p4"')" -- "$scatter" tried-gemms 2
}

# Only rank 0's file counts: ranks that have another one, or none, or a broken one, go the same way.
case_ranks() {
    echo 'site bytes=12288 : way=nccl' >"$work/a.tune"
    echo 'site bytes=12288 : way=ring' >"$work/b.tune"
    echo 'nonsense' >"$work/c.tune"
    local other
    for other in "$work/b.tune" "$work/c.tune" /nonexistent; do
        run "${untried[@]}" --hasnt "$(event substitute)" -- "$collectives" --ranks 3 --func allgather --bytes 12288 --rounds 100 --rank-env 1:SLIPRING_TUNE_FILE="$other"
        run "${tried[@]}" --hasnt "$(event site_known)" -- "$collectives" --ranks 3 --func allgather --bytes 24576 --rounds 100 --rank-env 1:SLIPRING_TUNE_FILE="$other"
    done
    # Of ranks of one process, which rank 0 is one of, too; and with trials off on one rank nothing of it is used.
    run --hasnt "$(event site_known)" --has "$(event substitute)" -- "$collectives" --ranks 2 --func allgather --bytes 12288 --rounds 20 --rank-env 1:SLIPRING_TRIALS=0
}

# Another GPU: not used, and the log says why. Ranks with several models: neither used nor kept.
case_gpu() {
    echo 'site gpu=NVIDIA-H200 : way=nccl' >"$work/a.tune"
    run "${tried[@]}" --has "$(event tune_sites '"used":0,.*"other_gpu":1')" -- "$sites" 2 alone:100
    SOFTGPU_NAME='nvidia H200' run "${untried[@]}" --has "$(event tune_sites '"used":1')" -- "$sites" 2 alone:100
    SLIPRING_TUNE_KEEP=on SOFTGPU_NAME='NVIDIA H200' run "${tried[@]}" --hasnt "$(event tune_kept)" --has "$(event tune_sites '"used":0,.*not all of one model')" \
        -- "$collectives" --ranks 2 --func allgather --bytes 8192 --rounds 100 --rank-env 1:SOFTGPU_NAME=other
    [ "$(rules "$work/a.tune")" = 1 ] || fail "kept"
}

# A broken file: named with the line, none of it used, left as it is. A way that there is not: the rule alone.
case_broken() {
    printf '%s\n' 'site : way=nccl' 'site : way=sideways' >"$work/a.tune"
    cp "$work/a.tune" "$work/before"
    SLIPRING_TUNE_KEEP=on run "${tried[@]}" --has "$(event tune_table_broken '"line":2,.*way=sideways')" --has "$(event tune_not_kept '"line":2,')" -- "$sites" 2 alone:260
    cmp "$work/a.tune" "$work/before" || fail "changed"
    printf '%s\n' '#' 'site : way=ring cut=p99' >"$work/a.tune"
    run "${tried[@]}" --has "$(event tune_rule_unusable '"line":2,.*"cut":"p99"')" --has "$(event tune_sites '"unusable":1')" -- "$sites" 2 alone:100
}

# Several jobs at once keep what each has found; what was there by hand stays.
case_jobs() {
    printf '# mine\nallgather bytes=1T.. : channels=2 # best\n' >"$work/a.tune"
    local pids=() i
    for i in 1 2 3; do
        SLIPRING_TUNE_KEEP=on run "${tried[@]}" -- "$sites" 2 alone/$((10 * i)):260 alone/$((10 * i + 1)):260 &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || fail "a job"; done
    [ "$(rules "$work/a.tune")" = 6 ] || fail "not six rules"
    [ "$(head -2 "$work/a.tune")" = $'# mine\nallgather bytes=1T.. : channels=2 # best' ] || fail "not what was there"
    [ "$(ls -A "$work")" = a.tune ] || fail "left: $(ls -A "$work")"
}

# It can not be written: one warning, and the program goes on.
case_unwritable() {
    SLIPRING_TUNE_KEEP=on run --set SLIPRING_TUNE_FILE="$work/none/a.tune" "${tried[@]}" --has "$(event tune_not_kept "none/a.tune.*No such file")" -- "$sites" 2 alone:260 alone/30:260
    mkdir "$work/a.tune"
    SLIPRING_TUNE_KEEP=on run "${tried[@]}" --has "$(event tune_not_kept 'Is a directory')" -- "$sites" 2 alone:260
    rmdir "$work/a.tune"
}

"case_$case"
