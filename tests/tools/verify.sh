#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slipring verify on the software GPU: equal, different (a library that loses bytes), nothing to compare, commands that
# fail, and logs that can not be read.
# usage: verify.sh LAUNCHER TOOL LIBRARY BROKEN-LIBRARY GATHERS BROKEN-SUMS SCATTERS
tool=$2 library=$3 broken=$4 gathers=$5 broken_sums=$6 scatters=$7
export SLIPRING_LAUNCHER="$1" # which would take the tool of another build folder
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" SLIPRING_LIB="$library"
mkdir "$TMPDIR"

fail() {
    echo "verify.sh: $*"
    cat "$work/out" "$work/err"
    exit 1
}

# verify STATUS options...: runs it; what it prints is in $work/out and err.
verify() {
    want=$1 got=0
    shift
    "$tool" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ $got -eq "$want" ] || fail "status $got, not $want: $*"
    [ -z "$(ls "$TMPDIR")" ] || fail "logs were left: $*"
}
says() {
    grep -qE "$1" "$work/out" || fail "no \"$1\" in the report"
}
complains() {
    grep -qe "$1" "$work/err" || fail "no \"$1\" on stderr"
}

# Two ranks gather 4096 bytes; the number of calls is what `every` is checked against.
verify 0 --set min_bytes=0 -- "$gathers" 2 2000000 4096
says '^slipring verify: [0-9]+ gathers compared with NCCL.s, all bytes equal$'
says 'logs of 2 processes; every substituted call'
complains '^slipring verify: begins$'
complains '^slipring verify: COMMAND has ended (0:0[0-9])$'
all=$(sed -n 's/^slipring verify: \([0-9]*\) gathers.*/\1/p' "$work/out")
says "^  $all of $all all-gathers substituted$"
verify 0 --every 3 --set=min_bytes=0 "$gathers" 2 2000000 4096
says 'one in 3 of each one'
third=$(sed -n 's/^slipring verify: \([0-9]*\) gathers.*/\1/p' "$work/out")
# The first of each communicator and rank is compared, then every third.
[ "$third" -ge $((all / 3)) ] && [ "$third" -lt $((all / 2)) ] || fail "$third of $all were compared"

# A library that loses bytes.
verify 1 --lib "$broken" --set min_bytes=0 --keep "$work/kept" -- "$gathers" 2 2000000 4096
says '^slipring verify: [0-9]+ of [0-9]+ gathers DIFFER'
says '^  DIFFERS: rank [01] of communicator [0-9a-f]{8} \(.+\), call [0-9]+: from byte [0-9]+ .*of rank [01]$'
says "^  logs: $work/kept$"
cat "$work"/kept/*.jsonl | grep -q '"event":"verify_differs"' || fail "the logs were not kept"
verify 2 --keep "$work/kept" -- true
complains 'a new folder or an empty one'
verify 2 --keep "$work/none" --set strickt=1 -- true
[ ! -e "$work/none" ] || fail "a folder was left for logs that there are none of"
mkdir "$work/empty"
verify 2 --keep "$work/empty" --set strickt=1 -- true
[ -d "$work/empty" ] || fail "a folder that was there before is gone"
got=0
TMPDIR=/nonexistent "$tool" -- true 2>"$work/err" || got=$?
[ $got -eq 4 ] && complains 'no folder for temporary files in /nonexistent (TMPDIR)'

# Reduce-scatters, and gathers beside them.
always="--set reduce_scatter=always --set min_bytes=0"
verify 0 $always -- "$scatters" in-place 2
says '^slipring verify: 24 reduce-scatters compared with NCCL.s, all bits those of the sums in rank order, and NCCL.s near$'
says '^  24 of 24 reduce-scatters substituted$'
verify 0 $always -- "$scatters" group-with-gather 2
says '^slipring verify: [0-9]+ gathers compared with NCCL.s, all bytes equal; [0-9]+ reduce-scatters compared '
verify 3 --set reduce_scatter=always --set min_bytes=1T -- "$scatters" in-place 2
says '24 reduce-scatters stayed with NCCL: below_min_bytes'
verify 1 --lib "$broken_sums" $always -- "$scatters" ex-bf16-nn 2
says '^slipring verify: [0-9]+ of [0-9]+ reduce-scatters DIFFER'
says '^  DIFFERS: rank [01] of communicator [0-9a-f]{8} \(.+\), call [0-9]+: byte 958 of the 960 of a reduce-scatter is of the bits [0-9a-f]+, the sum of what the ranks sent has [0-9a-f]+$'
# All-reduces.
always="--set all_reduce=always --set min_bytes=0"
verify 0 $always -- "$scatters" in-place 2a
says '^slipring verify: 24 all-reduces compared with NCCL.s, all bits those of the sums in rank order, and NCCL.s near$'
says '^  24 of 24 all-reduces substituted$'
verify 3 --set all_reduce=off --set min_bytes=0 -- "$scatters" in-place 2a
says '24 all-reduces stayed with NCCL: all_reduce_off'
verify 1 --lib "$broken_sums" $always -- "$scatters" ex-bf16-nn 2a
says '^slipring verify: [0-9]+ of [0-9]+ all-reduces DIFFER'
says '^  DIFFERS: rank [01] of communicator [0-9a-f]{8} \(.+\), call [0-9]+: byte [0-9]+ of the sums, in shards of 960 of an all-reduce, is of the bits [0-9a-f]+, the sum of what the ranks sent has [0-9a-f]+$'

# Nothing to compare, and commands that fail.
verify 3 --set min_bytes=1T -- "$gathers" 2 2000000 4096
says '^slipring verify: nothing was compared$'
says '[0-9]+ all-gathers stayed with NCCL: below_min_bytes \(the gathered bytes are below'
verify 3 -- true
says 'no communicator was made'
verify 7 -- sh -c 'exit 7'
says 'COMMAND ended with status 7'
complains 'COMMAND failed'
verify 143 -- sh -c 'kill -TERM $$'
verify 127 -- /nonexistent/command

# Logs that are not as they should be: what can be read counts, and so do the lines that can not. The shell's own process
# makes no log, so the name is free.
# shellcheck disable=SC2016 # for the shell that is started
write='f=$(printf %s "$SLIPRING_LOG_FILE" | sed "s/%h/h/;s/%p/p/");'
verify 0 -- sh -c "$write"' printf "%s\n" "{\"event\":\"verified\"}" "{\"event\":\"verified\",\"call\":99999999999999999999999}" \
    "not json" "[]" "" "{\"event\":7}" >"$f"; head -c 300000 /dev/zero >>"$f"; printf "\n{\"event\":\"verified\"}\n{\"event\":\"ver" >>"$f"'
says '^slipring verify: 2 gathers compared'
says 'lines of the logs can not be read'
verify 1 -- sh -c "$write"' i=0; while [ $i -lt 30 ]; do
    echo "{\"event\":\"verify_differs\",\"comm\":\"ab\",\"crank\":\"x\",\"call\":$i}"; i=$((i + 1)); done >"$f"; exit 9'
says '30 of 30 gathers DIFFER'
says 'DIFFERS: rank -1 of communicator ab \(\), call 19:'
says '^  and 10 more$'
says 'COMMAND ended with status 9'
verify 3 -- sh -c "$write"' echo "{\"event\":\"communicator\",\"decision\":\"pass\",\"reason\":\"rank_absent\"}" >"$f"
    echo "{\"event\":\"not_verified\"}" >>"$f"'
says '^  1 communicator stayed with NCCL: rank_absent'
says '1 could not be compared for want of device memory'
says '^  1 process gathered nothing, or ended too early to say'

# Wrong use.
verify 2
complains 'there is no command'
verify 2 --every 0 -- true
complains 'whole number from 1'
verify 2 --every x -- true
verify 2 --colour -- true
complains 'there is no option: --colour'
verify 2 --set
complains 'needs a value: --set'
verify 2 --keep 'a%h' -- true
complains 'without %'
verify 2 --set strickt=1 -- true # the launcher's own message and status
complains 'did you mean STRICT'
verify 0 --help
says '^usage: slipring verify'

# A signal that comes to the tool alone reaches the command, and nothing is left.
: >"$work/err"
"$tool" -- sh -c 'echo up >&2; exec sleep 60' >"$work/out" 2>"$work/err" &
pid=$!
tries=0
until grep -q up "$work/err" || [ $((tries += 1)) -gt 400 ]; do sleep 0.02; done
kill -TERM $pid
got=0
wait $pid || got=$?
[ $got -eq 143 ] || fail "status $got after a signal"
[ -z "$(ls "$TMPDIR")" ] || fail "logs were left after a signal"
exit 0
