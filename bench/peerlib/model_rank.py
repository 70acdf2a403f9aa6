# SPDX-License-Identifier: Apache-2.0
"""One rank of a side of bench/models: a PyTorch program that does what it is told, line by line.

Started as torch_rank.py is, and answers in the same way:

    {"do": "make", "model": NAME, "sizes": {...}} -> {"parameters": of this rank}
    {"do": "losses", "steps": N}    -> {"losses": [mean over the ranks, hexadecimal], "steps": [counters of each step]}
                                       with "sizes": true also {"bytes": [shard of each all-gather of a step]}
    {"do": "time", "warmup": W, "iters": I}  -> {"ms": time of one step}
    {"do": "gathers", "bytes": [...], "warmup": W, "iters": I} -> {"ms": of these gathers alone}
    {"do": "drop"}                  -> {}

Nothing here depends on slipring; where it is loaded its
counters are read.
"""

import contextlib
import gc
import sys
import warnings

sys.dont_write_bytecode = True

import counters
import torch_rank  # first of all: the rank ends with its parent

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

import programs

GATHERS = ("_allgather_base_", "all_gather_into_tensor", "all_gather_into_tensor_out")


class GatherSizes(TorchDispatchMode):
    """Notes the bytes that this rank sends in each all-gather."""

    def __init__(self):
        super().__init__()
        self.bytes = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.name().split("::")[1].split(".")[0]
        if name in GATHERS:
            shard = arguments[1] if name == "_allgather_base_" else arguments[0]
            self.bytes.append(shard.numel() * shard.element_size())
        return function(*arguments, **(options or {}))


class ModelRank:
    def __init__(self, options):
        self.world = torch_rank.World(options)
        self.mesh = init_device_mesh(self.world.device.type, (self.world.ranks,))
        self.program = None
        warnings.filterwarnings("ignore", message=".*deterministic.*")

    def about(self):
        return {}

    def do(self, job):
        return getattr(self, job["do"])(job)

    def make(self, job):
        self.drop(job)
        sizes = programs.Sizes(**job["sizes"])
        self.program = programs.MODELS[job["model"]](sizes, self.mesh, self.world.device)
        self.world.meet()
        return {"parameters": self.program.parameters}

    def drop(self, _):
        self.program = None
        gc.collect()  # hooks and modules refer to each other
        self.world.release()
        return {}

    def losses(self, job):
        """The gradient of attention is summed in any order unless it is told otherwise."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        losses, steps = [], []
        seen = GatherSizes() if job["sizes"] else contextlib.nullcontext()
        for left in reversed(range(job["steps"])):
            before = counters.read()
            with contextlib.nullcontext() if left else seen:
                losses.append(self.program.step().double())
            self.world.meet()
            steps.append(counters.since(before))
        torch.use_deterministic_algorithms(False)
        total = torch.stack(losses)
        dist.all_reduce(total)
        answer = {"losses": [value.hex() for value in (total / self.world.ranks).tolist()], "steps": steps}
        return answer | ({"bytes": seen.bytes} if job["sizes"] else {})

    def time(self, job):
        return {"ms": self.world.timed(self.program.step, job["warmup"], job["iters"])}

    def gathers(self, job):
        """Alone, one after the other, each of its own memory as far as sizes differ."""
        buffers = {
            size: [
                torch.empty(parts * size, dtype=torch.uint8, device=self.world.device)
                for parts in (self.world.ranks, 1)
            ]
            for size in job["bytes"]
        }

        def all_of_them():
            for size in job["bytes"]:
                dist.all_gather_into_tensor(*buffers[size], group=self.mesh.get_group())

        return {"ms": self.world.timed(all_of_them, job["warmup"], job["iters"])}


if __name__ == "__main__":
    torch_rank.serve(ModelRank, ["plain"])
