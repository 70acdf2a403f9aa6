#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A signal that asks verify, tune or bench to end reaches all processes of the command, whatever their group and session
# are; what does not end by it is killed, and nothing is left.
# usage: interrupt.sh LAUNCHER BUILD
export SLIPRING_LAUNCHER="$1"
build=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work/tmp" SLIPRING_LIB="$build/libslipring.so" WORK="$work"
mkdir "$TMPDIR"

fail() {
    echo "interrupt.sh: $*"
    cat "$work/err"
    exit 1
}

# A starter with ranks: one in its group, one in a session of its own, one whose parent has ended. Each writes its process id
# when it is ready; with STUBBORN the second ignores the signals, and so does the starter.
cat >"$work/job" <<'J'
#!/bin/sh
if [ "${1-}" = rank ]; then
    [ -z "${STUBBORN-}" ] || trap '' TERM INT
    echo $$ >>"$WORK/pids"
    exec sleep 300
fi
sh -c 'echo $$ >>"$WORK/pids"; exec sleep 300' &
setsid "$0" rank &
STUBBORN='' sh -c '"$1" rank & exit 0' - "$0"
[ -z "${STUBBORN-}" ] || trap '' TERM INT
echo $$ >>"$WORK/pids"
wait
J
chmod +x "$work/job"

alive() {
    for pid in $(cat "$work/pids"); do
        ! kill -0 "$pid" 2>/dev/null || return 0
    done
    return 1
}

# interrupted SIGNAL STATUS TOOL ARGUMENT...
interrupted() {
    signal=$1 want=$2 tool=$build/slipring-$3
    shift 3
    : >"$work/pids"
    # A shell's background processes ignore SIGINT, and so would the tool.
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$tool" "$@" >"$work/out" 2>"$work/err" &
    pid=$!
    tries=0
    until [ "$(wc -l <"$work/pids")" -ge 4 ]; do
        [ $((tries += 1)) -le 1200 ] || fail "$tool: the job did not come up: $(cat "$work/pids")"
        sleep 0.05
    done
    kill "-$signal" $pid
    got=0
    wait $pid || got=$?
    [ $got -eq "$want" ] || fail "$tool: status $got after $signal, not $want"
    ! alive || fail "$tool: after $signal these processes are left, or some of them: $(cat "$work/pids")"
    [ -z "$(ls "$TMPDIR")" ] || fail "$tool: files were left: $(ls "$TMPDIR")"
}

interrupted TERM 143 verify -- "$work/job"
interrupted HUP 129 tune -o "$work/table" -- "$work/job"
interrupted TERM 143 bench --softgpu --ag-gemm "$work/job"
STUBBORN=1
export STUBBORN
interrupted INT 130 verify -- "$work/job"

# What a command that ends by itself leaves running is its own affair.
unset STUBBORN
: >"$work/pids"
# shellcheck disable=SC2016 # for the shell that is started
"$build/slipring-verify" -- sh -c '"$WORK/job" rank >/dev/null 2>&1 & until [ -s "$WORK/pids" ]; do sleep 0.05; done' >"$work/out" 2>"$work/err"
alive || fail "a process that the command left behind was killed"
kill "$(cat "$work/pids")"
