#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A fault test with a mutant of the library: it must fail, in the way that is expected.
#
#   caught.sh [--tries N] REGEX COMMAND...     N: of a mutant that may be lucky
set -u
tries=1
[ "$1" = --tries ] && tries=$2 && shift 2
expected=$1
shift
for ((; tries > 0; tries--)); do
  out=$("$@" 2>&1) && continue
  ! grep -q "cannot be preloaded" <<<"$out" && grep -qE -e "$expected" <<<"$out" && exit 0
  echo "it fails in another way than: $expected"
  echo "$out"
  exit 1
done
echo "the mutant passes"
exit 1
