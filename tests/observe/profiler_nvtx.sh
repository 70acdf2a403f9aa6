#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The ranges that a tool sees. Usage: profiler_nvtx.sh TOOL FUSE MIX
set -u
tool=$1 fuse=$2 mix=$3
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; head -n 60 "$dir"/ranges.* >&2; exit 1; }
run() {
  NVTX_INJECTION64_PATH=$tool TEST_NVTX_FILE="$dir/ranges" SLIPRING_LOG=error SOFTGPU_REPORT="$dir/misuse" \
    LD_PRELOAD="${TEST_PRELOAD_FIRST:+$TEST_PRELOAD_FIRST:}$SLIPRING_LIB" \
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@" || fail "exit status $? of $*"
}

# Everything that began has ended, in order, on its thread; nothing was malformed; one domain.
whole() {
  [ "$(ls "$dir"/ranges.* | wc -l)" = 2 ] || fail "files of two ranks expected"
  for f in "$dir"/ranges.*; do
    awk '/^malformed/ { exit 1 } /^begin/ { if ($3 != open[$2] + 0 || $4 != "slipring") exit 1; open[$2]++ }
      /^end/ { if ($3 != open[$2] - 1 || $3 < 0) exit 1; open[$2]-- } END { for (t in open) if (open[t]) exit 1 }' "$f" ||
      fail "ranges do not nest, or are open at the end: $f"
  done
}
# has N REGEX: on each rank at least N ranges "DEPTH DOMAIN PAYLOAD MESSAGE"
has() {
  for f in "$dir"/ranges.*; do
    [ "$(sed -n 's/^begin [0-9]* //p' "$f" | grep -cE -- "^($2)$")" -ge "$1" ] || fail "fewer than $1 ranges match $2"
  done
}

# A gather that a GEMM consumes, and one that is compared with NCCL's.
SLIPRING_MIN_BYTES=0 run "$fuse" 2 bn
whole
has 1 '0 slipring 2 communicator [0-9a-f]{8}'
has 3 '0 slipring [1-9][0-9]* all-gather ring'
has 3 '0 slipring [1-9][0-9]* fused GEMM B/N'
rm "$dir"/ranges.*
SLIPRING_MIN_BYTES=0 SLIPRING_VERIFY=1 run "$fuse" 2 bn
whole
has 3 '1 slipring [1-9][0-9]* verify' # within the all-gather
rm "$dir"/ranges.*
# A stream that is made to wait for a gather that is far from over: links of 100 kB/s.
SLIPRING_MIN_BYTES=0 SOFTGPU_TIMING=1 SOFTGPU_LINK_GBS=0.0001 run "$fuse" 2 memset-between
whole
has 1 '[01] slipring [1-9][0-9]* join: other_operation'
rm "$dir"/ranges.*
# Gathers that stay with NCCL, alone and in a group; one of 4096 floats of two ranks that goes to the ring.
SLIPRING_MIN_BYTES=32K run "$mix" 2
whole
has 2 '0 slipring 2048 all-gather pass: below_min_bytes'
has 1 '0 slipring 32768 all-gather ring'
has 1 '0 slipring 65536 all-gather pass: stream_capture'
rm "$dir"/ranges.*

# Without communicators nothing is loaded.
run bash -c 'true'
run "$(command -v python3 || echo true)" -c 'import os, ctypes; os.getpid()'
[ -z "$(ls "$dir" | grep ranges)" ] || fail "the tool was loaded by a program that makes no communicator"
exit 0
