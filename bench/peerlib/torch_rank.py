# SPDX-License-Identifier: Apache-2.0
"""One rank of a side of bench/peers: a PyTorch program that does what it is told, line by line.

Started by the driver with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Jobs come as JSON lines on
stdin, each is answered with one JSON line on the descriptor --reply-fd; all ranks of a side get the
same jobs in the same order. Nothing here knows of slipring: the environment decides whether it is
there.

    {"do": "form", "form": "stream", "row": [M, K, N], "warmup": W, "iters": I}
                                                  -> {"ms": time of one iteration}
    {"do": "gather"}, {"do": "gemm"} with the same members: of one part alone
    {"do": "check", "form": ..., "row": ...}      -> {"wrong": elements, "of": elements}
    {"do": "blocks", "row": ...}                  -> {"blocks": most, "kernels": [names]}

x (M / ranks x K, this rank's rows) is gathered to M x K and multiplied with the transpose of a
weight (N x K) of the rank's own; bf16. A failed job is answered with {"error": one line}. The end
of stdin ends the program.
"""

import argparse
import ctypes
import datetime
import gc
import json
import os
import signal
import sys
import tempfile
import time

BF16_BYTES = 2
CYCLES_A_MS = 2_000_000  # of a GPU's clock, about
PROBE_SPREAD = 32  # standard deviation of a product's elements in a check: below 256, whole numbers are exact in bf16


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


die_with_parent()

AT_START = os.sched_getaffinity(0)

import torch
import torch.distributed as dist
import torch.nn.functional as F

sys.dont_write_bytecode = True  # beside the sources; where PyTorch lies it may

from cores import Issuer
from nccl_windows import Windows

sys.dont_write_bytecode = False


class World:
    """The process group, the device, and how time is taken on it."""

    def __init__(self, options):
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.cuda = options.device == "cuda"
        self.device = torch.device("cuda", self.rank) if self.cuda else torch.device("cpu")
        patience = datetime.timedelta(seconds=300)  # the driver is the one who gives up
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.store = dist.TCPStore(address, port, self.ranks, self.rank == 0, timeout=patience)
        common = {"store": self.store, "rank": self.rank, "world_size": self.ranks, "timeout": patience}
        if self.cuda:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", device_id=self.device, **common)
        else:
            torch.set_num_threads(1)
            dist.init_process_group("gloo", **common)
        self.token = torch.zeros(1, device=self.device)
        self.meet()
        self.issuer = None if options.issue is None else Issuer(options.issue, AT_START)

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def release(self):
        """Gives the memory back that nobody holds: the other sides share the device."""
        self.synchronize()
        if self.cuda:
            torch.cuda.empty_cache()

    def meet(self):
        """All ranks are here, and their devices have nothing left to do."""
        self.synchronize()
        dist.all_reduce(self.token)
        self.synchronize()

    def on_any(self, true):
        """Whether it is true on any rank."""
        count = torch.tensor(float(true), device=self.device)
        dist.all_reduce(count)
        return bool(count.item())

    def about(self):
        facts = {"torch": torch.__version__, "device": "CPU"}
        if self.cuda:
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
            facts["cuda"] = torch.version.cuda
            facts["device"] = torch.cuda.get_device_name()
        return facts

    def timed(self, operation, warmup, iters):
        """Milliseconds of one iteration, back to back, on the device."""
        for _ in range(warmup):
            operation()
        if self.issuer:
            self.issuer.keep()
        self.meet()
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(iters):
                operation()
            return (time.perf_counter() - begin) / iters * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(iters):
            operation()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / iters

    def parts(self, operation, iters):
        """Of one iteration: milliseconds that the host takes to issue it, and that the device takes when all has
        been issued before it begins. For that the device is kept busy meanwhile."""
        if not self.cuda:
            return {"host_ms": self.timed(operation, 0, iters), "device_ms": 0.0}
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for cycles in (CYCLES_A_MS << step for step in range(3, 6)):
            self.meet()
            torch.cuda._sleep(cycles)
            begin.record()
            start = time.perf_counter()
            for _ in range(iters):
                operation()
            host, late = time.perf_counter() - start, begin.query()
            end.record()
            end.synchronize()
            if not self.on_any(late):
                break
        return {"host_ms": host / iters * 1e3, "device_ms": begin.elapsed_time(end) / iters}


def small(world, seed, rows, columns, dtype=torch.bfloat16):
    """Exact results are made of few, small whole numbers: -1, 0 and 1, with so many zeros that bf16
    holds all sums of `columns` products."""
    generator = torch.Generator(device=world.device)
    generator.manual_seed(seed)
    variance = min(0.5, PROBE_SPREAD / columns**0.5)
    share = (1 - (1 - 2 * variance) ** 0.5) / 2
    plus, minus = (
        torch.empty(rows, columns, dtype=dtype, device=world.device).bernoulli_(share, generator=generator)
        for _ in range(2)
    )
    return plus.sub_(minus)


def accumulate(total, grad, x):
    """total += grad.t() @ x, the gradient of a weight: a sum in fp32 (beta = 1), also of 16-bit factors."""
    if grad.is_cuda and grad.dtype != total.dtype:
        torch.addmm(total, grad.t(), x, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(grad.t().to(total.dtype), x.to(total.dtype))


class Plain:
    """all_gather_into_tensor, then the product: the program as most are written."""

    forms = ("stream", "event", "fresh")

    def __init__(self, world, _):
        self.world, self.row = world, None
        self.alone = dist.new_group()  # for gathers that no GEMM follows: they are another call site
        self.refused = {}  # row: why it can not be; making it again would only take time

    def take(self, row):
        """Makes the row's buffers once: the same ones serve all rounds, as in a steady program."""
        if row == self.row:
            return
        if row in self.refused:
            raise self.refused[row]
        self.drop()
        try:
            self.make(row)
        except Exception as why:
            self.refused[row] = why.with_traceback(None)
            raise
        self.row = row

    def make(self, row):
        m, k, n = row
        self.x, self.full = self.matrix(m // self.world.ranks, k), self.matrix(m, k)
        self.weight, self.out = self.private(n, k), self.private(m, n)
        self.fill_for_times()
        self.full.normal_()  # the GEMM alone reads it before anything was gathered
        self.prepare()

    def drop(self):
        self.row = self.x = self.full = self.weight = self.out = None
        self.world.release()

    def private(self, rows, columns):
        return torch.empty(rows, columns, dtype=torch.bfloat16, device=self.world.device)

    matrix = private  # what a gather reads and writes

    def prepare(self):
        pass

    def fill_for_times(self):
        """What is multiplied decides what power a GEMM takes, and so its speed: no few values."""
        self.x.normal_()
        self.weight.normal_(std=self.weight.shape[1] ** -0.5)

    # The parts.

    def gather(self, async_op=False):
        work = dist.all_gather_into_tensor(self.full, self.x, async_op=async_op)
        if async_op:
            work.wait()

    def gather_alone(self):
        dist.all_gather_into_tensor(self.full, self.x, group=self.alone)

    def gemm(self):
        torch.mm(self.full, self.weight.t(), out=self.out)

    def operation(self, form):
        """A function of one iteration, which returns what was gathered and the product."""
        return {"stream": self.on_stream, "event": self.by_event, "fresh": self.with_fresh_output}[form]

    def on_stream(self):
        self.gather()
        self.gemm()
        return self.full, self.out

    def by_event(self):
        self.gather(async_op=True)
        self.gemm()
        return self.full, self.out

    def with_fresh_output(self):
        self.gather()
        return self.full, F.linear(self.full, self.weight)


class ZeroCta(Plain):
    """The same with NCCL called directly, and with buffers that let it use copy engines."""

    def __init__(self, world, options):
        super().__init__(world, options)
        self.windows = Windows(options.nccl, world.rank, world.ranks, world.store)
        self.side = torch.cuda.Stream()

    def matrix(self, rows, columns):
        return self.windows.tensor(torch, self.world.device, rows, columns)

    def drop(self):
        super().drop()
        self.windows.free()

    def gather(self, async_op=False):
        current = torch.cuda.current_stream()
        stream = self.side if async_op else current
        if async_op:
            stream.wait_stream(current)
        self.windows.all_gather(
            self.x.data_ptr(), self.full.data_ptr(), self.x.numel() * BF16_BYTES, stream.cuda_stream
        )
        if async_op:
            current.wait_stream(stream)

    gather_alone = gather


class Fused(Plain):
    """torch.ops.symm_mem.fused_all_gather_matmul. Its outputs are always new."""

    forms = ("own",)

    def __init__(self, world, options):
        super().__init__(world, options)
        self.group = enable_symmetric_memory()

    def operation(self, form):
        return self.fused

    def fused(self):
        full, (out,) = torch.ops.symm_mem.fused_all_gather_matmul(
            self.x, [self.weight.t()], gather_dim=0, group_name=self.group
        )
        return full, out


class AsyncTp(Plain):
    """torch.compile, which is told to make a fused operation of a gather and its GEMM."""

    forms = ("own",)

    def __init__(self, world, options):
        super().__init__(world, options)
        import torch._inductor.config
        import torch.distributed._functional_collectives as functional

        enable_symmetric_memory()
        torch._inductor.config._micro_pipeline_tp = True
        torch._inductor.config.post_grad_custom_post_pass = self.look
        group = dist.group.WORLD

        def program(x, weight):
            return F.linear(functional.all_gather_tensor(x, 0, group), weight)

        self.program = program

    def look(self, graph):
        """A pass of the compiler, which changes nothing: whether the one before made what it was to."""
        self.matched |= any("fused_all_gather_matmul" in str(node.target) for node in graph.nodes)

    def prepare(self):
        torch._dynamo.reset()
        self.matched = False
        self.compiled = torch.compile(self.program, fullgraph=True, dynamic=False)
        self.compiled(self.x, self.weight)
        if not self.matched:
            raise RuntimeError("torch.compile made no fused_all_gather_matmul of it")

    def operation(self, form):
        return lambda: (None, self.compiled(self.x, self.weight))


def enable_symmetric_memory():
    import torch.distributed._symmetric_memory as symm_mem

    name = dist.group.WORLD.group_name
    symm_mem.enable_symm_mem_for_group(name)
    return name


ROLES = {"plain": Plain, "zero-cta": ZeroCta, "fused": Fused, "async-tp": AsyncTp}


class Rank:
    def __init__(self, options):
        self.world = World(options)
        self.role = ROLES[options.role](self.world, options)

    def about(self):
        return {"nccl_called": getattr(getattr(self.role, "windows", None), "version", None)}

    def do(self, job):
        with torch.no_grad():
            self.role.take(tuple(job["row"]))
            return getattr(self, job["do"])(job)

    def form(self, job):
        return {"ms": self.world.timed(self.role.operation(job["form"]), job["warmup"], job["iters"])}

    def gather(self, job):
        return {"ms": self.world.timed(self.role.gather_alone, job["warmup"], job["iters"])}

    def gemm(self, job):
        return {"ms": self.world.timed(self.role.gemm, job["warmup"], job["iters"])}

    def check(self, job):
        role, world, (m, k, n) = self.role, self.world, job["row"]
        shards = [small(world, 1 + rank, m // world.ranks, k) for rank in range(world.ranks)]
        role.x.copy_(shards[world.rank])
        role.weight.copy_(small(world, 1000 + world.rank, n, k))
        wanted = torch.cat(shards)
        role.full.fill_(7)
        role.out.fill_(7)
        world.meet()
        full, out = role.operation(job["form"])()
        wrong = 0 if full is None else different(full, wanted)
        factor = role.weight.float().t()
        for first in range(0, m, 4096):  # in fp32, which no side has a part in
            rows = slice(first, first + 4096)
            wrong += different(out[rows], (wanted[rows].float() @ factor).bfloat16())
        counted = out.numel() + (0 if full is None else full.numel())
        del shards, wanted, factor, full, out
        role.fill_for_times()
        world.release()
        world.meet()
        return {"wrong": wrong, "of": counted}

    def blocks(self, _):
        """The kernels of a gather alone, and the blocks of the largest one."""
        self.role.gather_alone()
        self.world.meet()
        with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as seen:
            self.role.gather_alone()
            self.world.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            seen.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        grids = {
            event["name"].split("(")[0]: event["args"]["grid"][0] for event in events if event.get("cat") == "kernel"
        }
        return {"blocks": max(grids.values(), default=0), "kernels": sorted(grids)}


def different(got, wanted):
    return int((got != wanted).sum())


def one_line(error):
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{type(error).__name__}: {text}"[:160]


def times():
    """Seconds of this process on all cores, and of the clock."""
    return time.process_time(), time.monotonic()


def serve(make, roles):
    """Answers jobs until stdin ends, with a rank that make(options) has made; it has `world`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", choices=roles, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--nccl", default="libnccl.so.2")
    parser.add_argument("--issue", type=int, help="the core of the thread that issues work; others have the rest")
    parser.add_argument("--reply-fd", type=int, required=True)
    options = parser.parse_args()
    with os.fdopen(options.reply_fd, "w", encoding="utf-8") as replies:

        def reply(what):
            replies.write(json.dumps(what) + "\n")
            replies.flush()

        try:
            rank = make(options)
        except Exception as error:
            reply({"error": one_line(error)})
            raise
        gc.collect()
        gc.freeze()  # looking through what stays would take milliseconds at any time
        reply(rank.world.about() | rank.about())
        since = times()
        for line in sys.stdin:
            idle = [now - before for now, before in zip(times(), since)]
            try:
                reply(rank.do(json.loads(line)) | {"idle": idle})
            except Exception as error:  # the driver decides what it means
                print(f"{line.strip()}: {error!r}", flush=True)
                reply({"error": one_line(error)})
            since = times()
    dist.destroy_process_group()


if __name__ == "__main__":
    serve(Rank, ROLES)
