#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program on the software GPU under slipring (or without) and checks its exit status, what the log says, and that nothing was misused.
#
#   run.sh [--plain] [--status N] [--set NAME=VALUE]... [--has REGEX]... [--hasnt REGEX]... [--misuse-ok] -- PROGRAM [ARGUMENT...]
#
# TEST_RACE=1: under the race oracle (../../softgpu/README.md); a race is misuse. TEST_RACE=strict: and there were accesses, and
# none was excused, which is right where nothing fails.
# --has/--hasnt look at the JSON log lines of all ranks. From CMake: SLIPRING_LIB, TEST_PRELOAD_FIRST (a sanitizer's runtime), SOFTGPU_DIR.
set -u
status=0 plain=0 misuse_ok=0 has=() hasnt=()
while [ $# -gt 0 ]; do
  case $1 in
    --plain) plain=1 ;;
    --misuse-ok) misuse_ok=1 ;;
    --status) status=$2; shift ;;
    --set) export "${2?}"; shift ;;
    --has) has+=("$2"); shift ;;
    --hasnt) hasnt+=("$2"); shift ;;
    --) shift; break ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
# Some thousand times a run of the suite: a process for what the shell can do itself would be a good part of its time.
# Tests say which way a call goes; those of the trials switch them on.
export SLIPRING_TRIALS=${SLIPRING_TRIALS:-0}
shopt -s nullglob extglob
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; echo "--- log:" >&2; cat /dev/null "$dir"/log.* >&2; [ -s "$dir/misuse" ] && cat "$dir/misuse" >&2; exit 1; }

export SLIPRING_LOG=${SLIPRING_LOG:-info} SLIPRING_LOG_FORMAT=json SLIPRING_LOG_FILE="$dir/log.%p"
export SOFTGPU_REPORT="$dir/misuse" LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPENBLAS_NUM_THREADS=1 # as the software GPU asks for; else each process starts more, and ends them
race=${TEST_RACE:-0}
[ "$race" != 0 ] && export SOFTGPU_RACE="$dir/race"
preload="${TEST_PRELOAD_FIRST:+$TEST_PRELOAD_FIRST:}$SLIPRING_LIB"
[ "$plain" = 1 ] && preload=${TEST_PRELOAD_FIRST:-}
before=(/dev/shm/*[Ss][Ll][Ii][Pp][Rr][Ii][Nn][Gg]*)
if [ -n "$preload" ]; then LD_PRELOAD=$preload "$@"; else "$@"; fi
got=$?
[ "$got" = "$status" ] || fail "exit status $got, expected $status"
[ -s "$dir/misuse" ] && [ "$misuse_ok" = 0 ] && fail "the software GPU reported misuse"
if [ "$race" != 0 ]; then # silence proves something only when the oracle saw what there was
  { stats=$(<"$dir/race.stats"); } 2>/dev/null
  [[ ! $stats =~ (dropped [1-9]|blind)[^$'\n']* ]] || fail "the race oracle lost something: ${BASH_REMATCH[0]}"
  [ "$race" != strict ] || [[ $stats =~ accesses\ [1-9] ]] || fail "the race oracle saw nothing"
  [ "$race" != strict ] || [[ ! $stats =~ frozen ]] || fail "a process was stopped within the race oracle"
  [ "$race" != strict ] || [[ ! $stats =~ excused\ [1-9][^$'\n']* ]] || fail "the race oracle did not judge everything: ${BASH_REMATCH[0]}"
fi
# One process finds all lines that matter; the shell finds which is which.
lines=() said=()
[ $((${#has[@]} + ${#hasnt[@]})) = 0 ] ||
  mapfile -t lines < <(grep -hE "${has[@]/#/-e}" "${hasnt[@]/#/-e}" /dev/null "$dir"/log.*)
matches() { # REGEX LINE...
  local re=$1 line
  shift
  for line; do [[ $line =~ $re ]] && return; done
  return 1
}
for re in "${has[@]}"; do matches "$re" "${lines[@]}" || fail "no log line matches: $re"; done
for re in "${hasnt[@]}"; do
  for line in "${lines[@]}"; do # the line process has the test's own command in it
    [[ $line =~ $re && $line != *'"event":"process"'* ]] && said+=("$line")
  done
done
[ ${#said[@]} = 0 ] || { printf '%s\n' "${said[@]}" >&2; fail "a log line matches one of: ${hasnt[*]}"; }
# For a moment the doctor tries a file there (tools/doctor/host.c), and fault_left leaves one of its own (TEST_LEFT), perhaps just now in another
# run of the tests.
for file in /dev/shm/*[Ss][Ll][Ii][Pp][Rr][Ii][Nn][Gg]*; do
  [[ ${file%left-"${TEST_LEFT-none}"} == /dev/shm/slipring-@(doctor|left)-+([0-9]) || " ${before[*]-} " == *" $file "* ]] || fail "left in /dev/shm: $file"
done
exit 0
