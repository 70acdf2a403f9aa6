#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what slipring's build, demo and tests need and this machine lacks. Never asks. A second run changes nothing.
#
# usage: scripts/setup.sh [--check] [--tests] [--all] [--gpu-libs]
#   (none)      what building and the demo need
#   --tests     also what the test suite needs, with the headers of CUDA 12 (.deps/cuda12)
#   --all       also clang, its sanitizers and clang-format
#   --gpu-libs  also the CUDA runtime, cuBLAS and NCCL libraries, to run on a real GPU (the driver must be there)
#   --check     install nothing: report, and exit 1 when something is missing
#
# System packages come from apt (Debian 12 or newer, Ubuntu 24.04 or newer; as root or through sudo). Elsewhere it names
# what is missing. CUDA and NCCL headers come from the vendors' Python wheels (scripts/cuda-wheels.txt), unpacked into
# .deps/cuda, but only when there is no CUDA toolkit.
set -euo pipefail
. "$(dirname "$0")/common.sh"

check=0 tests=0 all=0 gpu_libs=0
for arg in "$@"; do
    case $arg in
    --check) check=1 ;;
    --tests) tests=1 ;;
    --all) tests=1 all=1 ;;
    --gpu-libs) gpu_libs=1 ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $arg; see --help" ;;
    esac
done

# --- what counts as being there -------------------------------------------------------------------------------------

has_header() { echo "#include <$1>" | gcc -fsyntax-only -x c - 2>/dev/null; }
can_link() { echo 'int main(void){return 0;}' | "${@:2}" -x c - -o /dev/null "-l$1" 2>/dev/null; }
has_gcc() { have gcc && has_header stdio.h && can_link m gcc; }
has_cmake() {
    have cmake || return 1
    local found
    found=$(cmake --version | awk 'NR == 1 { print $3 }')
    [ "$(printf '%s\n' 3.25 "$found" | sort -V | head -n 1)" = 3.25 ]
}
has_openblas() { has_header cblas.h && can_link openblas gcc; }
has_criterion() { has_header criterion/criterion.h && can_link criterion gcc; }
has_clang() { have clang && echo 'int main(void){return 0;}' | clang -fsanitize=address -x c - -o /dev/null 2>/dev/null; }
has_clang_format() { have clang-format-14; }
has_pip() { python3 -m pip --version >/dev/null 2>&1; }
has_certificates() { [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -d /etc/pki/tls/certs ]; }

# what it is | the test for it | apt packages
items="C compiler                |has_gcc                      |gcc libc6-dev
binutils                  |have readelf                 |binutils
CMake >= 3.25             |has_cmake                    |cmake
Ninja                     |have ninja                   |ninja-build
Python 3                  |have python3                 |python3
OpenBLAS                  |has_openblas                 |libopenblas-dev
uthash                    |has_header uthash.h          |uthash-dev
Jansson                   |has_header jansson.h         |libjansson-dev
Criterion                 |has_criterion                |libcriterion-dev"
[ $tests = 1 ] && items="$items
Valgrind                  |have valgrind                |valgrind
pkg-config                |have pkg-config              |pkg-config
mandoc                    |have mandoc                  |mandoc
zsh                       |have zsh                     |zsh
fish                      |have fish                    |fish
pip                       |has_pip                      |python3-pip
git                       |have git                     |git"
[ $all = 1 ] && items="$items
clang with sanitizers     |has_clang                    |clang libclang-rt-dev
clang-format 14           |has_clang_format             |clang-format-14"
for_wheels="pip                       |has_pip                      |python3-pip
CA certificates           |has_certificates             |ca-certificates"

trim() { sed -E 's/^ +| +$//g' <<<"$1"; }

# Sets `missing` (names, comma-separated) and `packages` from a table like the one above.
examine() {
    local name probe package
    missing="" packages=""
    while IFS='|' read -r name probe package; do
        name=$(trim "$name")
        if $probe; then
            [ $check = 0 ] || say "found    $name"
        else
            missing="${missing:+$missing, }$name"
            packages="$packages $package"
            [ $check = 0 ] || say "missing  $name (Debian: $(trim "$package"))"
        fi
    done <<<"$1"
}

apt() {
    local run=()
    if [ "$(id -u)" != 0 ]; then
        run=(sudo)
        [ -t 0 ] || run=(sudo -n)
    fi
    # No recommended packages: they would bring a desktop's worth of them to a bare machine.
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 "$@"
}

# install_system TABLE: packages for the rows that are missing.
install_system() {
    examine "$1"
    if [ -z "$missing" ] || [ $check = 1 ]; then
        incomplete="$incomplete${missing:+$missing, }"
        return
    fi
    have apt-get || die "missing: $missing. There is no apt-get here to install it with (Debian's names:$packages)."
    [ "$(id -u)" = 0 ] || have sudo ||
        die "missing: $missing. Not root and no sudo; as root: apt-get install --no-install-recommends$packages"
    say "installing:$packages"
    mkdir -p "$SLR_ROOT/.deps"
    local log=$SLR_ROOT/.deps/apt.log
    # shellcheck disable=SC2086 # one word for each package
    if ! { apt update && apt install $packages; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "apt-get could not install:$packages (log: $log)"
    fi
    changed=1
    examine "$1"
    [ -z "$missing" ] || die "installed$packages, but still missing: $missing"
}

# --- CUDA -----------------------------------------------------------------------------------------------------------

# Sets `cuda`, `nccl` and `nvtx` to the folders of the headers, as the build will find them.
find_headers() {
    local found
    found=$(cmake -P "$SLR_ROOT/cmake/CudaSearch.cmake")
    cuda=$(sed -n 's/^cuda=//p' <<<"$found")
    nccl=$(sed -n 's/^nccl=//p' <<<"$found")
    nvtx=$(sed -n 's/^nvtx=//p' <<<"$found")
}

# unpack_wheels include|lib FOLDER NAME...: that part of each wheel named in cuda-wheels.txt, into FOLDER of .deps. A pin
# decides the version; pip's own configuration decides where wheels come from.
unpack_wheels() {
    local part=$1 folder=$2 name pins=()
    shift 2
    install_system "$for_wheels"
    for name in "$@"; do
        pins+=("$(grep "^$name==" "$SLR_ROOT/scripts/cuda-wheels.txt")")
    done
    say "downloading, the $part folder of: ${pins[*]}"
    python3 "$SLR_ROOT/scripts/wheels.py" "$part" "$SLR_ROOT/.deps/$folder" "${pins[@]}" ||
        die "no $part folder of these wheels. Install a CUDA 13 toolkit (or 12.9) and NCCL instead, or set CUDA_HOME and NCCL_HOME."
    changed=1
}

setup_headers() {
    if ! has_cmake; then # only with --check
        say "unknown  CUDA and NCCL headers (CMake finds them)"
        return
    fi
    find_headers
    local wheels=()
    [ -n "$cuda" ] || wheels+=(nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl nvidia-cuda-profiler-api nvidia-cublas)
    [ -n "$nccl" ] || wheels+=(nvidia-nccl-cu13)
    [ -n "$nvtx" ] || [ ${#wheels[@]} = 0 ] || wheels+=(nvidia-nvtx)
    if [ $check = 1 ]; then
        say "${cuda:+found    CUDA headers: }${cuda:-missing  CUDA headers}"
        say "${nccl:+found    NCCL headers: }${nccl:-missing  NCCL headers}"
        say "${nvtx:+found    NVTX headers: }${nvtx:-missing  NVTX headers (not needed: without them no ranges for profiling tools)}"
        [ ${#wheels[@]} = 0 ] || incomplete="${incomplete}headers, "
    elif [ ${#wheels[@]} != 0 ]; then
        unpack_wheels include cuda "${wheels[@]}"
        find_headers
        [[ -n $cuda && -n $nccl ]] || die "the unpacked headers in .deps/cuda/include are not complete"
    fi
}

# CUDA 12's, beside those that the build uses.
setup_headers12() {
    local dir=$SLR_ROOT/.deps/cuda12/include
    has_headers12() { [ -e "$dir/cuda.h" ] && [ -e "$dir/cublasLt.h" ] && [ -e "$dir/crt/host_defines.h" ] && [ -e "$dir/cudaProfiler.h" ]; }
    if has_headers12; then
        [ $check = 0 ] || say "found    CUDA 12 headers: $dir"
    elif [ $check = 1 ]; then
        say "missing  CUDA 12 headers"
        incomplete="${incomplete}CUDA 12 headers, "
    else
        unpack_wheels include cuda12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-cccl-cu12 \
            nvidia-cuda-profiler-api-cu12 nvidia-cublas-cu12
        has_headers12 || die "the unpacked headers in $dir are not complete"
    fi
}

setup_gpu_libs() {
    local missing
    if missing=$(cuda_lib_path 2>&1); then
        [ $check = 0 ] || say "found    CUDA runtime, cuBLAS and NCCL libraries"
    elif [ $check = 1 ]; then
        say "missing  CUDA libraries, $missing"
        incomplete="${incomplete}CUDA libraries, "
    else
        unpack_wheels lib cuda nvidia-cuda-runtime nvidia-cublas nvidia-nccl-cu13
        cuda_lib_path >/dev/null || die "the unpacked libraries in .deps/cuda/lib are not complete"
    fi
}

# --------------------------------------------------------------------------------------------------------------------

changed=0 incomplete=""
install_system "$items"
setup_headers
[ $tests = 0 ] || setup_headers12
[ $gpu_libs = 0 ] || setup_gpu_libs
if [ $check = 1 ]; then
    [ -z "$incomplete" ] || die "incomplete: ${incomplete%, }"
    say "complete"
elif [ $changed = 1 ]; then
    say "done"
else
    say "everything is already there"
fi
