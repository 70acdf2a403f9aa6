#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts (SLIPRING_HOSTS), for which one machine is to be taken: four ranks on the first GPU are two hosts of two. NCCL talks
# over loopback sockets, between the hosts as inside of them; so what is measured here says nothing of time.
#
#   c-*       random C programs of four ranks (tests/fuzz/fuzz_plan), whose every byte is compared
#   random-*  random PyTorch and JAX programs (torch_programs.py, jax_programs.py), whose every value is compared
#   torch-*   PyTorch programs (frameworks/), without slipring and with it: the same losses, bit for bit. All gathers go over
#             hosts; *-tried: as a duel finds (48 calls and more a turn), *-now: communicators are made at once, and split;
#             *-sums: reduce-scatters and all-reduces as well, whose losses are nearly the same
#
# With --spread each rank has a GPU of its own, and NCCL talks over sockets between the hosts only. Then there is a table
# of times as well (time-*, no promise for real networks): of sockets, and of hosts whose network is NVLink.
#
# usage: tests/gpu/hosts.sh [options]
#   --spread       four GPUs, one for each rank
#   --softgpu      on the software GPU, the C programs alone: tests this script
#   --build DIR    use this build as it is instead of building in build-gpu
#   --wheels DIR   install the wheels of this folder, without what they depend on: for megatron-core, DeepSpeed, transformers
#   --steps N      of each PyTorch program [40]
#   --seconds N    of random programs, of each kind [60]
#   --only REGEX   only the steps whose name matches
#   --jobs N       at a time [2]
#   --each S       most seconds of one run [120]
#   --limit S      start no further step after so many seconds [540]
#   --out DIR      where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every step passed, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

steps=40 each=120 seconds=60 one_gpu=1 jobs=2 spread=0 wheels=""
while [ $# -gt 0 ]; do
    case $1 in
    --softgpu) softgpu=1 ;;
    --spread) spread=1 one_gpu=0 ;;
    --build | --wheels | --steps | --seconds | --only | --jobs | --each | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
programs=$SLR_ROOT/tests/gpu/frameworks
python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "${PYTHON:-python3}" -u) # with the wheels' own libraries
open_logs
settings=(--set hosts=on --set min_bytes=0 --set log=info)

# Of the program: whether by hosts or by NCCL is tried, and whether all reduce-scatters go over hosts.
tries() { # NAME
    local of=(--set trials=0)
    [[ $1 != *-tried ]] || of=(--set trials=2 --set trials_after=4)
    [[ $1 != *-sums ]] || of+=(--set reduce_scatter=always --set all_reduce=always)
    echo "${of[@]}"
}

# How many calls of all ranks were counted with the reason: COUNT is count of gathers, or [a-z]+_count of sums.
counts() { # NAME COUNT REASON
    cat /dev/null "$logs/$1".*.decisions | sed -nE "s/.* $2 reason=$3 n=([0-9]+).*/\1/p" | awk '{ n += $1 } END { print n + 0 }'
}

# HSDP shards inside of a host, so that its gathers go over the ring there.
row() { # NAME COMMAND...
    local name=$1 rc=0 moved sums
    shift
    "$@" || rc=$?
    moved=$(counts "$name" count "$([[ $name == *hsdp* ]] && echo ring || echo hosts)")
    sums=$(counts "$name" '[a-z]+_count' hosts)
    printf '| %s | %s | %s | %s | %s |\n' "$name" "$([ $rc = 0 ] && echo exact || echo "status $rc")" "$moved" "$(counts "$name" count fused)" "$sums" >"$logs/$name.row"
    [ $rc = 0 ] || return $rc
    [ $((moved + sums)) -gt 0 ] || { grep -hE 'hosts_off|communicator ' "$logs/$name".*.decisions | head -n 4; echo "nothing went over hosts" && return 1; }
    [[ $name != *-sums || $sums -gt 0 ]] || { echo "no sum went over hosts" && return 1; }
}

# c_programs NAME FIRST-SEED: those of four ranks, as many as fit into the time; each rank is started with its host's name.
c_programs() {
    local name=$1 at=$2 n=0 sums=auto end=$((SECONDS + seconds)) options=(--no threads,kill,freeze,stop,deepbind,conditional)
    [ "$name" = c-0 ] || sums=always
    for (( ; SECONDS < end; at++)); do
        "${plain[@]}" "$fuzz_plan" "$at" --about "${options[@]}" | grep -q '^processes ranks=4 ' || continue
        TEST_HOSTS=2 SLIPRING_REDUCE_SCATTER=$sums SLIPRING_ALL_REDUCE=$sums timeout -k 5 100 "${plain[@]}" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" --set alloc_min=1 --set trials=0 \
            --set chunks=$((at % 4)) --set "log_file=$logs/$name.%p.decisions" -- "$fuzz_plan" "$at" "${options[@]}" >"$logs/$name.one" 2>&1 ||
            { echo "seed $at:" && tail -n 20 "$logs/$name.one" && return 1; }
        n=$((n + 1))
    done
    echo "$n programs, 0 wrong"
    [ $n -gt 0 ]
}

# four NAME COMMAND...: the four ranks; the status of the first one that fails.
four() {
    local name=$1 rank rc=0 pids=() port=$((20000 + RANDOM % 20000)) apart=()
    shift
    for rank in 0 1 2 3; do
        [ $spread = 0 ] || apart=(NCCL_HOSTID=host$((rank / 2)) NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo)
        bounded env "${apart[@]}" RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            SLIPRING_HOST=host$((rank / 2)) "$@" >"$logs/$name.rank$rank.out" 2>&1 &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || rc=$?; done
    grep -h "^rank " "$logs/$name".rank*.out || tail -n 5 "$logs/$name".rank*.out
    return $rc
}

losses() { # NAME
    "${python[@]}" -c 'import json, sys; print(json.load(open(sys.argv[1]))["losses"])' "$logs/$1.rank0.json"
}

# The same bits; where sums are taken in another order nearly so.
like() { # NAME
    local near=0
    [[ $1 != *-sums ]] || near=0.02
    "${python[@]}" -c 'import math, sys
one, other, near = eval(sys.argv[1]), eval(sys.argv[2]), float(sys.argv[3])
sys.exit(len(one) != len(other) or not all(math.isclose(float.fromhex(x), float.fromhex(y), rel_tol=near) for x, y in zip(one, other)))' "$(losses "$1")" "$(losses "$1-nccl")" "$near"
}

# torch_of NAME FILE OPTION...
torch_of() {
    local name=$1 command=("${python[@]}" "$programs/$2" --steps "$steps" --settle 10 "${device_option[@]}") tries
    shift 2
    read -ra tries <<<"$(tries "$name")"
    four "$name-nccl" "${command[@]}" --json "$logs/$name-nccl" "$@" || return $?
    row "$name" four "$name" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" "${tries[@]}" --set "log_file=$logs/$name.rank%r.decisions" -- \
        "${command[@]}" --json "$logs/$name" "$@" || return $?
    like "$name" || { echo "WRONG: losses differ: $(losses "$name") and $(losses "$name-nccl")" && return 1; }
    [[ $name != *-tried ]] || grep -h ' duel .*sites=0 ' "$logs/$name".*.decisions || { echo "no duel over hosts" && return 1; }
}

# random_of NAME FILE
random_of() {
    local name=$1 tries
    read -ra tries <<<"$(tries "$name")"
    row "$name" four "$name" "$slipring" run --lib "$build/libslipring.so" "${settings[@]}" "${tries[@]}" --set "log_file=$logs/$name.rank%r.decisions" -- \
        "${python[@]}" "$SLR_ROOT/tests/gpu/$2" --seconds "$seconds" --seed 1128 "${device_option[@]}" --json "$logs/$name" || return $?
    cat "$logs/$name".rank[0-3].json
}

# timed NAME NETWORK ag_gemm-option...: the gather alone, and with its GEMM, by NCCL and over hosts, in turn. Of three rounds the
# median; each figure is the worst rank's.
timed() {
    local name=$1 network=$2 round side under
    shift 2
    for round in 1 2 3; do
        for side in nccl whole fused; do
            under=()
            [ $side = nccl ] || under=("$slipring" run --lib "$build/libslipring.so" "${settings[@]}" --set trials=0
                --set fuse="$([ $side = fused ] && echo on || echo off)" --set "log_file=$logs/$name.$side.rank%r.decisions" --)
            four "$name.$side" "${plain[@]}" env ${network:+"NCCL_HOSTID=$network"} "${under[@]}" "$build/bench/ag_gemm" --id-file "$logs/$name.$side.$round.id" \
                --dtype bf16 --check sample --check-rounds 1 --poison --json "$logs/$name.$side.$round.json" "$@" || return $?
        done
    done
    "${python[@]}" - "$logs/$name" "$*" >"$logs/$name.table" <<'EOF'
import json, statistics, sys

print(f"ag_gemm {sys.argv[2]}; ms\n\n| {sys.argv[1].split('time-')[-1]} | gather | NCCL / this | with GEMM | NCCL / this |\n| --- | --- | --- | --- | --- |")
found = {}
for side in ("nccl", "whole", "fused"):
    of = [json.load(open(f"{sys.argv[1]}.{side}.{n}.json"))["worst"] for n in (1, 2, 3)]
    found[side] = [statistics.median(one[what]["gpu_ms"] for one in of) for what in ("gather", "whole")]
    row = [f"{value:.3f} | {base / value:.3f}" for base, value in zip(found["nccl"], found[side])]
    print(f"| {side} | {' | '.join(row)} |")
EOF
    grep -hq ' count reason=hosts ' "$logs/$name".fused.*.decisions || { echo "no gather went over hosts" && return 1; }
}

# sums NAME OPTION...: GEMMs whose output is reduced and scattered, by NCCL and over hosts; every element is compared.
sums() {
    local name=$1
    shift
    "${python[@]}" "$SLR_ROOT/tests/gpu/scatter.py" --ranks 4 --hosts 2 --lib "$build/libslipring.so" "${settings[@]}" --set trials=0 \
        --set reduce_scatter=always --settle 10 --times 2 --rounds 2 --iters 10 --logs "$logs/$name.ranks" --limit 150 "$@" | tee "$logs/$name.table"
    grep -hq 'scatter_count reason=hosts ' "$logs/$name.ranks"/*.log || { echo "no reduce-scatter went over hosts" && return 1; }
}

table() {
    {
        echo "| program | bytes, losses | gathers of all ranks moved | fused | sums moved |"
        echo "| --- | --- | --- | --- | --- |"
        for name in "${names[@]}"; do cat "$logs/$name.row" 2>/dev/null || true; done
    } >"$logs/table.table"
}

find_device
two_gpus_or_one
[ $spread = 0 ] || [ $softgpu = 1 ] || [ "$(cuda_device_count)" -ge 4 ] || die "--spread takes four GPUs"
device_option=()
[ $one_gpu = 0 ] || device_option=(--one-gpu)
find_build
say "$device; logs in $out"
find_fuzz_plan
for part in 0 1; do side_by_side "c-$part" $((seconds + 130)) row "c-$part" c_programs "c-$part" $((part * 5000 + 1)); done
if [ $softgpu = 0 ]; then
    for name in random-torch random-torch-tried random-torch-sums; do side_by_side $name $((seconds + 130)) random_of $name torch_programs.py; done
    for name in random-jax random-jax-tried; do side_by_side $name $((seconds + 130)) random_of $name jax_programs.py; done
    side_by_side torch-c10d "$each" torch_of torch-c10d functional.py --form c10d
    side_by_side torch-functional "$each" torch_of torch-functional functional.py --form functional
    side_by_side torch-coalesced "$each" torch_of torch-coalesced functional.py --form coalesced
    side_by_side torch-fsdp2 "$each" torch_of torch-fsdp2 fsdp2.py
    side_by_side torch-fsdp2-tried "$each" torch_of torch-fsdp2-tried fsdp2.py
    side_by_side torch-fsdp2-sums "$each" torch_of torch-fsdp2-sums fsdp2.py
    side_by_side torch-ddp-sums "$each" torch_of torch-ddp-sums ddp.py
    side_by_side torch-dtensor-sums "$each" torch_of torch-dtensor-sums dtensor.py
    if [ -n "$wheels" ]; then
        install_wheels
        side_by_side torch-megatron-sums "$each" torch_of torch-megatron-sums megatron_tp.py
        side_by_side torch-megatron-whole-sums "$each" torch_of torch-megatron-whole-sums megatron_tp.py --form whole
        side_by_side torch-zero3-sums "$each" torch_of torch-zero3-sums zero3.py
        side_by_side torch-transformers-sums "$each" torch_of torch-transformers-sums transformers_tp.py
    fi
    side_by_side torch-fsdp2-now "$each" torch_of torch-fsdp2-now fsdp2.py --non-blocking
    side_by_side torch-hsdp "$each" torch_of torch-hsdp fsdp2.py --replicas 2
    side_by_side torch-hsdp-now "$each" torch_of torch-hsdp-now fsdp2.py --replicas 2 --non-blocking
fi
if [ $spread = 1 ]; then
    few=(--m 131072 --n 4096 --k 8192) many=(--m 8192 --n 32768 --k 16384)
    [ $softgpu = 0 ] || few=(--m 256 --n 256 --k 256) many=(--m 256 --n 512 --k 256)
    alone time-sockets 200 timed time-sockets "" --iters 5 "${few[@]}"
    alone time-links 100 timed time-links one "${many[@]}"
    if [ $softgpu = 0 ]; then
        alone time-sums-sockets 170 sums time-sums-sockets --forms stream event --shapes 16384,8192,8192 65536,2048,8192
        alone time-sums-links 170 sums time-sums-links --links --forms stream event --shapes 16384,16384,8192 16384,32768,16384
    fi
fi
wait
only="" alone table 10 table # whatever was wanted
finish
