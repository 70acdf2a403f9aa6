#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The generated part of docs/report.md: which lines of the log are read, and which of their fields; what these mean is in docs/log.md.
# Usage: fields.sh SOURCE_ROOT SLIPRING_REPORT [--write]; without --write, fails when it is not up to date.
set -eu
page=$1/docs/report.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$2" --fields >"$work/fields"
[ "$(grep -c '^| `' "$work/fields")" -gt 60 ] || { cat "$work/fields" >&2; exit 1; }
awk -F ' *[|] *' '
    BEGIN { print "" }
    $2 == "field" { exit }
    /^[|] `/ {
        name = $2
        gsub(/`/, "", name)
        printf "    %-15s %s%s\n", name, $3, $4 == "" ? "" : "; " $4
    }
    END { print "" }' "$work/fields" >"$work/part"
awk -v part="$work/part" '
/^<!-- fields: end/ { skip = 0 }
!skip { print }
/^<!-- fields: begin/ { while ((getline line < part) > 0) print line; skip = 1 }' "$page" >"$work/page"
grep -q '^<!-- fields: begin' "$page" && grep -q '^<!-- fields: end' "$page"
if [ "${3:-}" = --write ]; then
    cat "$work/page" >"$page"
else
    diff "$page" "$work/page" || { echo "docs/report.md is out of date: run $0 $* --write" >&2; exit 1; }
fi
