#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the folders of tools/ include each other in one order only:  common, symmetry <- log <- model <- report, trace;  the
# other tools use common, and log where they follow logs.  Usage: folders.sh SOURCE_ROOT
set -eu
root=$1

# Which folders a folder may include, besides itself.
allowed() {
    case $1 in
    common | symmetry) ;;
    log | bench | doctor | top) echo common ;;
    model) echo common log symmetry ;;
    tune | verify) echo common log ;;
    report | trace) echo common log model symmetry ;;
    tables) echo common ;;
    *) echo "folders.sh: tools/$1 has no place in the order" >&2 && return 1 ;;
    esac
}

# Prints each forbidden edge of the tree $1. The tables of options are for tools/tables too.
forbidden_edges() {
    for path in "$1"/tools/*/; do
        folder=$(basename "$path")
        may=" $folder $(allowed "$folder") " || echo "$path: not in the order"
        grep -rnE '^ *# *include "tools/' "$path" |
            sed -nE 's#^([^:]*:[0-9]+):.*"tools/([a-z]+)/([^"]*)".*#\1 \2 \3#p' |
            while read -r place target file; do
                case $may in
                *" $target "*) ;;
                *) [ "$folder $file" = "tables options.def" ] || echo "$place: tools/$folder must not include tools/$target" ;;
                esac
            done
    done
}

# The check itself is checked.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tools/common" "$tree/tools/log" "$tree/tools/report" "$tree/tools/tables"
echo '#include "tools/log/a.h"' >"$tree/tools/common/a.c"
printf '#include "tools/common/a.h"\n # include "tools/report/a.h"\n' >"$tree/tools/log/a.h"
echo '#include "tools/model/a.h"' >"$tree/tools/report/a.c"
printf '#include "tools/tune/options.def"\n#include "tools/tune/tune.h"\n' >"$tree/tools/tables/a.def"
[ "$(forbidden_edges "$tree" | wc -l)" -eq 3 ] || {
    echo "folders.sh: $(forbidden_edges "$tree" | wc -l) of 3 forbidden edges are found in its own test" >&2
    exit 1
}

[ -d "$root/tools/common" ] || {
    echo "folders.sh: $root is not the source tree" >&2
    exit 1
}
edges=$(forbidden_edges "$root")
[ -z "$edges" ] || {
    printf '%s\n' "$edges" >&2
    exit 1
}
