#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slipring doctor: every check is made to fail, and the message and the exit status are looked at; and all is well when
# it is.
# usage: doctor.sh LAUNCHER BUILD FAKES PART     FAKES: folder of the stand-ins in fake/; PART: driver, host or command
# shellcheck disable=SC2317 # functions that are called by their name
set -u
launcher=$1 build=$2 fakes=$3 part=$4
soft=$build/softgpu
doctor=$build/slipring-doctor
work=$(readlink -f "$(mktemp -d)") || exit 1
trap 'rm -rf "$work"' EXIT
unset SLIPRING_LAUNCHER SLIPRING_LIB LD_PRELOAD CUDA_VISIBLE_DEVICES CUDA_MPS_PIPE_DIRECTORY
export HOME="$work/home" LD_LIBRARY_PATH="$soft" SOFTGPU_DEVICES=1
mkdir "$HOME"

fail() {
    echo "doctor.sh: $*"
    cat "$work/out" "$work/err"
    exit 1
}

# run EXIT COMMAND...: runs it; the exit status must be that, or any when EXIT is "-". What this machine itself is warned of (no
# network in a test's namespace, a container's /dev/shm) makes a 1 of a 0; now and then, where it is a process that a test
# beside this one has stopped.
base=0
run() {
    want=$1 got=0
    shift
    "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$want" = - ] || [ "$got" -eq "$want" ] || { [ "$want" = 0 ] && [ "$got" -eq $base ]; } || fail "status $got, not $want: $*"
}

# finds CHECK RESULT PATTERN: a finding of the JSON report, which has one on each line.
finds() {
    grep -qE "\"check\": \"$1\".*\"result\": \"$2\", \"text\": \"[^\"]*$3" "$work/out" || fail "no finding $1 $2 \"$3\""
}
advises() {
    grep -qE "\"check\": \"$1\".*\"advice\": \"[^\"]*$2" "$work/out" || fail "no advice $1 \"$2\""
}

# check NAME RESULT PATTERN EXIT COMMAND...: what `doctor --json` finds; the command is a prefix such as env.
check() {
    name=$1 result=$2 pattern=$3 status=$4
    shift 4
    run "$status" "$@" "$doctor" --json
    finds "$name" "$result" "$pattern"
}

driver_part() {
    # All is well: text and JSON, exit status 0.
    export SLIPRING_LIB="$build/libslipring.so" SOFTGPU_DEVICES=3 SLIPRING_LAUNCHER="$launcher"
    run 0 "$doctor" -- "$build/bench/ag_gemm"
    grep -q 'on softgpu: the software GPU, not hardware' "$work/out" || fail "it does not say that it is the software GPU"
    [ $base -ne 0 ] || grep -q '^[1-9][0-9]* ok, 0 warnings, 0 failures, 0 unknown: nothing stands in the way' "$work/out" || fail "not all is well"
    grep -qE '^ +2 +P2P +P2P +=$' "$work/out" || fail "no table of links"
    ! grep -qP '\x1b' "$work/out" || fail "escape sequences"
    ! sed 's#/[^ ]*##g' "$work/out" | grep -E '.{101}' || fail "a line is longer than 100 columns"
    [ ! -s "$work/err" ] || fail "something on stderr"
    run 0 "$doctor" --json -- "$build/bench/ag_gemm"
    python3 - "$work/out" "$doctor" <<'P' || fail "the JSON is not as expected"
import json, subprocess, sys
r = json.load(open(sys.argv[1]))
assert r["device_kind"] == "softgpu" and r["result"] == ["ok", "warn"][r["exit_status"]]
assert len(r["devices"]) == 3 and len(r["links"]) == 6 and all(l["access"] for l in r["links"])
table = subprocess.run([sys.argv[2], "--markdown"], stdout=subprocess.PIPE, text=True, check=True).stdout
names = [line.split("`")[1] for line in table.split("Variables that")[0].splitlines() if line.startswith("| `")]
found = {c["check"] for c in r["checks"]}
missing = set(names) - found
assert len(names) > 30 and missing <= {"command_wrapper", "visible_devices"} and found <= set(names), (missing, found)
machine = {"network", "shm", "limits", "pidfd", "memory_limit", "frozen"}
assert all(c["result"] == "ok" or c["check"] in machine for c in r["checks"]), r
P
    unset SLIPRING_LIB SLIPRING_LAUNCHER
    export SOFTGPU_DEVICES=1

    # No driver, a driver that fails, hangs or crashes.
    run 3 env LD_LIBRARY_PATH="$work" "$doctor" --json
    if ! grep -q '"device_kind": "gpu"' "$work/out"; then # this machine has a driver of its own
        finds driver fail 'no CUDA driver: libcuda.so.1'
        finds ipc unknown 'not tried'
        finds sockets ok ''
        advises driver 'slipring softgpu'
    fi
    check devices fail 'cuInit: CUDA_ERROR_NO_DEVICE' 3 env SOFTGPU_FAIL=cuInit:1+=100
    check devices fail 'cuDeviceGetCount: CUDA_ERROR_UNKNOWN' 3 env SOFTGPU_FAIL=cuDeviceGetCount:1=999
    run 3 env SOFTGPU_FAIL=cuDeviceGetCount:1=stop "$doctor" --json --limit 1
    finds devices fail 'the driver did not answer within 1 s, in cuDeviceGetCount'
    finds settings ok ''
    run 3 env SOFTGPU_FAIL=cuDeviceGetName:1=kill "$doctor" --json
    finds devices fail 'the driver crashed \(Killed\) in cuDeviceGetName'

    # What ranks do with each other, in every part.
    check devices fail 'device 0: cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY' 3 env SOFTGPU_FAIL=cuDevicePrimaryCtxRetain:1+=2
    check control_memory fail 'device 0: cuMemHostRegister: CUDA_ERROR_NOT_PERMITTED' 3 env SOFTGPU_FAIL=cuMemHostRegister:1+=800
    finds stream_memops unknown 'not tried on device 0'
    check stream_memops fail 'device 0: cuStreamBatchMemOp: CUDA_ERROR_NOT_SUPPORTED' 3 env SOFTGPU_FAIL=cuStreamBatchMemOp:1+=801
    finds ipc ok ''
    check stream_memops fail 'cuStreamWaitValue32' 3 env SOFTGPU_FAIL=cuStreamWaitValue32:1+=801
    finds graphs unknown 'not tried on device 0'
    check graphs warn 'device 0: cuGraphExecBatchMemOpNodeSetParams: CUDA_ERROR_NOT_SUPPORTED' 1 env SOFTGPU_FAIL=cuGraphExecBatchMemOpNodeSetParams:1+=801
    advises graphs 'CUDA 12.3'
    finds ipc ok ''
    for call in cuGraphInstantiateWithFlags cuGraphLaunch cuGraphExecMemcpyNodeSetParams cuGraphNodeSetEnabled cuStreamGetCaptureInfo cuStreamBeginCapture cuStreamEndCapture; do
        check graphs warn "device 0: ${call%WithFlags}: CUDA_ERROR_NOT_SUPPORTED" 1 env SOFTGPU_FAIL=$call:1+=801
        finds ipc ok ''
    done
    # A word that can not be captured; the capture ends, and the rest goes on.
    check graphs warn 'device 0: cuStreamBatchMemOp: CUDA_ERROR_NOT_SUPPORTED' 1 env SOFTGPU_FAIL=cuStreamBatchMemOp:2=801
    finds ipc ok ''
    check ipc fail 'cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED' 3 env SOFTGPU_FAIL=cuIpcGetMemHandle:1+=801
    check ipc fail 'device 0: cuIpcOpenMemHandle: CUDA_ERROR_MAP_FAILED' 3 env SOFTGPU_FAIL=cuIpcOpenMemHandle:1+=205
    advises ipc 'ipc=host'
    finds ipc_vmm ok ''
    check ipc_vmm warn 'cuMemExportToShareableHandle' 1 env SOFTGPU_FAIL=cuMemExportToShareableHandle:1+=801
    check ipc_vmm warn 'cuMemImportFromShareableHandle' 1 env SOFTGPU_FAIL=cuMemImportFromShareableHandle:1+=999
    run 3 env SOFTGPU_FAIL=cuIpcOpenMemHandle:1=stop "$doctor" --json --limit 1
    finds ipc fail 'device 0 did not answer within 1 s, in cuIpcOpenMemHandle'
    run 3 env SOFTGPU_DEVICES=2 SOFTGPU_FAIL=cuMemHostRegister:1=kill "$doctor" --json
    finds control_memory fail 'ended \(Killed\) in cuMemHostRegister'
    # What goes wrong in the threads of one process only: the processes before make two streams each, and wait once.
    finds one_process unknown 'not tried'
    check one_process ok 'one device' 0 env
    for n in 2 5; do
        check one_process ok "every device's thread waited" 0 env SOFTGPU_DEVICES=$n
    done
    one="env SOFTGPU_DEVICES=2 SOFTGPU_FAIL"
    # shellcheck disable=SC2086 # a command and its arguments
    {
        check one_process warn 'device [01]: cuStreamCreateWithPriority: CUDA_ERROR_UNKNOWN' 1 $one=cuStreamCreateWithPriority:3=999
        advises one_process 'a process of its own'
        check one_process warn 'device [01]: cuStreamWaitValue32: CUDA_ERROR_NOT_SUPPORTED' 1 $one=cuStreamWaitValue32:2=801
        check one_process warn 'device 0: cuMemSetAccess: CUDA_ERROR_NOT_SUPPORTED' 1 $one=cuMemSetAccess:1+=801
        run 1 $one=cuStreamCreateWithPriority:3=stop "$doctor" --json --limit 10 # long enough for what comes before
        finds one_process warn 'device [01] did not answer within 10 s, in (cu|waiting|a wait)' # it stops with both of its threads
        finds ipc ok ''
        check one_process warn 'the process ended \(Killed\), device [01] in (cu|waiting|no call)' 1 $one=cuStreamCreateWithPriority:3=kill
        check one_process warn 'other bytes than the owner wrote' 3 env SOFTGPU_DEVICES=2 SOFTGPU_COMPUTE=0
    }
    # Bytes that do not come: without the data the stand-in's copies of large blocks do nothing.
    check ipc fail 'other bytes than the owner wrote' 3 env SOFTGPU_COMPUTE=0

    # Devices that the software GPU can not be.
    fake="env LD_LIBRARY_PATH=$fakes/cuda"
    # shellcheck disable=SC2086 # a command and its arguments
    {
        check driver ok 'CUDA 12.4' 3 $fake
        finds driver_functions fail 'missing: .*cuIpcOpenMemHandle'
        finds devices ok '2 x fake device, compute capability 7.0, 8 GiB'
        finds peer_access ok 'all 2 devices'
        check driver_functions fail 'cuStreamBatchMemOp' 3 $fake FAKE_MODE=3
        finds compute_mode warn 'device 0 is exclusive'
        check compute_mode fail 'device 0 is prohibited' 3 $fake FAKE_MODE=2
        check stream_memops fail 'device 0 says that it has no' 3 $fake FAKE_MEMOPS=0
        check peer_access fail '3 of 3 pairs can not reach each other, e.g. device 0 device 1' 3 $fake FAKE_ACCESS=0 FAKE_DEVICES=3
        check peer_access ok 'one device' 3 $fake FAKE_DEVICES=1
        check devices fail 'no device' 3 $fake FAKE_DEVICES=0
        check devices warn 'device 0 is a part of a GPU \(MIG\)' 3 $fake FAKE_MIG=1
        advises devices 'mig 0'
        check devices fail 'cuInit: CUDA_ERROR_UNKNOWN' 3 $fake FAKE_INIT=999
        check devices fail 'crashed \(Aborted\) in cuInit' 3 $fake FAKE_CRASH=cuInit
        check links unknown 'libnvidia-ml.so.1' 3 $fake
        nvml="env LD_LIBRARY_PATH=$fakes/cuda:$fakes/nvml"
        check links ok 'NVLink between all devices' 3 $nvml FAKE_LINK=nv
        grep -q '"from": 0, "to": 1, "access": true, "nvlinks": 4,' "$work/out" || fail "not 4 NVLinks"
        check links ok 'NVLink' 3 $nvml FAKE_LINK=switch
        grep -q '"nvlinks": 6,' "$work/out" || fail "not 6 NVLinks to a switch"
        check links warn 'PCIe between device 0 and device 1' 3 $nvml FAKE_LINK=sys
        advises links 'FLOP_PER_BYTE=30000'
        run 3 $nvml FAKE_LINK=switch "$doctor"
        grep -qE '^ +1 +NV6 +=$' "$work/out" || fail "no NVLinks in the table"
    }
    check visible_devices ok '=0,1' 0 env SOFTGPU_DEVICES=2 CUDA_VISIBLE_DEVICES=0,1
    check visible_devices warn 'names 3 devices, the driver shows 2' 1 env SOFTGPU_DEVICES=2 CUDA_VISIBLE_DEVICES=0,1,7
    check devices fail 'CUDA_ERROR_NO_DEVICE' 3 env CUDA_VISIBLE_DEVICES=

    # NCCL.
    mkdir "$work/bad"
    echo broken >"$work/bad/libnccl.so.2"
    check nccl fail 'libnccl.so.2' 3 env LD_LIBRARY_PATH="$work/bad:$soft"
    finds nccl_version unknown ''
    check nccl_functions fail 'missing: .*ncclAllGather' 3 env LD_LIBRARY_PATH="$fakes/nccl:$soft" FAKE_NCCL=22809
    finds nccl_version ok '2.28.9, tested with'
    check nccl_version warn '2.21.5 is older than the tested' 3 env LD_LIBRARY_PATH="$fakes/nccl:$soft" FAKE_NCCL=22105
    check nccl_version warn '2.99.1 is newer' 3 env LD_LIBRARY_PATH="$fakes/nccl:$soft" FAKE_NCCL=29901
    check nccl_version fail '21000 is too old' 3 env LD_LIBRARY_PATH="$fakes/nccl:$soft" FAKE_NCCL=21000
    check nccl_version unknown 'does not say' 3 env LD_LIBRARY_PATH="$fakes/nccl:$soft" FAKE_NCCL=0
}

# skip_unless COMMAND...: whether this machine permits it; what it does not permit is not tested here, and said.
permits() {
    "$@" true >/dev/null 2>&1 && return 0
    echo "not permitted here, not tested: $*"
    return 1
}

# A process of this user is frozen, where the machine permits it.
freeze_one() {
    group=/sys/fs/cgroup/freezer state=freezer.state frozen=FROZEN thawed=THAWED
    [ -d $group ] || { group=/sys/fs/cgroup state=cgroup.freeze frozen=1 thawed=0; }
    group=$group/slipring-doctor-$$
    if ! mkdir "$group" 2>/dev/null; then
        echo "not permitted here, not tested: mkdir $group"
        return
    fi
    sleep 60 &
    sleeper=$!
    trap 'echo $thawed >"$group/$state"; kill $sleeper; wait $sleeper; rmdir "$group"; rm -rf "$work"' EXIT
    until grep -qsx sleep "/proc/$sleeper/comm"; do sleep 0.1; done # until then it is this shell's name
    echo $sleeper >"$group/cgroup.procs" && echo $frozen >"$group/$state" || fail "not frozen"
    for _ in 1 2 3 4 5 6 7 8 9; do # that takes the kernel a moment
        grep -qsx FROZEN "$group/$state" || grep -qsx 'frozen 1' "$group/cgroup.events" || sleep 0.2
    done
    check frozen warn "1 process of this user, e.g. $sleeper \\(sleep\\) in $group: " 1
    advises frozen 'docker unpause'
    echo $thawed >"$group/$state"
    kill $sleeper
    wait $sleeper
    rmdir "$group"
    trap 'rm -rf "$work"' EXIT
}

host_part() {
    if permits "$fakes/refuse" getpid; then
        check sockets fail 'memfd_create: Operation not permitted' 3 "$fakes/refuse" memfd_create
        check sockets fail 'socket\(AF_UNIX, SOCK_SEQPACKET\): Operation not permitted' 3 "$fakes/refuse" socket
        advises sockets 'seccomp'
        finds network unknown ''
        check pidfd warn 'pidfd_open: Operation not permitted' - "$fakes/refuse" pidfd_open
    fi
    if permits unshare -n; then
        check network warn 'no network interface' 1 unshare -n
        check sockets ok '' 1 unshare -n
    fi
    if permits unshare -i; then
        check namespaces ok "a container's" 0 unshare -i
    fi
    if permits unshare -p -f; then
        check proc warn '/proc' - unshare -p -f
        hidden='mount -o remount,hidepid=2 /proc && exec "$@"'
        if permits unshare -p -f --mount-proc; then # not in a chroot
            check proc ok 'as [0-9]+' 0 unshare -p -f --mount-proc
            finds namespaces ok "a container's"
        fi
        if permits unshare -p -f --mount-proc sh -c "$hidden" -; then
            check proc ok 'hidepid' 0 unshare -p -f --mount-proc sh -c "$hidden" -
        fi
    fi
    small='mount -t tmpfs -o size=16m none /dev/shm && exec "$@"'
    if permits unshare -m sh -c "$small" -; then
        check shm warn '16 MiB, 16 MiB of them free \(tmpfs, rw' 1 unshare -m sh -c "$small" -
        advises shm 'shm-size'
        check shm fail 'can not be used: (Read-only|No space)' 3 unshare -m sh -c "${small%% &&*} && mount -o remount,ro /dev/shm && exec \"\$@\"" -
    fi
    check limits warn 'open files 900 ' 1 sh -c 'ulimit -S -n 900 && exec "$@"' -
    check limits warn 'locked memory 0 bytes' 1 sh -c 'ulimit -S -l 0 && exec "$@"' -
    if permits setpriv --ruid 12345; then
        chmod 755 "$work"
        check user fail 'the real user is 12345, the effective one 0' 3 setpriv --ruid 12345
    fi

    # A frozen process; the rest is in test_job_limits.c.
    freeze_one

    # MPS: a pipe without a reader, with one, and none where one was promised.
    check mps ok 'not in use' 0 env CUDA_MPS_PIPE_DIRECTORY=
    check mps warn 'No such file' 1 env CUDA_MPS_PIPE_DIRECTORY="$work/mps"
    mkdir "$work/mps" && mkfifo "$work/mps/control"
    check mps warn 'no daemon reads it' 1 env CUDA_MPS_PIPE_DIRECTORY="$work/mps"
    sleep 30 <>"$work/mps/control" &
    reader=$!
    check mps ok 'its daemon runs' 0 env CUDA_MPS_PIPE_DIRECTORY="$work/mps"
    kill $reader

    # The library.
    export SLIPRING_LAUNCHER="$launcher"
    check library ok "$build/libslipring.so, version " 0 env SLIPRING_LIB="$build/libslipring.so"
    check library fail 'no file /nonexistent' 3 env SLIPRING_LIB=/nonexistent
    mkdir "$work/lib"
    echo broken >"$work/lib/libslipring.so"
    check library fail 'it was not loaded' 3 env SLIPRING_LIB="$work/lib/libslipring.so"
    sed 's/libslipring version [0-9]/libslipring version 9/' "$build/libslipring.so" >"$work/lib/libslipring.so"
    check library fail 'is version 9[^ ]*, these tools are' 3 env SLIPRING_LIB="$work/lib/libslipring.so"
    sed 's/libslipring version/libslipring ver5ion/' "$build/libslipring.so" >"$work/lib/libslipring.so"
    check library warn 'does not say which version' 1 env SLIPRING_LIB="$work/lib/libslipring.so"
    unset SLIPRING_LAUNCHER
    check library unknown 'run this as' 0 env
}

settings() {
    check settings warn 'SLIPRING_CHUNKS=many: expected a whole number' 1 env SLIPRING_CHUNKS=many
    check settings warn 'SLIPRING_STRICKT=1: .*did you mean SLIPRING_STRICT' 1 env SLIPRING_STRICKT=1
    check contradictions fail 'ENABLE=off' 3 env SLIPRING_ENABLE=off
    check contradictions fail 'does not hold two slots of 4096' 3 env SLIPRING_CACHE_BYTES=8000
    check contradictions warn 'slots shrink' 1 env SLIPRING_CACHE_BYTES=64M
    check contradictions warn 'done twice' 1 env SLIPRING_VERIFY=3
    check contradictions warn 'only registered buffers' 1 env SLIPRING_ALLOC=off SLIPRING_ZERO_COPY=on
    check contradictions warn 'copied once more' 1 env SLIPRING_ALLOC=off
    check contradictions ok 'none' 0 env SLIPRING_ALLOC=off SLIPRING_ZERO_COPY=off
    check contradictions warn 'STRICT wins' 1 env SLIPRING_STRICT=on SLIPRING_FUSE=on
    check contradictions warn 'never warns' 1 env SLIPRING_STALL_WARN=5s SLIPRING_STALL_TIMEOUT=2s
    check contradictions warn 'nothing is written' 1 env SLIPRING_LOG=off SLIPRING_LOG_FILE="$work/x.%r"
    check contradictions warn 'TRACE with SLIPRING_LOG=off' 1 env SLIPRING_TRACE=1 SLIPRING_LOG=off
    check contradictions warn 'TRACE without SLIPRING_LOG_FILE' 1 env SLIPRING_TRACE=1 SLIPRING_LOG_FORMAT=json
    check contradictions warn 'TRACE without SLIPRING_LOG_FORMAT=json' 1 env SLIPRING_TRACE=1 SLIPRING_LOG_FILE="$work/x.%r"
    check contradictions ok 'none' 0 env SLIPRING_TRACE=1 SLIPRING_LOG_FILE="$work/x.%r" SLIPRING_LOG_FORMAT=json
    check contradictions warn 'folder /nonexistent can not be written' 1 env SLIPRING_LOG_FILE=/nonexistent/x.%r
    check contradictions warn 'TUNE_FILE=/nonexistent' - env SLIPRING_TUNE_FILE=/nonexistent
}

variables() {
    check variables ok 'none' 0 env
    check variables ok 'none' 0 env NCCL_COMM_BLOCKING=0 TORCH_NCCL_USE_COMM_NONBLOCKING=1
    for one in CUDA_LAUNCH_BLOCKING=1 NCCL_P2P_DISABLE=1 NCCL_P2P_LEVEL=LOC NCCL_SHM_DISABLE=1 \
        NCCL_HOSTID=a NCCL_TUNER_PLUGIN=libother.so NCCL_PROFILER_PLUGIN=/x/libother.so \
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4G PYTORCH_NO_CUDA_MEMORY_CACHING=1 TORCH_NCCL_BLOCKING_WAIT=1 NCCL_BLOCKING_WAIT=1; do
        check variables warn "$one: " 1 env "$one"
    done
    for one in CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 CUDA_LAUNCH_BLOCKING=0 CUDA_DEVICE_MAX_CONNECTIONS=8 NCCL_P2P_DISABLE=0 NCCL_TUNER_PLUGIN=STATIC_PLUGIN \
        NCCL_TUNER_PLUGIN=/x/libslipring.so; do
        check variables ok none 0 env "$one"
    done
    # NCCL's own files.
    printf '# x\n NCCL_SHM_DISABLE = 1 # y\nNCCL_P2P_DISABLE=1\n' >"$HOME/.nccl.conf"
    check variables warn "NCCL_SHM_DISABLE=1 \\($HOME/.nccl.conf\\)" 1 env
    finds variables warn "NCCL_P2P_DISABLE=1 \\($HOME/.nccl.conf\\)"
    check variables warn 'NCCL_P2P_DISABLE=1' 1 env NCCL_SHM_DISABLE=0
    check variables ok none 0 env NCCL_CONF_FILE=/dev/null
    rm "$HOME/.nccl.conf"
}

preload() {
    export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" # in a build with it, its runtime is not the first here
    for name in libjemalloc.so.2 libmscclpp_nccl.so libvgpu.so; do
        cc -shared -o "$work/$name" -x c /dev/null || fail "no compiler"
    done
    check preload ok 'libjemalloc.so.2 \(LD_PRELOAD\): .*harmless' 0 env LD_PRELOAD="$work/libjemalloc.so.2"
    check preload warn 'libmscclpp_nccl.so .*MSCCL' 1 env LD_PRELOAD="$work/libmscclpp_nccl.so"
    check preload warn 'libvgpu.so .*HAMi' 1 env LD_PRELOAD="$work/libjemalloc.so.2:$work/libvgpu.so"
    mkdir "$work/a" "$work/b"
    for copy in a b; do cc -shared -o "$work/$copy/libslipring.so" -x c /dev/null; done
    check preload ok 'slipring itself' 0 env LD_PRELOAD="$work/a/libslipring.so"
    check preload warn 'libslipring.so 2 times' 1 env LD_PRELOAD="$work/a/libslipring.so $work/b/libslipring.so"
    check preload warn 'LD_AUDIT' - env LD_AUDIT="$work/libjemalloc.so.2"
    check preload warn '/nonexistent.so .*No such file' 1 env LD_PRELOAD=/nonexistent.so
}

# command STATUS CHECK RESULT PATTERN COMMAND...
command_is() {
    status=$1 name=$2 result=$3 pattern=$4
    shift 4
    run "$status" "$doctor" --json -- "$@"
    finds "$name" "$result" "$pattern"
}

programs() {
    command_is 0 command ok 'ag_gemm' "$build/bench/ag_gemm" --ranks 2
    finds nccl ok 'libnccl.so.2, the one that COMMAND is linked to'
    finds command_static ok 'no vendor library'
    finds command_libraries ok 'all that ag_gemm is linked to are found'
    finds command_libraries ok "libcublas.so.13 is $soft/libcublas.so.13"
    finds command_libraries ok "libcudart.so.13 is $soft/libcudart.so.13"
    command_is 3 command fail 'nosuch: No such file' nosuch
    # A library that is not there, not even for a library; and one that has not the version.
    echo 'int deep(void) { return 0; }' | cc -shared -fPIC -o "$work/libdeep.so.1" -Wl,-soname,libdeep.so.1 -x c - || fail "no compiler"
    echo 'VERSION_2 { global: *; };' >"$work/map"
    echo 'int deep(void); int near(void) { return deep(); }' |
        cc -shared -fPIC -o "$work/libnear.so.1" -Wl,-soname,libnear.so.1 "-Wl,--version-script=$work/map" -x c - -x none "$work/libdeep.so.1"
    echo 'int near(void); int main(void) { return near(); }' | cc -o "$work/near" -x c - -x none "$work/libnear.so.1" "-Wl,-rpath-link,$work"
    command_is 3 command_libraries fail 'libnear.so.1 is not found: the program can not start' "$work/near"
    mkdir "$work/part" "$work/old"
    cp "$work/libnear.so.1" "$work/part"
    LD_LIBRARY_PATH=$work/part:$soft command_is 3 command_libraries fail 'libdeep.so.1 is not found' "$work/near"
    LD_LIBRARY_PATH=$work:$soft command_is 0 command_libraries ok 'all that near is linked to are found' "$work/near"
    echo 'VERSION_1 { global: *; };' >"$work/map"
    echo 'int near(void) { return 0; }' | cc -shared -fPIC -o "$work/old/libnear.so.1" -Wl,-soname,libnear.so.1 "-Wl,--version-script=$work/map" -x c -
    LD_LIBRARY_PATH=$work/old:$soft command_is 3 command_libraries fail 'version .VERSION_2. not found' "$work/near"
    advises command_libraries 'an older library'
    command_is 3 command fail 'Permission denied' "$work"
    printf 'int main(void) { return 0; }\n' >"$work/plain.c"
    printf 'const char a[] = "NCCL version 2.19.3+cuda12.3", b[] = "CUBLAS_LOGINFO_DBG", c[] = "cudaErrorInsufficientDriver";\nint main(int n, char **v) { (void)v; return a[n] + b[n] + c[n] == 1; }\n' >"$work/static.c"
    cc -o "$work/plain" "$work/plain.c" || fail "no compiler"
    cc -o "$work/linked" "$work/static.c"
    command_is 3 command_static fail 'NCCL is linked into it' "$work/linked"
    finds command_static warn 'cuBLAS is linked into it'
    finds command_static ok 'CUDA runtime is linked into it, which works'
    cp "$work/plain" "$work/suid"
    chmod u+s "$work/suid"
    command_is 0 command_preload ok 'dynamically linked' "$work/suid" # the owner is who runs it
    if [ "$(id -u)" = 0 ]; then
        chown 1 "$work/suid"
        chmod u+s "$work/suid"
        command_is 3 command_preload fail 'is privileged: LD_PRELOAD is ignored \(set-user-id\)' "$work/suid"
    fi
    if cc -static -o "$work/whole" "$work/plain.c" 2>/dev/null; then
        command_is 3 command_preload fail 'is linked statically' "$work/whole"
    fi
    cc -o "$work/musl" "$work/plain.c" -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1
    command_is 3 command_preload fail 'is for musl' "$work/musl"
    # Headers that lead nowhere: cut short, another machine, noise behind the first bytes.
    head -c 100 "$work/plain" >"$work/cut"
    { head -c 18 "$work/plain" && printf '\003\000' && tail -c +21 "$work/plain"; } >"$work/other"
    { head -c 64 "$work/plain" && head -c 4096 /dev/urandom; } >"$work/noise"
    printf '\177ELF' >"$work/short"
    chmod +x "$work/cut" "$work/other" "$work/noise" "$work/short"
    command_is 3 command_preload fail 'not a whole ELF file' "$work/cut"
    command_is 3 command_preload fail 'for another machine' "$work/other"
    run - "$doctor" --json -- "$work/noise"
    grep -q '"check": "command_preload"' "$work/out" || fail "noise in the headers"
    run - "$doctor" --json -- "$work/short"
}

scripts() {
    printf '#!%s\n' "$work/plain" >"$work/script"
    printf '#!/usr/bin/env -S FOO=1 sh -e\n' >"$work/env_script"
    printf '#!/nonexistent/interpreter\n' >"$work/lost"
    printf '#!%s\n' "$work/loop" >"$work/loop"
    printf 'echo no first line\n' >"$work/bare"
    chmod +x "$work/script" "$work/env_script" "$work/lost" "$work/loop" "$work/bare"
    command_is 0 command ok "script, a script of $work/plain" "$work/script"
    command_is 0 command ok 'env_script, a script of .*/sh' "$work/env_script"
    command_is 3 command fail 'started by /nonexistent/interpreter: No such file' "$work/lost"
    command_is 3 command fail 'Too many levels' "$work/loop"
    command_is 0 command ok 'a script of the shell' "$work/bare"
    command_is 0 command ok '/plain' env -u X A=1 "$work/plain"
    command_is 3 command_preload fail 'env -i clears' env -i "$work/plain"
    advises command_preload 'env -i slipring run'

    # A Python whose packages hold an NCCL, as PyTorch's wheels do.
    mkdir -p "$work/site/nvidia/nccl/lib"
    cp "$fakes/nccl/libnccl.so.2" "$work/site/nvidia/nccl/lib/"
    export PYTHONPATH="$work/site" FAKE_NCCL=22105
    command_is 3 nccl ok "$work/site/nvidia/nccl/lib/libnccl.so.2, the one of this Python" python3 train.py
    printf '#!/usr/bin/env python3\n' >"$work/torchrun"
    chmod +x "$work/torchrun"
    command_is 3 nccl_version warn '2.21.5 is older' "$work/torchrun" train.py
    finds command_wrapper ok 'torchrun hands the environment'
    unset PYTHONPATH FAKE_NCCL

    for name in docker sudo ssh mpirun srun deepspeed julia bash; do
        cp "$work/plain" "$work/$name"
    done
    command_is 3 command_wrapper fail 'does not carry the environment into the container' "$work/docker" run
    advises command_wrapper 'containers.md'
    command_is 3 command_wrapper fail 'drops LD_PRELOAD' "$work/sudo" x
    command_is 3 command_wrapper fail 'other host' "$work/ssh" x
    command_is 1 command_wrapper warn 'ranks on this host' "$work/mpirun" x
    command_is 0 command_wrapper ok 'unless --export' "$work/srun" x
    command_is 1 command_wrapper warn 'only to processes on this host' "$work/deepspeed" x
    command_is 1 command_wrapper warn 'RTLD_DEEPBIND' "$work/julia" x
    command_is 0 command_wrapper ok 'was not looked at' "$work/bash" -c x
}

use() {
    "$doctor" --help >"$work/out" || fail "--help"
    grep -q '^usage: slipring doctor' "$work/out" || fail "--help"
    for words in --colour '--limit' '--limit 0' '--limit 1x' '--limit=-1'; do
        # shellcheck disable=SC2086 # several words
        run 2 "$doctor" $words
        grep -q 'slipring doctor: ' "$work/err" || fail "no message: $words"
    done
    # Bytes that are no text do not break the JSON.
    run 1 env "NCCL_HOSTID=$(printf 'a"\\\001\377\303\251\n')" "$doctor" --json
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert any("a\"\\\x01\ufffd\u00e9" in c["text"] for c in r["checks"]), r' "$work/out" || fail "JSON with odd bytes"
    run 4 sh -c '"$1" >/dev/full' - "$doctor"
}

"$doctor" >"$work/out" 2>"$work/err" || base=$?
[ $base -le 1 ] || fail "this machine itself fails"

case $part in
driver) driver_part ;;
host) host_part ;;
environment)
    settings
    variables
    preload
    use
    ;;
command)
    programs
    scripts
    ;;
*) fail "no part $part" ;;
esac
exit 0
