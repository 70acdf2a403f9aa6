#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that no line of prose in the Markdown pages is longer than 100 characters. Tables, code, headings and lines of one word, which
# can not be broken, may be. And that there is not too much of it: at most WORDS in docs/*.md and the pages at the top together, as
# wc -w counts, so without docs/measurements/, and LINES in ARCHITECTURE.md. Usage: prose.sh SOURCE_ROOT
set -eu
export LC_ALL=C
WORDS=55000 LINES=250

# Prints "FILE:LINE: N characters" for each long line of the files.
long_lines() {
    awk '
        FNR == 1 { fenced = code = 0; blank = 1 }
        /^ *```/ { fenced = !fenced; next }
        fenced { next }
        /^ *$/ { blank = 1; next }
        # Four spaces make code only behind an empty line, or behind code.
        /^    / && (blank || code) { code = 1; next }
        { blank = code = 0 }
        /^ *[|#]/ { next }
        {
            text = $0
            gsub(/[\200-\277]/, "", text) # what follows the first byte of a UTF-8 character
            n = length(text)
            sub(/^ *([-*+] |[0-9]+\. )? */, "", text)
            if (n > 100 && text ~ / /)
                print FILENAME ":" FNR ": " n " characters"
        }' "$@"
}

# too_much ROOT WORDS LINES: says what is.
too_much() {
    words=$(cat "$1"/docs/*.md "$1"/*.md | wc -w)
    lines=$(wc -l <"$1/ARCHITECTURE.md")
    [ "$words" -le "$2" ] || echo "docs/*.md *.md: $words words, of at most $2: tell a fact once, and link to it"
    [ "$lines" -le "$3" ] || echo "ARCHITECTURE.md: $lines lines, of at most $3"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The check itself is checked.
word=0123456789 ten='123456789 ' cross='\303\227'
hundred=$ten$ten$ten$ten$ten$ten$ten$ten$ten$word
{
    printf '%s\n' "$hundred" "a$hundred" "- $hundred" '' "    code $hundred" "    code $hundred" "  text $hundred" "    text $hundred"
    printf '%s\n' '```' "fenced $hundred" '```' "| table $hundred |" "# heading $hundred" "- $hundred" '' "1. $(printf %s "$hundred" | tr ' ' -)"
    printf '%s%b\n' "${hundred%?}" "$cross" "$hundred" "$cross"
} >"$work/sample.md"
found=$(long_lines "$work/sample.md" | cut -d: -f2 | paste -sd' ' -)
[ "$found" = "2 3 7 8 14 18" ] || {
    echo "prose.sh finds lines $found in its own sample" >&2
    exit 1
}

mkdir -p "$work/tree/docs/measurements"
echo one two >"$work/tree/ARCHITECTURE.md"
echo three >"$work/tree/docs/a.md"
echo four >"$work/tree/docs/measurements/a.md"
found=$(too_much "$work/tree" 3 1; too_much "$work/tree" 2 0 | wc -l)
[ "$found" = 2 ] || {
    echo "prose.sh counts wrong in its own sample: $found" >&2
    exit 1
}

find "$1" -mindepth 1 \( -name 'build*' -o -name '.?*' \) -prune -o -name '*.md' -print | sort >"$work/pages"
if ! grep -q '/README\.md$' "$work/pages" || ! grep -q '/docs/' "$work/pages"; then
    echo "prose.sh: $1 is not the source tree" >&2
    exit 1
fi
while read -r page; do long_lines "$page"; done <"$work/pages" >"$work/long"
too_much "$1" "$WORDS" "$LINES" >>"$work/long"
[ ! -s "$work/long" ] || {
    cat "$work/long" >&2
    exit 1
}
