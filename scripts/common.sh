# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts here and in tests/gpu; source it. Sets SLR_ROOT, the top of the source tree.
SLR_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$*"
    exit 1
}
# Wrong usage: a status of its own, that of slipring's commands.
bad_usage() {
    warn "$*"
    exit 2
}
have() { command -v "$1" >/dev/null 2>&1; }

# Prints the comment at the top of the calling script, without its markers: the help text is written once.
usage() { awk 'NR == 1 || /^# SPDX/ { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"; }

# need_value OPTION "$@": the option's argument is there.
need_value() { [ $# -ge 3 ] || bad_usage "$1 needs a value; see --help"; }

# Folders that may hold the vendors' libraries, one a line; those that the dynamic loader searches by itself are not
# among them.
cuda_lib_folders() {
    local home
    echo "$SLR_ROOT/.deps/cuda/lib"
    for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${NCCL_HOME:-}" /usr/local/cuda /opt/cuda; do
        [ -n "$home" ] && printf '%s\n' "$home/lib64" "$home/lib"
    done
    if have python3; then
        python3 - <<'PY'
import glob, sys
for path in sys.path:
    if "packages" in path:
        print("\n".join(sorted(glob.glob(path + "/nvidia/*/lib"))))
PY
    fi
}

# Prints 12 or 13: the CUDA whose headers the build uses, and so whose libraries its programs are linked to.
cuda_major() {
    local include
    include=$(cmake -P "$SLR_ROOT/cmake/CudaSearch.cmake" | sed -n 's/^cuda=//p')
    sed -nE 's/^#define CUDA_VERSION +([0-9]+)[0-9]{3}$/\1/p' "${include:-/nonexistent}/cuda.h" 2>/dev/null | grep . || echo 13
}

# Prints LD_LIBRARY_PATH entries (colons between) for the CUDA runtime and cuBLAS of that CUDA, and NCCL; empty when the
# loader finds all of them by itself. Fails, naming what is missing on stderr, when one is nowhere.
cuda_lib_path() {
    local lib dir folders found major path="" missing=""
    major=$(cuda_major)
    mapfile -t folders < <(cuda_lib_folders)
    for lib in "libcudart.so.$major" "libcublas.so.$major" "libcublasLt.so.$major" libnccl.so.2; do
        found=""
        for dir in "${folders[@]}"; do
            if [ -e "$dir/$lib" ]; then
                found=$dir
                break
            fi
        done
        if [ -n "$found" ]; then
            case ":$path:" in *":$found:"*) ;; *) path=${path:+$path:}$found ;; esac
        elif ! { have ldconfig || PATH=$PATH:/sbin; ldconfig -p; } 2>/dev/null | grep -q "$lib "; then
            missing="$missing $lib"
        fi
    done
    if [ -n "$missing" ]; then
        echo "not found:$missing" >&2
        return 1
    fi
    printf '%s\n' "$path"
}

# Prints how many devices the installed CUDA driver offers; 0 without a driver. In its own process and with a time limit:
# a broken driver may hang.
cuda_device_count() {
    timeout 30 python3 - 2>/dev/null <<'PY' || echo 0
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
ok = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value if ok else 0)
PY
}

# configure FOLDER [cmake options]: with Ninja; quiet unless it fails. Uses ccache only where it is installed.
configure() {
    local dir=$1 log
    shift
    have ccache && set -- -DCMAKE_C_COMPILER_LAUNCHER=ccache "$@"
    mkdir -p "$dir"
    log=$dir/configure.log
    if ! cmake -S "$SLR_ROOT" -B "$dir" -G Ninja "$@" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
}
