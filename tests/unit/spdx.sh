#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that every source file names its licence in its first line, or behind the line that names its interpreter.
# Usage: spdx.sh SOURCE_ROOT
set -eu
export LC_ALL=C id='SPDX-License-Identifier: Apache-2.0'

# Prints the files of the tree $1 that lack the line.
unlicensed() {
    find "$1" -mindepth 1 \( -name 'build*' -o -name '.?*' \) -prune -o -type f -size +0 -print | sort | xargs -d '\n' awk '
        function tell() { if (lacking) print lacking; lacking = "" }
        FNR == 1 {
            tell()
            name = FILENAME
            sub(/.*\//, "", name)
            script = /^#!/
            if (name ~ /\.(c|h|S|def|inc|cu|cpp)$/) line = "/* " ENVIRON["id"] " */"
            else if (name ~ /\.(sh|py|cmake|cmake\.in)$/ || name == "CMakeLists.txt" || (script && name !~ /\./))
                line = "# " ENVIRON["id"]
            else nextfile
            lacking = FILENAME
        }
        FNR == 1 && script { next }
        { if ($0 == line) lacking = ""; nextfile }
        END { tell() }'
}

# The check itself is checked.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/build"
echo "/* $id */" >"$tree/good.c"
printf '#!/bin/sh\n# %s\n' "$id" | tee "$tree/good.sh" >"$tree/good"
printf '#!/bin/sh\n\n# %s\n' "$id" >"$tree/bad.sh"
printf '#!/bin/sh\n' | tee "$tree/bad" >"$tree/build/generated.sh"
printf '\n/* %s */\n' "$id" >"$tree/bad.h"
echo "# $id" >"$tree/bad.c"
echo text >"$tree/text"
found=$(unlicensed "$tree" | sed 's,.*/,,' | paste -sd' ' -)
[ "$found" = "bad bad.c bad.h bad.sh" ] || {
    echo "spdx.sh finds \"$found\" in its own sample" >&2
    exit 1
}

[ -f "$1/base/log.h" ] || {
    echo "spdx.sh: $1 is not the source tree" >&2
    exit 1
}
files=$(unlicensed "$1")
[ -z "$files" ] || {
    printf 'without "%s":\n%s\n' "$id" "$files" >&2
    exit 1
}
