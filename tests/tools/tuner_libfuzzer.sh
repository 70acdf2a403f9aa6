#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tune file's parser under libFuzzer with sanitizers, for a number of runs. Usage: tuner_libfuzzer.sh CLANG SOURCE_ROOT CORPUS RUNS INCLUDE_FOLDER...
set -eu
clang=$1 root=$2 corpus=$3 runs=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shift 4
for folder; do
    shift
    [ -z "$folder" ] || set -- "$@" -isystem "$folder"
done
"$clang" -std=gnu11 -D_GNU_SOURCE -DTUNE_LIBFUZZER -O1 -g -fsanitize=fuzzer,address,undefined -I"$root" "$@" \
    "$root/tests/tools/tuner_fuzz_table.c" "$root"/plugin/tuner/tune_site.c "$root"/plugin/tuner/tune_t[ae]*.c "$root"/plugin/util/consumer.c \
    "$root/plugin/abi/nccl_common.c" -o "$work/fuzz" 2>"$work/err" || {
    tail -n 1 "$work/err"
    echo "this clang has no libFuzzer"
    exit 77
}
cp -r "$corpus" "$work/corpus"
"$work/fuzz" -runs="$runs" -max_len=4096 -seed=1 -verbosity=0 "$work/corpus"
