#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the packages: slipring_*.deb, slipring-softgpu_*.deb and a .tar.gz, from the source as it is. Needs no GPU; runs no tests.
#
# usage: scripts/package.sh [--out FOLDER] [--no-softgpu] [--rpm] [--lintian] [--homepage URL]
#        scripts/package.sh --wheel [--out FOLDER] [--homepage URL]
#   --out FOLDER   where the packages go [out/packages]; what else is there stays
#   --wheel        the Python wheel instead, for glibc 2.28 and later; without the software GPU (packaging/wheel.py)
#   --no-softgpu   without the software GPU
#   --rpm          also .rpm files, with lib64
#   --homepage URL the project's address, for who publishes them: a field of each package
#   --lintian      then check the .deb files with lintian, and fail on its errors
#
# The same source gives the same bytes, on any machine with the same compiler: times are those of packaging/changelog, and
# the paths of the build are not in the files. tests/package/chroot.sh installs the result in a clean Debian.
set -euo pipefail
. "$(dirname "$0")/common.sh"

out=$SLR_ROOT/out/packages softgpu=ON check=0 rpm=0 wheel=0 homepage=""
while [ $# -gt 0 ]; do
    case $1 in
    --out) need_value "$1" "$@" && out=$2 && shift ;;
    --homepage) need_value "$1" "$@" && homepage=$2 && shift ;;
    --no-softgpu) softgpu=OFF ;;
    --rpm) rpm=1 ;;
    --wheel) wheel=1 ;;
    --lintian) check=1 ;;
    -h | --help) usage && exit 0 ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
case $homepage in "" | http://?* | https://?*) ;; *) bad_usage "--homepage: http://... or https://..., not $homepage" ;; esac
# need TOOL... (PACKAGES): all that is missing is named at once.
need() {
    local tool missing=""
    for tool in "${@:1:$#-1}"; do
        have "$tool" || missing="$missing $tool"
    done
    [ -z "$missing" ] || die "missing:$missing (Debian: ${!#})"
}

SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' "$SLR_ROOT/packaging/changelog" | head -n 1)" +%s)
export SOURCE_DATE_EPOCH
umask 022

# build FOLDER [cmake options]: what is shipped, and not the tests. Everything that could differ from one build folder or
# machine to another is named here.
build() {
    local folder=$1 maps="-ffile-prefix-map=$1=build -ffile-prefix-map=$SLR_ROOT=."
    shift
    configure "$folder" "-DCMAKE_C_FLAGS=$maps" "-DCMAKE_ASM_FLAGS=$maps" -DCMAKE_SKIP_RPATH=ON \
        "-DSLIPRING_HOMEPAGE=$homepage" "$@"
    ninja -C "$folder" --quiet shipped >"$folder/ninja.log" || { cat "$folder/ninja.log" >&2 && die "it does not build"; }
}

# pack CPACK-OPTION...: from the build folder into $new, from where all of them go to $out at the end.
pack() {
    local log=$build/cpack.log
    (cd "$build" && cpack -B "$new" "$@") >"$log" 2>&1 || { cat "$log" >&2 && die "cpack failed"; }
    rm -rf "$new/_CPack_Packages"
}

# What goes there is tried before the work; a folder that was made for nothing goes again.
choose_out() {
    [ -d "$out" ] || trap 'rmdir "$out" 2>/dev/null || :' EXIT
    { mkdir -p "$out" && : >"$out/.tried" && rm "$out/.tried"; } || die "--out: nothing can be written to $out"
}

if [ $wheel = 1 ]; then
    need python3 readelf "python3, binutils"
    choose_out
    build "$SLR_ROOT/build-wheel" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib -DSLIPRING_TESTS=OFF -DSLIPRING_GLIBC_2_28=ON
    python3 "$SLR_ROOT/packaging/wheel.py" "$SLR_ROOT/build-wheel" "$out"
    exit
fi
need dpkg-deb dpkg-shlibdeps gzip "dpkg-dev, gzip"
[ $rpm = 0 ] || need rpmbuild "rpm"
[ $check = 0 ] || need lintian "lintian"
choose_out

build=$SLR_ROOT/build-package options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DSLIPRING_TESTS=$softgpu")
new=$build/packages
build "$build" "${options[@]}" -DCMAKE_INSTALL_LIBDIR=lib
rm -rf "$new"
pack
if [ $rpm = 1 ]; then
    build "$build" "${options[@]}" -DCMAKE_INSTALL_LIBDIR=lib64
    pack -G RPM
fi
(cd "$new" && sha256sum ./*)
if [ $check = 1 ]; then
    lintian --allow-root --fail-on error "$new"/*.deb
fi
mv -f "$new"/* "$out/"
say "packages: $out"
