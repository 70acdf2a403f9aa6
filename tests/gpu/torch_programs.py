#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random PyTorch programs around all-gathers and GEMMs; every value that they compute is compared, and must be equal.

    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=... MASTER_PORT=... torch_programs.py [--seconds 120] [--seed 1] [--one-gpu]

All ranks draw the same programs from the seed. Each is one of the kinds of torch_kinds.py, with a
shape and a dtype of its own; up to four are queued before the first is looked at.

Nothing here knows of slipring. Exit status: 0 when all values were right, 1 otherwise; each rank writes its counts to --json.
"""
import argparse
import collections
import faulthandler
import json
import os
import random
import signal
import sys
import time

BEGIN = time.monotonic()  # before the long import

import torch
import torch.distributed as dist

import torch_kinds


class World:
    """What the programs of a run share."""

    def __init__(self, seed, one_gpu):
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if one_gpu:  # NCCL refuses two ranks on one GPU of one host
            os.environ.update(NCCL_HOSTID=f"rank{self.rank}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
        self.device = torch.device("cuda", 0 if one_gpu else int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device)
        self.second_group = dist.new_group(list(range(self.ranks)))
        self.random = random.Random(seed)  # draws the same on all ranks
        self.streams = [torch.cuda.Stream() for _ in range(3)]
        self.kept = {}  # receive buffers that live as long as the run
        self.graphs = []


class Run:
    def __init__(self, options, world):
        self.options, self.world, self.programs, self.wrong, self.kinds = options, world, 0, 0, collections.Counter()
        self.next_told = 0

    def draw_kind(self):
        draw = self.world.random
        kinds = torch_kinds.TWO_STREAMS if draw.random() < self.options.two_streams else torch_kinds.ORDINARY
        return draw.choice(sorted(kinds)), kinds

    def batch(self):
        """Queues a few programs, then looks at them."""
        queued = []
        for _ in range(self.world.random.randint(1, 4)):
            self.programs += 1
            name, kinds = self.draw_kind()
            case = torch_kinds.Case(self.world, self.programs)
            self.kinds[name] += 1
            queued.append((name, case, list(kinds[name](case))))
        for name, case, results in queued:
            self.look(name, case, results)

    def look(self, name, case, results):
        bad = [f"{what}: {int((got != wanted).sum())} of {got.numel()}" for what, got, wanted in results
               if not torch.equal(got, wanted)]
        if not bad:
            return
        self.wrong += 1
        if self.wrong <= 5:
            print(f"WRONG rank {self.world.rank} program {case.number} {name} {case.dtype} m={case.m} k={case.k} n={case.n}: "
                  + ", ".join(bad), flush=True)

    def disturb(self):
        """What programs do now and then: ranks drift apart, and the allocator gives its memory back."""
        luck = self.world.random.random()
        if luck < 0.08:
            torch.cuda.empty_cache()
        elif luck < 0.13:
            torch.cuda.synchronize()
            time.sleep(0.01 * self.world.rank)
        elif luck < 0.18:
            time.sleep(0.01 * (self.world.ranks - 1 - self.world.rank))
        elif luck < 0.20:
            self.world.kept.clear()

    def tell(self):
        """How far it is: what is left of a run that somebody stops."""
        if time.monotonic() >= self.next_told:
            self.next_told = time.monotonic() + 10
            print(f"rank {self.world.rank}: {self.programs} programs, {self.wrong} wrong, {time.monotonic() - BEGIN:.0f} s", flush=True)

    def go(self):
        end = time.monotonic() + self.options.seconds
        while True:
            self.tell()
            more = torch.tensor([int(time.monotonic() < end)], device=self.world.device)
            dist.broadcast(more, 0)  # rank 0 says when it is over
            if not more.item():
                break
            for _ in range(8):
                self.batch()
                self.disturb()
        self.report()

    def report(self):
        print(f"rank {self.world.rank}: {self.programs} programs, {self.wrong} wrong; "
              + ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items())), flush=True)
        if self.options.json:
            with open(f"{self.options.json}.rank{self.world.rank}.json", "w", encoding="utf-8") as file:
                json.dump({"programs": self.programs, "wrong": self.wrong, "kinds": self.kinds,
                           "torch": torch.__version__, "nccl": torch.cuda.nccl.version()}, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--two-streams", type=float, default=0.1, metavar="P", help="share of the kinds with two streams [0.1]")
    parser.add_argument("--one-gpu", action="store_true", help="all ranks on the first GPU, over NCCL's sockets")
    parser.add_argument("--json", metavar="PREFIX", help="write the counts to PREFIX.rankR.json")
    options = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, chain=True)  # of a run that hangs: where
    world = World(options.seed, options.one_gpu)
    run = Run(options, world)
    run.go()
    dist.barrier()
    torch.cuda.synchronize()
    world.graphs.clear()  # NCCL ends no communicator as long as a graph holds a call of it
    dist.destroy_process_group()
    sys.exit(1 if run.wrong else 0)


if __name__ == "__main__":
    main()
