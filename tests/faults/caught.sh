#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A fault test with a mutant of the library: it must fail, in the way that is expected.
#
#   caught.sh REGEX COMMAND...
set -u
expected=$1
shift
out=$("$@" 2>&1) && echo "the mutant passes" && exit 1
! grep -q "cannot be preloaded" <<<"$out" && grep -qE -e "$expected" <<<"$out" && exit 0
echo "it fails in another way than: $expected"
echo "$out"
exit 1
