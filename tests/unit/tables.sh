#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that slipring-tables brings files up to date and finds those that are not. Usage: tables.sh SLIPRING_TABLES
set -eu
tables=$1 root=$(dirname "$0")/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "tables.sh: $*" >&2
    exit 1
}

for what in settings reasons; do
    ! "$tables" $what --check "$work/$what" 2>"$work/err" || fail "a file that does not exist passed the check"
    grep -q 'docs-tables' "$work/err" || fail "the message does not say how to regenerate"
    "$tables" $what --write "$work/$what"
    "$tables" $what --check "$work/$what" || fail "a fresh file did not pass"
    head -n 1 "$work/$what" | grep -q '^<!-- Generated' || fail "the first line does not say that it is generated"
    echo more >>"$work/$what"
    ! "$tables" $what --check "$work/$what" 2>/dev/null || fail "a changed file passed"
done

for group in Basic Expert; do
    grep -q "^## $group$" "$work/settings" || fail "no $group settings"
done
[ "$(sed -n '/^## Basic/,/^## Expert/s/^| `SLIPRING_\([A-Z_]*\)`.*/\1/p' "$work/settings" | grep -c '^\(ENABLE\|LOG\|MIN_BYTES\)$')" = 3 ] ||
    fail "what is basic is not in the table of basic settings"

# Regions of files that are otherwise written by hand: the launcher and docs/install.md.
printf 'before\n' >"$work/plain"
! "$tables" counters --check "$work/plain" 2>"$work/err" || fail "a page without markers passed"
grep -q 'counters:begin' "$work/err" || fail "the message does not name the markers"
printf 'before\nusage() {\n    cat <<'"'EOF'"'\nold\nEOF\n}\nafter\n' >"$work/launcher"
printf 'before\n<!-- counters:begin -->\nold\n<!-- counters:end -->\nafter\n' >"$work/counters"
for what in launcher counters; do
    ! "$tables" $what --check "$work/$what" 2>/dev/null || fail "an old region of $what passed"
    "$tables" $what --write "$work/$what"
    "$tables" $what --check "$work/$what" || fail "a fresh region of $what did not pass"
    ! grep -q '^old$' "$work/$what" || fail "the old region of $what is still there"
    [ "$(sed -n '1p;$p' "$work/$what" | paste -sd' ' -)" = "before after" ] || fail "the text around $what is gone"
    ! "$tables" $what --write "$work/plain" 2>/dev/null || fail "$what was written where it has no place"
done
grep -q '^| `substituted` | ' "$work/counters" || fail "the region has no counters"
[ "$(sed -n '4,/^EOF$/p' "$work/launcher" | sed '$d')" = "$("$tables" usage)" ] || fail "the region is not the usage"
[ "$("$tables" usage | awk 'length > 118' | grep -cv '^ *\(usage:\|slipring\)' || :)" = 0 ] || fail "usage: a long line"

# Manual pages.
printf 'x@version@y @date@ a@b @@ @\n@settings@\n@reasons@\n@counters@\n@commands@\n@functions@\n' >"$work/template"
"$tables" page "$work/template" today >"$work/page" || fail "page"
[ "$(head -n 1 "$work/page")" = "x$("$tables" --version | sed 1q | cut -d' ' -f2)y today a@b @@ @" ] || fail "page: $(head -n 1 "$work/page")"
for name in SLIPRING_MIN_BYTES below_min_bytes gemm_chunks 'slipring run' ncclAllGather; do
    grep -q "fB$name" "$work/page" || fail "page: no $name"
done
! grep -q '^@' "$work/page" || fail "page: a table was not put in"
! "$tables" page /nonexistent/template today 2>"$work/err" || fail "page: a template that does not exist"
grep -q '/nonexistent/template: No such file' "$work/err" || fail "page: the message does not name the file"
# what a line must not begin with, or contain, for roff to take it as text
printf '@commands@\n@settings@\n' >"$work/template"
"$tables" page "$work/template" today | grep -E "^[.'][^A-Za-z]|[^\\]['\`^~]" && fail "page: something that roff takes for its own"

# The versions that it runs with are README's.
"$tables" --version | head -n 1 | grep -qE '^slipring [0-9.]+( \(commit [0-9a-f]+(-dirty)?\))?$' || fail "--version: $("$tables" --version)"
runs=$("$tables" --version | sed -n 2p)
needs() { sed -n "s/^| $1 | \([^;|,]*\)[;|,].*/\1/p" "$root/README.md" | sed 's/ *$//'; }
[ "$runs" = "runs with: CUDA $(needs 'CUDA runtime, cuBLAS of the program'), driver $(needs driver) or later, NCCL $(needs 'NCCL of the program')" ] ||
    fail "--version: \"$runs\" is not what README.md says"

"$tables" settings --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) > 5' || fail "settings --json"
"$tables" reasons --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) > 5' || fail "reasons --json"
! "$tables" reasons --values >/dev/null 2>&1 || fail "reasons have no values"
! "$tables" nonsense >/dev/null 2>&1 || fail "nonsense was accepted"
