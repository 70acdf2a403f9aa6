#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with FSDP2 (torch.distributed.fsdp.fully_shard); nothing here knows of slipring.

    slipring run --set log=info -- torchrun --nproc-per-node 2 examples/fsdp2.py

Each layer's parameters are gathered before it runs, beside the layer before it. Expect a loss that falls, the time of a
step, and in the log for each rank `substitute`: the gathers move from multiprocessors to copy engines and leave the GEMMs
beside them alone. No GEMM is `fused`: FSDP2 copies what it has gathered into the parameters first. Without GPUs it runs
over gloo on the CPU, where slipring has nothing to do. PyTorch 2.6 or later.
"""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

GPU = torch.cuda.is_available()
TOKENS, HIDDEN, LAYERS, STEPS = (8192, 4096, 6, 50) if GPU else (64, 32, 2, 20)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.up, self.down = torch.nn.Linear(HIDDEN, 4 * HIDDEN), torch.nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    torch.manual_seed(7)  # the same on all ranks; fully_shard distributes
    with device:
        blocks = [Block() for _ in range(LAYERS)]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    model = fully_shard(torch.nn.Sequential(*blocks), mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)  # each rank has its own part of the batch
    x, target = torch.randn(TOKENS, HIDDEN, device=device), torch.randn(TOKENS, HIDDEN, device=device)
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
