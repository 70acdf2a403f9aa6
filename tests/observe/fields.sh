#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/report-fields.txt: which lines of the log are read, and which of their fields; what these mean is in docs/log.md.
# Usage: fields.sh SOURCE_ROOT SLIPRING_REPORT [--write]; without --write, fails when it is not up to date.
set -eu
page=$1/docs/report-fields.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$2" --fields >"$work/fields"
[ "$(grep -c '^| `' "$work/fields")" -gt 60 ] || { cat "$work/fields" >&2; exit 1; }
awk -F ' *[|] *' '
    $2 == "field" { exit }
    /^[|] `/ {
        name = $2
        gsub(/`/, "", name)
        printf "%-15s %s%s\n", name, $3, $4 == "" ? "" : "; " $4
    }' "$work/fields" >"$work/page"
if [ "${3:-}" = --write ]; then
    cat "$work/page" >"$page"
else
    diff "$page" "$work/page" || { echo "docs/report-fields.txt is out of date: run $0 $* --write" >&2; exit 1; }
fi
