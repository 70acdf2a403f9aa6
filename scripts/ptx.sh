#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The PTX of the device code, which is kept beside its source, so that a build needs no nvcc.
#
#   scripts/ptx.sh              makes kernels/reduce.ptx of kernels/reduce.cu; wanted after each change of that
#   scripts/ptx.sh --check      compares it with what nvcc makes now
#   scripts/ptx.sh --assemble   assembles the kept one, for all devices of SM that ptxas knows; it must not spill registers
#
# 77: not done, as there is no nvcc (no ptxas), or for --check not the release that the kept one was made with. They are looked for in
# PATH, and in /usr/local/cuda/bin; NVCC and PTXAS name others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SM="80 86 89 90 100 103 120"
kept=kernels/reduce.ptx
# The driver only takes versions of PTX that it knows. The code needs no more than this one's, of CUDA 11.0, and ptxas says so if it does.
VERSION=7.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# skip TEXT: not done.
skip() {
    echo "ptx.sh: $1" >&2
    exit 77
}

# tool VARIABLE NAME: path of the tool, nothing when it is not there.
tool() {
    local named=${!1:-}
    command -v "${named:-$2}" || { [ -z "$named" ] && command -v "/usr/local/cuda/bin/$2"; } || true
}

release_of_nvcc() { "$nvcc" --version | sed -nE 's/^Cuda compilation tools, (release .*)/\1/p'; }
release_of_kept() { sed -nE 's,^// Cuda compilation tools\, (release .*),\1,p' "$kept"; }

# make OUT. -fmad=false: a product and a sum stay two operations.
make() {
    "$nvcc" -ptx -arch=compute_80 -fmad=false -I. kernels/reduce.cu -o "$work/made"
    {
        echo "// SPDX-License-Identifier: Apache-2.0"
        echo "// Made of kernels/reduce.cu by scripts/ptx.sh; not to be edited"
        sed -E "s/^\.version .*/.version $VERSION/" "$work/made"
    } >"$1"
}

# Without what says who made it.
code() { grep -vE '^//|^$' "$1"; }

nvcc=$(tool NVCC nvcc)
ptxas=$(tool PTXAS ptxas)
case ${1:-} in
"")
    [ -n "$nvcc" ] || skip "there is no nvcc"
    make "$work/new"
    mv "$work/new" "$kept"
    ;;
--check)
    [ -n "$nvcc" ] || skip "there is no nvcc, so $kept was not compared with its source"
    [ "$(release_of_nvcc)" = "$(release_of_kept)" ] ||
        skip "nvcc is of $(release_of_nvcc), $kept was made with $(release_of_kept): not compared"
    make "$work/new"
    diff <(code "$kept") <(code "$work/new") >"$work/diff" || {
        echo "ptx.sh: $kept is not what its source gives; scripts/ptx.sh makes it. The difference begins with:" >&2
        sed -n 1,20p "$work/diff" >&2
        exit 1
    }
    echo "$kept is what nvcc makes of its source"
    ;;
--assemble)
    [ -n "$ptxas" ] || skip "there is no ptxas, so $kept was not assembled"
    known=$("$ptxas" --help | grep -oE '\bsm_[0-9]+\b' | sort -u)
    for sm in $SM; do
        grep -qx "sm_$sm" <<<"$known" || continue
        "$ptxas" -v -arch="sm_$sm" "$kept" -o "$work/cubin" >"$work/log" 2>&1 || {
            cat "$work/log" >&2
            exit 1
        }
        [ "$(grep -c ' 0 bytes spill stores, 0 bytes spill loads' "$work/log")" = "$(grep -c '^\.visible \.entry' "$kept")" ] || {
            echo "ptx.sh: on sm_$sm a kernel spills registers:" >&2
            cat "$work/log" >&2
            exit 1
        }
        echo "sm_$sm: $(sed -nE 's/.*Used ([0-9]+) registers.*/\1/p' "$work/log" | paste -sd' ' -) registers"
        done=1
    done
    [ "${done:-}" ] || { echo "ptx.sh: $ptxas knows none of sm $SM" >&2 && exit 1; }
    ;;
*)
    sed -nE '/^# The PTX/,/^set/s/^# ?//p' "$0" >&2
    exit 2
    ;;
esac
