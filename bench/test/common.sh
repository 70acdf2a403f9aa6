# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the tests here of bench/'s Python programs: $here, an empty folder $work, fail and status.
# Source it, then set `program`: the command, as an array.
# shellcheck disable=SC2034,SC2154 # read and set by the tests
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

fail() {
    echo "$(basename "$0"): $*"
    tail -n 60 "$work/out" "$work/err" 2>/dev/null
    exit 1
}

# status WANTED PATTERN OPTIONS...: the exit status, and a line on stderr or in the table that
# matches.
status() {
    local want=$1 pattern=$2 got=0
    shift 2
    timeout "${seconds:-100}" "${program[@]}" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ $got -eq "$want" ] || fail "status $got, not $want: $*"
    grep -qe "$pattern" "$work/out" "$work/err" || fail "no \"$pattern\": $*"
}
