#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Three ranks that are started from outside, as torchrun and mpirun do, and a file left by an earlier run.
ag_gemm=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
set -- --m 24 --n 24 --k 16 --iters 2 --check full --timeout 60
head -c 100000 /dev/zero >"$folder/id"

RANK=1 WORLD_SIZE=3 LOCAL_RANK=1 "$ag_gemm" --id-file "$folder/id" "$@" >"$folder/out1" &
one=$!
OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 "$ag_gemm" --id-file "$folder/id" "$@" >"$folder/out2" &
two=$!
sleep 0.2
SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_LOCALID=0 \
    "$ag_gemm" --id-file "$folder/id" --json "$folder/json" "$@" >"$folder/out0"
zero=$?
wait "$one"
one=$?
wait "$two"
two=$?
cat "$folder/out0"
[ "$zero$one$two" = 000 ] || { echo "statuses $zero $one $two"; exit 1; }
[ "$(grep -c 'exact (' "$folder/out0")" -eq 3 ] || { echo "not three exact ranks"; exit 1; }
[ ! -s "$folder/out1" ] || { echo "only rank 0 prints"; exit 1; }
[ ! -e "$folder/id" ] || { echo "the file was left"; exit 1; }
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["check"]["result"] == "exact" and r["world"] == 3' \
    "$folder/json"
