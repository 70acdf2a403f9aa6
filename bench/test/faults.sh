#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage, wrong environment, dead ranks: the right status, named, in bounded time.
ag_gemm=$1
small="--m 16 --n 16 --k 16 --iters 3 --check full"
failures=0

# expect STATUS TEXT COMMAND...: the command's status, and TEXT in what it says.
expect() {
    status=$1 text=$2
    shift 2
    output=$(timeout 60 "$@" 2>&1)
    got=$?
    if [ "$got" -ne "$status" ]; then
        echo "status $got instead of $status: $*" && echo "$output" && failures=$((failures + 1))
    elif ! printf '%s' "$output" | grep -q -e "$text"; then
        echo "'$text' not said by: $*" && echo "$output" && failures=$((failures + 1))
    fi
}

expect 0 'in-place' "$ag_gemm" --help
expect 2 'there is no option: --no-such-thing' "$ag_gemm" --no-such-thing
expect 2 'needs a value' "$ag_gemm" --ranks
expect 2 'bn|at' "$ag_gemm" --form nt
expect 2 'form an needs' "$ag_gemm" --form an --api lt
expect 2 'a whole number from 1 on, not 12x' "$ag_gemm" --m 12x
expect 2 'm takes a whole number from 1 on' "$ag_gemm" --m 0
expect 2 'multiple of the element size' "$ag_gemm" --bytes 3 --dtype fp32
expect 2 'sgemm needs' "$ag_gemm" --api sgemm --dtype bf16
expect 2 'need' env -u RANK -u WORLD_SIZE -u SLURM_PROCID "$ag_gemm" --id-file /dev/null/x
expect 3 'rank 1: killed by signal 9 in init' "$ag_gemm" --ranks 2 --kill-rank 1 --grace 1 $small
expect 3 'rank 0: killed by signal 9 in check' "$ag_gemm" --ranks 2 --kill-rank 0 --kill-at check --grace 1 $small
expect 3 'rank 2: killed by signal 9 in whole, iteration 2' \
    "$ag_gemm" --ranks 3 --kill-rank 2 --kill-at whole:2 --grace 1 $small
expect 3 'can not write' "$ag_gemm" --ranks 1 --json /nonexistent/x.json $small
expect 3 'cudaMalloc in buffers' "$ag_gemm" --ranks 1 --bytes 1000000000000000 --check off
[ "$failures" -eq 0 ]
