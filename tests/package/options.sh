#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/package.sh says what is missing before it builds anything. Usage: options.sh SOURCE
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
