# SPDX-License-Identifier: Apache-2.0
"""One rank of a side of bench/never_slower: a PyTorch program that does what it is told, line by line.

Started as torch_rank.py is, and answers in the same way:

    {"do": "make", "row": {...}}                -> {}      makes the row's buffers
    {"do": "time", "warmup": W, "iters": I}     -> {"ms": time of one iteration, "counters": {...}}
    {"do": "parts", "iters": I, "times": T}     -> {"host_ms": to issue one, "device_ms": of one}
    {"do": "check"}                             -> {"wrong": elements, "of": elements}
    {"do": "drop"}                              -> {}      gives them back

A row is rows.py's. Nothing here depends on slipring; where it is loaded its counters are read.
"""

import statistics
import sys

sys.dont_write_bytecode = True

import counters
import torch_rank  # first of all: the rank ends with its parent

import torch
import torch.distributed as dist
import torch.nn.functional as F

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CHECKED = 2  # iterations without a synchronisation between them, each with its own data


class RowRank:
    def __init__(self, options):
        self.world = torch_rank.World(options)
        self.row = None

    def about(self):
        return {}

    def do(self, job):
        with torch.no_grad():
            return getattr(self, job["do"])(job)

    # The row's buffers.

    def make(self, job):
        self.drop(job)
        row = self.row = job["row"]
        self.gathered, self.local = (row["m"], row["n"])[:: -1 if row["form"] == "weight" else 1]
        self.shard = self.empty(self.gathered // self.world.ranks)
        self.full = None if row["fresh"] else self.empty(self.gathered)
        self.other = self.total = None
        if row["form"] == "gradient":
            self.other = self.empty(self.gathered, self.local)
            self.total = torch.zeros(self.local, row["k"], device=self.world.device)
        elif row["form"] != "none":
            self.other = self.empty(self.local)
        self.kept = []  # of fresh buffers: those of the last iterations, so that addresses go round
        self.fill()
        return {}

    def empty(self, rows, columns=None):
        return torch.empty(rows, columns or self.row["k"], dtype=DTYPES[self.row["dtype"]], device=self.world.device)

    def fill(self):
        """What is multiplied decides what power a GEMM takes, and so its speed: no few values."""
        self.shard.normal_()
        if self.other is not None:
            self.other.normal_(std=self.row["k"] ** -0.5)

    def drop(self, _):
        self.row = self.shard = self.full = self.other = self.total = None
        self.kept = []
        self.world.release()
        return {}

    # One iteration, as a program would have it.

    def product(self, full):
        if self.row["form"] == "none":
            return None
        if self.row["form"] == "gradient":
            torch_rank.accumulate(self.total, self.other, full)
            return self.total
        return F.linear(self.other, full) if self.row["form"] == "weight" else F.linear(full, self.other)

    def meet(self):
        if self.world.cuda:
            dist.barrier(device_ids=[self.world.rank])
        else:
            dist.barrier()

    def iteration(self):
        if self.row["barrier"]:
            self.meet()
        return self.without_barrier()

    def without_barrier(self):
        shard, full = self.shard, self.full
        if self.row["fresh"]:
            shard, full = shard.clone(), self.empty(self.gathered)
        work = dist.all_gather_into_tensor(full, shard, async_op=self.row["event"])
        if self.row["event"]:
            work.wait()
        out = self.product(full)
        if self.row["fresh"]:
            self.kept = (self.kept + [(shard, full, out)])[-self.row["kept"] :] if self.row["kept"] else []
        return full, out

    def time(self, job):
        for _ in range(job["warmup"]):
            self.iteration()
        before = counters.read()
        ms = self.world.timed(self.iteration, 0, job["iters"])
        return {"ms": ms, "counters": counters.since(before)}

    def parts(self, job):
        """Medians. A barrier would have the host wait for the device."""
        found = [self.world.parts(self.without_barrier, job["iters"]) for _ in range(job["times"])]
        return {name: statistics.median(one[name] for one in found) for name in found[0]}

    # Exact results.

    def check(self, _):
        world, dtype = self.world, DTYPES[self.row["dtype"]]
        if self.other is not None:
            self.other.copy_(torch_rank.small(world, 1000 + world.rank, *self.other.shape, dtype))
        self.forget()
        wanted = [self.wanted(turn, dtype) for turn in range(CHECKED)]
        self.forget()
        if self.full is not None:
            self.full.fill_(7)
        wrong = torch.zeros(1, dtype=torch.int64, device=world.device)
        world.meet()
        for whole, product in wanted:
            self.shard.copy_(whole.view(world.ranks, -1, whole.shape[1])[world.rank])
            full, out = self.iteration()
            wrong += (full != whole).sum()
            if out is not None:
                wrong += (out != product).sum()
        elements = sum(whole.numel() + (0 if product is None else product.numel()) for whole, product in wanted)
        self.fill()
        world.meet()
        return {"wrong": int(wrong), "of": elements}

    def wanted(self, turn, dtype):
        """What is to be gathered, and the product of that: of memory that no gather has written to."""
        rows = self.gathered // self.world.ranks
        shards = [
            torch_rank.small(self.world, 100 * turn + rank, rows, self.row["k"], dtype)
            for rank in range(self.world.ranks)
        ]
        whole = torch.cat(shards)
        product = self.product(whole)
        return whole, product if self.total is None else product.clone()

    def forget(self):
        """The sum of gradients begins anew."""
        if self.total is not None:
            self.total.zero_()


if __name__ == "__main__":
    torch_rank.serve(RowRank, ["plain"])
