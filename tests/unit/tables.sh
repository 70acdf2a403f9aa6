#!/bin/sh
# Checks that slipring-tables brings files up to date and finds those that are not. Usage: tables.sh SLIPRING_TABLES
set -eu
tables=$1
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

printf 'before\n' >"$work/readme"
! "$tables" readme --check "$work/readme" 2>"$work/err" || fail "a README without markers passed"
grep -q 'settings:begin' "$work/err" || fail "the message does not name the markers"
! "$tables" readme --write "$work/readme" 2>/dev/null || fail "a README without markers was written"
printf 'before\n<!-- settings:begin -->\nold\n<!-- settings:end -->\nafter\n' >"$work/readme"
! "$tables" readme --check "$work/readme" 2>/dev/null || fail "an old region passed"
"$tables" readme --write "$work/readme"
"$tables" readme --check "$work/readme" || fail "a fresh region did not pass"
grep -q 'SLIPRING_MIN_BYTES' "$work/readme" || fail "the region has no settings"
! grep -q '^old$' "$work/readme" || fail "the old region is still there"
[ "$(sed -n '1p;$p' "$work/readme" | paste -sd' ' -)" = "before after" ] || fail "the text around is gone"

"$tables" settings --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) > 5' || fail "settings --json"
"$tables" reasons --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) > 5' || fail "reasons --json"
! "$tables" reasons --values >/dev/null 2>&1 || fail "reasons have no values"
! "$tables" nonsense >/dev/null 2>&1 || fail "nonsense was accepted"
