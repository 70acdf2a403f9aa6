#!/usr/bin/env bash
# mutate.sh IN OUT SCRIPT: sed on the whole file as one text, and an error when it changed nothing.
set -eu
mkdir -p "$(dirname "$2")"
sed -Ez -f "$3" "$1" >"$2.new"
if cmp -s "$1" "$2.new"; then
  echo "mutate.sh: $3 changes nothing in $1: the mutant must follow the source" >&2
  rm -f "$2.new"
  exit 1
fi
mv "$2.new" "$2"
