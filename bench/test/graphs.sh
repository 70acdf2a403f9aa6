#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/graphs: its table from what two sides say, sides that fail, wrong use. The program itself needs
# PyTorch and two GPUs.
set -u
. "$(dirname "$0")/common.sh"
program=("$here/../graphs")

# A Python that has two GPUs, whose ranks say what $FAKE_DIGEST and $FAKE_RIGHT are on slipring's side.
cat >"$work/python" <<'P'
#!/bin/bash
case $1 in
-c) echo 2 && exit ;;
esac
[ -z "${FAKE_FAILS:-}" ] || exit 1
digest=0 right=true ms=2
if [ -n "${SLIPRING_LOG:-}" ]; then digest=${FAKE_DIGEST:-0} right=${FAKE_RIGHT:-true} ms=1; fi
[ "$RANK" != 0 ] || echo "[{\"name\": \"$4\", \"right\": $right, \"digest\": \"$digest\", \"ms\": $ms, \"outside\": null}]" >"$3"
P
chmod +x "$work/python"
echo 'int slipring_version;' | cc -shared -x c -o "$work/libslipring.so" - || exit 1 # the launcher knows it by that name
fake() {
    status "$1" "$2" --python "$work/python" --build "$work" "${@:3}"
}

fake 0 '^| block | equal | 2.0000 | 1.0000 | 2.00 | - | - |$' block
FAKE_DIGEST=1 fake 1 '^| stream | DIFFER |' stream event
FAKE_RIGHT=false fake 1 '^| event | WRONG |' event
FAKE_FAILS=1 fake 3 '^- failed: compile with slipring$' compile
status 2 'nonsense is none of stream' nonsense
status 3 'needs PyTorch and two GPUs' --python "$(command -v false)"
exit 0
