#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python wheel, made from the build, installed in an environment of its own, and used as its users would, with GPUs in software.
#
#   wheel.sh BUILD SOURCE         from CMake: CMAKE
set -euo pipefail # so no pipe into grep -q, which would not read to the end
build=$1 source=$2
here=$(cd "$(dirname "$0")" && pwd)
unset LD_PRELOAD LD_LIBRARY_PATH DESTDIR SLIPRING_LIB SLIPRING_TABLES SLIPRING_SOFTGPU PYTHONPATH PYTHONHOME
export PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
umask 022
work=$(readlink -f "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

if ! python3 -m pip --python "$(command -v python3)" --version >/dev/null 2>&1 || ! python3 -c 'import venv' 2>/dev/null; then
    echo "no pip >= 22.3 or no venv here"
    exit 77
fi

# ---- the archive ----
python3 "$source/packaging/wheel.py" "$build" "$work/first" >"$work/out"
python3 "$source/packaging/wheel.py" "$build" "$work/second" >"$work/out"
wheel=$(echo "$work"/first/slipring-*-py3-none-manylinux_2_*_*.whl)
cmp "$wheel" "$work/second/${wheel##*/}" || fail "the same build makes another wheel"
! python3 "$source/packaging/wheel.py" "$build" "$work/third" --glibc 2.2 >"$work/out" 2>&1 || fail "it needs no newer glibc than 2.2"
grep -q 'needs glibc 2\.[0-9]*, not 2\.2: .*@GLIBC_2\.' "$work/out" || fail "what needs glibc is not said: $(cat "$work/out")"
[ ! -e "$work/third" ] || fail "a wheel that was refused is there"
# The same build, with an address.
mkdir "$work/told"
ln -s "$build"/* "$work/told/"
rm "$work/told/CMakeCache.txt"
sed 's|^SLIPRING_HOMEPAGE:.*|SLIPRING_HOMEPAGE:STRING=https://x.example/a|' "$build/CMakeCache.txt" >"$work/told/CMakeCache.txt"
python3 "$source/packaging/wheel.py" "$work/told" "$work/fourth" >"$work/out"
python3 - "$wheel" "$work/fourth/${wheel##*/}" <<'EOF'
import base64, hashlib, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
names = archive.namelist()
record = dict(line.split(",", 1) for line in archive.read(names[-1]).decode().splitlines())
assert names[-1].endswith(".dist-info/RECORD") and sorted(record) == sorted(names), "RECORD has not all files"
for name in names[:-1]:
    data = archive.read(name)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert record[name] == f"sha256={digest},{len(data)}", name
assert not [name for name in names if "cuda" in name or "nccl" in name or "cublas" in name], names
about = [name for name in names if name.endswith("/METADATA")][0]
metadata = [zipfile.ZipFile(file).read(about).decode() for file in sys.argv[1:]]
home = "\nProject-URL: Homepage, "
assert home not in metadata[0] and home + "https://x.example/a\nRequires-Python: " in metadata[1], metadata
assert "\nTag: py3-none-manylinux_2_" in archive.read([name for name in names if name.endswith("/WHEEL")][0]).decode()
EOF

# ---- installed ----
python3 -m venv --without-pip "$work/venv"
python=$work/venv/bin/python slipring=$work/venv/bin/slipring
python3 -m pip --python "$python" install -q --no-index --no-compile "$wheel" || fail "pip install"
version=$("$build/slipring-tables" --version)
cd "$work" # nothing here is called slipring
lib=$("$python" -c 'import slipring; print(slipring.library())')
[ "$("$slipring" --version)" = "$version
library: $lib" ] || fail "--version"
version=${version%% (commit *} version=${version%%
*}
"$slipring" run --help | grep '^usage: slipring run ' >/dev/null || fail "run --help"
"$slipring" env | grep '^SLIPRING_MIN_BYTES=4M$' >/dev/null || fail "env"
"$python" -m slipring run -- true || fail "python -m slipring run"
[ "$("$python" -m slipring run -- sh -c 'echo "$LD_PRELOAD"')" = "$lib" ] || fail "run preloads another library"
[ "slipring $("$python" -c 'import slipring; print(slipring.__version__)')" = "$version" ] || fail "__version__"
status=0
"$slipring" run -- sh -c 'exit 7' || status=$?
[ $status = 7 ] || fail "the exit status is $status, not 7"
for tool in "$build"/slipring-*; do
    "$slipring" "${tool##*/slipring-}" --help >"$work/out" 2>&1 || [ "${tool##*-}" = tables ] || fail "${tool##*/}: $(cat "$work/out")"
done

# ---- what is not part of it, and the pages that its messages name ----
! "$slipring" softgpu -- true 2>"$work/out" || fail "there is a software GPU"
grep -q 'not part of this Python wheel, but of the .deb' "$work/out" || fail "softgpu says: $(cat "$work/out")"
if [ -x "$build/slipring-bench" ]; then
    ! "$slipring" bench 2>"$work/out" || fail "there is an ag_gemm"
    grep -q 'ag_gemm was not found.*the Python wheel has none' <(tr '\n' ' ' <"$work/out") || fail "bench says: $(cat "$work/out")"
fi
package=${lib%/lib/*}
cat "$package"/libexec/slipring/* "$package"/lib/* "$package/bin/slipring" "$package"/*.py | grep -aoE '(docs|LD_PRELOAD)/[a-z]+\.md' | sort -u >"$work/named"
[ "$(wc -l <"$work/named")" -ge 5 ] || fail "messages name no pages: $(cat "$work/named")"
while read -r page; do
    [ -f "$package/share/doc/slipring/$page" ] || fail "a message names $page, which is not in the wheel"
done <"$work/named"
"$source/tests/unit/links.py" --installed "$package/share/doc/slipring" || fail "pages of the wheel lead nowhere"
"$slipring" doctor >"$work/out" || [ $? -lt 4 ] || fail "doctor"
! grep -q 'slipring softgpu' "$work/out" || fail "doctor advises what is not there: $(cat "$work/out")"
SLIPRING_SOFTGPU=$build/softgpu "$slipring" doctor >"$work/out" || [ $? -lt 4 ] || fail "doctor"
! grep -q 'FAIL driver' "$work/out" || tr -s ' \n' ' ' <"$work/out" | grep 'slipring softgpu' >/dev/null || fail "doctor does not advise what is there: $(cat "$work/out")"

# ---- on the software GPU ----
export SLIPRING_SOFTGPU=$build/softgpu
"$slipring" run --softgpu=2 --record "$work/logs" --set min-bytes=0 -- \
    "$build/bench/ag_gemm" --ranks 2 --m 64 --k 64 --n 64 --iters 2 >"$work/out" || fail "ag_gemm: $(cat "$work/out")"
cat "$work"/logs/*.jsonl >"$work/log"
grep -q '"event":"substitute"' "$work/log" || fail "ag_gemm's gathers are not substituted"
"$slipring" run --softgpu=2 --set min-bytes=0 --set trials=0 -- "$python" "$here/wheel_program.py" preloaded || fail "the program, preloaded"
"$slipring" softgpu -n 2 -- "$python" -W ignore "$here/wheel_program.py" plain || fail "the program without slipring"

# ---- an import where the library is not ----
echo 'import slipring' >"$work/imports.py"
"$python" "$work/imports.py" 2>"$work/out" || fail "import"
grep -q 'imports.py:1: NotLoadedWarning: slipring: libslipring.so is not in this process' "$work/out" && grep -q 'slipring run -- python' "$work/out" ||
    fail "an import without the library says: $(cat "$work/out")"
"$slipring" run -- "$python" "$work/imports.py" 2>"$work/out" && "$slipring" --version 2>>"$work/out" >"$work/version" &&
    "$python" -m slipring --version 2>>"$work/out" >"$work/version" || fail "import, preloaded"
! grep -q NotLoaded "$work/out" || fail "it warns without need: $(cat "$work/out")"

# ---- reports ----
"$python" - "$work/logs" "$work/none" <<'EOF'
import subprocess, sys
import slipring
from slipring._report import LAUNCHER
told = "--json" in subprocess.run([LAUNCHER, "report", "--help"], capture_output=True, text=True).stdout
try:
    report = slipring.report(sys.argv[1])
    assert told and isinstance(report, dict) and report, report
except RuntimeError as error:
    assert not told and "--json" in str(error), error
try:
    slipring.report(sys.argv[2])
except RuntimeError as error:
    assert str(error)
else:
    raise AssertionError("a report of nothing")
EOF
echo "${wheel##*/}"
