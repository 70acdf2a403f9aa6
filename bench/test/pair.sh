#!/bin/sh
# ag_gemm_pair with a prefix that only sets a variable: a table, JSON and markdown, and failures are passed on.
bench=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
set -- --ranks 2 --m 16 --n 16 --k 16 --iters 2 --check full

"$bench/ag_gemm_pair" --rounds 2 --with 'env MARK=1' --json "$folder/json" --markdown "$folder/md" -- "$@" \
    >"$folder/text" || exit 1
cat "$folder/text"
grep -q '^ *whole ' "$folder/text" && grep -q '| whole' "$folder/md" || { echo "no row for whole"; exit 1; }
python3 - "$folder/json" <<'P' || exit 1
import json, sys
r = json.load(open(sys.argv[1]))
assert r["rounds"] == 2 and r["check"] == "exact", r
assert r["rows"]["whole"]["without"] > 0 and r["rows"]["whole"]["with"] > 0, r
assert abs(r["rows"]["whole"]["ratio"] - r["rows"]["whole"]["without"] / r["rows"]["whole"]["with"]) < 1e-9
P
if "$bench/ag_gemm_pair" --rounds 1 --with false -- "$@" >"$folder/text" 2>&1; then
    echo "a failing run passed" && exit 1
fi
exit 0
