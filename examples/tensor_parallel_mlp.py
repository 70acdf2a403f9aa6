#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of MLPs under torch.distributed.tensor.parallel; nothing here knows of slipring.

    slipring run --set log=info -- torchrun --nproc-per-node 2 examples/tensor_parallel_mlp.py

Expect a loss that falls, the time of a step, and in the log for each rank `substitute` (the gathers of activations and
gradients) and `fused` (the linears behind them). The loss is that of a run without slipring but for the last digits.
Without GPUs it runs over gloo on the CPU, where slipring has nothing to do.
"""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

GPU = torch.cuda.is_available()
TOKENS, HIDDEN, LAYERS, STEPS = (8192, 4096, 4, 50) if GPU else (64, 32, 2, 20)


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(HIDDEN, 4 * HIDDEN), torch.nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = torch.nn.LayerNorm(HIDDEN), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


# Tokens are the first dimension, so that what is gathered is what the linear reads, without a copy between.
PLAN = {
    "norm": SequenceParallel(sequence_dim=0),
    "mlp": PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(output_layouts=Shard(0)),
}


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    torch.manual_seed(7)  # the same on all ranks; parallelize_module distributes
    dtype = torch.bfloat16 if GPU else torch.float32
    blocks = [parallelize_module(Block().to(device, dtype), mesh, PLAN) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    x = torch.randn(TOKENS // ranks, HIDDEN, device=device, dtype=dtype)
    target = torch.randn(TOKENS // ranks, HIDDEN, device=device)
    for step in range(STEPS):
        begin = time.perf_counter()
        loss = F.mse_loss(model(x).float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach_())
        value = loss.item() / ranks  # waits for the device
        if rank == 0 and (step % 10 == 0 or step == STEPS - 1):
            print(f"step {step}: loss {value:.6f}, {(time.perf_counter() - begin) * 1e3:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
