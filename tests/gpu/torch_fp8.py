#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-gathers of fp8 activations and the torch._scaled_mm behind them: NCCL alone beside slipring, in turn.

    torch_fp8.py --lib build-gpu/libslipring.so [--ranks 2] [--rounds 3] [--scaling tensor rows] [--shapes M,K,N ...]
                 [--scales behind] [--limit 540] [--out DIR]

The program, as a user writes it: all_gather_into_tensor of the uint8 view of an e4m3 matrix (M / ranks rows from each rank);
with `rows` a small one of its scale factors on the same stream, behind it or before; torch._scaled_mm of the gathered
matrix with a weight (N x K), into bf16. Each side runs in processes of its own, one for each GPU, without and with slipring
preloaded, in turn for --rounds rounds.

Exact: operands are -1, 0 and 1, factors powers of two, and accumulation is not the fast one, so sums are exact and no split
changes them. The gathered bytes and the product are compared with those of a matrix that every rank makes by itself,
multiplied whole, bit by bit; before the times are taken, and once more behind them.

Times are ms of an iteration, back to back, of the slowest rank: the median of blocks, and of the rounds. `fused`: GEMMs that
slipring ran in parts, in percent of the iterations; below 100 it has measured that something else is faster (`by`: ring or
nccl, and the number of parts that the log gave last), or `why` names what keeps them whole.

Exit status: 0; 1 for a wrong result; 2 for arguments; 3 when a run failed or did not end; 77 when there are too few GPUs or
this PyTorch can not multiply so. The table of what there is comes last, in any case.
"""
import argparse
import collections
import ctypes
import glob
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

SHAPES = [
    (8192, 8192, 8192),
    (8192, 8192, 7168),
    (8192, 8192, 1280),
    (16384, 8192, 1280),
    (32768, 8192, 1024),
    (16384, 4096, 4096),
    (4096, 4096, 4096),
    (2048, 8192, 1024),
    (16384, 16384, 8192),
]
WRONG, FAILED, SKIPPED = 1, 3, 77


def shape(text):
    values = tuple(int(word) for word in text.split(","))
    if len(values) != 3 or min(values) < 16 or any(value % 16 for value in values):
        raise argparse.ArgumentTypeError("M,K,N, multiples of 16")
    return values


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lib", help="libslipring.so; needed")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--scaling", nargs="+", choices=["tensor", "rows"], default=["tensor", "rows"])
    p.add_argument("--scales", choices=["behind", "before"], default="behind", help="the factors' gather, with rows")
    p.add_argument("--shapes", nargs="+", type=shape, default=SHAPES, metavar="M,K,N")
    p.add_argument("--warmup", type=int, default=360, help="iterations in which slipring tries its ways; NCCL alone: 20")
    p.add_argument("--iters", type=int, default=20, help="of one block")
    p.add_argument("--blocks", type=int, default=10)
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="environment of the side with slipring")
    p.add_argument("--limit", type=float, default=540, help="start no further run after so many seconds; one ends by then")
    p.add_argument("--out", help="where logs go; a temporary directory that is kept if something fails")
    p.add_argument("--side", help=argparse.SUPPRESS)
    p.add_argument("--json", help=argparse.SUPPRESS)
    return p.parse_args()


# ---- a rank ----


class Counters(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64) for name in "calls bytes substituted substituted_bytes passed fused gemm_chunks joined".split()
    ]


def counters():
    """Of slipring, or zeros when it is not there."""
    found = Counters(size=ctypes.sizeof(Counters))
    try:
        ctypes.CDLL(None).slipring_counters_read(ctypes.byref(found))
    except AttributeError:
        pass
    return found


class Case:
    """One shape: its buffers, and one iteration."""

    def __init__(self, options, rows, dims, rank, ranks):
        import torch

        self.torch, self.rows, self.scales, self.rank, self.ranks = torch, rows, options.scales, rank, ranks
        self.m, self.k, self.n = dims
        part = self.m // ranks
        x = torch.cat([self.integers(part, self.k, seed) for seed in range(ranks)])
        self.whole = self.as_fp8(x)
        self.weight = self.as_fp8(self.integers(self.n, self.k, 100)).t()
        self.whole_scale = self.powers(self.m if rows else 1, 200).view(-1, 1) if rows else self.powers(1, 200)[0]
        self.weight_scale = self.powers(self.n, 300).view(1, -1) if rows else self.powers(1, 300)[0]
        self.send = self.whole.view(torch.uint8)[rank * part : (rank + 1) * part].clone()
        self.recv = torch.empty(self.m, self.k, dtype=torch.uint8, device="cuda")
        self.scale = self.whole_scale.clone()
        self.scale_send = self.whole_scale[rank * part : (rank + 1) * part].clone() if rows else None
        self.want = self.multiply(self.whole, self.whole_scale)

    def generator(self, seed):
        return self.torch.Generator(device="cuda").manual_seed(seed)

    def integers(self, rows, cols, seed):
        return self.torch.randint(-1, 2, (rows, cols), dtype=self.torch.int8, device="cuda", generator=self.generator(seed))

    def powers(self, n, seed):
        choice = self.torch.randint(0, 3, (n,), device="cuda", generator=self.generator(seed))
        return self.torch.tensor([0.5, 1.0, 2.0], device="cuda")[choice]

    def as_fp8(self, x):
        return x.to(self.torch.bfloat16).to(self.torch.float8_e4m3fn)

    def multiply(self, x, scale):
        return self.torch._scaled_mm(
            x, self.weight, scale_a=scale, scale_b=self.weight_scale, out_dtype=self.torch.bfloat16, use_fast_accum=False
        )

    def gather_scales(self):
        self.torch.distributed.all_gather_into_tensor(self.scale, self.scale_send)

    def iteration(self):
        if self.rows and self.scales == "before":
            self.gather_scales()
        self.torch.distributed.all_gather_into_tensor(self.recv, self.send)
        if self.rows and self.scales == "behind":
            self.gather_scales()
        return self.multiply(self.recv.view(self.torch.float8_e4m3fn), self.scale)

    def check(self, when):
        """Whether all is as it must be, on poisoned memory, for some iterations; says what is not."""
        wrong = []
        for number in range(4):
            self.recv.fill_(0x7F)  # NaN
            if self.rows:
                self.scale.fill_(float("nan"))
            self.torch.cuda.synchronize()
            have = self.iteration()
            self.torch.cuda.synchronize()
            if not self.torch.equal(self.recv, self.whole.view(self.torch.uint8)):
                wrong.append(f"{when}, {number}: gathered bytes differ")
            if not self.torch.equal(have.view(self.torch.int16), self.want.view(self.torch.int16)):
                wrong.append(f"{when}, {number}: {int((have != self.want).sum())} elements of the product differ")
        return wrong

    def times(self, options):
        """ms of an iteration, one for each block."""
        found = []
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(options.blocks):
            self.torch.distributed.barrier(device_ids=[self.rank])
            self.torch.cuda.synchronize()
            begin.record()
            for _ in range(options.iters):
                self.iteration()
            end.record()
            self.torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) / options.iters)
        worst = self.torch.tensor(found, device="cuda", dtype=self.torch.float64)
        self.torch.distributed.all_reduce(worst, op=self.torch.distributed.ReduceOp.MAX)
        return worst.tolist()


def run_case(options, scaling, dims, rank, ranks):
    import torch

    case = Case(options, scaling == "rows", dims, rank, ranks)
    wrong = case.check("at first")
    # All ranks make the same calls, whatever they find.
    for number in range(options.warmup if options.side == "slipring" else 20):
        case.iteration()
        if number % 32 == 31:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    before = counters()
    ms = case.times(options)
    after = counters()
    wrong += case.check("at last")
    total = torch.tensor([len(wrong)], device="cuda")
    torch.distributed.all_reduce(total)
    for line in wrong:
        print(f"rank {rank}: {scaling} {dims}: {line}", flush=True)
    calls = options.iters * options.blocks
    return {
        "scaling": scaling,
        "dims": dims,
        "ms": statistics.median(ms),
        "wrong": total.tolist()[0],
        "fused": 100 * (after.fused - before.fused) / calls,
        "replaced": 100 * (after.substituted - before.substituted) / calls,
    }


def rank_main(options):
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if torch.cuda.device_count() < ranks or not hasattr(torch, "float8_e4m3fn"):
        sys.exit(SKIPPED)
    if torch.cuda.get_device_capability() < (8, 9):
        sys.exit(SKIPPED)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")  # a device_id would make non-blocking communicators, which slipring leaves to NCCL
    results = []
    for scaling in options.scaling:
        for dims in options.shapes:
            results.append(run_case(options, scaling, dims, rank, ranks))
            torch.cuda.empty_cache()
            if rank == 0:  # what there is, should a later one fail
                about = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
                about += f", NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"about": about, "results": results}, file)
    dist.barrier(device_ids=[rank])
    torch.cuda.synchronize()
    dist.destroy_process_group()
    sys.exit(WRONG if any(result["wrong"] for result in results) else 0)


# ---- the driver ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(options, side, rank, port, log):
    env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks))
    env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    env.pop("LD_PRELOAD", None)
    if side == "slipring":
        env.update(LD_PRELOAD=os.path.abspath(options.lib), SLIPRING_LOG="info", SLIPRING_LOG_FORMAT="json")
        env.update(SLIPRING_LOG_FILE=f"{log}.rank{rank}.decisions")
        env.update(word.split("=", 1) for word in options.set)
    return env


def end_all(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()


def one_run(options, side, scaling, number, seconds):
    """The ranks of one side. Returns the status, and rank 0's results so far."""
    log = os.path.join(options.out, f"{side}.{scaling}.{number}")
    result = log + ".json"
    words = sys.argv[1:] + ["--scaling", scaling]
    port = free_port()
    processes = []
    for rank in range(options.ranks):
        with open(f"{log}.rank{rank}.log", "w", encoding="utf-8") as out:
            processes.append(
                subprocess.Popen(
                    [sys.executable, os.path.abspath(__file__), *words, "--side", side, "--json", result],
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment(options, side, rank, port, log),
                )
            )
    late = time.monotonic() + seconds
    status = None
    while status is None:
        codes = [process.poll() for process in processes]
        bad = [code for code in codes if code not in (None, 0, WRONG)]
        if bad:
            time.sleep(2)  # the others may say more
            status = SKIPPED if SKIPPED in bad else FAILED
        elif None not in codes:
            status = max(codes)
        elif time.monotonic() > late:
            print(f"{side}: not ended after {seconds:.0f} s", file=sys.stderr)
            status = FAILED
        else:
            time.sleep(0.2)
    end_all(processes)
    if status not in (0, SKIPPED):
        for rank in range(options.ranks):
            with open(f"{log}.rank{rank}.log", encoding="utf-8", errors="replace") as file:
                sys.stderr.write(f"--- {side}, rank {rank}\n" + "".join(file.readlines()[-15:]))
    results = {"about": None, "results": []}
    if os.path.exists(result):
        with open(result, encoding="utf-8") as file:
            results = json.load(file)
    return status, results


def decisions(out, scaling):
    """By (m, n, k) as cuBLAS counts them: what rank 0's log gave last; and why GEMMs were joined."""
    ways, why = {}, collections.Counter()
    for path in sorted(glob.glob(os.path.join(out, f"slipring.{scaling}.*.rank0.decisions"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if event.get("event") == "tried" and event.get("m"):
                    ways[event["m"], event["n"], event["k"]] = f"{event['by']}, {event.get('parts', 0) or 'paced'}"
                elif event.get("event") == "joined" and event.get("by") == "GEMM":
                    why[event["reason"], event.get("attribute", "-")] += 1
    return ways, why


def table(options, found):
    notes = []
    about = next((run["about"] for runs in found.values() for run in runs if run["about"]), "no run ended a shape")
    print(f"\n{about}; {options.ranks} ranks; scales {options.scales}")
    print("| scaling | M, K, N | NCCL, ms | slipring, ms | NCCL / slipring | replaced, % | fused, % | tried | exact |")
    print("| --- " * 9 + "|")
    for scaling in options.scaling:
        ways, why = decisions(options.out, scaling)
        for (reason, attribute), number in why.most_common(4):
            notes.append(f"{scaling}: whole GEMMs: reason {reason}, attribute {attribute} ({number} lines of the log)")
        for dims in options.shapes:
            rows = {
                side: [r for run in runs for r in run["results"] if r["scaling"] == scaling and tuple(r["dims"]) == dims]
                for side, runs in found.items()
            }
            if not any(rows.values()):
                continue
            ms = {side: statistics.median(r["ms"] for r in each) if each else None for side, each in rows.items()}
            ratio = f"{ms['nccl'] / ms['slipring']:.3f}" if all(ms.values()) else "-"
            cells = [scaling, ", ".join(map(str, dims))] + [f"{ms[s]:.4f}" if ms[s] else "-" for s in ("nccl", "slipring")]
            last = rows["slipring"][-1] if rows["slipring"] else {"replaced": 0, "fused": 0}
            m, k, n = dims
            cells += [ratio, f"{last['replaced']:.0f}", f"{last['fused']:.0f}", ways.get((n, m, k), "-")]
            cells.append("WRONG" if any(r["wrong"] for each in rows.values() for r in each) else "yes")
            print("| " + " | ".join(cells) + " |")
    print("\n".join(notes))


def drive(options):
    if not options.lib or not os.path.exists(options.lib):
        print("torch_fp8: --lib FILE: there is no such libslipring.so", file=sys.stderr)
        return 2
    if any(m % (16 * options.ranks) for m, _, _ in options.shapes):
        print("torch_fp8: M has to be a multiple of 16 times the ranks", file=sys.stderr)
        return 2
    options.out = os.path.abspath(options.out or tempfile.mkdtemp(prefix="torch_fp8."))
    os.makedirs(options.out, exist_ok=True)
    begin, found, worst = time.monotonic(), {"nccl": [], "slipring": []}, 0
    turns = [(number, scaling) for number in range(options.rounds) for scaling in options.scaling]
    for number, scaling in turns:
        for side in ("nccl", "slipring") if number % 2 == 0 else ("slipring", "nccl"):
            left = options.limit - (time.monotonic() - begin)
            if left < 30:
                print(f"{side}, {scaling}, round {number}: left out, the time is used up", file=sys.stderr)
                continue
            status, results = one_run(options, side, scaling, number, left)
            found[side].append(results)
            took = time.monotonic() - begin
            print(f"{side}, {scaling}, round {number}: status {status}, {took:.0f} s", file=sys.stderr, flush=True)
            worst = max(worst, status)
            if status == SKIPPED:
                print("torch_fp8: too few GPUs, or none that multiplies fp8", file=sys.stderr)
                return SKIPPED
    table(options, found)
    print(f"logs: {options.out}")
    return worst


def main():
    options = arguments()
    if not options.side:
        sys.exit(drive(options))
    try:
        rank_main(options)
    except Exception:  # the others must not wait for this rank
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(FAILED)


if __name__ == "__main__":
    main()
