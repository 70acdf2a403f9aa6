#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Broken tune files: each gives one message with the file and the line, from the tool and from the library, and NCCL's defaults.
# Usage: tuner_broken.sh GENERATOR SLIPRING_TUNE RUNNER
#   RUNNER: `tuner_defaults LIBRARY` drives the tuner once and fails when it decides anything
set -eu
generator=$1 tune=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/files" "$work/files/a-folder"
fail() { echo "tuner_broken.sh: $*" >&2; exit 1; }

count=$("$generator" "$work/files")
[ "$count" -ge 100 ] || fail "only $count files"
mkfifo "$work/files/a-pipe"
ln -s nothing "$work/files/a-dangling-link"
: >"$work/files/unreadable" && chmod 000 "$work/files/unreadable"

for file in "$work"/files/* "$work/files/missing"; do
    name=${file##*/}
    status=0
    "$tune" --check "$file" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq 1 ] || fail "$name: --check ended with status $status: $(cat "$work/out" "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$name: not one line: $(cat "$work/err")"
    grep -aqE "^$file:[0-9]+: .*expected " "$work/err" || fail "$name: no FILE:LINE: ... expected ...: $(cat "$work/err")"
    line=$(sed -n "s#^$file:\([0-9]*\): .*#\1#p" "$work/err")

    env SLIPRING_TUNE_FILE="$file" SLIPRING_LOG=warn SLIPRING_LOG_FILE="$work/log" "$@" ||
        fail "$name: the library did not come through it"
    [ "$(grep -c tune_table_broken "$work/log")" -eq 1 ] || fail "$name: not one message: $(cat "$work/log")"
    grep -aqF "file=$file line=$line " "$work/log" || fail "$name: no file and line $line in: $(cat "$work/log")"
    rm -f "$work/log"
done
# And one that is right, so that the check can fail.
printf 'allgather : channels=4\n' >"$work/good"
"$tune" --check "$work/good" >/dev/null || fail "a good table is refused"
if env SLIPRING_TUNE_FILE="$work/good" "$@" 2>/dev/null; then fail "the runner does not notice a decision"; fi
echo "$count broken files, and $(ls -A "$work/files" | grep -vc '^[0-9]') other things that are no files"
