#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares gate.def with the cuda.h at hand. Each function that takes a stream, an event or a launch configuration, and each whose name suggests a transfer
# or an end, must be in gate.def or, with its reason, in harmless.def; the argument index must be that of the stream, and events must be where the gate looks for them.
# Usage: interpose_header.sh SOURCE_ROOT CC CUDA_INCLUDE
set -eu
root=$1 cc=$2 include=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The old forms, the new ones, and the per-thread ones of cuda.h: "symbol<TAB>parameters".
for define in __CUDA_API_VERSION_INTERNAL CUDA_API_PER_THREAD_DEFAULT_STREAM SLIPRING_NOTHING; do
    "$cc" -E -P -x c -D$define "$include/cuda.h"
done | tr -s ' \t\n' '   ' | tr ';' '\n' |
    sed -nE 's/.*CUresult (__attribute__ ?\(\(.*\)\) ?)?(cu[A-Za-z0-9_]+) ?\((.*)\)[^)]*$/\2\t\3/p' | sort -u >"$work/header"
[ "$(wc -l <"$work/header")" -gt 400 ] || { echo "cuda.h was not understood" >&2; exit 1; }

# Without cuda.h, whose macros rename functions.
table() { # NAME MACRO
    printf '#define %s\n#include "interpose/%s.def"\n' "$2" "$1" | "$cc" -E -P -x c -I"$root" - | tr ';' '\n' |
        sed -nE 's/^ *(cu\w+) *(\w*) *(\w*).*/\1\t\2\t\3/p' >"$work/$1"
}
table gate 'X(sym, cls, arg, why) sym cls arg;'
table harmless 'H(sym, why) sym;'
[ "$(wc -l <"$work/gate")" -gt 250 ] && [ "$(wc -l <"$work/harmless")" -gt 50 ] || { echo "the tables were not understood" >&2; exit 1; }

awk -F '\t' '
FILENAME ~ /gate$/     { class[$1] = $2; arg[$1] = $3; next }
FILENAME ~ /harmless$/ { if ($1 in class) bad("in both tables: " $1); harmless[$1] = 1; next }
{
    n = split($2, p, ",")
    stream = -1
    for (i = n; i >= 1; i--)
        if (p[i] ~ /CUstream[ *]|CUstream$|CUlaunchConfig/) stream = i - 1
    event = -1
    for (i = n; i >= 1; i--)
        if (p[i] ~ /CUevent[ *]|CUevent$/ && p[i] !~ /\*/) event = i - 1
    risky = stream >= 0 || event >= 0 || $1 ~ /^cu(Memcpy|Memset|Launch)/ ||
            $1 ~ /Sync|Free|Destroy|Unload|Unmap|Release|Reset|Unregister|Close|Detach|Unbind|RecordEvent|WaitEvent|Trim/
    total++
    seen[$1] = 1
    if (!risky || $1 in harmless) next
    if (!($1 in class)) { bad("neither in gate.def nor in harmless.def: " $1 "(" $2 ")"); next }
    gated++
    c = class[$1]
    takes = c ~ /^(STREAM|LAUNCH_CONFIG|RECORD|WAIT|GRAPH|ALLOC|FREE|QUERY|CAPTURE_INFO)/
    if (takes != (stream >= 0)) bad($1 ": class " c ", stream argument " stream)
    if (takes && arg[$1] != stream) bad($1 ": stream is argument " stream ", not " arg[$1])
    if (takes && (c ~ /^LAUNCH/) != (p[stream + 1] ~ /CUlaunchConfig/)) bad($1 ": class " c)
    if (c ~ /^RECORD/ && (event != 0 || stream != 1 || n != 2 + (c ~ /FLAGS/))) bad($1 ": class " c ", event " event)
    if (c ~ /^WAIT/ && (event != 1 || stream != 0 || n != 3)) bad($1 ": class " c ", event " event)
    if (c == "STREAM_COPY" && (stream != 3 || p[1] !~ /dst/ || p[2] !~ /src/ || p[3] !~ /ize_t|int/)) bad($1 ": class " c)
    if (c == "EVENT_END" && (event != 0 || arg[$1] != 0)) bad($1 ": class " c ", event " event)
    if (takes && event >= 0 && c !~ /^(RECORD|WAIT)/) bad($1 ": class " c ", event " event)
}
function bad(text) { print text > "/dev/stderr"; failed = 1 }
END {
    print total " functions in cuda.h, " gated " gated, " length(harmless) " harmless"
    exit failed
}' "$work/gate" "$work/harmless" "$work/header"
