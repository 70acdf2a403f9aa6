#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Whether the tests are built when nobody says so: not from sources that are no git checkout, and not as a part of another
# project. Configures only.
#
#   defaults.sh BUILD SOURCE CC         from CMake: CMAKE
set -euo pipefail
build=$1 source=$2 cc=$3
: "${CMAKE:=cmake}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

headers=()
for kind in CUDA NCCL NVTX; do
    headers+=("-DSLIPRING_${kind}_INCLUDE=$(sed -n "s/^SLIPRING_${kind}_INCLUDE:[^=]*=//p" "$build/CMakeCache.txt")")
done

# configured FOLDER SAYS VALUE [OPTIONS...]: what CMake says of the tests, and what SLIPRING_TESTS is.
configured() {
    local folder=$1 says=$2 value=$3
    shift 3
    rm -rf "$work/build"
    "$CMAKE" -S "$folder" -B "$work/build" -G Ninja "-DCMAKE_C_COMPILER=$cc" "${headers[@]}" "$@" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
    grep -q "$says" "$work/out" || fail "not said: $says: $(cat "$work/out")"
    grep -q "^SLIPRING_TESTS:BOOL=$value\$" "$work/build/CMakeCache.txt" || fail "$folder: SLIPRING_TESTS is not $value"
}

mkdir "$work/sources" "$work/other"
for entry in "$source"/*; do
    case ${entry##*/} in build* | out) ;; *) ln -s "$entry" "$work/sources/" ;; esac
done
configured "$work/sources" '^-- Without the tests .* no git checkout' OFF
cat >"$work/other/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(other LANGUAGES C)
add_subdirectory("$source" slipring)
EOF
configured "$work/other" '^-- Without the tests .* part of other' OFF
[ ! -e "$work/build/CPackConfig.cmake" ] || fail "the other project has packages of slipring's"
