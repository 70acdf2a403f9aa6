#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The generated part of docs/hooks.md. Usage: interpose_docs.sh SOURCE_ROOT CC [--write]; without --write, fails when it is not up to date.
set -eu
root=$1 cc=$2 page=$1/docs/hooks.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One row for what is joined alike, with its functions in their order.
table() {
    echo '| Joins | Argument | Why | Functions |'
    echo '|---|---|---|---|'
    printf '%s\n' '#define X(sym, cls, arg, why) sym cls arg why;' '#include "interpose/gate.def"' |
        "$cc" -E -P -x c -I"$root" - | tr ';' '\n' | awk NF |
        awk '{
            arg = $2 ~ /^(STREAM|LAUNCH|RECORD|WAIT|GRAPH|ALLOC|FREE|QUERY)/ ? $3 : "-"
            why = $2 == "NONE" ? "-" : $4 == "HOST" ? "host observes" : "operation"
            row = "| " $2 " | " arg " | " why " |"
            if (!(row in functions))
                rows[++n] = row
            else
                functions[row] = functions[row] ","
            functions[row] = functions[row] " `" $1 "`"
        }
        END { for (i = 1; i <= n; i++) print rows[i] functions[rows[i]] " |" }' | LC_ALL=C sort
}
table >"$work/table"
awk -v table="$work/table" '
/^<!-- gate.def: end/ { skip = 0 }
!skip { print }
/^<!-- gate.def: begin/ { while ((getline line < table) > 0) print line; skip = 1 }' "$page" >"$work/page"
grep -q '^<!-- gate.def: begin' "$page" && grep -q '^<!-- gate.def: end' "$page"
if [ "${3:-}" = --write ]; then
    cat "$work/page" >"$page"
else
    diff "$page" "$work/page" || { echo "docs/hooks.md is out of date: run $0 $root $cc --write" >&2; exit 1; }
fi
