#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs profile_mix with 4 ranks and brings NCCL's lines together with slipring's. Usage: profiler_mix.sh MODE PROGRAM
#
#   preloaded   preloaded, NCCL_PROFILER_PLUGIN=STATIC_PLUGIN          other-copy  preloaded, and a copy is named
#   named       only named: nothing is interposed                      off         SLIPRING_PROFILE=off
#   both        preloaded, and the same file is named                  open        the communicator is not destroyed
set -u
mode=$1 program=$2 ranks=4
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED ($mode): $*" >&2; grep -h nccl "$dir"/log.* | head -n 40 >&2; exit 1; }

preload="${TEST_PRELOAD_FIRST:+$TEST_PRELOAD_FIRST:}$SLIPRING_LIB" plugin=$SLIPRING_LIB profile=on
case $mode in
  preloaded | open | off) plugin=STATIC_PLUGIN ;;
  named) preload=${TEST_PRELOAD_FIRST:-} ;;
  other-copy) cp "$SLIPRING_LIB" "$dir/copy.so" && plugin=$dir/copy.so ;;
esac
[ "$mode" != off ] || profile=off
run() {
  SLIPRING_LOG=info SLIPRING_LOG_FORMAT=json SLIPRING_LOG_FILE="$dir/log.%p" SLIPRING_TRACE=1 SLIPRING_MIN_BYTES=64K \
    SLIPRING_PROFILE=$profile NCCL_PROFILER_PLUGIN=$plugin SOFTGPU_REPORT="$dir/misuse" LD_PRELOAD=$preload \
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}
run "$program" $ranks ${1:+$([ "$mode" = open ] && echo open)} || fail "exit status $?"
[ ! -s "$dir/misuse" ] || fail "misuse: $(cat "$dir/misuse")"

# field NAME: of each line
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
# lines EVENT [REGEX]: of all ranks
lines() { grep -h "\"event\":\"$1\"" "$dir"/log.* | grep -E -- "${2:-}"; }
# want N EVENT REGEX
want() {
  local n
  n=$(lines "$2" "$3" | wc -l)
  [ "$n" = "$1" ] || fail "$n lines of $2 match $3, expected $1"
}

if [ "$mode" = off ]; then
  want 0 "nccl.*" .
  exit 0
fi
# What NCCL ran, in every mode: 3 gathers below the limit and 2 in the group, a captured one three times; in named, also the
# one that slipring would have moved.
gathers=7
[ "$mode" != named ] || gathers=8
want $((gathers * ranks)) nccl '"func":"AllGather"'
want $ranks nccl '"func":"AllReduce",.*"dtype":"fp32","bytes":1024,'
want $ranks nccl '"func":"AllReduce",.*"nranks":2,|"nranks":2,.*"func":"AllReduce",.*"dtype":"uint8","bytes":256,'
want $ranks nccl '"func":"Broadcast",.*"count":256,"dtype":"bf16","bytes":512,'
want $ranks nccl '"func":"Send",.*"bytes":1024,"peer":[0-3],'
want $ranks nccl '"func":"Recv",.*"bytes":1024,"peer":[0-3],'
want 0 nccl_lost .
want 0 nccl '"kernel_ns":0[,}]'
want 0 nccl '"begin":0,|"end":0,'
want $ranks nccl_sum '"func":"Broadcast","bytes":512,"dtype":"bf16","reason":"-","algo":"Ring","proto":"Simple","channels":8,"calls":1,"timed":1,"min_ns":[1-9]'

if [ "$mode" = named ]; then
  want 0 nccl '"comm":"[^?]'
  want 0 nccl '"call":[1-9]|"reason":"[^-]'
  want 0 communicator . # nothing was interposed, and it is said
  want $ranks profiler '"interface":"v5","interposed":0,'
  want 0 pass .
  exit 0
fi
want $ranks profiler '"interface":"v5","interposed":1,'
# Every line names slipring's communicator, the split one too: 2 + 1 names, all of them known.
want 0 'nccl[a-z_]*' '"comm":"\?"'
names=$(lines 'nccl' | field comm | sort -u)
[ "$names" = "$(lines communicator | field comm | sort -u)" ] && [ "$(wc -l <<<"$names")" = 3 ] || fail "communicators: $names"
# One hash of NCCL's for each name.
[ "$(lines nccl | sed 's/.*"comm":"\([0-9a-f]*\)","comm_hash":"\([0-9a-f]*\)".*/\1 \2/' | sort -u | wc -l)" = 3 ] || fail "comm_hash"

# Calls: numbers and reasons are those that slipring gave. Bytes say which call is which, in the group as well.
for call in '1 4096 below_min_bytes 1' '2 4096 below_min_bytes 1' '3 12288 below_min_bytes 1' '4 131072 stream_capture 3' '5 4096 below_min_bytes 1'; do
  set -- $call
  want $((ranks * $4)) nccl "\"func\":\"AllGather\",.*\"call\":$1,\"reason\":\"$3\",.*\"dtype\":\"fp32\",\"bytes\":$2,"
done
want 0 nccl '"func":"A[^"]*Reduce",.*"call":[1-9]'
# Slipring's own lines of the same calls, where it measures them (not in groups and captures), have the same numbers.
id() { sed -n 's/.*"comm":"\([^"]*\)",.*"crank":\([0-9]*\),.*"call":\([0-9]*\),.*"reason":"\([^"]*\)".*/\1 \2 \3 \4/p' | sort -u; }
lines gather '"decision":"pass"' | id >"$dir/ours"
lines nccl '"call":[1-9]' | id >"$dir/theirs"
[ -s "$dir/ours" ] || fail "no gather was measured"
[ -z "$(comm -23 "$dir/ours" "$dir/theirs")" ] || fail "not in NCCL's lines: $(comm -23 "$dir/ours" "$dir/theirs")"
want $ranks nccl_sum '"func":"AllGather","bytes":4096,"dtype":"fp32","reason":"below_min_bytes",.*"calls":3,"timed":3,'
want $ranks nccl_sum '"func":"AllGather","bytes":131072,"dtype":"fp32","reason":"stream_capture",.*"calls":3,"timed":3,'
exit 0
