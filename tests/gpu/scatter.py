#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GEMMs whose output is reduced and scattered, or all-reduced, in PyTorch: NCCL, slipring, and PyTorch's own overlap, side by side.

    scatter.py [--all] [--lib build/libslipring.so] [--shapes 8192,8192,8192 ...] [--iters 30] [--rounds 3]

A shape is M,K,N: each of the ranks multiplies (M, K / ranks) with (K / ranks, N), and gets M / ranks rows of the sum over the
ranks, in bf16. Forms:

    stream    torch.mm into a fixed output, then reduce_scatter_tensor on the same stream
    event     with async_op=True, and work.wait()
    fresh     F.linear, which allocates its output
    apart     F.linear, and ncclAllReduce by ctypes into a new buffer, as vLLM does; with --all
    fused     torch.ops.symm_mem.fused_matmul_reduce_scatter, where it is and works; without slipring

With --all it is all_reduce instead of reduce_scatter_tensor, in place on what the GEMM has written: all ranks get all rows. There
is no fused form then.

In each round all ranks are started without and with slipring, in turn. A process first runs each form --settle times, in which
slipring learns and tries its ways. Then results are compared with exact ones (small whole numbers, new ones each time, poisoned
outputs), and the form is timed: milliseconds of one iteration, back to back, on the slowest rank. The table has medians over the
rounds; the bound is the longer one of GEMM and reduce-scatter alone, by whomever.

--device cpu: without a GPU, with gloo: tries this program itself. Its times say nothing.

Exit status: 0; 1 a result was wrong, or a process failed; 124 --limit seconds were not enough.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
SHAPES = ["8192,8192,8192", "8192,4096,8192", "16384,1024,8192", "16384,4096,4096", "4096,4096,4096"]
FORMS = ("stream", "event", "fresh", "apart", "fused")
SPREAD = 24  # standard deviation of a sum's elements in a check: whole numbers below 256 are exact in bf16
CHECKS = 6


# --- a rank -----------------------------------------------------------------------------------------------------------


class Rank:
    """The process group, the device, and how time is taken on it."""

    def __init__(self, a):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.cuda, self.all = torch, dist, a.device == "cuda", a.all
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", self.rank) if self.cuda else torch.device("cpu")
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.nccl = None
        if self.cuda:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", device_id=self.device)
        else:
            dist.init_process_group("gloo")

    def synchronize(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def slowest(self, value):
        all_ = self.torch.tensor([value], device=self.device, dtype=self.torch.float64)
        self.dist.all_reduce(all_, op=self.dist.ReduceOp.MAX)
        return all_.item()

    def timed(self, operation, iters):
        self.slowest(0.0)  # all are here
        self.synchronize()
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(iters):
                operation()
            return self.slowest((time.perf_counter() - begin) * 1e3 / iters)
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(iters):
            operation()
        end.record()
        end.synchronize()
        return self.slowest(begin.elapsed_time(end) / iters)

    def integers(self, seed, rows, columns, inner):
        """-1, 0 and 1, so many zeros that bf16 holds all sums of `inner` products."""
        generator = self.torch.Generator(device=self.device)
        generator.manual_seed(seed)
        share = min(0.45, (SPREAD / inner**0.5) / 2)
        drawn = self.torch.rand(rows, columns, generator=generator, device=self.device)
        return ((drawn < share).to(self.dtype) - (drawn > 1 - share).to(self.dtype)).contiguous()


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Nccl:
    """A communicator of all ranks, without PyTorch."""

    SUM, BF16 = 0, 9  # of nccl.h

    def __init__(self, world):
        self.library, self.torch = ctypes.CDLL("libnccl.so.2"), world.torch
        name, self.comm = UniqueId(), ctypes.c_void_p()
        if world.rank == 0:
            self.done(self.library.ncclGetUniqueId(ctypes.byref(name)))
        shared = [bytes(name.bytes)]
        world.dist.broadcast_object_list(shared)
        name = UniqueId.from_buffer_copy(shared[0])
        self.done(self.library.ncclCommInitRank(ctypes.byref(self.comm), world.ranks, name, world.rank))

    @staticmethod
    def done(status):
        if status:
            raise RuntimeError(f"NCCL: {status}")

    def all_reduce(self, source):
        out = self.torch.empty_like(source)
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        send, recv = ctypes.c_void_p(source.data_ptr()), ctypes.c_void_p(out.data_ptr())
        self.done(self.library.ncclAllReduce(send, recv, ctypes.c_size_t(source.numel()), self.BF16, self.SUM, self.comm, stream))
        return out


class Site:
    """One shape's buffers, and its forms."""

    def __init__(self, world, shape):
        torch = world.torch
        self.world, self.shape = world, shape
        m, k, n = shape
        self.own_k, self.rows = k // world.ranks, m // world.ranks
        make = lambda *size: torch.randn(*size, device=world.device).to(world.dtype)
        self.x, self.weight = make(m, self.own_k), make(n, self.own_k)
        self.out, self.part = make(m, n), make(self.rows, n)
        self.result = self.part

    def scatter(self, source, async_op=False):
        if self.world.all:
            self.result = source
            work = self.world.dist.all_reduce(source, async_op=async_op)
        else:
            work = self.world.dist.reduce_scatter_tensor(self.part, source, async_op=async_op)
        if async_op:
            work.wait()

    def gemm(self):
        self.world.torch.mm(self.x, self.weight.t(), out=self.out)

    def alone(self):
        self.scatter(self.out)

    def stream(self):
        self.gemm()
        self.scatter(self.out)

    def event(self):
        self.gemm()
        self.scatter(self.out, True)

    def fresh(self):
        self.scatter(self.world.torch.nn.functional.linear(self.x, self.weight))

    def apart(self):
        if not self.world.nccl:
            self.world.nccl = Nccl(self.world)
        self.result = self.world.nccl.all_reduce(self.world.torch.nn.functional.linear(self.x, self.weight))

    def fused(self):
        group = self.world.dist.group.WORLD.group_name
        self.result = self.world.torch.ops.symm_mem.fused_matmul_reduce_scatter(self.x, self.weight.t(), "sum", 0, group)

    def operands(self, seed, rank):
        m, k, n = self.shape
        return (
            self.world.integers(seed * 64 + 2 * rank, m, self.own_k, k),
            self.world.integers(seed * 64 + 2 * rank + 1, n, self.own_k, k),
        )

    def wrong(self, form, seed):
        """Elements of this rank's part that are not what they must be; this turn's numbers are new."""
        world, torch = self.world, self.world.torch
        x, weight = self.operands(seed, world.rank)
        self.x.copy_(x)
        self.weight.copy_(weight)
        self.out.fill_(float("nan"))
        self.part.fill_(float("nan"))
        self.result = self.part
        getattr(self, form)()
        have = self.result.float().clone()
        want = torch.zeros_like(have)
        here = slice(0, self.shape[0]) if world.all else slice(world.rank * self.rows, (world.rank + 1) * self.rows)
        for rank in range(world.ranks):
            x, weight = self.operands(seed, rank)
            want += x[here].float() @ weight.float().t()
        bad = int((have != want).sum().item())
        if form in ("stream", "event") and not world.all:  # the whole product is in the program's buffer
            bad += int((self.out.float() != self.x.float() @ self.weight.float().t()).sum().item())
        return bad


def attempt(world, site, form, a, out):
    """Settles, checks and times one form. A form that not every rank can do is left out."""
    why = ""
    try:
        getattr(site, form)()
        world.synchronize()
    except Exception as error:  # of an operator that is not there, or does not take the shape
        why = str(error).splitlines()[0][:150] or type(error).__name__
    if world.slowest(float(bool(why))):
        out[form] = {"left_out": why or "another rank could not"}
        return
    for _ in range(a.settle):
        getattr(site, form)()
    bad = sum(site.wrong(form, 1 + turn) for turn in range(CHECKS))
    world.timed(getattr(site, form), 3)
    ms = [world.timed(getattr(site, form), a.iters) for _ in range(a.times)]
    bad += sum(site.wrong(form, 101 + turn) for turn in range(2))
    out[form] = {"ms": statistics.median(ms), "wrong": int(world.slowest(float(bad)))}


def be_rank(a):
    world = Rank(a)
    if world.cuda:
        world.torch.backends.cuda.matmul.allow_tf32 = False  # the checks are in fp32
        try:
            import torch.distributed._symmetric_memory as symm_mem

            symm_mem.enable_symm_mem_for_group(world.dist.group.WORLD.group_name)
        except Exception as error:
            print(f"symmetric memory: {error}", file=sys.stderr)
    rows = {}
    for text in a.shapes:
        site, row = Site(world, tuple(map(int, text.split(",")))), {}
        for _ in range(5):
            site.gemm()
            site.alone()
        for part in ("gemm", "alone"):
            row[part] = {"ms": statistics.median(world.timed(getattr(site, part), a.iters) for _ in range(a.times))}
        for form in a.forms:
            if form != "fused" or not a.with_slipring:
                attempt(world, site, form, a, row)
        rows[text] = row
        del site
        if world.cuda:
            world.torch.cuda.empty_cache()
    if world.rank == 0:
        facts = {"torch": world.torch.__version__, "device": "CPU"}
        if world.cuda:
            facts["device"] = world.torch.cuda.get_device_name()
            facts["nccl"] = ".".join(map(str, world.torch.cuda.nccl.version()))
        with open(a.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "facts": facts}, file)
    world.dist.barrier()
    world.dist.destroy_process_group()


# --- all of them ------------------------------------------------------------------------------------------------------


def start(a, side, number, folder):
    """All ranks of one run: what rank 0 measured. Raises when one fails."""
    report = os.path.join(folder, f"{side}-{number}.json")
    under = []
    if side == "slipring":
        log = os.path.join(folder, f"{side}-{number}.rank%r.log")
        under = [os.path.join(ROOT, "LD_PRELOAD", "slipring"), "run", "--lib", a.lib, "--set", "log=info", "--set", f"log_file={log}"]
        for setting in a.set:
            under += ["--set", setting]
        under.append("--")
    own = [sys.executable, "-u", os.path.realpath(__file__), "--as-rank", "--json", report, "--device", a.device]
    own += ["--iters", str(a.iters), "--times", str(a.times), "--settle", str(a.settle), "--shapes", *a.shapes, "--forms", *a.forms]
    own += ["--all"] if a.all else []
    own += ["--with-slipring"] if side == "slipring" else []
    env = dict(os.environ, WORLD_SIZE=str(a.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + (os.getpid() * 7 + number) % 20000))
    ranks, outputs = [], []
    for rank in range(a.ranks):
        env.update(host_of(a, rank))
        path = os.path.join(folder, f"{side}-{number}.rank{rank}.out")
        outputs.append(path)
        with open(path, "wb") as out:
            ranks.append(subprocess.Popen(under + own, env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=out, stderr=out))
    wait_for(a, ranks, outputs, f"{side}, round {number // 2 + 1}")
    with open(report, encoding="utf-8") as file:
        return json.load(file)


def host_of(a, rank):
    """What makes the rank one of several hosts; NCCL talks over sockets between them, or with --links as on one host."""
    if not a.hosts:
        return {}
    name = f"host{rank * a.hosts // a.ranks}"
    sockets = {"NCCL_HOSTID": name, "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo"}
    return {"SLIPRING_HOST": name, **({} if a.links else sockets)}


def wait_for(a, ranks, outputs, what):
    """Until all have ended; one that fails, or time that is up, ends the others."""
    while any(rank.poll() is None for rank in ranks):
        failed = [number for number, rank in enumerate(ranks) if rank.poll()]
        late = time.monotonic() > a.end
        if failed or late:
            time.sleep(0 if late else 3)
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.wait()
        time.sleep(0.1)
    failed = [number for number, rank in enumerate(ranks) if rank.returncode]
    if time.monotonic() > a.end:
        print(f"scatter: {what}: not ended after {a.limit} s", file=sys.stderr)
        sys.exit(124)
    if failed:
        with open(outputs[failed[0]], encoding="utf-8", errors="replace") as file:
            sys.stderr.write("".join(file.readlines()[-25:]))
        sys.exit(f"scatter: {what}: rank {failed[0]} ended with status {ranks[failed[0]].returncode}")


def median(runs, shape, part):
    each = [run["rows"][shape][part]["ms"] for run in runs if "ms" in run["rows"][shape].get(part, {})]
    return statistics.median(each) if each else None


def cell(value):
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.2f}"


def ratio(a, b):
    return "-" if a is None or b is None else f"{a / b:.2f}"


def table(a, runs):
    """Rows of medians; the ratios stand last: above 1, slipring is faster."""
    head = ["M, K, N", "form", "GEMM alone", "alone", "NCCL, then", "fused", "slipring", "bound", "fused / slipring", "NCCL / slipring"]
    lines = [head, ["---"] * len(head)]
    plain, ours = runs["nccl"], runs.get("slipring", [])
    for shape in a.shapes:
        alone = [median(some, shape, "alone") for some in runs.values()]
        gemm, rs = median(plain, shape, "gemm"), min(filter(None, alone))
        fused = median(plain, shape, "fused")
        for form in [form for form in a.forms if form != "fused"]:
            nccl, with_ = median(plain, shape, form), median(ours, shape, form)
            lines.append([shape.replace(",", ", "), form, *map(cell, (gemm, rs, nccl, fused, with_, max(gemm, rs))), ratio(fused, with_), ratio(nccl, with_)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def faults(a, runs):
    """What was wrong, and what was left out, each once."""
    wrong, out = [], []
    for side, some in runs.items():
        for number, run in enumerate(some):
            for shape in a.shapes:
                for form, got in run["rows"][shape].items():
                    if got.get("wrong"):
                        wrong.append(f"{side}, round {number + 1}: {shape}, {form}: {got['wrong']} wrong elements")
                    if "left_out" in got:
                        out.append(f"{side}: {form} is left out: {got['left_out']}")
    return wrong, list(dict.fromkeys(out))


def counted(folder):
    """The counters of reduce-scatters and all-reduces in the summaries of slipring's logs."""
    sums = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".log"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                for word in (word for line in file if " summary " in line for word in line.split()):
                    key, _, value = word.partition("=")
                    if key.startswith(("scatters", "reduces")) and value.isdigit():
                        sums[key] = sums.get(key, 0) + int(value)
    return sums


def measure(a, folder):
    sides = ["nccl"] + (["slipring"] if a.lib else [])
    runs = {side: [] for side in sides}
    for number in range(a.rounds):
        for turn, side in enumerate(sides if number % 2 == 0 else sides[::-1]):
            runs[side].append(start(a, side, 2 * number + turn, folder))
    return runs


def parser():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true", help="all-reduces, in place")
    p.add_argument("--lib", default="", help="libslipring.so; without it NCCL's and PyTorch's times only")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for slipring")
    p.add_argument("--shapes", nargs="+", default=SHAPES, metavar="M,K,N")
    p.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--hosts", type=int, help="the ranks are to be on so many hosts")
    p.add_argument("--links", action="store_true", help="whose network is NVLink; else sockets")
    p.add_argument("--iters", type=int, default=30, help="of one measurement [30]")
    p.add_argument("--times", type=int, default=3, help="measurements of a form in each process [3]")
    p.add_argument("--settle", type=int, default=320, help="iterations before a form is checked and timed [320]")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limit", type=float, default=540, help="seconds for everything [540]")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--json", metavar="FILE", help="all figures")
    p.add_argument("--logs", metavar="FOLDER", help="where logs and output go, and stay")
    p.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--with-slipring", action="store_true", help=argparse.SUPPRESS)
    return p


def main():
    a = parser().parse_args()
    a.forms = [form for form in a.forms if form != ("fused" if a.all else "apart")]
    for shape in a.shapes:
        m, k, _ = map(int, shape.split(","))
        if m % a.ranks or k % a.ranks:
            sys.exit(f"scatter: {shape}: {a.ranks} ranks do not divide M and K")
    if a.as_rank:
        be_rank(a)
        return
    a.end = time.monotonic() + a.limit
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.logs or temporary
        os.makedirs(folder, exist_ok=True)
        runs = measure(a, folder)
        wrong, left_out = faults(a, runs)
        counters = counted(folder)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as file:
            json.dump(runs, file)
    print(f"{runs['nccl'][0]['facts']}; ms of an iteration, {a.rounds} rounds, {a.ranks} ranks")
    for line in left_out:
        print(line)
    if a.lib:
        print("slipring, all processes: " + (", ".join(f"{key} {n}" for key, n in counters.items()) or "counted no reduce-scatters"))
    print(table(a, runs))
    for line in wrong:
        print(f"WRONG: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
