#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slipring tune on the software GPU: finds the optimum that its model has, a second run with the table is faster in the model and
# says which rule decided; and what happens when it can not. Usage: tune.sh LAUNCHER BUILD COLLECTIVES
set -eu
launcher=$1 build=$2 collectives=$3
export SLIPRING_LIB=$build/libslipring.so SLIPRING_SOFTGPU=$build/softgpu
export SOFTGPU_TIMING=1 SOFTGPU_LINK_GBS=0.008 # slow links: what the model says is long beside what the machine adds
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "tune.sh: $*" >&2; cat "$work/out" "$work/err" >&2 2>/dev/null; exit 1; }
# Where the launcher looks for the tool: in its own source tree's build folder, which need not be this build.
tune_program=$build/slipring-tune
launcher_of() { SLIPRING_LAUNCHER=$launcher "$tune_program" "$@"; }
tune() { # STATUS ARGUMENTS...
    local want=$1 status=0
    shift
    launcher_of --softgpu "$@" >"$work/out" 2>"$work/err" || status=$?
    [ $status = "$want" ] || fail "tune $*: status $status, not $want"
}

run=("$collectives" --bytes 32768 --func allgather,allreduce --rounds)
tune 0 -o "$work/table" --rounds 3 -- "${run[@]}" 60
grep -q '^allgather .*bytes=32k..65535 ranks=2 nodes=1 registered=no : algorithm=ring protocol=ll128 channels=16$' "$work/table" ||
    fail "not the optimum of the model for all-gather: $(cat "$work/table")"
grep -q '^allreduce .*: algorithm=tree protocol=ll128 channels=16$' "$work/table" || fail "not the optimum for all-reduce: $(cat "$work/table")"
grep -q '^# nccl .*2\.' "$work/table" && grep -q '^# device .*softgpu' "$work/table" || fail "no head: $(cat "$work/table")"
grep -q 'AllReduce .*Tree LL128 16 channels' "$work/out" || fail "the table was not shown"
grep -q '^# runs .*2;' "$work/table" && [ "$(grep -c ' channels  *yes ' "$work/out")" = 2 ] || fail "not confirmed"
grep -q 'first run (exploring): begins' "$work/err" && grep -q 'second run (confirming): begins' "$work/err" || fail "no progress"
launcher_of --check "$work/table" >"$work/out" || fail "the table is not read back"

# What call sites find in a last run, of both collectives, is in the table as well, and is used then; or that run is left out.
mixed=("$collectives" --bytes 32768 --func allgather,allreduce --rounds 100)
sites=(--set min_bytes=0 --set trials=1 --set trials_after=4)
tune 0 -o "$work/sites" "${sites[@]}" --no-confirm --rounds 3 -- "${mixed[@]}"
grep -qE '^site bytes=32768 ranks=2 gpu=softgpu .* gemm=none : way=(ring|nccl) # kept by slipring$' "$work/sites" && grep -q '^allreduce ' "$work/sites" &&
    grep -qE '^site op=allreduce bytes=32768 ranks=2 .* gemm=none : way=(ring|nccl) # kept by slipring$' "$work/sites" ||
    fail "no rule for the call site: $(cat "$work/sites")"
grep -q 'last run (call sites): begins' "$work/err" && grep -q ': 2 rules for call sites$' "$work/out" || fail "the last run was not told"
launcher_of --check "$work/sites" | grep -q '2 for call sites$' || fail "the table is not read back"
"$launcher" run --softgpu "${sites[@]}" --set tune_file="$work/sites" --set log=info -- "${mixed[@]}" 2>&1 >"$work/out" | grep -q 'site_known .*shard=16384' ||
    fail "not known in the next run"
tune 0 -o "$work/sites" "${sites[@]}" --no-confirm --no-sites --rounds 3 -- "${mixed[@]}"
! grep -q '^site' "$work/sites" && ! grep -q 'last run' "$work/err" || fail "a last run that was not wanted"
printf '#!/bin/sh\n[ "$SLIPRING_TUNE_KEEP" = on ] && exit 9\nexec "$@"\n' >"$work/last"
chmod +x "$work/last"
tune 9 -o "$work/none" --no-confirm --rounds 3 -- "$work/last" "${run[@]}" 60
grep -q 'status 9 in the last run; nothing written' "$work/err" && [ ! -e "$work/none" ] || fail "the last run fails"

# Each candidate in its turn, what no rule fits or NCCL has excluded not at all: on each rank so often as was asked for.
printf '%s\n' 'allgather : algorithm=ring protocol=ll128 channels=4' 'reduce : channels=default' 'broadcast : algorithm=nvls' >"$work/some"
"$launcher" run --softgpu --set tune_file="$work/some" --set tune_explore=4 --set log=info --set log_file="$work/log-%p" -- "$collectives" --bytes 32768 \
    --rounds 12 >"$work/out" 2>"$work/err" || fail "confirming by hand: status $?"
for rank in 0 1; do
    turns=$(cat "$work"/log-* | sed -n "s/.* explored .* crank=$rank .*func=AllGather .* call=\([0-9]*\) \(candidate=[01]\) candidates=2 \(.*\) ns=.*/\1 \2 \3/p" | sort -n)
    [ "$(echo "$turns" | sed 's/.* candidate=\(.\) .*/\1/' | tr -d '\n')" = 01101001 ] || fail "rank $rank, turns: $turns"
    [ "$(echo "$turns" | grep -c 'candidate=1 algo=Ring proto=LL128 channels=4$')" = 4 ] || fail "rank $rank, not the rule: $turns"
    [ "$(echo "$turns" | grep -c 'candidate=0 algo=default proto=default channels=0$')" = 4 ] || fail "rank $rank, not the default: $turns"
done
! cat "$work"/log-* | grep -E ' explored .*func=(AllReduce|Reduce|ReduceScatter) ' || fail "measured without a rule"
! cat "$work"/log-* | grep -E ' explored .*func=Broadcast .*candidate=1 ' || fail "measured what NCCL did not run"
rm "$work"/log-*

# Both collectives' medians.
medians() { "$launcher" run --softgpu "$@" -- "${run[@]}" 10 2>/dev/null | awk '{ print $5 }' | paste -sd' '; }
read -r gather reduce <<<"$(medians)"
read -r gather_with reduce_with <<<"$(medians --set tune_file="$work/table")"
awk -v a="$gather_with" -v b="$gather" -v c="$reduce_with" -v d="$reduce" 'BEGIN { exit !(a > 0 && a < 0.9 * b && c > 0 && c < 0.9 * d) }' ||
    fail "all-gather: $gather us before, $gather_with us with the table; all-reduce: $reduce and $reduce_with us"
"$launcher" run --softgpu --set tune_file="$work/table" --set log=info -- "${run[@]}" 3 2>&1 | grep -q "tuned .*func=AllGather .*from=$work/table:[0-9]" ||
    fail "no tuned line names the file"

# What can not be measured is said, and nothing is written.
tune 1 -o "$work/none" -- true && grep -q 'nothing to measure' "$work/err" || fail "no message: no communicator"
tune 1 -o "$work/none" --set min_bytes=0 -- "$collectives" --func allgather --bytes 32768 --rounds 20 && grep -q 'no collective was measured' "$work/err" ||
    fail "no message: all went to the ring"
# Where nothing can be written COMMAND is not run.
tune 1 -o /proc/x -- touch "$work/ran" && grep -q '/proc/x can not be written: No such file' "$work/err" && [ ! -e "$work/ran" ] ||
    fail "the output was not tried before the work"
TMPDIR=/nonexistent tune 1 -o "$work/none" -- touch "$work/ran" && [ ! -e "$work/ran" ] && [ ! -e "$work/none" ] &&
    grep -q 'no folder for temporary files in /nonexistent (TMPDIR): No such file or directory; TMPDIR can name another' "$work/err" || fail "TMPDIR is not named"
echo before >"$work/kept"
tune 7 -o "$work/kept" -- sh -c 'exit 7' && [ "$(cat "$work/kept")" = before ] || fail "a table that was there is gone"
tune 7 -o "$work/none" -- sh -c 'exit 7' && grep -q 'status 7; nothing written' "$work/err" || fail "no message: the command failed"
tune 127 -o "$work/none" -- "$work/there-is-no-such-command"
tune 2 --rounds 2 -- true && grep -q 'from 3 to' "$work/err" || fail "no message: rounds"
tune 2 --gain x -- true
tune 2 --nonsense
tune 2
[ ! -e "$work/none" ] || fail "something was written"
# Too few calls: how many there were and how many it takes, and a status of its own; also where only the default came often enough.
for rounds in 8 39; do
    tune 3 -o "$work/few" -- "$collectives" --bytes 32768 --func allreduce --rounds $rounds
    grep -q 'of 1 of 1 kinds of calls there were too few' "$work/err" && ! grep -q '^all' "$work/few" || fail "few samples: $(cat "$work/few")"
    grep -q "^  AllReduce from 32K, 2 ranks: $rounds calls; 57 are needed, 3 of each of 19 choices" "$work/err" || fail "it does not say how many"
    grep -q ': 0 rules: too few calls to tell' "$work/out" && ! grep -qE "defaults? (are|is) best|NCCL's default$" "$work/out" "$work/few" ||
        fail "a conclusion from too few calls: $(cat "$work/few")"
done
# Interrupted: the command is told, and nothing is written.
SLIPRING_LAUNCHER=$launcher "$tune_program" --softgpu -o "$work/none" -- sleep 60 2>"$work/err" >"$work/out" &
pid=$!
for _ in $(seq 100); do grep -q begins "$work/err" && break; sleep 0.05; done
sleep 0.2
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status = 143 ] && [ ! -e "$work/none" ] && grep -q interrupted "$work/err" || fail "interrupted: status $status"
