#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a job says at its end, on the software GPU: one line for the job, wherever its log goes, and none where it is not wanted.
# Usage: closing.sh LAUNCHER LIBRARY SOFTGPU_DIR AG_GEMM
set -eu
launcher=$1 library=$2 softgpu=$3 ag_gemm=$4
unset SLIPRING_LAUNCHER SLIPRING_RUN LD_PRELOAD RANK OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID SLIPRING_LOG SLIPRING_LOG_FILE SLIPRING_LOG_FORMAT
export LD_LIBRARY_PATH="$softgpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" SLIPRING_MIN_BYTES=0 SLIPRING_TRIALS=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "closing.sh: $*" >&2
    cat "$work/err" >&2
    exit 1
}

# says NAME LINES PATTERN COMMAND...: so many lines of slipring's on stderr, each of which matches.
says() {
    name=$1 lines=$2 pattern=$3
    shift 3
    "$@" >"$work/out" 2>"$work/err" || fail "$name: exit status $?"
    [ "$(grep -cE 'slipring|"event":"job"' "$work/err")" = "$lines" ] || fail "$name: not $lines lines"
    [ "$(grep -cE -e "$pattern" "$work/err")" = "$lines" ] || fail "$name: not \"$pattern\""
    ! grep -q 'slipring: ' "$work/out" || fail "$name: on stdout: $(cat "$work/out")"
}

run() {
    "$launcher" run --lib "$library" "$@"
}
size="--m 64 --n 64 --k 64 --iters 4 --warmup 1"
job="$ag_gemm $size --ranks 2"
unknown='not known whether it helped: ring and NCCL were not compared, as SLIPRING_TRIALS is 0; '
line="^slipring: rank 0: $unknown"'([0-9]+) of \1 all-gathers went over the ring, [0-9]+ GEMMs ran in parts behind them$'
first="^slipring: rank 0: $unknown"'[0-9]+ of [0-9]+ all-gathers went over the ring, .*; 2 all-gathers stayed with NCCL, for nccl_first '
none='^slipring: no process with libslipring.so made an NCCL communicator'

# shellcheck disable=SC2086 # words
{
    says 'processes' 1 "$line" run -- $job
    says 'threads' 1 "$first" run -- $ag_gemm $size --threads 2
    says 'behind a shell' 1 "$line" run -- bash -c 'ls /; "$@"; ls /' bash $job
    says 'exec by a shell' 1 "$line" run -- bash -c 'exec "$@"' bash $job
    says 'two jobs of one command' 1 "$line" run -- bash -c '"$@"; "$@"' bash $job
    says 'level error' 0 none run --set log=error -- $job
    says 'level off' 0 none run --set log=off -- $job
    says 'off' 0 none run --set enable=off -- $job
    says 'a log file' 1 "$line" run --set log_file="$work/log" -- $job
    says 'JSON to stderr' 1 '"level":"info","event":"job","msg":"rank 0: ' run --set log_format=json -- $job
    says 'JSON to a file' 1 "$line" run --set log_format=json --set log_file="$work/log" -- $job
    says 'a tool of slipring' 0 none env SLIPRING_LAUNCHER=x "$launcher" run --lib "$library" -- $job
    says 'traced' 1 '; of [0-9.]+ ms of traced gathers [0-9.]+ ms were hidden$' run --set trace=1 --set log_file="$work/log" -- $job
    says 'why not' 1 '^slipring: rank 0: nothing was moved: .* [0-9]+ all-gathers stayed with NCCL, for below_min_bytes .*: lower SLIPRING_MIN_BYTES' run --set min_bytes=1G -- $job
    says 'not rank 0' 0 none env RANK=1 "$launcher" run --lib "$library" -- $job
    says 'rank 0' 1 "$line" env RANK=0 "$launcher" run --lib "$library" -- $job
    case $(ldd "$library") in
    *san.so*) ;;
    *) says 'without the launcher' 1 "$line" env LD_PRELOAD="$library" $job ;;
    esac
}

# Rank 0 is killed: who has started the job says so. The other rank tells of its communicator.
# shellcheck disable=SC2086 # words
{
    lost='^slipring: nothing is known of the job, as rank 0 has not come to its end|communicator_failed'
    says 'rank 0 killed' 2 "$lost" run -- bash -c '"$@"; :' bash $job --kill-rank 0 --kill-at whole:1 --iters 400 --grace 1
    grep -q 'slipring report' "$work/err" || fail 'rank 0 killed: not said'
    says 'rank 0 killed, level off' 0 none run --set log=off -- bash -c '"$@"; :' bash $job --kill-rank 0 --kill-at whole:1 --grace 1
    says 'rank 0 killed, elsewhere' 1 communicator_failed env RANK=1 "$launcher" run --lib "$library" -- bash -c '"$@"; :' bash $job --kill-rank 0 --kill-at whole:1 --iters 400 --grace 1
}

# Nothing came of it.
says 'no communicator' 1 "$none" run -- ls /
says 'no communicator, of several processes' 1 "$none" run -- bash -c 'ls /; (ls /; ls /); ls /'
says 'level error, no communicator' 0 none run --set log=error -- ls /
says 'off, no communicator' 0 none run --set enable=off -- ls /
says 'a tool, no communicator' 0 none env SLIPRING_LAUNCHER=x "$launcher" run --lib "$library" -- ls /
says 'no reader' 0 none bash -c '"$@" 2>&-' bash "$launcher" run --lib "$library" -- ls /
says 'without the launcher, no communicator' 0 none env SLIPRING_RUN= ls /

# A child that lives on does not keep stderr open: the reader sees its end.
says 'a child that lives on' 1 "$none" bash -c '{ "$@" 2>&1 1>/dev/null | cat >&2; }' bash \
    "$launcher" run --lib "$library" -- bash -c '(exec >/dev/null 2>&1 </dev/null; echo $BASHPID >"$1"; exec sleep 200) & until [ -s "$1" ]; do sleep 0.1; done' bash "$work/pid"
kill "$(cat "$work/pid")" || fail 'the reader of stderr has waited for the child'

if printf 'int main(void) { return 0; }\n' | cc -static -o "$work/whole" -x c - 2>/dev/null; then
    says 'static' 1 '^slipring: .*/whole is linked statically: nothing can be preloaded into it' run -- "$work/whole"
    says 'static, level off' 0 none run --set log=off -- "$work/whole"
fi
