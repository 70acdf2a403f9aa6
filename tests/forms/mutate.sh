#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mutate.sh IN OUT SCRIPT [FILE...]: sed on the whole file as one text, and an error when it changed nothing, or when a line of
# the script changes neither IN nor one of the FILEs, which are all that the mutant changes.
set -eu
in=$1 out=$2 script=$3
mkdir -p "$(dirname "$out")"
stale() {
  echo "mutate.sh: $1 in ${*:2}: the mutant must follow the source" >&2
  rm -f "$out.new"
  exit 1
}
sed -Ez -f "$script" "$in" >"$out.new"
! cmp -s "$in" "$out.new" || stale "$script changes nothing" "$in"
if [ "$(grep -cv '^#' "$script")" -gt 1 ]; then
  while IFS= read -r line; do
    changed=0
    for file in "$in" "${@:4}"; do
      sed -Ez "$line" "$file" | cmp -s "$file" - || changed=1
    done
    [ $changed = 1 ] || stale "$script: this line changes nothing: $line" "$in" "${@:4}"
  done < <(grep -v '^#' "$script")
fi
mv "$out.new" "$out"
