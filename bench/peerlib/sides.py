# SPDX-License-Identifier: Apache-2.0
"""The sides of bench/peers: who is measured, and how one of them is made to do a job.

A side answers ask(job, seconds) with {"ms": ...} of its slowest rank, or {"wrong": ..., "of": ...}.
It raises Refused when that job can not be done and others may be, and Failed when the side is of no
more use.
"""

import collections
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Refused(Exception):
    pass


class Failed(Exception):
    def __init__(self, why, status=None):
        super().__init__(why)
        self.status = status  # of a program of C that has ended


def end_group(process):
    """Ends a process that leads a session, and what it has started there, unless it has ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def file_name(side):
    return side.replace(os.sep, "_")


def last_line(path):
    """The last line that may tell something: no frame of a traceback, not that a rank has ended, nor what
    slipring says at the end of a job."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip() for line in file if line.strip() and not re.match(r" |rank \d+: (exit|signal)|slipring: rank 0: ", line)]
    return lines[-1][:200] if lines else "it said nothing"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


Launch = collections.namedtuple("Launch", "name prefix env")  # how a program of C is started


class TorchSide:
    """A process for each rank, from the first job to the last: PyTorch takes seconds to start."""

    def __init__(self, name, role, setup, prefix=(), env=None, script="torch_rank.py"):
        self.name, self.role, self.setup, self.script = name, role, setup, script
        self.prefix, self.env = list(prefix), env or {}
        self.forms = ("stream", "event", "fresh") if role in ("plain", "zero-cta") else ("own",)
        self.gathers = role in ("plain", "zero-cta")
        self.tells_blocks = setup.device == "cuda"
        self.tries = bool(self.prefix)  # slipring lives in it, and learns from call to call
        self.processes, self.logs, self.replies, self.unread, self.facts = [], [], [], [], {}
        self.idle_cpu = self.idle_wall = 0.0  # seconds, between its turns, of the rank that took most

    def begin(self):
        """Starts the ranks; ready() waits until they can work."""
        port = free_port()
        for rank in range(self.setup.ranks):
            self.begin_rank(rank, port)

    def begin_rank(self, rank, port):
        ours, theirs = os.pipe()
        command = self.prefix + [
            self.setup.python,
            "-u",
            os.path.join(HERE, self.script),
            "--role",
            self.role,
            "--device",
            self.setup.device,
            "--reply-fd",
            str(theirs),
        ]
        command += ["--nccl", self.setup.nccl] if self.setup.nccl else []
        place = self.setup.places[rank] if self.setup.places else None
        command += ["--issue", str(place.issue)] if place else []
        env = (
            os.environ
            | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.setup.ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            | self.env
        )
        path = os.path.join(self.setup.logs, f"{file_name(self.name)}.rank{rank}.log")
        with open(path, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=[theirs],
                start_new_session=True,
                preexec_fn=place and (lambda: os.sched_setaffinity(0, place.rest)),
            )
        os.close(theirs)
        self.processes.append(process)
        self.logs.append(path)
        self.replies.append(ours)
        self.unread.append(b"")

    def ready(self, seconds):
        answers = self.collect("starting", seconds)
        self.facts = answers[0]
        for answer in answers:
            if "error" in answer:
                raise Failed(answer["error"])

    def ask(self, job, seconds):
        for rank, process in enumerate(self.processes):
            try:
                process.stdin.write((json.dumps(job) + "\n").encode())
                process.stdin.flush()
            except OSError:
                raise self.ended(rank) from None
        answers = self.collect(job["do"], seconds)
        for answer in answers:
            if "error" in answer:
                raise Refused(answer["error"])
        answer = worst(answers)
        cpu, wall = answer.pop("idle", (0, 0))
        self.idle_cpu, self.idle_wall = self.idle_cpu + cpu, self.idle_wall + wall
        return answer

    def idle_share(self):
        return self.idle_cpu / self.idle_wall if self.idle_wall > 0.5 else None

    def collect(self, what, seconds):
        """One answer of each rank. When one has failed, the others may wait for it for ever."""
        end, answers = time.monotonic() + seconds, {}
        while len(answers) < len(self.processes):
            waiting = [fd for rank, fd in enumerate(self.replies) if rank not in answers]
            readable = select.select(waiting, [], [], max(0, end - time.monotonic()))[0]
            if not readable:
                errors = [answer["error"] for answer in answers.values() if "error" in answer]
                late = ", ".join(str(rank) for rank in range(len(self.processes)) if rank not in answers)
                raise Failed(
                    f"rank {late} has not answered in time ({what})" + "".join(f"; {error}" for error in errors)
                )
            for fd in readable:
                rank = self.replies.index(fd)
                answer = self.read(rank)
                if answer is not None:
                    answers[rank] = answer
                    end = min(end, time.monotonic() + 15) if "error" in answer else end
        return [answers[rank] for rank in sorted(answers)]

    def ended(self, rank):
        """How a rank did, whose pipe is closed: in a moment it has said its last word."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.processes[rank].wait(5)
        return Failed(f"rank {rank} has ended, status {self.processes[rank].poll()}: {last_line(self.logs[rank])}")

    def read(self, rank):
        """The next whole line of a rank, or None."""
        piece = os.read(self.replies[rank], 65536)
        if not piece:
            raise self.ended(rank)
        line, newline, rest = (self.unread[rank] + piece).partition(b"\n")
        self.unread[rank] = rest if newline else line
        return json.loads(line) if newline else None

    def hang_up(self):
        """The ranks end when they have read this."""
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def stop(self, end):
        """Waits for the ranks to end until `end`, a time of time.monotonic(), and then ends them."""
        self.hang_up()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, end - time.monotonic()))
            end_group(process)
        for fd in self.replies:
            os.close(fd)
        self.processes, self.replies = [], []


class AgGemmSide:
    """bench/ag_gemm, started for every job: where there is no PyTorch, and on the software GPU."""

    forms, gathers, tells_blocks, tries, facts = ("stream", "event", "fresh"), True, False, False, {}
    OPTIONS = {"stream": [], "event": ["--side-stream"], "fresh": ["--interpose-op", "alloc"]}
    TIMES = {"form": "whole", "gather": "gather", "gemm": "gemm"}

    def __init__(self, name, setup, prefix=(), env=None):
        self.name, self.setup, self.prefix, self.env = name, setup, list(prefix), env or {}

    def begin(self):
        pass

    def ready(self, seconds):
        pass

    def hang_up(self):
        pass

    def idle_share(self):
        return None

    def stop(self, end):
        pass

    def ask(self, job, seconds):
        m, k, n = job["row"]
        checked = job["do"] == "check"
        words = [
            "--ranks",
            self.setup.ranks,
            "--m",
            n,
            "--n",
            m,
            "--k",
            k,
            "--warmup",
            job.get("warmup", 1),
            "--iters",
            job.get("iters", 1),
            "--check",
            "sample" if checked else "off",
        ]
        words += self.OPTIONS[job.get("form", "stream")]
        result = run_json(self, self.setup, self.setup.ag_gemm, [str(word) for word in words], seconds, wrong_status=1)
        if checked:
            return {"wrong": result["check"]["wrong"], "of": result["check"]["checked"]}
        return {"ms": result["worst"][self.TIMES[job["do"]]]["gpu_ms"]}


def run_json(under, setup, program, words, seconds, wrong_status=None):
    """Runs a program of C with the prefix and the environment of `under`, a side or a Launch. Returns
    what it has written to --json."""
    name, log = os.path.basename(program), os.path.join(setup.logs, f"{file_name(under.name)}.log")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        status = run(under, setup, [program] + words + ["--json", path], log, seconds)
        if status is None:
            raise Failed(f"{name} has not ended within {seconds:.0f} s")
        try:
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
        except (OSError, ValueError):
            result = None
        if result is None or status not in (0, wrong_status):
            raise Failed(f"{name}: status {status}: {last_line(log)}", status)
        return result


def run(under, setup, command, log, seconds):
    """Its exit status; None when it has not ended in time."""
    env = os.environ | setup.library_path | under.env
    with open(log, "w", encoding="utf-8") as out:
        try:
            process = subprocess.Popen(
                under.prefix + command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        except OSError as why:
            raise Failed(str(why)) from None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_group(process)


def worst(values):
    """Of what the ranks have answered: the largest number, within lists and objects as well."""
    first = values[0]
    if isinstance(first, dict):
        return {key: worst([value[key] for value in values]) for key in first}
    if isinstance(first, list) and all(len(value) == len(first) for value in values):
        return [worst(column) for column in zip(*values)]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return max(numbers) if numbers else first


def stop_all(sides, seconds):
    end = time.monotonic() + seconds
    for side in sides:
        side.hang_up()
    for side in sides:
        side.stop(end)
