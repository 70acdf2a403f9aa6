#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests of slipring report and slipring trace.
#
#   report.sh figures|folded|widths|written|scatters|tried|advice|json|page|broken|versions|runs|endless|verdicts|record|record_tried|record_scatters|record_reduces|record_hosts|record_callers|events|fields
#
# From CMake: SLIPRING_REPORT, SLIPRING_TRACE_TOOL, LAUNCHER; for those that record also SLIPRING_LIB, SOFTGPU_DIR, AG_GEMM, SCATTER, SITES, NAMED, COLLECTIVES, GATHERS.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tools=(--report "$SLIPRING_REPORT" --trace "$SLIPRING_TRACE_TOOL")

fail() {
    echo "report.sh: $*" >&2
    exit 1
}

# has FILE PATTERN...: each of them.
has() {
    local file=$1 pattern
    shift
    for pattern in "$@"; do
        grep -qe "$pattern" "$file" || { cat "$file" >&2 && fail "no \"$pattern\" in $file"; }
    done
}

# The figures of a report are what the lines say; a report with one wrong figure is found out.
figures() {
    python3 "$here/make_logs.py" "$dir/even"
    python3 "$here/make_logs.py" "$dir/slow" --ranks 5 --calls 61 --seed 3 --slow-rank 2
    python3 "$here/make_logs.py" "$dir/graphs" --graphs
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows --twice "$dir/even"
    python3 "$here/make_logs.py" "$dir/contexts" --contexts
    python3 "$here/make_logs.py" "$dir/sites" --contexts --tried --seed 3 --calls 61
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused "$dir/contexts"
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-tried "$dir/sites"
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows "$dir/graphs"
    "$SLIPRING_REPORT" --details "$dir/graphs" >"$dir/text"
    has "$dir/text" "^  graph  .*CUDA graph"
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows "$dir/slow"
    "$SLIPRING_REPORT" --details "$dir/slow" >"$dir/text"
    has "$dir/text" "rank 2 .*gather time, median .*(+[0-9]*%)" "rank 4 .*ordinal" "recv symmetric" "SLIPRING_MIN_BYTES"
    printf '#!/bin/sh\n"%s" "$@" | sed "s/\\(  #1: .*  ring  *\\)8 /\\19 /"\n' "$SLIPRING_REPORT" >"$dir/wrong"
    chmod +x "$dir/wrong"
    ! python3 "$here/check_figures.py" --report "$dir/wrong" --trace "$SLIPRING_TRACE_TOOL" "$dir/even" >"$dir/told" || fail "a wrong figure passes"
    has "$dir/told" "9 calls, not 8"
}

# One call of the program is one row, however often the iteration takes another form; what is long is there on request.
folded() {
    local lines section
    python3 "$here/make_logs.py" "$dir/logs" --phases --calls 400 --ranks 2
    python3 "$here/check_figures.py" "${tools[@]}" "$dir/logs"
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/text"
    lines=$(wc -l <"$dir/text")
    [ "$lines" -le 80 ] || fail "$lines lines: $(cat "$dir/text")"
    [ "$(grep -c '^  #' "$dir/text")" = 4 ] || fail "not 4 call sites: $(cat "$dir/text")"
    has "$dir/text" "#1: all-gather, 32 MiB " "#4: all-gather, 64 KiB " "recv buffer: ordinal, at .* 5  *2\$" "13 places of an" "report --details"
    ! grep -q "phase\|ordinal 5" "$dir/text" || fail "phases: $(cat "$dir/text")"
    "$SLIPRING_REPORT" --details "$dir/logs" >"$dir/all"
    for section in "Times of all-gathers" "How gathers ended" "What was decided" "Where buffers lie" "Communicators" "Memory"; do
        has "$dir/all" "^$section"
        ! grep -q "^$section" "$dir/text" || fail "$section without --details"
    done
    has "$dir/all" "phase 7, call 9  *all-gather"
    "$SLIPRING_REPORT" --json "$dir/json" --html "$dir/page" "$dir/logs"
    has "$dir/json" '"id": *"places"'
    ! grep -q 'id="places"' "$dir/page" || fail "a page with details"
    "$SLIPRING_REPORT" --details --html "$dir/page" "$dir/logs"
    has "$dir/page" 'id="places"'
}

# Any width: no line is wider, no cell is lost, and what does not fit side by side is a list.
widths() {
    local width
    python3 "$here/make_logs.py" "$dir/logs" --scatters --tried --slow-rank 2
    for width in 40 60 80 100 120 1000; do
        "$SLIPRING_REPORT" --details --width $width "$dir/logs" >"$dir/text"
        ! python3 -c 'import sys; [print(l) for l in open(sys.argv[1], encoding="utf-8") if len(l.rstrip("\n")) > int(sys.argv[2])]' "$dir/text" $width | grep . || fail "wider than $width"
        tr -d ' \n' <"$dir/text" >"$dir/letters"
        has "$dir/letters" "#1:all-gather,32MiB(a)" "#9:all-gather,6.84KiB" "NVIDIAH200"
    done
    "$SLIPRING_REPORT" --width 60 "$dir/logs" >"$dir/text"
    has "$dir/text" "^  #1: all-gather, 32 MiB (a)\$" "^    goes: ring\$" "^    why: measured: NCCL"
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/100"
    "$SLIPRING_REPORT" --width 100 "$dir/logs" | cmp - "$dir/100" || fail "not 100 columns to a file"
    for width in 39 1001 x; do
        status=0
        "$SLIPRING_REPORT" --width $width "$dir/logs" >"$dir/out" 2>"$dir/told" || status=$?
        [ $status = 2 ] || fail "--width $width: exit status $status"
        has "$dir/told" "width"
    done
}

# What was written is said; where it can not be written whole there is what was there before, and nothing else.
written() {
    local form
    python3 "$here/make_logs.py" "$dir/logs"
    mkdir "$dir/out"
    for form in text html json; do
        "$SLIPRING_REPORT" --$form "$dir/out/$form" "$dir/logs" 2>"$dir/told"
        has "$dir/told" "^slipring: $dir/out/$form: $(wc -c <"$dir/out/$form") bytes written\$"
        cp "$dir/out/$form" "$dir/whole"
        status=0
        (ulimit -f 2 && "$SLIPRING_REPORT" --details --$form "$dir/out/$form" "$dir/logs") 2>"$dir/told" || status=$?
        [ $status = 3 ] || fail "$form, too large: exit status $status"
        has "$dir/told" "^slipring: $dir/out/$form could not be written: File too large\$"
        cmp "$dir/out/$form" "$dir/whole" || fail "$form is not what it was"
        status=0
        "$SLIPRING_REPORT" --$form /dev/full "$dir/logs" 2>"$dir/told" || status=$?
        [ $status = 3 ] || fail "$form, no space: exit status $status"
        has "$dir/told" "^slipring: /dev/full could not be written: No space left on device\$"
    done
    [ "$(find "$dir/out" -type f | wc -l)" = 3 ] || fail "left: $(ls -A "$dir/out")"
    (ulimit -f 2 && ! "$SLIPRING_TRACE_TOOL" -o "$dir/out/new" "$dir/logs" 2>"$dir/told") || fail "a trace that is too large"
    [ ! -e "$dir/out/new" ] || fail "half a trace"
    # A link stays one, and what it names keeps its mode.
    ln -s html "$dir/out/link"
    chmod 640 "$dir/out/html"
    "$SLIPRING_REPORT" --html "$dir/out/link" "$dir/logs" 2>"$dir/told"
    [ -L "$dir/out/link" ] || fail "no link any more: $(ls -l "$dir/out")"
    [ "$(stat -c %a "$dir/out/html")" = 640 ] || fail "mode: $(ls -l "$dir/out")"
    "$SLIPRING_REPORT" --html - --text "$dir/out/text" "$dir/logs" >"$dir/page" 2>"$dir/told"
    [ "$(wc -l <"$dir/told")" = 1 ] || fail "said: $(cat "$dir/told")"
    status=0
    "$SLIPRING_REPORT" --html "$dir/none/page" "$dir/logs" 2>"$dir/told" || status=$?
    [ $status = 3 ] || fail "no such folder: exit status $status"
    has "$dir/told" "^slipring: $dir/none/page can not be written: No such file or directory\$"
}

# of_versions VERSION[,SETTING=VALUE]...: logs of a rank each, that say so.
of_versions() {
    rm -rf "$dir/logs"
    python3 "$here/make_logs.py" "$dir/logs" --ranks $# --calls 8
    python3 - "$dir/logs" "$@" <<'P'
import glob, json, sys
files = sorted(glob.glob(sys.argv[1] + "/*"))
assert len(files) == len(sys.argv) - 2, files
for file, version in zip(files, sys.argv[2:]):
    lines = open(file).read()
    first = json.loads(lines.split("\n")[0])
    head = {k: first[k] for k in ("ts", "wall", "host", "pid", "rank", "level")}
    process = {**head, "event": "process", "version": version.split(",")[0], "nccl": 22809, "cuda": 13000,
               "settings": " ".join(version.split(",")[1:]), "command": "x"}
    open(file, "w").write(json.dumps(process) + "\n" + lines)
P
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/text"
}

# A rank of another version, or with other settings, is among those that differ; logs of a later one than the tool's are named as such.
versions() {
    of_versions 0.1.0 0.1.0 0.1.0
    ! grep -q "version of slipring\|settings that are given\|Logs of slipring" "$dir/text" || fail "one version: $(cat "$dir/text")"
    of_versions 0.1.0 0.1.0 0.1.9
    has "$dir/text" "^  rank 2  *the whole run  *version of slipring  *0\.1\.9  *0\.1\.0$"
    ! grep -q "Logs of slipring" "$dir/text" || fail "an older version is called newer"
    of_versions 0.1.0 0.1.0,FUSE=off 0.1.0
    has "$dir/text" "^  rank 1  *the whole run  *settings that are given  *FUSE=off  *none$"
    of_versions 0.1.0 0.10.0 0.1.0
    has "$dir/text" "^  rank 1 .* version of slipring  *0\.10\.0  *0\.1\.0$" "^Logs of slipring 0\.10\.0 are read by .slipring report. of"
}

# Reduce-scatters, beside gathers: decisions, times, advice; one wrong figure of each is found out.
scatters() {
    local change told
    python3 "$here/make_logs.py" "$dir/logs" --scatters --calls 40
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows --want-tried --twice "$dir/logs"
    python3 "$here/make_logs.py" "$dir/two" --scatters --calls 24 --ranks 2 --seed 4
    python3 "$here/check_figures.py" "${tools[@]}" --want-tried "$dir/two"
    python3 "$here/make_logs.py" "$dir/untraced" --scatters --calls 8 --untraced
    "$SLIPRING_REPORT" --details "$dir/untraced" >"$dir/text"
    has "$dir/text" "^  #[0-9]* .*3 MiB, 1572864" "none known" "slipring run --record DIR"
    ! grep -q "from the first part that travels" "$dir/text" || fail "times without a trace"
    "$SLIPRING_REPORT" --html "$dir/page" "$dir/logs"
    has "$dir/page" "reduce-scatter, fused" "sum of part 3" "push to 2"
    python3 "$here/make_logs.py" "$dir/reduces" --scatters --reduces --calls 40 --ranks 3
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows --want-tried --twice "$dir/reduces"
    "$SLIPRING_REPORT" --details --html "$dir/page" --json "$dir/json" --text "$dir/text" "$dir/reduces"
    has "$dir/page" "all-reduce, fused" ">copy<" "pull from 2"
    python3 "$here/check_json.py" "$dir/json" "$dir/text" "$dir/reduces"
    python3 "$here/make_logs.py" "$dir/untold" --scatters --reduces --old --calls 24 --ranks 2
    python3 "$here/check_figures.py" "${tools[@]}" "$dir/untold"
    while read -r change told; do
        printf '#!/bin/sh\n"%s" "$@" | sed "%s"\n' "$SLIPRING_REPORT" "$change" >"$dir/wrong"
        chmod +x "$dir/wrong"
        ! python3 "$here/check_figures.py" --report "$dir/wrong" --trace "$SLIPRING_TRACE_TOOL" "$dir/reduces" >"$dir/told" || fail "$change passes"
        has "$dir/told" "$told"
    done <<'END'
s/16\(.MiB,\)/17\1/ not
s/All-reduce.\(#[0-9]*.does\)/Reduce-scatter.\1/ advice.on.room
s/=300M/=301M/ advice.on.room
s/30.of.them/31.of.them/ does.not.say
s/All-reduces\(.*\)120.calls/All-reduces\1121.calls/ at.a.glance
s/\(rank.1.*[[:space:]]\)10\([[:space:]].*%\)$/\112\2/ traced.of.rank
END
    while read -r change told; do
        printf '#!/bin/sh\n"%s" "$@" | sed "/^Reduce-scatters/,/^Ranks that/{%s}\n/^What to do/,/^Call sites/{%s}"\n' "$SLIPRING_REPORT" "$change" "$change" >"$dir/wrong"
        chmod +x "$dir/wrong"
        ! python3 "$here/check_figures.py" --report "$dir/wrong" --trace "$SLIPRING_TRACE_TOOL" "$dir/logs" >"$dir/told" || fail "$change passes"
        has "$dir/told" "$told"
    done <<'END'
s/=450M/=449M/ advice.on.room
s/not.compared.to/compared.to/ to.the.end
s/44.of.80/43.of.80/ wrong.guesses
s/4096.x.8192/4096.x.4096/ GEMM
s/36.fused/35.fused/ measured
s/none.known/whole/ GEMM
s/8388608.bf16/8388607.bf16/ not
s/\(16.MiB,[[:space:]]*\)ring/\1NCCL/ went
s/80\([[:space:]]*the.call\)/81\1/ counts
END
}

# finds_out SECTION CHANGE TOLD: figures that are changed so in a section of text and page.
finds_out() {
    printf '#!/bin/sh\n"%s" "$@" >"%s/text"\nsed -i "%s" "$2" "%s/text"\ncat "%s/text"\n' "$SLIPRING_REPORT" "$dir" \
        "/$1/,/^\$\|<.table>/{$2}" "$dir" "$dir" >"$dir/wrong"
    chmod +x "$dir/wrong"
    ! python3 "$here/check_figures.py" --report "$dir/wrong" --trace "$SLIPRING_TRACE_TOOL" --want-tried "$dir/1" >"$dir/told" || fail "$2 passes"
    has "$dir/told" "$3"
}

# What was tried, as well, and which way calls go; a wrong time of it, what was not chosen, another site's letter are found out.
tried() {
    local seed change told old
    for seed in 1 2 3 4 5 6; do
        old=$([ $seed != 6 ] || echo --old)
        # shellcheck disable=SC2086
        python3 "$here/make_logs.py" "$dir/$seed" --tried --seed "$seed" --ranks $((seed + 1)) $old
        python3 "$here/check_figures.py" "${tools[@]}" --want-tried --twice "$dir/$seed"
    done
    for seed in tried site_way; do # a program that was killed, or whose calls are all in groups
        cp -r "$dir/2" "$dir/without-$seed"
        sed -i "/\"event\":\"$seed\"/d" "$dir/without-$seed"/*
        python3 "$here/check_figures.py" "${tools[@]}" "$dir/without-$seed"
    done
    while read -r change told; do
        finds_out "What was tried" "$change" "^tried .*$told"
    done <<'END'
s/8192/8193/ not the GEMM
s/4\.88/5.88/ call site
s/(b)/(a)/ call site
s/device/decive/ calls
s/\([^:0-9]\)0\.\([0-9]\)/\11.\2/ times
s/\(:.\)0\./\11./ parts
s/this/that/ chosen
s/pace/time/ chosen
s/[0-4]\.\([0-9]%\)/9.\1/ gain
END
    while read -r change told; do
        finds_out "What was tried" "$change" "^duels: .*$told"
    done <<'END'
s/24.calls/25.calls/ ring
s/\(over.the.ring,.\)/\10/ times
s/duel.of.4/duel.of.5/ ring
s/decided:.NCCL/decided:.ring/ decided:.ring
s/not.certain/certain/ .
END
    while read -r change told; do
        finds_out "Which way call sites go" "$change" "^way: .*$told"
    done <<'END'
s/(a)/(c)/ site
s/\([[:space:]>]\)[1-8]\([0-9][0-9][0-9][[:space:]<]\)/\19\2/ calls
s/NCCL\(..*\)its/ring\1its/ goes
s/ring.[0-8]\./ring.9./ why
s/tune/tone/ why
s/not.measured/now.measured/ why
END
}

# advises CASE ITEMS PATTERN...: What to do has so many items, and each pattern in one line of words.
advises() {
    local case=$1 items=$2 pattern
    shift 2
    python3 "$here/advice_logs.py" "$dir/$case" "$case"
    "$SLIPRING_REPORT" "$dir/$case" >"$dir/text"
    sed -n '/^What to do/,/^Call sites/p' "$dir/text" >"$dir/advice"
    [ "$(grep -c '^- ' "$dir/advice" || true)" = "$items" ] || fail "$case: not $items items: $(cat "$dir/advice")"
    tr -s '\n ' '  ' <"$dir/advice" >"$dir/words"
    for pattern in "$@"; do
        grep -qe "$pattern" "$dir/words" || fail "$case: no \"$pattern\": $(cat "$dir/words")"
    done
}

# What to do, by cause: in terms of the program, once for each.
advice() {
    advises part 1 "m 512, n 4096, k 256 (ops tn) begins where the gathered buffer does and reads only 1 MiB, of 2 MiB" "gather only what this one reads"
    advises inside 1 "reads, from within the gathered buffer on, 512 KiB, of 2 MiB" "gather this part by itself"
    advises more 1 "reads 4 MiB, of 2 MiB"
    advises elsewhere 1 "No GEMM consumes the gathers of 2 MiB" "A at 0x7a0000, B at 0x7b0000, gathered was 0x7f0000" "it reads a copy" "contiguous()"
    advises elsewhere_fused 0 "Nothing here suggests a change"
    advises three_parts 1 "and 2 more GEMMs likewise"
    advises from_host 1 "cuMemcpyHtoDAsync_v2, at 1 call site (#1: " "data from the host come between the gather and the GEMM"
    advises copy 1 "cuMemcpyDtoDAsync_v2, at 1 call site (#1: " "let the GEMM read the gathered buffer itself"
    ! grep -q "Move it" "$dir/words" || fail "a copy of the gathered buffer can not be moved behind the GEMM"
    advises kernel 1 "apply it to the shard before the gather"
    advises host 1 "the host waits between the gather and the GEMM"
    advises host_alone 1 "the host waits for the gather itself, and nothing else runs meanwhile; no GEMM reads"
    advises event 1 "cuStreamWaitEvent, at 17 call sites (#1: .*, #3: .*, \.\.\.), up to 100 µs" "nothing to do in the program"
    advises transpose 1 "gemm_transpose (7 calls" "F.linear(gathered_x, W)" "gathered_x.T @ g" "B with op N or A with op T" "SLIPRING_SPLIT_K=all"
    advises order 4 "- Communicator c0ffee01 failed at call 9 on rank 0 because of rank 1: the peer's process ended\..*- 2.00 ms of the run: cuLaunchKernel, .*- 1.00 ms of the run: cuStreamSynchronize, .*- gemm_transpose (7 calls"
    advises slots 1 "Reduce-scatter #[0-9] is sent behind its GEMM and not part by part, as its shards do not fit the staging slots: SLIPRING_SLOT_BYTES=4M is room enough"
    advises untried_off 1 "compared to the end: SLIPRING_TRIALS=0 says that nothing is tried"
    advises untried_cublas 1 "CUBLAS_WORKSPACE_CONFIG"
    advises untried_few 1 "compared to the end: 40 calls, and it takes up to 176\."
    advises untried_unmeasured 1 "2900 calls were enough, but in half of the rounds or more their times could not be measured"
    advises untried_many 1 "more call sites than are tried"
    advises untried_once 0 "Nothing here suggests a change"
    advises sizes 1 "- 60 reduce-scatters of all ranks, of 192 KiB to 2 MiB .* SLIPRING_MIN_BYTES=192K lets slipring try"
    advises tiny 1 "Calls of less than 64 KiB .* are faster by NCCL.* leave slipring out"
    advises process 0 "Nothing"
    has "$dir/text" "^  Command  *python3 train.py --steps \`5\`" "^  Versions  *slipring 9.8.7, NCCL 2.28.9, CUDA driver 13.1" "^  Settings  *MIN_BYTES=0 TRIALS=0"
}

# The JSON form: its layout, and the same as the text and the lines. One wrong figure is found out.
json() {
    python3 "$here/make_logs.py" "$dir/logs" --scatters --tried --ranks 3 --calls 40
    "$SLIPRING_REPORT" --details --json "$dir/json" --text "$dir/text" "$dir/logs"
    python3 "$here/check_json.py" "$dir/json" "$dir/text" "$dir/logs"
    local change
    for change in 's/"late_ns": [0-9]*/"late_ns": -1/' 's/"fused": \([0-9]\)/"fused": 1\1/' 's/"item": "/&x/' 's/"decision": "ring"/"decided": "ring"/' 's/"id": "ranks"/"id": "sites"/'; do
        sed "$change" "$dir/json" >"$dir/wrong"
        ! cmp -s "$dir/json" "$dir/wrong" || fail "$change changes nothing"
        ! python3 "$here/check_json.py" "$dir/wrong" "$dir/text" "$dir/logs" >"$dir/told" || fail "$change passes"
    done
    "$SLIPRING_REPORT" --json - "$dir/logs" | cmp - "$dir/json" || fail "--json -"
}

# The page: what to do comes first, names are code, and waiting for late ranks is no exposure.
page() {
    python3 "$here/make_logs.py" "$dir/logs" --ranks 3
    "$SLIPRING_REPORT" --html "$dir/page" "$dir/logs"
    [ "$(grep -o '<h2 id="[a-z]*"' "$dir/page" | head -5 | cut -d'"' -f2 | tr '\n' ' ')" = "advice run timeline overlap sites " ] || fail "order: $(grep -o '<h2 id="[a-z]*"' "$dir/page")"
    has "$dir/page" 'class="late" style="width:0*[.]*[0-9]*[1-9]' 's hidden ([0-9]*%), .* exposed, .* for late ranks' '<code>slipring trace</code>'
    # For who does not see it: what scrolls has a name, tables have heads, figures have texts or are hidden.
    [ "$(grep -c '<div class="box[^>]*tabindex="0" role="\(region\|group\)" aria-label' "$dir/page")" = "$(grep -c 'class="box' "$dir/page")" ] || fail "a box without a name"
    [ "$(grep -c '<table>' "$dir/page")" = "$(grep -c '<div class="box[^>]*role="region"' "$dir/page")" ] || fail "a table in no box"
    ! grep -o '<svg [^>]*>' "$dir/page" | grep -v 'aria-hidden="true"\|role="img" aria-label="' || fail "a figure without text"
    ! grep -o '<th[ >][^>]*>' "$dir/page" | grep -v 'scope="\(row\|col\)"' || fail "a head of nothing"
    ! sed 's/<style>.*<.style>//' "$dir/page" | grep -q '`' || fail "a backquote on the page"
    python3 "$here/advice_logs.py" "$dir/process" process
    "$SLIPRING_REPORT" --html "$dir/page" "$dir/process"
    has "$dir/page" 'train.py --steps <code>5</code>'
}

broken() {
    # What can not be written is said before anything is read.
    ! "$SLIPRING_TRACE_TOOL" -o /proc/x /nonexistent 2>"$dir/told" || fail "a trace in /proc"
    [ "$(cat "$dir/told")" = "slipring trace: /proc/x can not be written: No such file or directory" ] || fail "$(cat "$dir/told")"
    python3 "$here/make_logs.py" "$dir/logs" --ranks 2 --calls 12 --tried
    python3 "$here/broken.py" "${tools[@]}" --logs "$dir/logs" --least 200
}

# Logs without trace lines, of several runs, and with a rank that has none.
runs() {
    python3 "$here/make_logs.py" "$dir/logs" --untraced
    python3 "$here/make_logs.py" "$dir/logs" --seed 2 --start 90000000000 --ranks 3
    "$SLIPRING_REPORT" --run 1 "$dir/logs" >"$dir/one" 2>"$dir/told"
    has "$dir/one" "this is run 1" "slipring run --record DIR" "128 calls of all ranks" "#2: all-gather, 8 MiB  *8 "
    [ ! -s "$dir/told" ] || fail "told: $(cat "$dir/told")"
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/two" 2>"$dir/told"
    has "$dir/two" "this is run 2" "Ranks  *3 in 3"
    has "$dir/told" "of 2 runs; the latest is used"
    status=0
    "$SLIPRING_TRACE_TOOL" --run 1 "$dir/logs" >"$dir/json" 2>"$dir/told" || status=$?
    [ $status = 3 ] || fail "a trace of nothing: exit status $status"
    [ ! -s "$dir/json" ] || fail "a trace of nothing: $(cat "$dir/json")"
    has "$dir/told" "no trace lines"
    rm "$dir"/logs/*-4102.jsonl
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/two" 2>/dev/null
    has "$dir/two" "there is no log of rank 2"
}

# A rank that was killed, ended by _exit, or whose disk was full: it is named, and sums say that they are not whole.
endless() {
    local log
    python3 "$here/make_logs.py" "$dir/logs" --ranks 2 --calls 24
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/text"
    has "$dir/text" "All-gathers  *64 calls of all ranks" "Nothing is missing"
    log=$(grep -l '"rank":1' "$dir"/logs/* | head -n 1)
    grep '"event":"summary"' "$log" | sed 's/"event":"summary","calls":32/"event":"totals","calls":20/; s/"ts":[0-9]*/"ts":50000900000/' >"$dir/totals"
    # Without the last gathers of that rank, and all that is written at the end.
    grep -vE '"event":"(summary|count|blocks|nccl_sum|trace_end)"|"call":2[2-4],.*"event"|"event":"gather".*"call":2[2-4],' "$log" >"$dir/cut"
    mv "$dir/cut" "$log"
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/text"
    "$SLIPRING_REPORT" --json "$dir/json" "$dir/logs"
    has "$dir/text" "All-gathers  *at least 61 calls of all ranks" "Not all counted  *rank 1 (no totals)" "All calls of rank 1 (no totals)[.]"
    ! grep -q "Nothing is missing" "$dir/text" || fail "nothing is missing, of a log that is cut"
    has "$dir/json" '"whole": *false'
    # What it has told in between, where that is more than its lines show, and when.
    sed 's/"calls":20/"calls":30/' "$dir/totals" >>"$log"
    "$SLIPRING_REPORT" "$dir/logs" >"$dir/text"
    has "$dir/text" "All-gathers  *at least 62 calls of all ranks" "Not all counted  *rank 1 (totals of [0-9.]* .*s before its last line)"
}

# What it did for the job, first.
verdicts() {
    python3 "$here/verdicts.py" "$SLIPRING_REPORT"
}

# slipring run --record, and a report on what a program really did.
record() {
    run=("$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0)
    export LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    "${run[@]}" --record "$dir/50% of it/logs" -- "$AG_GEMM" --ranks 4 --m 64 --n 64 --k 64 --iters 4 --warmup 1 >"$dir/out" 2>"$dir/told"
    has "$dir/out" "^ag_gemm: 4 ranks"
    ! grep -q slipring "$dir/out" || fail "said: $(cat "$dir/out")"
    [ "$(grep -c slipring "$dir/told")" = 1 ] || fail "said: $(cat "$dir/told")"
    has "$dir/told" "^slipring: rank 0: .*traced gathers .* hidden"
    [ "$(find "$dir/50% of it/logs" -name 'slipring-*.jsonl' | wc -l)" = 4 ] || fail "logs: $(ls -R "$dir")"
    unset LD_LIBRARY_PATH
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows "$dir/50% of it/logs"
    "$LAUNCHER" report "$dir/50% of it/logs" >"$dir/text"
    has "$dir/text" "software GPU" "4 in 4 processes" "fused"
}

# What a program really tried, with a GEMM and without.
record_tried() {
    local way run=("$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 --set trials=1 --set trials_after=4)
    for way in "--ranks 2 --m 64 --n 96 --k 64 --iters 2 --check full --check-rounds 60 --burst 3" "--ranks 3 --bytes 5120 --iters 100 --check full --check-rounds 40"; do
        rm -rf "$dir/logs"
        # shellcheck disable=SC2086
        LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "${run[@]}" --record "$dir/logs" -- "$AG_GEMM" $way >"$dir/out"
        python3 "$here/check_figures.py" "${tools[@]}" --want-tried "$dir/logs"
        "$SLIPRING_REPORT" --details "$dir/logs" >>"$dir/text"
    done
    has "$dir/text" "64 x 96 x" "no GEMM"
}

# Reduce-scatters that a program really made, and what it tried of them.
record_scatters() {
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 --set trials=1 \
        --set trials_after=2 --set slot_bytes=64K --set flop_per_byte=0 --record "$dir/logs" -- "$SCATTER" loop 2 >"$dir/out"
    python3 "$here/check_figures.py" "${tools[@]}" --want-tried --want-contexts "$dir/logs"
    "$SLIPRING_REPORT" --details "$dir/logs" >"$dir/text"
    has "$dir/text" "^Reduce-scatters" "sent"
    # Replays have times, too.
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 \
        --set slot_bytes=64K --set flop_per_byte=0 --set reduce_scatter=always --record "$dir/graphs" -- "$SCATTER" graph-bf16 2 >"$dir/out"
    "$SLIPRING_REPORT" --details "$dir/graphs" >"$dir/text"
    has "$dir/text" "ring and graph" "30, 2[0-9] fused" # 15 on each rank, 8 of them replays
    # Numbered with the gathers, they are part of what repeats, and no call site of a gather.
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 --set alloc_min=4K \
        --set slot_bytes=64K --set trials=0 --set reduce_scatter=always --record "$dir/mixed" -- "$SITES" 2 40 mixed >"$dir/out"
    python3 "$here/check_figures.py" "${tools[@]}" "$dir/mixed"
    "$SLIPRING_REPORT" --details "$dir/mixed" >"$dir/text"
    has "$dir/text" "every 4 calls, from call 1 on" "phase 1, call 2  *reduce-scatter"
    ! grep -e "phase 1, call [24]  *all-gather" "$dir/text" || fail "a reduce-scatter is taken for a gather"
}

# All-reduces, likewise: behind GEMMs, in graphs, and tried, with no gather beside them.
record_reduces() {
    local run=("$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 --set slot_bytes=64K --set flop_per_byte=0)
    export LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    "${run[@]}" --set all_reduce=always --record "$dir/fused" -- "$SCATTER" ex-bf16-nn 3a >"$dir/out"
    "${run[@]}" --set all_reduce=always --record "$dir/graphs" -- "$SCATTER" graph-bf16 2a >"$dir/out"
    "${run[@]}" --set trials=1 --set trials_after=2 --record "$dir/tried" -- "$COLLECTIVES" --bytes 32768 --func allreduce,reducescatter --rounds 60 >"$dir/out"
    unset LD_LIBRARY_PATH
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows "$dir/fused"
    python3 "$here/make_logs.py" "$dir/contexts" --contexts
    python3 "$here/make_logs.py" "$dir/sites" --contexts --tried --seed 3 --calls 61
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused "$dir/contexts"
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-tried "$dir/sites"
    python3 "$here/check_figures.py" "${tools[@]}" --want-fused --want-arrows "$dir/graphs"
    python3 "$here/check_figures.py" "${tools[@]}" --want-tried "$dir/tried"
    "$SLIPRING_REPORT" --details --text "$dir/text" --html "$dir/page" "$dir/fused"
    has "$dir/text" "^  All-reduces  *36 calls of all ranks; 36 over the ring" "^36 all-reduces of all ranks, 36 of them over the ring\. 30 " "^Nothing is missing\."
    ! grep -q "Over the ring\|Overlap reached" "$dir/text" || fail "figures of gathers, without one"
    has "$dir/page" "all-reduce, fused" ">copy<"
    "$SLIPRING_REPORT" --details "$dir/graphs" >"$dir/text"
    has "$dir/text" "all-reduce .*ring and graph"
    "$SLIPRING_REPORT" --details "$dir/tried" >"$dir/text"
    has "$dir/text" "all-reduce, 16 KiB  "
}

# Both legs of gathers over hosts: what NCCL does between them, and the share of the time that it takes.
record_hosts() {
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TEST_HOSTS=2 "$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 --set hosts=on \
        --set trials=0 --record "$dir/logs" -- "$GATHERS" 4 5000 >"$dir/out"
    "$SLIPRING_REPORT" --details --html "$dir/page" "$dir/logs"
    has "$dir/page" "ring of each of 2 hosts" "gathers.*time the network took [0-9]*%" ">Rail<" "inside of a host, of calls of"
    "$SLIPRING_TRACE_TOOL" -o "$dir/trace" "$dir/logs" 2>/dev/null
    has "$dir/trace" '"name":"Rail"'
    LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TEST_HOSTS=2 "$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=0 --set hosts=on \
        --set trials=2 --set trials_after=2 --record "$dir/sums" -- "$SCATTER" tried-gemms 4 >"$dir/out"
    "$SLIPRING_REPORT" --details "$dir/sums" >"$dir/text"
    "$SLIPRING_TRACE_TOOL" -o "$dir/trace" "$dir/sums" 2>/dev/null
    has "$dir/trace" '"name":"RailSums"'
    has "$dir/text" "duel of reduce-scatters over hosts: [0-9]* calls of the program took .* ms so" "calls, and what is between them, take"
}

# Who calls, as a program has named it: in text, page and JSON; by the place in the period, by shape, and of reduce-scatters.
record_callers() {
    local run=("$LAUNCHER" run --lib "$SLIPRING_LIB" --set min_bytes=16K --set alloc_min=4K --set trials=0)
    unset NVTX_INJECTION64_PATH
    export LD_LIBRARY_PATH="$SOFTGPU_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    "${run[@]}" --set callers=nvtx --record "$dir/logs" -- "$NAMED" 2 layers 30 2>"$dir/told"
    "${run[@]}" --set callers=nvtx --record "$dir/odd" -- "$NAMED" 2 odd 2>"$dir/told"
    "${run[@]}" --record "$dir/off" -- "$NAMED" 2 layers 20 2>"$dir/told"
    unset LD_LIBRARY_PATH
    "$SLIPRING_REPORT" --details --text "$dir/text" --html "$dir/page" --json "$dir/json" "$dir/logs"
    has "$dir/text" "^  #[0-9]*: all-gather, .*  step \* > layer 0 > lib:attn\$" "^  #[0-9]*: all-gather, .*  step \* > layer 1 > lib:attn\$" "^  #[0-9]*: all-gather, .*  step \* > layer 2 > lib:attn\$" \
        "^  #[0-9]*: all-gather, .*  step \* > layer 0 > norm\$" "^  #[0-9]*: .*  step \* > grad\$" "SLIPRING_CALLERS"
    [ "$(grep -c " > " "$dir/text")" = 7 ] || fail "not 7 names: $(grep " > " "$dir/text")"
    has "$dir/page" ">step \* &gt; layer 1 &gt; lib:attn</td>"
    python3 "$here/check_json.py" "$dir/json" "$dir/text" "$dir/logs"
    has "$dir/json" '"decision": "ring".*"callers": \["step \* > layer 0 > lib:attn", "step \* > layer 1 > lib:attn", "step \* > layer 2 > lib:attn"\]' '"decision": "pass".*"callers": \["step \* > layer 0 > norm", "step \* > layer 1 > norm", "step \* > layer 2 > norm"\]'
    # Names that try to steer a terminal, or a page.
    "$SLIPRING_REPORT" --details --text "$dir/text" --html "$dir/page" --json "$dir/json" "$dir/odd"
    ! LC_ALL=C grep -q "[$(printf '\001-\010\013-\037\177')]" "$dir/text" "$dir/page" || fail "control characters"
    has "$dir/text" ": all-gather, .*  ??\[31m???\"" ": all-gather, .*  xxxxxxx" "größer €"
    python3 "$here/check_json.py" "$dir/json" "$dir/text" "$dir/odd"
    "$SLIPRING_REPORT" --details --text "$dir/text" --json "$dir/json" "$dir/off"
    ! grep -q "called from" "$dir/text" || fail "names that nobody asked for"
    has "$dir/json" '"callers": \[\]'
}

# Every event that the library writes is known: read, or in the list of the others.
events() {
    python3 "$here/events.py" "$here/../.." >"$dir/written"
    [ "$(wc -l <"$dir/written")" -gt 30 ] || fail "found too few events: $(cat "$dir/written")"
    sed -nE 's/^X\(([A-Z_]+, )?"([a-z_]+)".*/\2/p' "$here"/../../tools/log/log_events.def "$here"/../../tools/log/log_other_events.def >"$dir/known"
    unknown=$(grep -vxFf "$dir/known" "$dir/written" || true)
    [ -z "$unknown" ] || fail "not in tools/log/log_events.def or tools/log/log_other_events.def: $unknown"
}

# docs/report.md says which lines and fields are read.
fields() {
    "$here/fields.sh" "$here/../.." "$SLIPRING_REPORT" || fail "docs/report-fields.txt"
}

"$@"
