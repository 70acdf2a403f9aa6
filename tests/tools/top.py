#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`slipring top` beside a running job of two ranks on the software GPU, and beside what it can not show.

  top.py SLIPRING_TOP PROGRAM CASE       CASE: running, crowded, idle, late, stopped, dead, container, metrics, again, strangers, usage

From CMake: SLIPRING_LIB, SOFTGPU_DIR. Processes are always named, as other jobs may run on the machine.
"""
import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

tool, program, case = sys.argv[1:]
work = tempfile.mkdtemp()
END = os.path.join(work, "end")
PRELOAD = ":".join(filter(None, [os.environ.get("TEST_PRELOAD_FIRST"), os.environ["SLIPRING_LIB"]]))
SETTINGS = {"SLIPRING_MIN_BYTES": "0", "SLIPRING_TRIALS": "0", "SLIPRING_LOG": "error", "SOFTGPU_DEVICES": "2"}


def top(*arguments, status=0, kinds="--json"):
    done = subprocess.run([tool, "--once", *([kinds] if kinds else []), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def seen(pid):
    """What top says of the job, once both ranks have called. TOP_SECONDS: for one that is not to be found."""
    end = time.monotonic() + float(os.environ.get("TOP_SECONDS", 30))
    while time.monotonic() < end:
        done = subprocess.run([tool, "--once", "--json", str(pid)], capture_output=True, text=True)
        if done.returncode == 0:
            told = json.loads(done.stdout)
            ranks = [rank for comm in told["communicators"] for rank in comm["ranks"]]
            if len(ranks) == 2 and all(rank["ring"] > 0 for rank in ranks):
                return told
        time.sleep(0.05)
    raise AssertionError(done.stderr or done.stdout)


def ranks_of(pid):
    """The two processes at the end of a chain of programs that each start one."""
    while len(children(pid)) == 1:
        pid, = children(pid)
    return children(pid)


ENVIRONMENT = {**os.environ, **SETTINGS, "LD_PRELOAD": PRELOAD, "LD_LIBRARY_PATH": os.environ["SOFTGPU_DIR"]}


@contextlib.contextmanager
def job(late=0, behind=()):
    """The two ranks' processes, in their order. `behind`: what starts the program."""
    with subprocess.Popen([*behind, program, str(late), END], env=ENVIRONMENT) as process:
        try:
            while len(ranks_of(process.pid)) < 2:
                time.sleep(0.01)
            ranks = {}
            for rank in seen(ranks_of(process.pid)[0])["communicators"][0]["ranks"]:
                ranks[rank["rank"]] = rank["pid"]
            assert sorted(ranks.values()) == sorted(ranks_of(process.pid)), ranks
            yield [ranks[0], ranks[1]]
        finally:
            with open(END, "w", encoding="ascii"):
                pass
            process.wait(timeout=100)


def running():
    with job() as pids:
        before, after = seen(pids[0]), seen(pids[1])
        text = top(pids[0], kinds=None).stdout
    for told in (before, after):
        assert [(p["pid"], p["rank"]) for p in sorted(told["processes"], key=lambda p: p["rank"])] == [(pids[0], 0), (pids[1], 1)], told
        comm, = told["communicators"]
        assert comm["state"] == "connected" and re.fullmatch("[0-9a-f]{8}", comm["name"]), told
        assert [rank["state"] for rank in comm["ranks"]] == ["runs", "runs"], told
        for process in told["processes"]:
            calls = process["collectives"]["allgather"]
            assert calls["calls"] >= calls["ring"] > 0 and process["staging_bytes"] > 0, process
            assert 0 <= process["idle_seconds"] < 5 and process["program"] == os.path.basename(program)[:15], process
            assert process["collectives"]["allreduce"] == {"calls": 0, "ring": 0}, process
    for i in range(2):
        assert after["communicators"][0]["ranks"][i]["ring"] > before["communicators"][0]["ranks"][i]["ring"], (before, after)
    assert re.search(rf"^ *{pids[1]} +1 +\d+ +\d+ +100% +0 +\d+ MiB +[\d.]+ s  {os.path.basename(program)[:15]}$", text, re.M), text
    assert re.search(rf"^ *{pids[0]} +0 +\d+ +\d+%  runs", text, re.M), text


def links(pid):
    """What a process has open."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def crowded():
    """A program that has used a quarter of its descriptors gets all others: the block's is not kept."""
    fds = [os.open("/", os.O_RDONLY) for _ in range(400)]
    limited = ["sh", "-c", 'ulimit -n 1500 && exec "$@"', "sh"]
    with subprocess.Popen([*limited, program, "0", END], env=ENVIRONMENT, pass_fds=fds) as process:
        end = time.monotonic() + 30
        while len(ranks_of(process.pid)) < 2 or not any("pidfd" in link for link in links(ranks_of(process.pid)[0])):
            assert time.monotonic() < end and process.poll() is None, "no communicator"
            time.sleep(0.01)
        time.sleep(0.5)  # the agreement is over
        kept = [link for pid in ranks_of(process.pid) for link in links(pid) if "slipring-control" in link]
        with open(END, "w", encoding="ascii"):
            pass
        assert process.wait(timeout=60) == 0
    assert not kept, f"kept {kept}"


def idle():
    """Calls that are seconds apart: the time since the latest one grows."""
    with job(late=3000) as pids:
        longest = max(min(p["idle_seconds"] for p in json.loads(top(pids[0]).stdout)["processes"]) for _ in range(5))
    assert longest > 1, f"idle {longest}"


def late():
    with job(late=100) as pids:
        told = json.loads(top(*pids).stdout)
        text = top(pids[0], kinds=None).stdout
    ranks = told["communicators"][0]["ranks"]
    assert ranks[0]["late"] < 0.3 and ranks[1]["late"] > 0.7 and told["looks"] >= 40, told
    assert re.search(r"^ *\d+ +1 .*runs, and the others wait for it$", text, re.M) and text.count("wait for it") == 1, text


def stopped():
    with job() as pids:
        os.kill(pids[1], signal.SIGSTOP)
        try:
            told = json.loads(top(pids[0]).stdout)
        finally:
            os.kill(pids[1], signal.SIGCONT)
        assert [rank["state"] for rank in told["communicators"][0]["ranks"]] == ["runs", "stopped"], told


def dead():
    """A rank that has been killed is told by its number, as long as another rank's process is there."""
    with job() as pids:
        os.kill(pids[0], signal.SIGSTOP)  # it does not notice
        os.kill(pids[1], signal.SIGKILL)
        try:
            told = json.loads(top(pids[0]).stdout)
            gone = top(pids[1], status=1).stderr
        finally:
            os.kill(pids[0], signal.SIGCONT)
        ranks = told["communicators"][0]["ranks"]
        assert [(rank["pid"], rank["state"]) for rank in ranks] == [(pids[0], "stopped"), (pids[1], "ended")], told
        assert f"process {pids[1]}" in gone, gone
        for _ in range(200):  # then it does
            done = subprocess.run([tool, "--once", "--json", str(pids[0])], capture_output=True, text=True)
            if done.returncode or json.loads(done.stdout)["communicators"][0]["ranks"][0]["state"] in ("failed", "left", "ended"):
                break
            time.sleep(0.05)
        else:
            raise AssertionError(done)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)  # else it may wait for its stream, as it does not ask NCCL


def container():
    """Ranks whose processes have other numbers, as in a container, are shown with those that they have here."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        sys.exit(77)
    with job(behind=alone) as pids:
        told = json.loads(top(pids[0]).stdout)
    assert [(r["pid"], r["state"]) for r in told["communicators"][0]["ranks"]] == [(pid, "runs") for pid in pids], told


SAMPLE = re.compile(r'(\w+)\{(\w+="(?:[^"\\\n]|\\["\\n])*"(?:,\w+="(?:[^"\\\n]|\\["\\n])*")*)\} (-?[\d.]+)')


def parsed(text):
    """{metric: [(labels, value)]}; every metric has its help and type before its samples."""
    found, described, current = {}, set(), None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in described, f"{current} twice"
            described.add(current)
        elif line.startswith("# TYPE "):
            assert line.split()[2] == current and line.split()[3] in ("counter", "gauge"), line
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == current, line
            found.setdefault(current, []).append((dict(re.findall(r'(\w+)="([^"]*)"', match[2])), float(match[3])))
    return found


def metrics():
    path = os.path.join(work, "slipring.prom")
    with job() as pids:
        top("--prometheus", path, pids[0], kinds=None)
        with open(path, encoding="utf-8") as file:
            found = parsed(file.read())
        named = parsed(top("--prometheus", "-", pids[1], kinds=None).stdout)
        missing = top("--prometheus", os.path.join(work, "none", "x"), pids[0], kinds=None, status=3).stderr
        folder = top("--prometheus", work, pids[0], kinds=None, status=3).stderr
    assert set(found) == set(named) == {"slipring_calls_total", "slipring_memory_bytes", "slipring_idle_seconds", "slipring_rank_up",
                                        "slipring_communicator_calls_total", "slipring_late_ratio", "slipring_call_sites"}, set(found)
    rings = {labels["rank"]: value for labels, value in found["slipring_calls_total"]
             if labels["op"] == "allgather" and labels["way"] == "ring"}
    assert set(rings) == {"0", "1"} and min(rings.values()) > 0, rings
    assert [value for _, value in found["slipring_rank_up"]] == [1, 1], found
    assert "none/x can not be written: No such file" in missing and f"{work} can not be written: Is a directory" in folder, (missing, folder)
    assert sorted(os.listdir(work)) == ["end", "slipring.prom"], os.listdir(work)
    assert os.stat(path).st_mode & 0o777 == 0o666 & ~mask(), oct(os.stat(path).st_mode)


def mask():
    old = os.umask(0)
    os.umask(old)
    return old


def again():
    """Without --once: table after table, until the job ends."""
    with job() as pids:
        with subprocess.Popen([tool, "--json", "--interval", "1", str(pids[0])], stdout=subprocess.PIPE, text=True) as watching:
            lines = [json.loads(watching.stdout.readline()) for _ in range(3)]
            with open(END, "w", encoding="ascii"):
                pass
            watching.stdout.read()
            assert watching.wait(timeout=60) == 1, watching.returncode
    rings = [told["communicators"][0]["ranks"][0]["ring"] for told in lines]
    assert rings[0] < rings[2], rings


def holding(fill):
    """A process with a block, named as control blocks are, that `fill` has written."""
    fd = os.memfd_create("slipring-control", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    fill(fd)
    return fd


def strangers():
    def sealed(fd):
        os.ftruncate(fd, 1 << 20)
        os.pwrite(fd, b"\x01\x02\x03\x04\x02\0\0\0", 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)

    own = os.getpid()
    for fill in (lambda fd: None, lambda fd: os.ftruncate(fd, 1 << 20), sealed):
        fd = holding(fill)
        told = top(own, status=1)
        assert f"process {own}" in told.stderr and "of another build of slipring" in told.stderr and not told.stdout, told
        os.close(fd)
    told = top(own, status=1)
    assert f"process {own} has no communicator on the ring: libslipring.so is not loaded in it" in told.stderr, told
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "LD_PRELOAD": PRELOAD}) as loaded:
        for _ in range(200):
            told = top(loaded.pid, status=1)
            if "it has made none yet" in told.stderr:
                break
            time.sleep(0.02)
        else:
            raise AssertionError(told)
        loaded.kill()
    with subprocess.Popen(["true"]) as ended:
        pass
    assert f"there is no process {ended.pid}" in top(ended.pid, status=1).stderr
    other_user()


def other_user():
    if os.geteuid() != 0:
        assert "process 1 belongs to another user" in top(1, status=1).stderr
        return
    with subprocess.Popen(["sleep", "60"], user=65534) as process:
        told = top(process.pid, status=1).stderr
        process.kill()
    assert f"process {process.pid} belongs to another user, nobody: only a job's own user can look at it" in told, told


def usage():
    assert 'a process is a number, not "x"' in top("x", status=2).stderr
    assert 'a process is a number, not "-3"' in top("--", "-3", status=2).stderr
    assert "--json and --prometheus" in top("--prometheus", "-", 1, status=2).stderr
    assert "--interval" in top("--interval", "0", 1, status=2).stderr


try:
    globals()[case]()
finally:
    subprocess.run(["rm", "-rf", work], check=True)
