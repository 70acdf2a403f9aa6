# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Steps for NCCL's profiler plugin; source it after steps.sh. profiler_cases adds them all. Two ranks on one device, or where `place` says; on one
# real GPU NCCL talks over loopback sockets: times are then no measure of NCCL, but they are GPU times of its kernels.

# profiled NAME SETTING... -- OPTIONS...: bench/collectives under slipring, all with NCCL, the log as JSON.
profiled() {
    local name=$1 settings=() where=(--one-gpu --ranks 2)
    [ -z "${place+set}" ] || where=("${place[@]}") # plugin.sh
    shift
    while [ "$1" != -- ]; do settings+=(--set "$1") && shift; done
    shift
    preloaded "$name" --set log_format=json --set min_bytes=1T "${settings[@]}" -- "$build/bench/collectives" "${where[@]}" "$@"
}

# profile_lines NAME EVENT: of all ranks.
profile_lines() { cat "$logs/$1".rank*.decisions | grep "\"event\":\"$2\""; }

# What NCCL ran, by name, and how long its kernels took, for each collective and size; with slipring's reason for the all-gathers.
profiler_lines() {
    local name=profiler-lines func least=1000 # ns; no kernel of NCCL is over sooner
    [ $softgpu = 0 ] || least=1
    NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$logs/$name.nccl.%p" profiled "$name" profile=on trace=1 -- --rounds 20 --bytes 65536,4194304 || return
    cat "$logs/$name".nccl.* | grep -i 'profiler' | sort | uniq -c
    grep -qi 'PROFILER/Plugin.*slipring.*v[56]' "$logs/$name".nccl.* || { echo "NCCL does not say that it loaded the profiler" && return 1; }
    profile_lines "$name" nccl_sum || { echo "no nccl_sum line" && return 1; }
    for func in AllGather AllReduce Broadcast Reduce ReduceScatter; do
        profile_lines "$name" nccl_sum | grep "\"func\":\"$func\"" | awk -v func="$func" -v least=$least '
            { rows++; bad = ""; gsub(/"/, "") }
            /algo:(\?|-)/ || /proto:(\?|-)/ { bad = "no algorithm or protocol" }
            !/channels:[1-9]/ { bad = "no channels" }
            !/comm:[0-9a-f]/ { bad = "not brought together with the communicator" }
            { split("", v); n = split($0, parts, /[,{}]/); for (i = 1; i <= n; i++) { split(parts[i], kv, ":"); v[kv[1]] = kv[2] } }
            v["timed"] < v["calls"] { bad = "only " v["timed"] " of " v["calls"] " have a GPU time" }
            v["timed"] > 0 && (v["min_ns"] < least || v["min_ns"] > v["mean_ns"] || v["mean_ns"] > v["max_ns"] || v["max_ns"] > 10e9) {
                bad = "no plausible times" }
            func == "AllGather" && v["reason"] != "below_min_bytes" { bad = "reason " v["reason"] }
            bad { print func ": " bad ": " $0; failed = 1 }
            END { if (rows < 4) { print func ": " rows + 0 " lines, expected 2 sizes of 2 ranks"; failed = 1 } exit failed }' || return 1
    done
    [ -z "$(profile_lines "$name" nccl_lost)" ] || { profile_lines "$name" nccl_lost && return 1; }
    # Each call by itself: as many lines as calls, and slipring's number of each passed all-gather on it.
    [ "$(profile_lines "$name" nccl | grep -c '"func":"AllGather".*"call":[1-9].*"reason":"below_min_bytes"')" -ge 80 ] ||
        { echo "fewer lines of passed all-gathers than calls" && return 1; }
    profile_table "$name" >"$logs/$name.table"
}

profile_table() {
    echo "What NCCL ran, from its profiler plugin (rank 0):"
    profile_lines "$1" nccl_sum | grep '"crank":0' | awk '
        { gsub(/"/, ""); split("", v); n = split($0, parts, /[,{}]/); for (i = 1; i <= n; i++) { split(parts[i], kv, ":"); v[kv[1]] = kv[2] }
          printf "%-14s %9d bytes  %-6s %-7s %2d channels  %4d calls  kernel %9.1f us (%.1f to %.1f)\n", v["func"], v["bytes"], v["algo"],
              v["proto"], v["channels"], v["calls"], v["mean_ns"] / 1e3, v["min_ns"] / 1e3, v["max_ns"] / 1e3 }'
}

# The cost: medians of small all-reduces with no plugin, with the profiler off, and on.
profiler_cost() {
    local name=profiler-cost way rounds=400
    [ $softgpu = 0 ] || rounds=20
    for way in none off on; do
        case $way in
        none) NCCL_PROFILER_PLUGIN=none profiled "$name-$way" -- --func allreduce --bytes 4096,65536 --rounds $rounds ;;
        off) NCCL_PROFILER_PLUGIN=$build/libslipring.so profiled "$name-$way" profile=off -- --func allreduce --bytes 4096,65536 --rounds $rounds ;;
        on) profiled "$name-$way" profile=on -- --func allreduce --bytes 4096,65536 --rounds $rounds ;;
        esac >"$logs/$name-$way.out" || { cat "$logs/$name-$way.out" && return 1; }
    done
    ! profile_lines "$name-off" 'nccl[a-z_]*' || { echo "lines although the profiler is off" && return 1; }
    profile_lines "$name-on" nccl_sum >/dev/null || { echo "no lines although the profiler is on" && return 1; }
    for way in none off on; do sed "s/^/profiler $way: /" "$logs/$name-$way.out"; done >"$logs/$name.table"
    cat "$logs/$name.table"
}

profiler_cases() {
    alone profiler-lines 120 profiler_lines
    alone profiler-cost 180 profiler_cost
}
