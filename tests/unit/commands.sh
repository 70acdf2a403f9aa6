#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each command that is a program of its own and has been built: the options in its --help are those of tools/tables/commands.def, and its
# exit status for help is 0, for nonsense 2, with nothing on stdout. Usage: commands.sh SLIPRING_TABLES BUILD_FOLDER
set -eu
tables=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "commands.sh: $*" >&2
    exit 1
}

# The options that a text names at the beginning of a line.
options_in() {
    sed -nE 's/^ *(-[a-z]|--[a-z][a-z-]*)([[ ,=].*)?$/\1/p' "$1" | LC_ALL=C sort -u
}

"$tables" options >"$work/all"
count=0
for program in "$build"/slipring-*; do
    name=${program##*/slipring-}
    [ "$name" != tables ] && [ -x "$program" ] && [ -f "$program" ] || continue
    "$tables" usage | grep -q "slipring $name " || fail "slipring-$name is built, and tools/tables/commands.def has no command $name"
    "$program" --help >"$work/help" || fail "slipring-$name --help: status $?"
    grep -q "slipring $name" "$work/help" || fail "slipring-$name --help has no usage line"
    options_in "$work/help" >"$work/has"
    sed -n "s/^$name //p" "$work/all" >"$work/rows"
    options_in "$work/rows" >"$work/wanted"
    diff "$work/wanted" "$work/has" >"$work/diff" || fail "$name: < in tools/tables/commands.def, > in its --help
$(cat "$work/diff")"
    status=0
    "$program" --no-such-option >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq 2 ] && [ -s "$work/err" ] && [ ! -s "$work/out" ] || fail "slipring-$name with nonsense: status $status, $(cat "$work/err" "$work/out")"
    grep -q -e '--no-such-option' "$work/err" || fail "slipring-$name does not name the option that it does not know: $(cat "$work/err")"
    count=$((count + 1))
done
echo "$count programs"
