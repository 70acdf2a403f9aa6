#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of LD_PRELOAD/slipring. A probe library, which says that it was loaded, stands in for libslipring.so, so that nothing here needs a GPU,
# the software GPU or the library itself. Usage: launcher.sh LAUNCHER PROBE_LIBRARY SLIPRING_TABLES
# shellcheck disable=SC2016 # the shell that the launcher starts expands what is in single quotes
set -eu
launcher=$1 probe=$2 tables=$3
unset LD_PRELOAD LD_LIBRARY_PATH SLIPRING_LIB SLIPRING_TABLES SLIPRING_SOFTGPU SLIPRING_CONF_FILE
work=$(readlink -f "$(mktemp -d)")
export HOME="$work/home" TMPDIR="$work/tmp"
mkdir "$HOME" "$TMPDIR"
trap 'rm -rf "$work"' EXIT

# A copy of the source tree's shape with a build folder, and an installed one.
mkdir -p "$work/src/LD_PRELOAD" "$work/src/build/softgpu" "$work/src/build-other" "$work/inst/bin" "$work/inst/lib/machine-linux-gnu" "$work/empty/bin"
: >"$work/src/CMakeLists.txt"
for folder in "$work/src/LD_PRELOAD" "$work/inst/bin" "$work/empty/bin"; do
    cp "$launcher" "$folder/slipring"
done
cp "$probe" "$work/src/build/libslipring.so"
cp "$probe" "$work/src/build-other/libslipring.so"
cp "$probe" "$work/inst/lib/machine-linux-gnu/libslipring.so"
cp "$tables" "$work/src/build/slipring-tables"
mkdir -p "$work/inst/libexec/slipring"
cp "$tables" "$work/inst/libexec/slipring/slipring-tables"
: >"$work/src/build/softgpu/libcuda.so.1"
lib=$work/src/build/libslipring.so
s=$work/src/LD_PRELOAD/slipring

fail() {
    echo "launcher.sh: $*" >&2
    exit 1
}

# expect NAME WANTED COMMAND...: what the command prints.
expect() {
    name=$1 want=$2
    shift 2
    got=$("$@") || fail "$name: exit status $?"
    [ "$got" = "$want" ] || fail "$name: got \"$got\", not \"$want\""
}

# refuses NAME STATUS PATTERN COMMAND...: the exit status, and a message on stderr that matches.
refuses() {
    name=$1 want=$2 pattern=$3 status=0
    shift 3
    "$@" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq "$want" ] || fail "$name: exit status $status, not $want: $(cat "$work/err")"
    grep -qe "$pattern" "$work/err" || fail "$name: no \"$pattern\" in: $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$name: something on stdout: $(cat "$work/out")"
}

# Which runtimes come first depends on how the probe was built.
without_sanitizers() {
    tr ':' '\n' | grep -v 'lib[a-z]*san\.so\|libclang_rt' | paste -sd: -
}
preload_of() {
    "$@" -- sh -c 'printf %s "$LD_PRELOAD"' | without_sanitizers
}

expect loaded "probe loaded" env PROBE_TELL=1 "$s" run -- true
expect 'installed' "$work/inst/lib/machine-linux-gnu/libslipring.so" preload_of "$work/inst/bin/slipring" run
ln -s "$s" "$work/link"
expect 'through a link' "$lib" preload_of "$work/link" run
expect 'without --' "a b|c" "$s" run printf '%s|%s' 'a b' c
expect 'options of the command are its own' "--set x" "$s" run -- echo --set x

# The preload: what was there stays, nothing is there twice.
cp "$probe" "$work/other.so"
expect prepend "$lib:$work/other.so" preload_of env LD_PRELOAD="$work/other.so" "$s" run
got=$(LD_PRELOAD="$work/other.so $lib" preload_of "$s" run)
[ "$got" = "$lib:$work/other.so" ] || fail "twice: $got"
got=$("$s" run -- "$s" run --lib "$work/src/build-other/libslipring.so" -- sh -c 'echo "$LD_PRELOAD"' | without_sanitizers)
[ "$got" = "$work/src/build-other/libslipring.so" ] || fail "nested: $got"

# Which library: --lib, SLIPRING_LIB, build/, the latest of build*/.
expect 'SLIPRING_LIB' "$work/other.so" preload_of env SLIPRING_LIB="$work/other.so" "$s" run
expect '--lib wins' "$lib" preload_of env SLIPRING_LIB="$work/other.so" "$s" run --lib "$lib"
refuses 'no such --lib' 1 'no file /nonexistent/x.so (from --lib)' "$s" run --lib /nonexistent/x.so -- true
refuses 'no such SLIPRING_LIB' 1 '(from SLIPRING_LIB)' env SLIPRING_LIB=/nonexistent/x.so "$s" run -- true
refuses 'nothing installed' 1 'install slipring again' "$work/empty/bin/slipring" run -- true
grep -q "$work/empty/bin/../lib/libslipring.so" "$work/err" || fail "it does not say where it looked"
for file in /etc/passwd "$(command -v true)" /dev/null; do
    refuses "no library: $file" 1 'is no shared library\|there is no file' "$s" run --lib "$file" -- true
done
refuses 'no library, SLIPRING_LIB' 1 '/etc/passwd (from SLIPRING_LIB) is no shared library' env SLIPRING_LIB=/etc/passwd "$s" run -- true
sed 's/slipring_version/slipring_nothing/g' "$probe" >"$work/stranger.so"
refuses 'another library' 1 "stranger.so (from --lib) is not slipring's library" "$s" run --lib "$work/stranger.so" -- true
{ head -c 18 "$probe" && printf '\003\001' && tail -c +21 "$probe"; } >"$work/machine.so"
refuses 'another machine' 1 'for another kind of machine' "$s" run --lib "$work/machine.so" -- true
{ head -c 4 "$probe" && printf '\001' && tail -c +6 "$probe"; } >"$work/class.so"
refuses 'another class' 1 'for another kind of machine' "$s" run --lib "$work/class.so" -- true
head -c 19 "$probe" >"$work/cut.so"
refuses 'cut short' 1 'is no shared library' "$s" run --lib "$work/cut.so" -- true
# A path that LD_PRELOAD can not hold: a link, in a folder that is this user's alone.
for folder in "$work/a b" "$work/a:b"; do
    mkdir "$folder"
    cp "$probe" "$folder/libslipring.so"
    expect "preloaded by a link: $folder" 'probe loaded' env PROBE_TELL=1 "$s" run --lib "$folder/libslipring.so" -- true
    link=$(preload_of "$s" run --lib "$folder/libslipring.so")
    case $link in "$TMPDIR/slipring-$(id -u)"/*/libslipring.so) ;; *) fail "the link is $link" ;; esac
    [ "$(readlink "$link")" = "$folder/libslipring.so" ] || fail "$link leads to $(readlink "$link")"
    expect "the plugin: $folder" "$link" "$s" run --lib "$folder/libslipring.so" --set tune_file=a.tune -- sh -c 'echo $NCCL_TUNER_PLUGIN'
done
[ "$(stat -c %a "$TMPDIR/slipring-$(id -u)")" = 700 ] || fail "the folder of links is open to others"
rm -r "$TMPDIR/slipring-$(id -u)"
ln -s "$work/home" "$TMPDIR/slipring-$(id -u)" # as somebody else could, in /tmp
refuses 'a folder of links that is a link' 1 "$TMPDIR/slipring-$(id -u) can not hold a link" "$s" run --lib "$work/a b/libslipring.so" -- true
rm "$TMPDIR/slipring-$(id -u)"
refuses 'no place for a link' 1 'can not hold a link' env TMPDIR=/proc "$s" run --lib "$work/a b/libslipring.so" -- true
mv "$lib" "$lib.away"
expect 'another build folder' "$work/src/build-other/libslipring.so" preload_of "$s" run
mv "$work/src/build-other/libslipring.so" "$work/away.so"
refuses 'not built' 1 'build it with:  cmake -S' "$s" run -- true
mv "$lib.away" "$lib"

# Settings.
expect set 'on /x y' "$s" run --set strict=on --set "LOG_FILE=/x y" -- sh -c 'echo $SLIPRING_STRICT "$SLIPRING_LOG_FILE"'
expect 'set=' 8M "$s" run --set=SLIPRING_min-bytes=8M -- sh -c 'echo $SLIPRING_MIN_BYTES'
expect 'set, installed' 3 "$work/inst/bin/slipring" run --set chunks=3 -- sh -c 'echo $SLIPRING_CHUNKS'
expect 'the last one counts' 4 "$s" run --set chunks=3 --set chunks=4 -- sh -c 'echo $SLIPRING_CHUNKS'
expect 'beside the given library' 2 "$s" run --lib "$work/other.so" --set chunks=2 -- sh -c 'echo $SLIPRING_CHUNKS'
refuses 'unknown name' 2 'no setting STRICKT; did you mean STRICT?' "$s" run --set strickt=1 -- true
refuses 'a name of another library' 2 'no setting DEBUG; did you mean LOG?' "$s" run --set debug=INFO -- true
refuses 'far name' 2 'slipring env' "$s" run --set colour=1 -- true
refuses 'bad value' 2 'LOG=loud: expected one of off, error, warn, info, debug' "$s" run --set log=loud -- true
refuses 'no value' 2 'NAME=VALUE' "$s" run --set strict -- true
refuses 'no name' 2 'NAME=VALUE' "$s" run --set =1 -- true
refuses 'no argument' 2 'needs NAME=VALUE' "$s" run --set

# The command takes the launcher's place.
status=0
"$s" run -- sh -c 'exit 37' || status=$?
[ $status -eq 37 ] || fail "exit status $status"
"$s" run -- sleep 60 &
pid=$!
tries=0
until [ "$(cat /proc/$pid/comm)" = sleep ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "a signal did not reach the command: $status"

# One that can not be started: said in the launcher's words, with the status that shells have for it.
mkdir -p "$work/path/folder" "$work/later"
printf '#!/bin/sh\necho first\n' >"$work/path/first"
printf '#!/bin/sh\necho later\n' >"$work/later/dull"
: >"$work/path/dull"
chmod +x "$work/path/first" "$work/later/dull"
for command in run softgpu; do
    refuses "$command: a missing file" 127 "^slipring: $command: there is no program /nonexistent/command\$" "$s" "$command" -- /nonexistent/command
    refuses "$command: a missing program" 127 "^slipring: $command: there is no program nosuch\$" "$s" "$command" nosuch
    refuses "$command: a name of the launcher's" 127 'there is no program find_library' "$s" "$command" find_library
    refuses "$command: no name" 127 'there is no program $' "$s" "$command" ''
    refuses "$command: not executable" 126 "$work/path/dull is no program that may be executed" "$s" "$command" "$work/path/dull"
    refuses "$command: a folder" 126 'is no program that may be executed' "$s" "$command" "$work/path"
    refuses "$command: in PATH, not executable" 126 "$work/path/dull is no program" env PATH="$PATH:$work/path" "$s" "$command" dull
    expect "$command: the first in PATH that may be executed" later env PATH="$PATH:$work/path:$work/later" "$s" "$command" dull
    expect "$command: an empty entry of PATH" first sh -c 'cd "$1" && PATH=$PATH::/nonexistent "$2" "$3" first' sh "$work/path" "$s" "$command"
done

# The software GPU.
# --record: a folder for the logs, and what is needed to write them, unless it is set already.
expect 'record' "info json 1 $work/100%% logs/slipring-%h-%p.jsonl" \
    "$s" run --record "$work/100% logs" -- sh -c 'cd / && echo $SLIPRING_LOG $SLIPRING_LOG_FORMAT $SLIPRING_TRACE "$SLIPRING_LOG_FILE"'
[ -d "$work/100% logs" ] || fail 'record: no folder'
expect 'record, relative' "$work/rel/ative/slipring-%h-%p.jsonl" \
    sh -c 'cd "$1" && "$2" run --record=rel/ative -- sh -c "cd / && echo \$SLIPRING_LOG_FILE"' sh "$work" "$s"
expect 'record, set before' 'debug 50 /x' env SLIPRING_LOG=debug SLIPRING_LOG_FILE=/x \
    "$s" run --record "$work/rel" --set trace=50 -- sh -c 'echo $SLIPRING_LOG $SLIPRING_TRACE $SLIPRING_LOG_FILE'
refuses 'record, a file' 1 'can not be made: File exists' "$s" run --record "$lib" -- true
refuses 'record, refused' 1 'the folder /proc/x can not be made: No such file or directory' "$s" run --record /proc/x -- true
refuses 'record, in part' 1 'can not be made: File name too long' "$s" run --record "$work/half/made/$(printf '%0300d' 0)" -- true
[ ! -e "$work/half" ] || fail 'record: a folder was left'
refuses 'record, read-only' 1 'the folder /proc can not be written to: ' "$s" run --record /proc -- true
refuses 'record, and no software GPU' 1 'has no libcuda.so.1' env SLIPRING_SOFTGPU=/nonexistent "$s" run --softgpu --record "$work/none" -- true
[ ! -e "$work/none" ] || fail 'record: a folder was left where nothing ran'
refuses 'record, no folder' 2 'needs a folder' "$s" run --record
refuses 'record, empty' 2 'needs a folder' "$s" run --record= -- true
"$s" run --record "$work/rel" --set log_format=text -- true 2>"$work/err"
grep -q 'report and trace read json only' "$work/err" || fail "record, text: $(cat "$work/err")"

expect softgpu "$work/src/build/softgpu 2" "$s" softgpu -n 2 -- sh -c 'echo $LD_LIBRARY_PATH $SOFTGPU_DEVICES'
expect 'softgpu, nested run' "$work/src/build/softgpu:/x $lib" env LD_LIBRARY_PATH=/x \
    "$s" softgpu -- "$s" run -- sh -c 'echo $LD_LIBRARY_PATH ${LD_PRELOAD##*:}'
expect 'run --softgpu' "$work/src/build/softgpu 3 $lib" \
    "$s" run --softgpu=3 -- sh -c 'echo $LD_LIBRARY_PATH $SOFTGPU_DEVICES ${LD_PRELOAD##*:}'
expect 'not twice' "$work/src/build/softgpu" "$s" softgpu "$s" run --softgpu sh -c 'echo $LD_LIBRARY_PATH'
refuses 'bad number' 2 'positive whole number' "$s" softgpu -n two -- true
refuses 'zero devices' 2 'positive whole number' "$s" run --softgpu=0 -- true
refuses 'a number without =' 2 'stands behind =: --softgpu=4' "$s" run --softgpu 4 -- true
mkdir -p "$work/inst/lib/machine-linux-gnu/slipring/softgpu"
: >"$work/inst/lib/machine-linux-gnu/libcuda.so.1" # of a real driver
refuses 'the real driver is no softgpu' 1 'software GPU was not found' "$work/inst/bin/slipring" softgpu -- true
: >"$work/inst/lib/machine-linux-gnu/slipring/softgpu/libcuda.so.1"
expect 'softgpu, installed' "$work/inst/lib/machine-linux-gnu/slipring/softgpu" "$work/inst/bin/slipring" softgpu -- sh -c 'echo $LD_LIBRARY_PATH'
mkdir "$work/s:g"
: >"$work/s:g/libcuda.so.1"
refuses 'softgpu, a colon' 1 's:g: the dynamic loader can not search' env SLIPRING_SOFTGPU="$work/s:g" "$s" softgpu -- true
refuses 'no softgpu' 1 'software GPU was not found' "$work/empty/bin/slipring" softgpu -- true

# NCCL is told to load the library as its plugin where a setting needs that, unless the user has named one.
unset NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN SLIPRING_TUNE_FILE SLIPRING_PROFILE
plugins='printf %s "${NCCL_TUNER_PLUGIN-none} ${NCCL_PROFILER_PLUGIN-none}"'
expect 'no plugin' 'none none' "$s" run -- sh -c "$plugins"
expect 'tuner for a table' "$lib none" "$s" run --set tune_file=a.tune -- sh -c "$plugins"
expect 'tuner from the environment' "$lib none" env SLIPRING_TUNE_FILE=a.tune "$s" run -- sh -c "$plugins"
expect 'tuner to explore' "$lib none" "$s" run --set tune_explore=4 -- sh -c "$plugins"
expect 'no tuner for nothing' 'none none' "$s" run --set tune_explore=0 -- sh -c "$plugins"
expect 'profiler' "none $lib" env SLIPRING_PROFILE=on "$s" run -- sh -c "$plugins"
expect 'profiler off' 'none none' env SLIPRING_PROFILE=off "$s" run -- sh -c "$plugins"

# Files with settings: the program's processes read them; the launcher goes by them, the environment comes first.
printf 'SLIPRING_TUNE_FILE=a.tune\nLOG=debug\nPROFILE=yes\n' >"$HOME/.slipring.conf"
expect 'plugins by a file' "$lib $lib" "$s" run -- sh -c "$plugins"
expect 'not by a file' "none $lib" env SLIPRING_TUNE_FILE= "$s" run -- sh -c "$plugins"
expect 'no file' 'none none' "$s" run --set conf_file=/dev/null -- sh -c "$plugins"
expect 'what a file gives is not exported' 'no no' "$s" run -- sh -c 'echo ${SLIPRING_TUNE_FILE-no} ${SLIPRING_LOG-no}'
expect 'record leaves what a file sets' 'no json' "$s" run --record "$work/rel" -- sh -c 'echo ${SLIPRING_LOG-no} $SLIPRING_LOG_FORMAT'
printf '# mine\nCHUNKS=5\nLOG=loud\nSTRICKT=1\nCHUNKS=6\nwhat\n' >"$work/conf"
SLIPRING_CONF_FILE=$work/conf SLIPRING_PARTS=4 "$s" env --all >"$work/out" 2>"$work/err"
[ "$(grep -A1 '^SLIPRING_CHUNKS=5$' "$work/out" | tail -n 1)" = "    from $work/conf:2" ] || fail "env: where CHUNKS is from"
[ "$(grep -A1 '^SLIPRING_PARTS=4$' "$work/out" | tail -n 1)" = "    from environment" ] || fail "env: where PARTS is from"
[ "$(cat "$work/err")" = "slipring: $work/conf:3: SLIPRING_LOG=loud is ignored; expected: one of off, error, warn, info, debug
slipring: $work/conf:4: SLIPRING_STRICKT=1 is ignored; expected: a setting that exists (see: slipring env); did you mean SLIPRING_STRICT?
slipring: $work/conf:6: SLIPRING_what is ignored; expected: a line NAME=VALUE" ] || fail "env: $(cat "$work/err")"
SLIPRING_CONF_FILE=$work/conf "$s" env --json 2>/dev/null | grep -A2 '"SLIPRING_CHUNKS"' | grep -q "\"from\": \"$work/conf:2\"" || fail "env --json: $("$s" env --json | grep -A2 CHUNKS)"
SLIPRING_CONF_FILE=/nonexistent/conf "$s" env 2>&1 >/dev/null | grep -q '/nonexistent/conf is ignored; expected: a file that can be read' ||
    fail "a file that is named and missing"
# The system's comes last; here that is only to be seen in a mount namespace. A program with another user's rights reads the system's alone.
if unshare -m sh -c 'mount -t tmpfs none /etc' 2>/dev/null; then
    unshare -m sh -c 'mount -t tmpfs none /etc && printf "CHUNKS=7\nPARTS=2\n" >/etc/slipring.conf && SLIPRING_CONF_FILE=$2/conf "$1" files' \
        sh "$tables" "$work" >"$work/out"
    [ "$(paste -sd' ' "$work/out")" = 'SLIPRING_CHUNKS=5 SLIPRING_PARTS=2' ] || fail "the system's file: $(cat "$work/out")"
fi
chmod 755 "$work" "$HOME"
cp "$tables" "$work/privileged"
cp "$(command -v id)" "$work/id"
if chown 12345 "$work/privileged" "$work/id" 2>/dev/null && chmod 4755 "$work/privileged" "$work/id" && [ "$("$work/id" -u)" = 12345 ]; then
    [ "$(SLIPRING_CONF_FILE=$work/conf "$tables" files)" = SLIPRING_CHUNKS=5 ] || fail "files"
    expect "another user's rights" '' env SLIPRING_CONF_FILE="$work/conf" "$work/privileged" files
    expect "another user's rights, home" '' "$work/privileged" files
fi
rm "$HOME/.slipring.conf"

# The tool of the program's NVTX: only when it is asked for, and never in the place of another one.
unset NVTX_INJECTION64_PATH SLIPRING_CALLERS
injection='printf %s "${NVTX_INJECTION64_PATH-none}"'
expect 'no injection' none "$s" run -- sh -c "$injection"
expect 'no injection for frames' none "$s" run --set callers=stack -- sh -c "$injection"
expect 'injection' "$lib" "$s" run --set callers=nvtx -- sh -c "$injection"
expect 'injection, by the environment' "$lib" env SLIPRING_CALLERS=NVTX NVTX_INJECTION64_PATH= "$s" run -- sh -c "$injection"
expect 'injection, nested' "$lib" "$s" run --set callers=nvtx -- "$s" run -- sh -c "$injection" 2>"$work/err"
[ ! -s "$work/err" ] || fail "injection, nested: $(cat "$work/err")"
expect 'another tool' /tool.so env NVTX_INJECTION64_PATH=/tool.so "$s" run --set callers=nvtx -- sh -c "$injection" 2>"$work/err"
grep -q 'NVTX_INJECTION64_PATH names /tool.so; SLIPRING_CALLERS=nvtx gets no ranges' "$work/err" || fail "another tool: $(cat "$work/err")"
expect 'another tool, not asked' /tool.so env NVTX_INJECTION64_PATH=/tool.so "$s" run -- sh -c "$injection" 2>"$work/err"
[ ! -s "$work/err" ] || fail "another tool, not asked: $(cat "$work/err")"
refuses 'callers of another kind' 2 'off, nvtx, stack' "$s" run --set callers=nvtx3 -- true
expect "the user's plugin" 'mine none' env NCCL_TUNER_PLUGIN=mine "$s" run --set tune_file=a.tune -- sh -c "$plugins"
long=$work/$(printf '%0200d' 0)/$(printf '%060d' 0)
mkdir -p "$long" && cp "$probe" "$long/libslipring.so"
expect 'a path that NCCL would cut' 'STATIC_PLUGIN none' "$s" run --lib "$long/libslipring.so" --set tune_file=a.tune -- sh -c "$plugins"

# env, version, help, misuse.
version="$("$tables" --version)
library: $lib"
for option in --version -V version; do
    expect "$option" "$version" "$s" "$option"
done
expect 'version, of another library' "library: $work/other.so" sh -c 'SLIPRING_LIB=$1 "$2" version | tail -n 1' sh "$work/other.so" "$s"
expect 'version, a library that is not there' 'library: there is no file /x.so (from SLIPRING_LIB)' sh -c 'SLIPRING_LIB=/x.so "$1" version | tail -n 1' sh "$s"
expect 'version, no library' 'library: not found' sh -c 'SLIPRING_TABLES=$1 "$2" version | tail -n 1' sh "$tables" "$work/empty/bin/slipring"
refuses 'version takes nothing' 2 'not "x"' "$s" version x
expect help "$("$tables" usage)" "$s" --help
for command in run env softgpu completion; do
    for option in --help -h; do
        expect "$command $option" "$("$tables" usage $command)" "$s" $command $option
    done
    "$s" $command --help | head -n 1 | grep -q "^usage: slipring $command " || fail "$command --help has no usage line"
    "$tables" options | sed -n "s/^$command \(-[^ =[]*\).*/\1/p" | while read -r option; do
        "$s" $command --help | grep -q -e "^  $option" || fail "$command --help: no $option"
    done
    expect "$command --help without the tables" "$("$tables" usage)" "$work/empty/bin/slipring" $command --help
done
! "$tables" usage fly >/dev/null 2>&1 || fail "usage of a command that does not exist"
SLIPRING_CHUNKS=5 SLIPRING_STRICKT=1 "$s" env >"$work/out" 2>"$work/err"
grep -q '^SLIPRING_CHUNKS=5$' "$work/out" || fail "env does not show the value"
grep -q '^SLIPRING_MIN_BYTES=4M$' "$work/out" || fail "env does not show a default"
grep -q 'did you mean SLIPRING_STRICT?' "$work/err" || fail "env does not complain"
! grep -q '^SLIPRING_PARTS=' "$work/out" || fail "env shows an expert setting that is not set"
"$s" env --all >"$work/out"
grep -q '^SLIPRING_PARTS=0$' "$work/out" || fail "env --all does not show all"
[ "$(grep -n '^SLIPRING_LOG=' "$work/out" | cut -d: -f1)" -lt "$(grep -n '^SLIPRING_PROTOCOL=' "$work/out" | cut -d: -f1)" ] ||
    fail "env --all: the basic ones do not come first"
SLIPRING_CHUNKS=many "$s" env 2>/dev/null | grep -q '^SLIPRING_CHUNKS=0$' || fail "env does not show a setting whose value was refused"
SLIPRING_CHUNKS=many SLIPRING_MIN_BYTES=8192k SLIPRING_LOG_FILE='a "b"' "$s" env --json 2>"$work/err" >"$work/out"
grep -q 'SLIPRING_CHUNKS=many is ignored' "$work/err" || fail "env --json does not complain"
python3 - "$work/out" <<'P' || fail "env --json: $(cat "$work/out")"
import json, sys
rows = {r["name"]: (r["value"], r["from"], r["refused"], r["group"]) for r in json.load(open(sys.argv[1]))}
assert rows["SLIPRING_CHUNKS"] == ("0", "default", "many", "expert"), rows
assert rows["SLIPRING_MIN_BYTES"] == ("8M", "environment", None, "basic"), rows
assert rows["SLIPRING_LOG_FILE"] == ('a "b"', "environment", None, "basic"), rows
assert rows["SLIPRING_STALL_WARN"] == ("1min", "default", None, "expert"), rows
P
"$s" env --markdown | grep -q '^| `SLIPRING_CHUNKS` |' || fail "env --markdown"
refuses 'env, bad option' 2 'no option' "$s" env --colour
refuses 'no table tool' 1 'slipring-tables was not found' "$work/empty/bin/slipring" env
refuses 'unknown command' 2 'no command fly$' "$s" fly
refuses 'mistyped command' 2 'no command reprot; did you mean report?$' "$s" reprot
refuses 'mistyped command' 2 'no command docter; did you mean doctor?$' "$s" docter
refuses 'no command' 2 'usage' "$s"
refuses 'nothing to run' 2 'needs a command' "$s" run --set strict=on
refuses 'bad option' 2 'no option --fast' "$s" run --fast true

# A library with a sanitizer needs the sanitizer's runtime in front of it.
if cc=$(command -v gcc) && echo 'int slipring_version;' | $cc -fsanitize=address -shared -fPIC -x c -o "$work/asan.so" - 2>/dev/null &&
    ldd "$work/asan.so" | grep -q 'libasan.* => /'; then
    got=$("$s" run --lib "$work/asan.so" -- sh -c 'echo "$LD_PRELOAD"')
    case $got in
    */libasan.so*:"$work/asan.so") ;;
    *) fail "sanitizer: $got" ;;
    esac
fi
