#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer as Megatron-style programs write it, with torch.distributed alone; nothing here knows of slipring.

    slipring run --set log=info -- torchrun --nproc-per-node 2 examples/sequence_parallel.py

Each rank holds a part of the sequence, rows of the first weight and columns of the second. Forward: an all-gather along the
sequence, a linear, GELU, a linear, a reduce-scatter; backward the same from the other end.

Expect a loss that falls, the time of a step, and in the log for each rank `substitute` and `fused` with op=allgather; after
some ten steps `tried`, when it has measured which way is faster, and maybe `substitute` with op=reducescatter. Without GPUs
it runs over gloo on the CPU, where slipring has nothing to do.
"""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

GPU = torch.cuda.is_available()
TOKENS, HIDDEN, LAYERS, STEPS = (8192, 4096, 4, 50) if GPU else (64, 32, 2, 20)


def gather(part):
    """The rows of all ranks, in rank order."""
    whole = torch.empty((part.shape[0] * dist.get_world_size(), part.shape[1]), dtype=part.dtype, device=part.device)
    dist.all_gather_into_tensor(whole, part)
    return whole


def scatter_sum(whole):
    """This rank's rows of the sum over the ranks."""
    part = torch.empty((whole.shape[0] // dist.get_world_size(), whole.shape[1]), dtype=whole.dtype, device=whole.device)
    dist.reduce_scatter_tensor(part, whole)
    return part


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        return gather(part.contiguous())

    @staticmethod
    def backward(ctx, grad):
        return scatter_sum(grad.contiguous())


class ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whole):
        return scatter_sum(whole.contiguous())

    @staticmethod
    def backward(ctx, grad):
        return gather(grad.contiguous())


class Layer(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        inner = 4 * HIDDEN // dist.get_world_size()
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.up = torch.nn.Parameter(make(inner, HIDDEN) * HIDDEN**-0.5)
        self.down = torch.nn.Parameter(make(HIDDEN, inner) * (4 * HIDDEN) ** -0.5)

    def forward(self, x):
        h = F.gelu(F.linear(Gather.apply(self.norm(x)), self.up))
        return x + ScatterSum.apply(F.linear(h, self.down))


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(100 + rank)  # each rank makes its own parts

    def make(rows, columns):
        return torch.randn(rows, columns, device=device)

    dtype = torch.bfloat16 if GPU else torch.float32
    model = torch.nn.Sequential(*(Layer(make) for _ in range(LAYERS))).to(device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = make(TOKENS // ranks, HIDDEN).to(dtype), make(TOKENS // ranks, HIDDEN)
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
