#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long run: libFuzzer with AddressSanitizer and UBSan on what reads logs. Needs clang.
#
#   fuzz_logs.sh [--seconds 60] [--corpus FOLDER] [-- libFuzzer's options]
#
# The corpus starts with synthetic logs (../../observe/make_logs.py). What crashes is left in the present folder; `fuzz_logs FILE` repeats it.
set -eu
seconds=60 corpus=""
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 && shift ;;
    --corpus) corpus=$2 && shift ;;
    --) shift && break ;;
    *) echo "fuzz_logs.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift
done
root=$(cd "$(dirname "$0")/../../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sources=()
for file in "$root"/tools/{common,log,model,report}/*.c "$root/tools/trace/events.c"; do
    [ "${file##*/}" = main.c ] || sources+=("$file")
done
clang -g -O1 -std=gnu11 -D_GNU_SOURCE -DFUZZ_LOGS_LIBFUZZER -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I"$root" \
    "$root/tests/fuzz/logs/fuzz_logs.c" "${sources[@]}" "$root/base/reason.c" -ljansson -o "$dir/fuzz"
python3 "$root/tests/observe/make_logs.py" "$dir/seeds" --ranks 2 --calls 4
"$dir/fuzz" -max_total_time="$seconds" -max_len=60000 -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 "$@" ${corpus:+"$corpus"} "$dir/seeds"
