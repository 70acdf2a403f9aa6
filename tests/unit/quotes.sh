#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that slipring says what docs/troubleshooting.md quotes: each text in backquotes in the first column of its
# tables, and each msg="...", is in the code. Usage: quotes.sh SOURCE_ROOT
set -eu

# quotes: of the page on stdin, one a line. What is cut short ends in "...".
quotes() {
    sed -nE '/^\| [^|]*`/{ s/^\| ([^|]*) \|.*/\1/; s/[^`]*`([^`]*)`[^`]*/\1\n/g; p; }; s/.* msg="(.*)"$/\1/p' |
        sed -E 's/ *\.\.\.$//; /^$/d'
}

# unsaid ROOT: the lines of stdin that its code does not have.
unsaid() {
    while read -r words; do
        grep -rqF --include='*.c' --include='*.def' -e "$words" "$1/base" "$1/plugin" "$1/tools" || echo "not in the code: $words"
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/base" "$work/plugin" "$work/tools"
echo '"is said"' >"$work/tools/a.c"
printf '%s\n' '| it says | so |' '| `is said ...`, `is not` | `nor this` |' '    a line msg="nor that"' >"$work/page"
found=$(quotes <"$work/page" | unsaid "$work" | sed 's/.*: //' | paste -sd, -)
[ "$found" = "is not,nor that" ] || {
    echo "quotes.sh finds \"$found\" in its own sample" >&2
    exit 1
}
quotes <"$1/docs/troubleshooting.md" >"$work/quotes"
[ "$(wc -l <"$work/quotes")" -ge 8 ] || {
    echo "quotes.sh finds too little to look for in docs/troubleshooting.md" >&2
    exit 1
}
unsaid "$1" <"$work/quotes" >"$work/unsaid"
[ ! -s "$work/unsaid" ] || {
    cat "$work/unsaid" >&2
    exit 1
}
