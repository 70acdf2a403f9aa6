#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/package.sh says what is missing before it builds anything, and leaves what else is where it puts the packages. Usage: options.sh SOURCE
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
for tool in dirname date sed head; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
done

# misses TOOL OPTION...: the tool is named, and the status is 1.
misses() {
    tool=$1 status=0
    shift
    PATH=$work/bin "$source/scripts/package.sh" --out "$work/out" "$@" >"$work/log" 2>&1 || status=$?
    [ $status -eq 1 ] && grep -q "missing:.* $tool.* (Debian: " "$work/log" && [ ! -e "$work/out" ] && [ "$(wc -l <"$work/log")" -eq 1 ] ||
        { echo "options.sh: without $tool: status $status, $(cat "$work/log")" && exit 1; }
}

for tool in dpkg-deb dpkg-shlibdeps gzip; do
    misses $tool
    printf '#!/bin/sh\nexit 1\n' >"$work/bin/$tool"
    chmod +x "$work/bin/$tool"
done
misses lintian --lintian
misses rpmbuild --rpm

# With tools that make nothing but a package, in a source tree that has what the script reads.
mkdir -p "$work/src/packaging"
cp -r "$source/scripts" "$work/src/scripts"
cp "$source/packaging/changelog" "$work/src/packaging/changelog"
for tool in mkdir rm mv cat grep sha256sum rmdir; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
done
printf '#!/bin/sh\necho "$*" >>"%s/built"\n' "$work" >"$work/bin/cmake"
printf '#!/bin/sh\n' >"$work/bin/ninja"
# shellcheck disable=SC2016 # for the script
printf '#!/bin/sh\n[ ! -e "%s/broken" ] || exit 1\nmkdir -p "$2/_CPack_Packages"\necho new >"$2/slipring_2_all.deb"\n' "$work" >"$work/bin/cpack"
chmod +x "$work/bin/cmake" "$work/bin/ninja" "$work/bin/cpack"
package() { PATH=$work/bin "$work/src/scripts/package.sh" "$@" >"$work/log" 2>&1; }
fail() {
    echo "options.sh: $*: $(cat "$work/log")"
    exit 1
}

! package --out /proc/x || fail "a folder that can not be made"
grep -q 'nothing can be written to /proc/x$' "$work/log" && [ ! -e "$work/built" ] || fail "the folder was not tried before the work"
status=0
package --homepage slipring.org || status=$?
[ $status = 2 ] && grep -q 'not slipring.org$' "$work/log" && [ ! -e "$work/built" ] || fail "an address that is none: status $status"
mkdir "$work/kept"
echo old | tee "$work/kept/slipring_1_all.deb" "$work/kept/notes" >"$work/kept/slipring_2_all.deb"
package --out "$work/kept" --homepage https://x.example/a || fail "package.sh"
grep -q -- ' -DSLIPRING_HOMEPAGE=https://x.example/a ' "$work/built" || fail "the address is not told to the build"
[ "$(cd "$work/kept" && cat notes slipring_1_all.deb slipring_2_all.deb | paste -sd' ')" = "old old new" ] && [ "$(ls "$work/kept" | wc -l)" = 3 ] ||
    fail "not what was there, and the new one: $(ls "$work/kept")"
: >"$work/broken"
! package --out "$work/made" || fail "cpack fails"
[ ! -e "$work/made" ] || fail "a folder is left that holds nothing"
! package --out "$work/kept" || fail "cpack fails"
[ "$(cat "$work/kept/slipring_2_all.deb")" = new ] || fail "what was there is gone"
