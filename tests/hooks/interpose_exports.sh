#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What libslipring.so exports is what the tables say, and it needs nothing of CUDA, NCCL or cuBLAS.
# Usage: interpose_exports.sh LIBRARY SOURCE_ROOT CC
set -eu
library=$1 root=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for soname in $needed; do
    case $soname in
    libc.so.* | libm.so.* | ld-linux-*.so.* | libdl.so.* | libpthread.so.* | librt.so.*) ;;
    lib*san.so.* | libgcc_s.so.*) ;; # a sanitizer build
    *) echo "unexpected DT_NEEDED: $soname" >&2; exit 1 ;;
    esac
done
if readelf -d "$library" | grep -E 'RPATH|RUNPATH|TEXTREL'; then
    echo "no run path and no text relocations are wanted" >&2
    exit 1
fi
readelf -d "$library" | grep -q 'NODELETE' || { echo "the library must not be unloadable" >&2; exit 1; }

cat >"$work/tables.c" <<'EOF'
#define X(sym, cls, arg, why) sym
#define L(sym) sym
#define P(sym) sym
#define N(need, sym) sym
#define B(need, sym) sym
#define T(need, sym) sym
#include "interpose/gate.def"
#include "base/hooks.def"
#define A(sym) sym
#define X(sym, type) sym
#include "plugin/plugin.def"
EOF
"$cc" -E -P -I"$root" "$work/tables.c" | tr -s ' \n' '\n\n' | sed '/^$/d' | LC_ALL=C sort >"$work/wanted"
nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort >"$work/exported"
if [ "$(uniq -d "$work/wanted")" ]; then
    echo "in a table twice: $(uniq -d "$work/wanted")" >&2
    exit 1
fi
diff "$work/wanted" "$work/exported" || { echo "< only in the tables   > only exported" >&2; exit 1; }
if nm -D --undefined-only "$library" | grep -E ' U (cu|nccl|pnccl)'; then
    echo "CUDA, NCCL and cuBLAS are found at run time" >&2
    exit 1
fi
echo "$(wc -l <"$work/exported") exports; needs" $needed
