#!/bin/sh
# Checks that #include edges only go  base <- cache, kernels <- plugin <- interpose,  and that no layer includes LD_PRELOAD, tools, bench
# or tests. Usage: layers.sh SOURCE_ROOT
set -eu
root=$1

# Which layers a layer may include, besides itself.
allowed() {
    case $1 in
    base) echo base ;;
    cache) echo base cache ;;
    kernels) echo base kernels ;;
    plugin) echo base cache kernels plugin ;;
    interpose) echo base cache kernels plugin interpose ;;
    esac
}

# Prints each forbidden edge of the tree $1.
forbidden_edges() {
    for layer in base cache kernels plugin interpose; do
        [ -d "$1/$layer" ] || continue
        may=" $(allowed "$layer") "
        # From "file:line:#include "target/..."" to "file:line target"; ../ is followed one step.
        find -L "$1/$layer" -type f \( -name '*.[chS]' -o -name '*.def' -o -name '*.cu' -o -name '*.inc' \) -exec \
            grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<][^">]+[">]' {} + |
            sed -nE 's#^([^:]*:[0-9]+):[^"<]*["<](\.\./)*(base|cache|kernels|plugin|interpose|LD_PRELOAD|tools|bench|tests)/.*#\1 \3#p' |
            while read -r place target; do
                case $may in
                *" $target "*) ;;
                *) echo "$place: $layer must not include $target" ;;
                esac
            done
    done
}

# The check itself is checked: a tree with one forbidden edge of each sort must be found out.
self_test() {
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    mkdir "$tree/base" "$tree/cache" "$tree/kernels" "$tree/plugin" "$tree/interpose"
    echo '#include "cache/a.h"' >"$tree/base/a.c"
    echo '  #  include "kernels/a.h"' >"$tree/cache/a.c"
    echo '#include <cache/a.h>' >"$tree/kernels/a.h"
    echo '#include "../interpose/a.h"' >"$tree/plugin/a.c"
    echo '#include "tests/unit/a.h"' >"$tree/interpose/a.c"
    printf '#include "base/a.h"\n#include "plugin/a.h"\n#include <stdio.h>\n' >"$tree/interpose/b.c"
    found=$(forbidden_edges "$tree" | wc -l)
    [ "$found" -eq 5 ] || {
        echo "layers.sh finds $found of 5 forbidden edges in its own test" >&2
        exit 1
    }
}

self_test
if [ ! -d "$root/base" ] || [ ! -d "$root/interpose" ]; then
    echo "layers.sh: $root is not the source tree" >&2
    exit 1
fi
edges=$(forbidden_edges "$root")
[ -z "$edges" ] || {
    printf '%s\n' "$edges" >&2
    exit 1
}
