#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The step of a backward pass, an all-reduce beside GEMMs, on a modelled device. By its own time the all-reduce is slower
# over the ring. It goes there where NCCL's kernel makes the GEMMs so much later that the step is longer with it, and
# only there.
#
#   beside.sh KIND BY CALL_SITES      KIND: bucket or dgrad, of call_sites; BY: ring or nccl
#
# Environment: that of run.sh.
#
# Beside are four GEMMs of 6 ms. NCCL's all-reduce takes 20 ms, the ring's 33; with a GEMM before them 26 and 33.
set -eu
kind=$1 by=$2 sites=$3 here=$(dirname "$0")
fail() { echo "beside.sh: $*" >&2; exit 1; }
event() { echo "\"event\":\"$1\",.*$2"; }
export SOFTGPU_TIMING=1 SOFTGPU_LINK_GBS=0.0003 SOFTGPU_TFLOPS=0.000033 SOFTGPU_MEMOP_US=1150
export SLIPRING_MIN_BYTES=0 SLIPRING_TRIALS=5
case $kind in # until all has been tried, and is measured
  bucket) calls=300 ;;
  dgrad) calls=448 ;;
esac
case $by in # what the cases differ by; the duel; a step's time at most, as part of that without slipring
  ring) export SOFTGPU_COLLECTIVE_SHARE=1; duel=ring reason=program most=90 ;;
  nccl) export SOFTGPU_COLLECTIVE_SHARE=0; duel='(nccl|sites)' reason='(program|measured)' most=102 ;;
esac
step() { # CALLS ARGUMENTS of run.sh      us, of the last steps, on the device
    local out calls=$1
    shift
    out=$("$here/run.sh" "$@" -- "$sites" 2 "$kind:$calls") || fail "$*"
    [[ $out =~ step\ ([0-9]+)\.([0-9]{3})\ ms ]] || fail "no step: $out"
    echo $((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
}
off=$(step 64 --plain)
tried=$(event tried '"op":"allreduce",.*"stage":"duel",.*"ring_ms":[3-9][0-9][.].*"nccl_ms":2[0-9][.]')
chosen=$(event site_way "\"op\":\"allreduce\",.*\"by\":\"$by\",\"reason\":\"$reason\"")
on=$(step $calls --has "$tried" --has "$(event duel "\"by\":\"$duel\"")" --has "$chosen")
echo "a step takes $on us, without slipring $off"
[ $((on * 100)) -le $((off * most)) ] || fail "more than $most%"
