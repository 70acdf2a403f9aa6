#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# older_driver.sh SOFTGPU_DIR OUT FUNCTION: a folder with the software GPU's driver without that function, which the dynamic linker does
# not find under its name any more, and the runtime, cuBLAS and NCCL as they are.
set -eu
soft=$1 out=$2 function=$3
mkdir -p "$out"
for lib in "$soft"/*.so.*; do
  ln -sfn "$lib" "$out/${lib##*/}"
done
rm "$out/libcuda.so.1"
# Other symbols may end as this one does, so the zero before it counts, too.
LC_ALL=C sed "s/\x00$function\x00/\x00${function%?}_\x00/" "$soft/libcuda.so.1" >"$out/libcuda.so.1.new"
! cmp -s "$soft/libcuda.so.1" "$out/libcuda.so.1.new" || { echo "older_driver.sh: no $function in libcuda.so.1" >&2; exit 1; }
mv "$out/libcuda.so.1.new" "$out/libcuda.so.1"
