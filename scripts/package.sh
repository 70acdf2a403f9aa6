#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the packages: slipring_*.deb, slipring-softgpu_*.deb and a .tar.gz, from the source as it is. Needs no GPU; runs no tests.
#
# usage: scripts/package.sh [--out FOLDER] [--no-softgpu] [--lintian]
#   --out FOLDER   where the packages go [out/packages]
#   --no-softgpu   without the software GPU
#   --lintian      then check the .deb files with lintian, and fail on its errors
#
# The same source gives the same bytes, on any machine with the same compiler: times are those of packaging/changelog, and
# the paths of the build are not in the files. tests/package/chroot.sh installs the result in a clean Debian.
set -euo pipefail
. "$(dirname "$0")/common.sh"

out=$SLR_ROOT/out/packages softgpu=ON check=0
while [ $# -gt 0 ]; do
    case $1 in
    --out) need_value "$1" "$@" && out=$2 && shift ;;
    --no-softgpu) softgpu=OFF ;;
    --lintian) check=1 ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $1; see --help" ;;
    esac
    shift
done
for tool in dpkg-deb dpkg-shlibdeps gzip; do
    have $tool || die "$tool is missing (Debian: dpkg-dev, gzip)"
done

build=$SLR_ROOT/build-package
SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' "$SLR_ROOT/packaging/changelog" | head -n 1)" +%s)
export SOURCE_DATE_EPOCH
umask 022
# Everything that could differ from one build folder or machine to another is named here.
maps="-ffile-prefix-map=$build=build -ffile-prefix-map=$SLR_ROOT=."
configure "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_LIBDIR=lib -DSLIPRING_TESTS=$softgpu \
    "-DCMAKE_C_FLAGS=$maps" "-DCMAKE_ASM_FLAGS=$maps" -DCMAKE_SKIP_RPATH=ON
# What is installed, and not the tests.
ninja -C "$build" --quiet shipped >"$build/ninja.log" || { cat "$build/ninja.log" >&2 && die "it does not build"; }

rm -rf "$out"
mkdir -p "$out"
log=$build/cpack.log
(cd "$build" && cpack -B "$out") >"$log" 2>&1 || { cat "$log" >&2 && die "cpack failed"; }
rm -rf "$out/_CPack_Packages"
(cd "$out" && sha256sum ./*)
if [ $check = 1 ]; then
    lintian --allow-root --fail-on error "$out"/*.deb
fi
say "packages: $out"
