#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Callers that are not linked to the shared libraries, on a real GPU: a program with the static CUDA runtime, a plug-in that
# is opened for itself alone (RTLD_LOCAL), several runtimes in one process, and Python through ctypes. tests/hooks has the
# same programs on the software GPU. All ranks share the first GPU. And what such callers, workspaces of cuBLAS and
# graph launches that run ahead of a peer were wrong with in earlier versions:
#
#   past-*       libraries whose calls reach the driver past what is preloaded (tests/hooks/past.c)
#   workspace-*  scratch memory in the buffers of a gather or a reduce-scatter (tests/programs/workspace.c)
#   ahead-*      launches return although the peer does not come (ahead.c); how many is in the log, and in the table
#
# usage: tests/gpu/callers.sh [options]
#   --make DIR    only compile the programs into DIR; needs the CUDA toolkit and NCCL, no GPU
#   --built DIR   use the programs in DIR, which --make has left there
#   --build DIR   use this build of slipring as it is instead of building in build-gpu
#   --lib FILE    of these last ones, with this libslipring.so instead of the build's; none: with NCCL alone
#   --only REGEX  only the steps whose name matches
#   --limit S     start no further step after so many seconds [540]
#   --out DIR     where logs go [$OUT, else out/gpu]
#
# Exit status: 0 when every program's results were right, its gathers substituted and its GEMMs fused, else 1.
set -euo pipefail
. "$(dirname "$0")/steps.sh"

make_only=0 built="" lib=""
while [ $# -gt 0 ]; do
    case $1 in
    --make) need_value "$1" "$@" && built=$2 make_only=1 && shift ;;
    --built | --build | --lib | --only | --limit | --out) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done

# compile PROGRAM SOURCES AND OPTIONS...
compile() {
    local program=$1 home=${CUDA_HOME:-/usr/local/cuda}
    shift
    gcc -std=gnu11 -D_GNU_SOURCE "-DSLIPRING_CUDA_MAJOR=$(cuda_major)" -O2 -isystem "$home/include" -isystem "$(nccl_include)" -o "$built/$program" "$@" -ldl -lrt -lpthread
}

make_programs() (
    cd "$SLR_ROOT/tests/programs"
    static=$(library_file libcudart_static.a)
    shared=$(library_file "libcudart.so.$(cuda_major)") blas=$(library_file "libcublas.so.$(cuda_major)") nccl=$(library_file libnccl.so.2)
    compile static fuse.c fuse_api.c ranks.c "$static" "$blas" "$nccl"
    compile module.so -shared -fPIC -Dmain=module_main fuse.c fuse_api.c ranks.c "$shared" "$blas" "$nccl"
    compile local ../hooks/callers_local.c
    compile runtimes ../hooks/runtimes.c ranks.c "$static" "$nccl"
    compile past -rdynamic '-DSHARD=((size_t)8 << 20)' ../hooks/past.c ranks.c "$shared" "$nccl"
    compile bound.so -shared -fPIC -Wl,-z,lazy ../hooks/past_library.c "$(library_file libcuda.so.1)"
    compile looks_up.so -shared -fPIC -Wl,-z,lazy -DLOOKS_UP ../hooks/past_library.c
    compile workspace workspace.c ranks.c "$shared" "$blas" "$(library_file "libcublasLt.so.$(cuda_major)")" "$nccl"
    compile ahead ../gpu/ahead.c ranks.c "$shared" "$nccl"
)

# under NAME COMMAND...: with the library that is to be looked at.
under() {
    local name=$1
    shift
    case $lib in
    none) bounded "$@" ;;
    *) bounded "$slipring" run --lib "${lib:-$build/libslipring.so}" --set min_bytes=0 --set protocol=pull --set log=info \
        --set "log_file=$logs/$name.rank%r.decisions" -- "$@" ;;
    esac
}

mended() {
    local library which gathers
    for library in bound looks_up; do
        for which in opened before lazily constructor unseen; do
            alone "past-$library-$which" 30 under "past-$library-$which" "$built/past" $which 2 "$built/$library.so"
        done
    done
    alone workspace-all 60 under workspace-all "$built/workspace" 2 all 64 32 32768 2
    for gathers in 1 2 20; do
        alone "ahead-$gathers" 60 under "ahead-$gathers" "$built/ahead" $gathers
        [ ! -e "$logs/ahead-$gathers.log" ] || grep 'launches returned' "$logs/ahead-$gathers.log" |
            sed "s/^/$gathers gathers a graph: /" >"$logs/ahead-$gathers.table" || true
    done
}

# caller NAME FUSED COMMAND...: gathers substituted, none passed; with FUSED 1 every one consumed by a GEMM in parts.
caller() {
    local name=$1 fused=$2
    shift 2
    preloaded "$name" --set min_bytes=0 -- "$@" || return
    counted "$name" ring || { echo "no gather was substituted" && return 1; }
    ! grep -h ' pass ' "$logs/$name".rank*.decisions || { echo "a gather was passed" && return 1; }
    [ "$fused" = 1 ] || return 0
    counted "$name" fused || { echo "no GEMM was fused" && return 1; }
    ! grep -h ' joined ' "$logs/$name".rank*.decisions || { echo "a gather was joined" && return 1; }
}

callers() {
    local ranks
    for ranks in 2 4; do
        alone "static-$ranks-ranks-bn" 60 caller "static-$ranks-ranks-bn" 1 "$built/static" "$ranks" bn
        alone "static-$ranks-ranks-at" 60 caller "static-$ranks-ranks-at" 1 "$built/static" "$ranks" at
        alone "static-$ranks-ranks-large" 60 caller "static-$ranks-ranks-large" 1 "$built/static" "$ranks" large
        alone "local-$ranks-ranks" 60 caller "local-$ranks-ranks" 1 "$built/local" "$built/module.so" "$ranks" bn
        alone "runtimes-$ranks-ranks" 60 caller "runtimes-$ranks-ranks" 0 "$built/runtimes" "$ranks"
        alone "ctypes-$ranks-ranks" 60 caller "ctypes-$ranks-ranks" 1 python3 "$SLR_ROOT/tests/hooks/callers_gather.py" "$ranks" --one-gpu
    done
}

if [ $make_only = 1 ]; then
    mkdir -p "$built"
    built=$(cd "$built" && pwd)
    make_programs
    exit
fi
open_logs
find_device
find_build
if [ -z "$built" ]; then
    built=$logs/programs
    mkdir "$built"
    make_programs >"$logs/make.log" 2>&1 || { tail -n 20 "$logs/make.log" >&2 && die "the programs did not compile"; }
fi
built=$(cd "$built" && pwd)
say "$device; logs in $out"
[ -n "$lib" ] || callers
mended
finish
