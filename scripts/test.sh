#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs the tests; they need no GPU. The last line is ctest's summary.
#
# usage: scripts/test.sh [options] [-- ctest options]
#   --sanitize address|thread  AddressSanitizer with UBSan, or ThreadSanitizer (build-address, build-thread)
#   --compiler gcc|clang       default gcc (build); clang builds in build-clang
#   --label REGEX              only the tests with such a label
#   --jobs N                   compile jobs; default: the number of processors. Three times as many tests run at a time, as most wait most of the time
#   --all                      everything that a change must pass: the format check, builds with gcc and clang, with and
#                              without optimisation, the Python wheel, the tests under both sanitizer runs, and the plain tests
#   --no-setup                 do not look for missing packages
set -euo pipefail
. "$(dirname "$0")/common.sh"

sanitize="" compiler=gcc label="" jobs=$(nproc) all=0 setup=1
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize | --compiler | --label | --jobs) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    --all) all=1 ;;
    --no-setup) setup=0 ;;
    -h | --help) usage && exit 0 ;;
    --) shift && break ;;
    *) bad_usage "unknown option $1; see --help" ;;
    esac
    shift
done
case $sanitize in "" | address | thread) ;; *) die "--sanitize: address or thread, not $sanitize" ;; esac
case $compiler in gcc | clang) ;; *) die "--compiler: gcc or clang, not $compiler" ;; esac
ctest_options=("$@")

# Only what decides between pass and fail; what a test needs for itself is set where it is registered.
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
# ThreadSanitizer lets a process that ends sleep for a second, to see what its other threads still do; programs here are many.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=50:suppressions=$SLR_ROOT/tests/tsan.supp}
# Criterion's libraries search through all of the machine's certificates at the start of each test: a third of its time.
export ASAN_OPTIONS=${ASAN_OPTIONS:-intercept_strstr=0}
export CTEST_OUTPUT_ON_FAILURE=1

# build FOLDER [cmake options]
build() {
    local dir=$SLR_ROOT/$1
    shift
    configure "$dir" "$@" && ninja -C "$dir" -j "$jobs" --quiet
}

# leave_out_tests PATTERN...: tells ctest, by the file that it reads from the present build folder, not to run the tests whose
# whole name matches a pattern. By name, as ctest -E leaves out nothing, and says nothing, when its expression has more than
# nine groups. A pattern that matches no test is an error: what it left out has another name now.
leave_out_tests() {
    rm -f CTestCustom.cmake
    ctest --show-only=json-v1 | python3 -c '
import json, re, sys

names = {test["name"] for test in json.load(sys.stdin)["tests"]}
matched = {pattern: {name for name in names if re.fullmatch(pattern, name)} for pattern in sys.argv[1:]}
stale = [pattern for pattern in matched if not matched[pattern]]
if stale:
    sys.exit("test.sh: matches no test: " + " ".join(stale))
out = set().union(*matched.values())
if out:
    print(f"test.sh: {len(out)} of {len(names)} tests left out here")
with open("CTestCustom.cmake", "w") as custom:
    custom.write("set(CTEST_CUSTOM_TESTS_IGNORE " + " ".join(f"\"{name}\"" for name in sorted(out)) + ")\n")
' "$@"
}

# tree COMPILER SANITIZER: the name of the build folder with their tests
tree() { printf 'build%s%s\n' "$([ "$1" = gcc ] || echo "-$1")" "${2:+-$2}"; }

# build_tests COMPILER SANITIZER: leaves the file `built` in the folder.
build_tests() {
    local name options=(-DSLIPRING_TESTS=ON -DCMAKE_C_COMPILER="$1")
    name=$(tree "$1" "$2")
    case $2 in
    address) options+=("-DSLIPRING_SANITIZE=address,undefined") ;;
    thread) options+=(-DSLIPRING_SANITIZE=thread) ;;
    esac
    # The software GPU's own tests are left out under the sanitizers of --all.
    [ -z "$2" ] || options+=("-DSLIPRING_SOFTGPU_TESTS=$([ $all = 1 ] && echo OFF || echo ON)")
    say "$name: $1${2:+, $2 sanitizer}"
    rm -f "$SLR_ROOT/$name"/{built,passed}
    build "$name" "${options[@]}" && touch "$SLR_ROOT/$name/built"
}

# run_tests COMPILER SANITIZER [ctest options]: runs what is built; leaves ctest's summary line in `summary`.
run_tests() {
    local name log args=("${@:3}") rc=0
    name=$(tree "$1" "$2")
    log=$SLR_ROOT/$name/ctest.log
    summary="$name does not build"
    [ -e "$SLR_ROOT/$name/built" ] || return 1
    [ -z "$label" ] || args=(-L "$label")
    (cd "$SLR_ROOT/$name" && leave_out_tests "${leave_out[@]}") || { summary="$name: no selection" && return 1; }
    # A selection that selects nothing has tested nothing.
    # Some tests stop processes and wait for times: what a machine that is busy with something else turns is tried once more,
    # and said.
    (cd "$SLR_ROOT/$name" && ctest --no-tests=error --no-label-summary --repeat until-pass:2 -j $((3 * jobs)) \
        "${args[@]}" "${ctest_options[@]}") 2>&1 | tee "$log" || rc=1
    rm -f "$SLR_ROOT/$name/CTestCustom.cmake"
    summary=$(grep -E '^[0-9]+% tests passed' "$log" || echo "ctest did not finish; see $log")
    sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* Passed .*/\1/p' "$log" | sort -u >"$SLR_ROOT/$name/passed"
    note_failures "$name" $rc
    return $rc
}

# passed_before: the names of tests of the plain tree that have passed under both sanitizers, or under the one that has
# something to say of them, as patterns.
passed_before() {
    local alone
    alone=$(IFS='|' && printf '%s' "${once[*]}|${enough[*]}")
    {
        comm -12 "$SLR_ROOT/build-address/passed" "$SLR_ROOT/build-thread/passed"
        grep -xE "$alone" "$SLR_ROOT/build-address/passed"
    } | sort -u | comm -12 - <(cd "$SLR_ROOT/build" && ctest -N | sed -nE 's/^ *Test +#[0-9]+: //p' | sort) | sed 's/[.+]/\\&/g'
}

build_and_run_tests() {
    build_tests "$1" "$2"
    run_tests "$@"
}

# beside COMMAND...: begins it, and goes on: builds take the time in which tests wait, and little of what tests need.
beside() {
    beside_log=$(mktemp)
    (renice -n 19 "$BASHPID" >/dev/null || :; "$@") >"$beside_log" 2>&1 &
    beside=$!
}
await_beside() {
    local rc=0
    wait "$beside" || rc=$?
    cat "$beside_log" && rm -f "$beside_log"
    return $rc
}

# note_failures FOLDER STATUS: leaves in `failing` which tests failed there, or only when they ran first, and adds to
# `details` the end of what the first of them printed: other steps come behind, and hide it.
note_failures() {
    local dir=$SLR_ROOT/$1 names name
    names=$(sed -nE '/\*\*\*Skipped/d; s/.* Test +#[0-9]+: ([^ ]+) \.*\*\*\*.*/\1/p' "$dir/ctest.log" | sort -u)
    [ -n "$names" ] || return 0
    [ "$2" = 0 ] && failing="passed when repeated: "
    failing+=$(paste -sd ' ' <<<"$names")
    for name in $(head -n 3 <<<"$names"); do
        details+=$(printf '\n%s, %s, the end of its output:\n' "$1" "$name"
            awk -v test=" Test +#[0-9]+: $name " '/^ *[0-9]+\/[0-9]+ Test/ { on = $0 ~ test } on && !/^ *Start/' "$dir/ctest.log" |
                tail -n 15)$'\n'
    done
}

sources() {
    git ls-files -z --cached --others --exclude-standard '*.c' '*.h' 2>/dev/null ||
        find . \( -name 'build*' -o -name '.*' -name '.?*' \) -prune -o -name '*.[ch]' -print0
}

check_format() {
    have clang-format-14 || { warn "clang-format-14 is not installed: format not checked" && return; }
    local places
    places=$(cd "$SLR_ROOT" && sources | xargs -0 -r clang-format-14 --dry-run -Werror 2>&1) && return 0
    warn "not formatted (clang-format-14 -i FILE does it), with the number of places:"
    sed -nE 's/^([^ :]+):[0-9]+:[0-9]+: error:.*/\1/p' <<<"$places" | sort | uniq -c >&2
    return 1
}

# What is shipped, without the tests: each compiler's warnings differ, and gcc's without optimisation from those with it,
# which the wheel's build shows.
build_variants() {
    build build-gcc-Debug -DSLIPRING_TESTS=OFF -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug || return 1
    have clang || { warn "clang is not installed: not built with it" && return; }
    build build-clang-Release -DSLIPRING_TESTS=OFF -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release
}

# As scripts/package.sh --wheel makes it; a function that glibc 2.28 has by another name, and packaging/old_glibc.h does not
# know, is an error here.
build_wheel() {
    build build-wheel -DSLIPRING_TESTS=OFF -DSLIPRING_GLIBC_2_28=ON -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib &&
        python3 "$SLR_ROOT/packaging/wheel.py" "$SLR_ROOT/build-wheel" "$SLR_ROOT/out/wheel" --glibc 2.28
}

# All but the trees that are tested first and last.
build_others() {
    local rc=0
    build_variants || rc=1
    build_wheel || rc=1
    build_tests gcc thread || rc=1
    return $rc
}

# step NAME COMMAND...: runs it, notes the outcome and the time, and goes on.
step() {
    local name=$1 start=$SECONDS rc=0
    shift
    summary="" failing=""
    "$@" || rc=$?
    results+=("$(printf '%-5s %4d s  %s%s' "$([ $rc = 0 ] && echo ok || echo FAIL)" $((SECONDS - start)) "$name" \
        "${summary:+: $summary}${failing:+: $failing}")")
    [ $rc = 0 ] || failed="${failed:+$failed, }$name"
}

export SLIPRING_CONF_FILE=/dev/null # this user's settings are not the tests'
if [ $setup = 1 ]; then
    want=(--tests)
    if [ $all = 1 ] || [ "$compiler" = clang ]; then want=(--all); fi
    "$SLR_ROOT/scripts/setup.sh" "${want[@]}"
fi

# A python3 that is a script, as version managers have, takes longer to find Python than Python takes to start; tests start some
# thousand. So the one that it finds comes first.
python=$(python3 -c 'import sys; print(sys.executable)')
[ "$(command -v python3)" -ef "$python" ] || PATH=$(dirname "$python"):$PATH

results=() failed="" summary="" failing="" details="" leave_out=() once=() enough=() # regular expressions of whole names of tests
if [ $all = 1 ]; then
    step "format" check_format
    step "build, ASan and UBSan" build_tests gcc address
    beside build_others
    # For the sanitizers less is enough: one victim while data is in flight, fused GEMMs with two ranks, no benchmark that
    # takes long; and neither the stand-ins themselves (build_tests), nor programs without slipring.
    few=('fault_flight_.*_[12](_.*)?' 'e2e_fuse_.*_[348]' 'e2e_aside_.*_4' 'zero_fault_.*_put')
    few+=('e2e_trials_(two_comms|event|duel_ranks|tuned)')
    # Where owners write is the correction of where readers read, and in every test with unlike ranks.
    few+=('zero_(turnover|turnover_pressure|alloc_off_one|grow|settle|many_comms|late_.*|free_in_flight|vanish|leak)_put(_.*)?')
    few+=('connect_threads_.*_put(_.*)?')
    # Places are one thread's, and these are long; the driver's other answer for the same question.
    few+=('symmetry_(bounded|more)' register_books_cuMemExportToShareableHandle 'memory_(random-sizes|churn|ipc)_off')
    # All cases of order once more, on streams of other contexts: half a minute of waits each.
    few+=('form_contexts_(streams|current)')
    few+=('bench_.*' '(form|memory|e2e_gather|e2e_fuse|e2e_workspace|scatter_nccl|race_free)_(.*_)?plain(_.*)?')
    # Of fuzzed programs those that have something of all; all kinds are in the plain tests, with the race oracle.
    few+=('fuzz_short_(scatter|fp8|later(_plan)?|contexts(_.*)?)')
    # Over hosts: forms of GEMMs, layouts, and hosts that differ; what is left there has all of the code.
    few+=('hosts_(fuse|gather|not|one|contexts|refused|absent|off|not_asked|differs)(_.*)?')
    # Programs and parts that have one thread: AddressSanitizer's alone. (What reports are made of, other tests run as well.)
    once=('(report|docs)_.*' tuner_broken)
    once+=('fuzz_short_(pools|plan_[0-9]+)')
    # What needs no other run behind AddressSanitizer's: lists whose like is in the plain tests (reduce-scatters), and what reads
    # what was written.
    enough=('scatter_all_.*' 'scatter_verify_.*' 'tools_(doctor|closing|interrupt|verify|bundle)(_.*)?' 'trace_(scatter|graph|reduce)_.*')
    once+=('unit_(ring_order|reduce|reduce_check|reduce_source|gemm_parts|intervals|trials|tune_write)')
    # Nor scripts and documents, which have no compiled code of ours.
    few+=('structure.*' 'package_.*' 'docs_(architecture|prose|links|log)' 'ptx_.*' 'gpu\.frameworks_table.*' launcher spdx)
    # Large and long ones run once, in the plain tests: all cases of order, gathers beyond 4 GiB, all reduce-scatters with
    # eight ranks and the GPU machine's script.
    leave_out=('form_order_[23]' form_large scatter_forms_8 'gpu\.run_on_softgpu')
    leave_out+=("${few[@]}")
    # The race oracle, which is the stand-ins', on programs that run without it.
    leave_out+=('race_.*' 'scatter_race_(reuse|meet)')
    # Comparisons that have the code of those that stay.
    leave_out+=('form_graphs_off_.*_(1|captured)' 'scatter_verify_(unlike|wrong|loop|look|reuse|small|plain)_.*')
    leave_out+=('e2e_small_(many|obeyed|tried)')
    # The lists that all-reduces, which are reduce-scatters and more, have as well.
    leave_out+=('scatter_(forms|small|wrong|reuse|group|unlike|changed|meet|copy|graphs-mixed|meet-graphs|group-graphs|graphs-wrong)_[23]t?')
    step "tests, ASan and UBSan" run_tests gcc address
    step "gcc Debug, clang Release, wheel; build, TSan" await_beside
    beside build_tests gcc ""
    # Ten times slower. Tests labelled slow, and those named below, run under TSan only with --sanitize thread; race judges
    # the device's order.
    leave_out=("${few[@]}")
    # Tools and documents.
    leave_out+=('.*plain.*' 'tools_.*' 'fuzz_short.*' commands "${once[@]}")
    # Larger slots, which take longer to fill; a list that is in the one of copies.
    leave_out+=(connect_slots_grows scatter_all_copied)
    # What waits for idle times, and the same with more ranks, modes or refused calls.
    leave_out+=('memory_idle.*' 'fault_refused_.*' 'register_fault_.*' 'zero_fault_.*' 'memory_churn_(all|different)_.*')
    leave_out+=('memory_sites.*')
    # Each takes a minute there, and has the threads of those that stay.
    leave_out+=('e2e_trials_(3|4|lt|in_place|off|reproducible|strict|two_streams)' 'e2e_small_(many|obeyed|tried)')
    leave_out+=(e2e_kept_changed scatter_strict scatter_slow 'scatter_queue_.*' zero_shards_event 'fault_hung_.*_1(_.*)?')
    leave_out+=('scatter_verify_(wrong|look|reuse|unlike|loop|small|plain)_.*')
    # The same with other settings.
    leave_out+=('scatter_graphs_(fused|one_lane|off|strict|untried)' 'scatter_tried_unlike_.*' 'scatter_(verify_)?mixed')
    leave_out+=('e2e_kept_(scatter|ranks|unwritable)' 'scatter_(look|unlike)_.*' 'e2e_gather_(4|8)' e2e_trials_2)
    # The lists that reduce-scatters have there, with ranks that are threads; what differs is the device's.
    leave_out+=('scatter_all_(all-sizes|changed|copy|forms|graphs|graphs-wrong|group|look|one_lane|reuse|small|tried|unlike|wrong)(_.*)?')
    # Long ones, whose threads others have; a model of time.
    leave_out+=('form_graphs_soak-kept_.*' form_graphs_unmapped-grows_3 form_graphs_far-behind_processes form_order_timing)
    leave_out+=('hosts_(groups_by_three|comms|later_comms)' 'hosts_flight_(stop|driver|abort-full|abort-blocked|destroy|kill-told|kill-before).*')
    # Copies and sums of an all-reduce in place go on beside each other when the waits between them have been let go of.
    leave_out+=('fault_flight_(abort|abort-ahead|stop-fails)_0_reduce' 'fault_flight_kill-before_0_reduce_slow_.*')
    # More ranks, each a process: the threads of one do not depend on them.
    leave_out+=('form_graphs_(update|mixed(-anew)?|thrown|crossed|first|unmapped|body-.*|group-.*|far-ahead-.*)_3')
    leave_out+=('form_small(_fused)?_3' 'zero_churn_.*_4_300')
    # The same trial of a driver, that refuses another call; the driver's other orders of nodes.
    leave_out+=('form_graphs_off_cu.*' '.*_one_lane_[12]' form_graphs_turns_4 'scatter_graphs-wrong_.*')
    # Forms of GEMMs: what threads could do wrong does not depend on them.
    leave_out+=('e2e_fuse_(narrow|refused|lt)_.*')
    step "tests, TSan" run_tests gcc thread -LE "slow|race" -j $((4 * jobs))
    # What has passed under both sanitizers is not run a third time, nor what has one thread and has passed under
    # AddressSanitizer: the optimised library and tools are seen by all others, mostly the same programs with other numbers of
    # ranks. Without --all it runs.
    step "build" await_beside
    mapfile -t leave_out < <(passed_before)
    step "tests" run_tests gcc "" -j $((6 * jobs)) # they wait more: for processes that are killed, and modelled times
    printf '%s\n' "$details" "${results[@]}"
else
    step "tests" build_and_run_tests "$compiler" "$sanitize"
fi
printf '\n'
[ -z "$failed" ] || { printf '%s\n' "${summary:-}" "FAILED: $failed" && exit 1; }
printf '%s\n' "$summary"
