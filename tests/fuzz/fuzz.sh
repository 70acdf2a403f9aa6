#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random programs (fuzz.c, fuzz_plan.c), each run without and with slipring: what the ranks saw has to be equal, bit for bit, and neither run may be misuse or a race.
#
#   fuzz.sh [--seeds A..B] [--seconds N] [--want N] [--nonblocking LIBRARY] [--contexts LIBRARY] [--minimise] -- PROGRAM [OPTION...]
#
# --seeds    the programs, 1..50 unless told
# --seconds  goes on with the seeds from A on for so long
# --minimise leaves out of a program that fails the steps without which it still does, and lists the rest
# --nonblocking   all communicators are, by ../programs/nonblocking.c, also without slipring
# --contexts      streams are of other contexts, by ../programs/contexts.c, likewise; TEST_CONTEXTS: which
# --want     fails unless so many gathers were substituted, and GEMMs fused at all: what is not exercised is not tested
# MUTANT=1: fails unless a program fails, and says how many it took. FUZZ_SET: more settings ("NAME=VALUE ...") for the run with slipring.
# From CMake or the environment: SLIPRING_LIB, SOFTGPU_DIR, TEST_PRELOAD_FIRST, as run.sh wants them; TEST_RACE (strict unless told).
set -u
first=1 last=50 seconds=0 want=0 minimise=0
while [ $# -gt 0 ]; do
  case $1 in
    --seeds) first=${2%..*} last=${2#*..}; shift ;;
    --seconds) seconds=$2; shift ;;
    --want) want=$2; shift ;;
    --nonblocking | --contexts) export TEST_PRELOAD_FIRST=${TEST_PRELOAD_FIRST:+$TEST_PRELOAD_FIRST:}${2?}; shift ;;
    --minimise) minimise=1 ;;
    --) shift; break ;;
    *) echo "fuzz.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
program=${1?program}
shift
options=("$@")
export TEST_RACE=${TEST_RACE:-strict}
# The software GPU as strict as CUDA (../../softgpu/README.md).
export SOFTGPU_TIES=${SOFTGPU_TIES:-1} SOFTGPU_LAZY=${SOFTGPU_LAZY:-1} SOFTGPU_NCCL_BLIND=${SOFTGPU_NCCL_BLIND:-1}
queues=(1000 1000 300) # entries of a stream's queue, by the seed
run=$(cd "$(dirname "$0")/../programs" && pwd)/run.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# What slipring is told, by the seed. ZERO_SET_1: of the second rank alone.
settings=(
  "SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC_MIN=4K"
  "SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC_MIN=4K SLIPRING_PROTOCOL=pull"
  "SLIPRING_MIN_BYTES=0 SLIPRING_CHUNKS=5 SLIPRING_FLOP_PER_BYTE=0 SLIPRING_SPLIT_K=all"
  "SLIPRING_MIN_BYTES=0 SLIPRING_SLOT_BYTES=8K"
  "SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC=all SLIPRING_ALLOC_MIN=4K"
  "SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC_MIN=4K SLIPRING_FLOP_PER_BYTE=1000000 SLIPRING_CHUNKS=3 SLIPRING_SPLIT_K=all"
  "SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC=all SLIPRING_ALLOC_MIN=4K SLIPRING_PROTOCOL=put SLIPRING_SLOT_BYTES=16K"
  "SLIPRING_MIN_BYTES=20K SLIPRING_ALLOC=all SLIPRING_ALLOC_MIN=4K SLIPRING_PROTOCOL=pull SLIPRING_FLOP_PER_BYTE=0"
  "SLIPRING_MIN_BYTES=0 SLIPRING_ALLOC_MIN=4K SLIPRING_TRIALS=1 SLIPRING_TRIALS_AFTER=1 SLIPRING_TUNE_KEEP=on SLIPRING_TUNE_FILE=$dir/sites.tune"
)
# Some call sites are known, others are tried and kept from one program to the next.
printf '%s\n' 'site bytes=..2K : way=nccl' 'site bytes=2K..8K gemm=any : way=ring cut=whole' 'site bytes=64K..1M ranks=2 : way=ring cut=p4' >"$dir/sites.tune"
others=("" "SLIPRING_ZERO_COPY=off" "" "SLIPRING_FUSE=off SLIPRING_SLOT_BYTES=32K" "SLIPRING_ALLOC=off")
graphs=("" "" "SLIPRING_GRAPHS=off" "")
# Reduce-scatters and all-reduces; "auto" takes some where ways are tried.
scatters=(always always auto off always)
reduces=(always always auto always off always auto)

# Kinds of captured gathers that are the ring's, and what has become of their graphs.
recorded() { cat "$dir"/log.* 2>/dev/null | grep -cE '"event":"substitute".*"reason":"graph"'; }
served() { cat "$dir"/log.* 2>/dev/null | sed -nE 's/.*"event":"blocks".*"async":([0-9]+).*/\1/p' | awk '{ n += $1 } END { print n + 0 }'; }
sum() { cat "$dir"/log.* 2>/dev/null | sed -nE "s/.*\"event\":\"summary\".*\"$1\":([0-9]+).*/\1/p" | awk '{ n += $1 } END { print n + 0 }'; }

# Programs in which a rank dies or freezes tell so: they compare with bytes of their own and run only with slipring, as without it nothing ends them.
# The oracle does not judge what a dead rank did. A gather of a dead rank has to be told of, where slipring takes all gathers.
loses_a_rank() { env LD_LIBRARY_PATH="$SOFTGPU_DIR" "$program" "$@" --about 2>/dev/null | grep -qE 'fate=(dies|freezes)'; }
one_with_loss() {
  local must=(--set SLIPRING_GEMM_TIMEOUT=100ms)
  # Trials, and rules of sites, leave gathers to NCCL, of which nobody is told.
  [[ " ${each[*]} " != *"MIN_BYTES=0 "* || " ${each[*]} " == *"TRIALS=1 "* ]] || must+=(--set FUZZ_MUST_TELL=1)
  # All sums that fit are slipring's, where it takes any (FUZZ_SUMS).
  if [[ ${FUZZ_SUMS:-0} = 1 && " ${must[*]} " == *MUST_TELL* && " ${each[*]} " != *SLOT_BYTES=* ]]; then
    [[ " ${each[*]} " != *"REDUCE_SCATTER=always "* ]] || must+=(--set FUZZ_SCATTERS_TOLD=1)
    [[ " ${each[*]} " != *"ALL_REDUCE=always "* ]] || must+=(--set FUZZ_REDUCES_TOLD=1)
  fi
  TEST_RACE=1 ZERO_SET_1=${others[$(($1 % ${#others[@]}))]} "$run" "${each[@]}" "${must[@]}" -- env SLIPRING_LOG_FILE="$dir/log.%r" \
    "$program" "$@" >"$dir/ring" 2>"$dir/ring.err" || { why="with slipring"; return 1; }
}

# told SEED: what slipring is.
told() {
  echo "${settings[$(($1 % ${#settings[@]}))]} ${graphs[$(($1 % ${#graphs[@]}))]} SLIPRING_REDUCE_SCATTER=${scatters[$(($1 % ${#scatters[@]}))]}" \
    "SLIPRING_ALL_REDUCE=${reduces[$(($1 % ${#reduces[@]}))]} ${FUZZ_SET:-}"
}

# one SEED [OPTIONS of the program]: 0 when both runs end well and say the same.
one() {
  local seed=$1 each=() s
  local -x SOFTGPU_QUEUE=${SOFTGPU_QUEUE:-${queues[$((seed % ${#queues[@]}))]}}
  set -- "$@" "${options[@]}"
  for s in $(told "$seed"); do
    each+=(--set "$s")
  done
  rm -f "$dir"/log.* "$dir"/plain*
  if loses_a_rank "$@"; then one_with_loss "$@"; return; fi
  "$run" --plain -- "$program" "$@" >"$dir/plain" 2>"$dir/plain.err" || { why="without slipring"; return 1; }
  ZERO_SET_1=${others[$(($1 % ${#others[@]}))]} "$run" "${each[@]}" -- env SLIPRING_LOG_FILE="$dir/log.%r" \
    "$program" "$@" >"$dir/ring" 2>"$dir/ring.err" || { why="with slipring"; return 1; }
  sort "$dir/plain" >"$dir/plain.sorted"
  sort "$dir/ring" >"$dir/ring.sorted"
  cmp -s "$dir/plain.sorted" "$dir/ring.sorted" || { why="the results differ"; return 1; }
  grep -hE '"event":"(stalled|communicator_failed|graph_lost|capture_failed|replay_refused)"' "$dir"/log.* >"$dir/ring.err" && { why="the log says so"; return 1; }
  return 0
}

tell() {
  echo "FAILED: seed $1: $why"
  head -c 6000 "$dir/plain.err" 2>/dev/null
  [ "$why" = "without slipring" ] || head -c 6000 "$dir/ring.err"
  [ "$why" = "the results differ" ] && diff "$dir/plain.sorted" "$dir/ring.sorted" | grep '^>' | sort -t' ' -k5,5n | head -5
  echo "repeat: SOFTGPU_DIR=$SOFTGPU_DIR SLIPRING_LIB=$SLIPRING_LIB $0 --seeds $1..$1 -- $program ${options[*]}"
  echo "with:   $(told "$1") ZERO_SET_1=\"${others[$(($1 % ${#others[@]}))]}\""
  echo "what it does: LD_LIBRARY_PATH=$SOFTGPU_DIR $program $1 ${options[*]} --list"
}

# The fewest steps at the start, then each of those alone. A program that fails by chance is tried several times before a step is kept out.
minimise() {
  local seed=$1 steps=0 end=80 without="" s try
  fails() { for try in 1 2; do one "$seed" "$@" || return 0; done; return 1; }
  while [ $((end - steps)) -gt 1 ]; do
    s=$(((steps + end) / 2))
    if fails --steps $s; then end=$s; else steps=$s; fi
  done
  for ((s = end - 1; s > 0; s--)); do
    fails --steps $end --without "$without,$s" && without="$without,$s"
  done
  echo "minimised: $seed --steps $end --without ${without#,}"
  env LD_LIBRARY_PATH="$SOFTGPU_DIR" "$program" "$seed" "${options[@]}" --steps $end --without "$without" --list | grep '^op' | grep -v ' step 1000:' | sort -s -k3,3
}

programs=0 failed=0 kinds=0 requests=0 substituted=0 fused=0 passed=0 pushed=0 staged=0 zero_copy=0 joined=0 scatters_substituted=0 reduces_substituted=0 scatters_fused=0
for ((seed = first; seconds > 0 ? SECONDS < seconds : seed <= last; seed++)); do
  programs=$((programs + 1))
  one $seed || { failed=$((failed + 1)); tell $seed; [ $minimise = 0 ] || minimise $seed; }
  kinds=$((kinds + $(recorded)))
  requests=$((requests + $(served)))
  for name in substituted passed fused joined staged zero_copy pushed scatters_substituted reduces_substituted scatters_fused; do eval "$name=\$(($name + $(sum $name)))"; done
  [ "${MUTANT:-0}" = 1 ] && [ $failed -gt 0 ] && [ "$why" != "without slipring" ] && { echo "caught by program number $programs"; exit 0; }
done
echo "$programs programs, $failed with a difference; with slipring: $substituted gathers substituted ($kinds kinds of captured ones), $passed passed to NCCL, $fused GEMMs fused," \
  "$joined joins; shards: $staged staged, $zero_copy zero-copy, $pushed pushed; $requests requests to pools served;" \
  "$scatters_substituted reduce-scatters and $reduces_substituted all-reduces substituted, $scatters_fused of both fused; $SECONDS s"
[ "${MUTANT:-0}" = 1 ] && { echo "FAILED: the mutant passes"; exit 1; }
[ $failed = 0 ] || exit 1
[ $want = 0 ] || { [ $substituted -ge $want ] && [ $fused -gt 0 ]; } || { echo "FAILED: the ring was not exercised"; exit 1; }
# FUZZ_SUMS: and so are reduce-scatters and all-reduces, also behind GEMMs in parts.
[ $want = 0 ] || [ "${FUZZ_SUMS:-0}" = 0 ] || { [ $scatters_substituted -gt 0 ] && [ $reduces_substituted -gt 0 ] && [ $scatters_fused -gt 0 ]; } ||
  { echo "FAILED: no reduce-scatter, or no all-reduce, was exercised"; exit 1; }
# FUZZ_POOLS: and so were requests to pools.
[ $want = 0 ] || [ "${FUZZ_POOLS:-0}" = 0 ] || [ $requests -gt 0 ] || { echo "FAILED: no request to a pool was served"; exit 1; }
