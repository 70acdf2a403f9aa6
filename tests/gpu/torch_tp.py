#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of a small transformer under torch.distributed.tensor.parallel, with PyTorch as it is.

    torchrun --nproc-per-node 2 torch_tp.py [--one-gpu] [--dtype bf16] [--batch 1] [--steps 20]

ColwiseParallel and RowwiseParallel linears, SequenceParallel norms: activations are split along the sequence between the
blocks and gathered in front of attention and MLP. Nothing here knows of slipring. Deterministic algorithms, so that two
runs can be compared: the gradient of attention is summed in any order otherwise.
"""
import os

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

import torch_ranks


class Attention(torch.nn.Module):
    def __init__(self, hidden, head):
        super().__init__()
        self.head = head
        self.q, self.k, self.v, self.o = (torch.nn.Linear(hidden, hidden, bias=False) for _ in range(4))

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = (part(x).view(batch, tokens, -1, self.head).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, tokens, -1))


class Mlp(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(torch.nn.Module):
    def __init__(self, hidden, head):
        super().__init__()
        self.norm1, self.attention = torch.nn.LayerNorm(hidden), Attention(hidden, head)
        self.norm2, self.mlp = torch.nn.LayerNorm(hidden), Mlp(hidden)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def parallel(block, mesh):
    whole = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    plan = {
        "norm1": SequenceParallel(),
        "attention": PrepareModuleInput(**whole),
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=Shard(1)),
        "norm2": SequenceParallel(),
        "mlp": PrepareModuleInput(**whole),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
    return parallelize_module(block, mesh, plan)


def main():
    p = torch_ranks.parser(__doc__)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--head", type=int, default=64)
    p.add_argument("--layers", type=int, default=2)
    p.set_defaults(steps=20)
    a = p.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    _, ranks = torch_ranks.start(a)
    dtype = torch_ranks.DTYPES[a.dtype]
    mesh = init_device_mesh("cuda", (ranks,))
    torch.manual_seed(7)  # the same on all ranks; parallelize_module distributes
    blocks = [Block(a.hidden, a.head).to("cuda", dtype) for _ in range(a.layers)]
    x = torch.randn(a.batch, a.tokens, a.hidden, device="cuda").to(dtype)
    target = torch.randn(a.batch, a.tokens, a.hidden, device="cuda")
    model = torch.nn.Sequential(*(parallel(block, mesh) for block in blocks))
    part = slice(dist.get_rank() * a.tokens // ranks, (dist.get_rank() + 1) * a.tokens // ranks)
    x, target = x[:, part].contiguous(), target[:, part].contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        loss = F.mse_loss(model(x).float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total / ranks

    losses, seconds = torch_ranks.train(a, step)
    torch_ranks.finish(a, losses, seconds)


if __name__ == "__main__":
    main()
