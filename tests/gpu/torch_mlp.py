#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of a sequence-parallel MLP, as Megatron-style programs do it, with PyTorch as it is.

    torchrun --nproc-per-node 2 torch_mlp.py [--one-gpu] [--dtype bf16] [--async-op] [--bias] [--steps 100]

Each rank holds a part of the sequence and a column (row) part of the first (second) weight of every layer. Forward:
all-gather of the activations along the sequence, F.linear, GELU, F.linear, reduce-scatter. Backward: all-gather of the
gradient, the product that gives the gradient of the activations, the one that gives the weight's, reduce-scatter.
Nothing here knows of slipring.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import torch_ranks


def gather(x, async_op):
    """Rows of all ranks, in rank order."""
    whole = torch.empty((x.shape[0] * dist.get_world_size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
    work = dist.all_gather_into_tensor(whole, x, async_op=async_op)
    if async_op:
        work.wait()
    return whole


def scatter_sum(x, async_op):
    """This rank's rows of the sum over the ranks."""
    part = torch.empty((x.shape[0] // dist.get_world_size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
    work = dist.reduce_scatter_tensor(part, x, async_op=async_op)
    if async_op:
        work.wait()
    return part


class ColumnLinear(torch.autograd.Function):
    """F.linear of the gathered sequence with this rank's columns of the weight."""

    @staticmethod
    def forward(ctx, x, weight, bias, async_op):
        whole = gather(x, async_op)
        ctx.save_for_backward(whole, weight)
        ctx.has_bias, ctx.async_op = bias is not None, async_op
        return F.linear(whole, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        whole, weight = ctx.saved_tensors
        grad_x = scatter_sum(grad @ weight, ctx.async_op)
        return grad_x, grad.t() @ whole, grad.sum(0) if ctx.has_bias else None, None


class RowLinear(torch.autograd.Function):
    """F.linear with this rank's rows of the weight, summed over the ranks, of which each keeps its part of the sequence."""

    @staticmethod
    def forward(ctx, x, weight, async_op):
        ctx.save_for_backward(x, weight)
        ctx.async_op = async_op
        return scatter_sum(F.linear(x, weight), async_op)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        whole = gather(grad.contiguous(), ctx.async_op)
        return whole @ weight, whole.t() @ x, None


class Layer(torch.nn.Module):
    def __init__(self, hidden, inner, make, bias, async_op):
        super().__init__()
        self.norm = torch.nn.LayerNorm(hidden)
        self.up = torch.nn.Parameter(make(inner, hidden, hidden))
        self.bias = torch.nn.Parameter(make(inner, 1, hidden).flatten()) if bias else None
        self.down = torch.nn.Parameter(make(hidden, inner, inner * dist.get_world_size()))
        self.async_op = async_op

    def forward(self, x):
        h = F.gelu(ColumnLinear.apply(self.norm(x), self.up, self.bias, self.async_op))
        return x + RowLinear.apply(h, self.down, self.async_op)


def main():
    p = torch_ranks.parser(__doc__)
    p.add_argument("--tokens", type=int, default=4096, help="of the whole sequence [4096]")
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--inner", type=int, default=4096, help="of all ranks together [4096]")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--bias", action="store_true", help="the first F.linear of each layer has one")
    p.add_argument("--async-op", action="store_true", help="collectives with async_op=True, and wait()")
    p.add_argument("--own-stream", action="store_true", help="train on a stream of the program's own")
    a = p.parse_args()
    rank, ranks = torch_ranks.start(a)
    random = torch.Generator("cuda").manual_seed(1000 + rank)

    def make(rows, columns, fan_in):
        return torch.randn(rows, columns, generator=random, device="cuda") * fan_in**-0.5

    layers = [Layer(a.hidden, a.inner // ranks, make, a.bias, a.async_op) for _ in range(a.layers)]
    model = torch.nn.Sequential(*layers).to("cuda", torch_ranks.DTYPES[a.dtype])
    x = make(a.tokens // ranks, a.hidden, 1).to(torch_ranks.DTYPES[a.dtype])
    target = make(a.tokens // ranks, a.hidden, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        loss = F.mse_loss(model(x).float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total / ranks

    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream() if a.own_stream else torch.cuda.current_stream()):
        losses, seconds = torch_ranks.train(a, step)
    torch_ranks.finish(a, losses, seconds, gathers_a_step=2 * a.layers)


if __name__ == "__main__":
    main()
