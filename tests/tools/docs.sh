#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The generated part of docs/doctor.md. Usage: docs.sh SOURCE_ROOT SLIPRING_DOCTOR [--write]; without --write, fails when it is not up to date.
set -eu
page=$1/docs/doctor.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$2" --markdown >"$work/table"
awk -v table="$work/table" '
/^<!-- checks: end/ { skip = 0 }
!skip { print }
/^<!-- checks: begin/ { while ((getline line < table) > 0) print line; skip = 1 }' "$page" >"$work/page"
grep -q '^<!-- checks: begin' "$page" && grep -q '^<!-- checks: end' "$page"
if [ "${3:-}" = --write ]; then
    cat "$work/page" >"$page"
else
    diff "$page" "$work/page" || { echo "docs/doctor.md is out of date: build the target docs-tables" >&2; exit 1; }
fi
