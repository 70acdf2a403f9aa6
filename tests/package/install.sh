#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the build into folders of its own, and uses what is there as its users would.
#
#   install.sh BUILD SOURCE LIBDIR CC         from CMake: CMAKE
#
# The files and their modes are those of the list `files`, with the documents of docs/ and docs/measurements/ for docs/*.md and docs/measurements/*.md, and the programs that are built for slipring-*.
set -euo pipefail # so no pipe into grep -q, which would not read to the end
build=$1 source=$2 libdir=$3 cc=$4
here=$(cd "$(dirname "$0")" && pwd)
: "${CMAKE:=cmake}"
unset LD_PRELOAD LD_LIBRARY_PATH DESTDIR SLIPRING_LIB SLIPRING_TABLES SLIPRING_SOFTGPU
umask 022
work=$(readlink -f "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# wanted [GREP-OPTIONS...]: the list, without the lines that grep -v finds
wanted() {
    local config cuda
    cuda=$(sed -nE 's/^#define CUDA_VERSION +([0-9]+)[0-9]{3}$/\1/p' "$(sed -n 's/^SLIPRING_CUDA_INCLUDE:[^=]*=//p' "$build/CMakeCache.txt")/cuda.h")
    config=$(sed -n 's/^CMAKE_BUILD_TYPE:[^=]*=//p' "$build/CMakeCache.txt" | tr 'A-Z' 'a-z')
    sed "s|@lib@|$libdir|; s|@config@|$config|; s|@cuda@|$cuda|" "$here/files" | grep -vE "${1:-^$}" | while read -r mode path; do
        case $path in
        *'/docs/*.md' | *'/docs/measurements/*.md')
            # shellcheck disable=SC2231 # the names are what the pattern stands for
            for file in "$source"/docs/${path##*/docs/}; do echo "$mode ${path%/*}/${file##*/}"; done
            ;;
        */'slipring-*') for file in "$build"/slipring-*; do [ ! -x "$file" ] || echo "$mode ${path%/*}/${file##*/}"; done ;;
        *) echo "$mode $path" ;;
        esac
    done | LC_ALL=C sort
}

# compare FOLDER WANTED: what lies there
compare() {
    (cd "$1" && find . ! -type d -printf '%m %P\n') | LC_ALL=C sort >"$work/have"
    diff "$2" "$work/have" || fail "files in $1: < wanted, > there"
}

# ---- the files, with a prefix that is chosen now, with DESTDIR, and one component alone ----
"$CMAKE" --install "$build" --prefix "$work/first" --strip >/dev/null
wanted >"$work/all"
compare "$work/first" "$work/all"
DESTDIR=$work/staged "$CMAKE" --install "$build" --prefix /opt/slipring >/dev/null
compare "$work/staged/opt/slipring" "$work/all"
[ "$(ls "$work/staged")" = opt ] || fail "DESTDIR: something beside the prefix: $(ls "$work/staged")"
"$CMAKE" --install "$build" --prefix "$work/alone" --component slipring >/dev/null
wanted softgpu >"$work/component"
compare "$work/alone" "$work/component"
"$source/tests/unit/links.py" --installed "$work/alone/share/doc/slipring" || fail "installed pages lead nowhere"

# ---- moved to another place, it still works ----
prefix="$work/moved here"
mv "$work/first" "$prefix"
! grep -rlF -e "$work/first" -e "$build" -e "$source" "$prefix" || fail "a file knows where it was built or installed"
for elf in "$prefix/$libdir"/libslipring.so "$prefix/$libdir"/slipring/softgpu/* "$prefix"/libexec/slipring/*; do
    ! readelf -d "$elf" | grep -E 'RPATH|RUNPATH' || fail "$elf has a run path"
    ! readelf -S "$elf" | grep '\.debug_info' >/dev/null || fail "$elf is not stripped"
done
slipring=$prefix/bin/slipring
version=$("$build/slipring-tables" --version)
[ "$("$slipring" --version)" = "$version
library: $prefix/$libdir/libslipring.so" ] || fail "--version: $("$slipring" --version)"
version=${version%% (commit *} version=${version%%
*}
"$slipring" env | grep '^SLIPRING_MIN_BYTES=4M$' >/dev/null || fail "env"
# The dynamic loader can not preload from a path with a space: there is a link.
"$slipring" run --softgpu=2 --set log=info --set log-file="$work/spaced" --set min-bytes=0 -- \
    "$prefix/libexec/slipring/ag_gemm" --ranks 2 --m 64 --k 64 --n 64 --iters 2 >"$work/out" || fail "ag_gemm: $(cat "$work/out")"
grep -q 'info substitute ' "$work/spaced" || fail "nothing is substituted from a path with a space"
mv "$prefix" "$work/moved" # pkg-config's paths, below, have no spaces
prefix=$work/moved slipring=$work/moved/bin/slipring lib=$work/moved/$libdir
[ "$("$slipring" run -- sh -c 'echo "$LD_PRELOAD"')" = "$lib/libslipring.so" ] || fail "run preloads another library"
"$slipring" run --softgpu=2 --set log=info --set log-file="$work/log" --set min-bytes=0 -- \
    "$prefix/libexec/slipring/ag_gemm" --ranks 2 --m 64 --k 64 --n 64 --iters 2 >"$work/out" || fail "ag_gemm: $(cat "$work/out")"
grep -q 'info substitute ' "$work/log" || fail "ag_gemm's gathers are not substituted"

# ---- the API by pkg-config and by CMake ----
export PKG_CONFIG_PATH=$lib/pkgconfig
if command -v pkg-config >/dev/null; then
    [ "slipring $(pkg-config --modversion slipring)" = "$version" ] || fail "pkg-config --modversion"
    # shellcheck disable=SC2046 # words
    "$cc" -Wall -Werror $(pkg-config --cflags slipring) -o "$work/alone_pc" "$source/tests/hooks/api_alone.c" $(pkg-config --libs slipring) -pthread
    LD_LIBRARY_PATH=$lib "$work/alone_pc" || fail "a program linked by pkg-config"
    [ "$(pkg-config --variable=library slipring)" -ef "$lib/libslipring.so" ] || fail "pkg-config --variable=library"
else
    echo "no pkg-config here"
fi
find_package() {
    "$CMAKE" -G Ninja -S "$here/find" -B "$work/find" -DCMAKE_C_COMPILER="$cc" "-DPROGRAM=$source/tests/hooks/api_alone.c" \
        "-DCMAKE_PREFIX_PATH=$prefix" "-DWANTED=$1" >"$work/out" 2>&1
}
find_package 0.2 || fail "find_package: $(cat "$work/out")"
"$CMAKE" --build "$work/find" >"$work/out" || fail "$(cat "$work/out")"
"$work/find/user" || fail "a program linked by CMake"
! find_package 99 || fail "find_package takes any version"

# ---- manual pages and exports ----
for page in man1/slipring.1 man7/libslipring.7; do
    file=${page#*/}
    gzip -dc "$prefix/share/man/$page.gz" >"$work/$file"
    ! grep -n '@[a-z]*@' "$work/$file" || fail "$page: something was not put in"
    if command -v mandoc >/dev/null; then
        (cd "$work" && mandoc -Tlint -W style "$file") || fail "$page: mandoc complains"
    fi
    if command -v groff >/dev/null; then
        LC_ALL=C.UTF-8 groff -man -Tutf8 -ww -z "$work/$file" >"$work/out" 2>&1
        [ ! -s "$work/out" ] || fail "$page: $(cat "$work/out")"
    fi
done
for name in $(sed -n 's/^A(\(.*\))$/\1/p' "$source/plugin/plugin.def"); do
    nm -D --defined-only "$lib/libslipring.so" | grep " T $name\$" >/dev/null || fail "$name is not exported"
    gzip -dc "$prefix/share/man/man7/libslipring.7.gz" | grep "$name" >/dev/null || fail "$name is not in the manual"
    grep -q "$name(" "$prefix/include/slipring.h" || fail "$name is not in the header"
done

# ---- the archive ----
(cd "$build" && "${CMAKE%cmake}cpack" -G TGZ -B "$work/packages" >"$work/out" 2>&1) || fail "cpack: $(cat "$work/out")"
mkdir "$work/unpacked"
tar -xzf "$work"/packages/slipring-*.tar.gz -C "$work/unpacked"
compare "$work/unpacked"/slipring-* "$work/all"
[ "$("$work/unpacked"/slipring-*/bin/slipring --version | sed '1!d; s/ (commit.*//')" = "$version" ] || fail "the archive's launcher"
echo "$(wc -l <"$work/all") files"
