#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of small transformer blocks with tensor and sequence parallelism, and how exact their reduce-scatters are.

    torchrun --nproc-per-node 2 scatter_train.py [--one-gpu | --cpu] [--steps 200] [--json FILE]
    scatter_train.py --compare NCCL.json SLIPRING.json [--tolerance 1e-2]

Attention by heads and an MLP by columns, then rows: an all-gather along the sequence in front of each, a reduce-scatter
behind, and the other way round in the backward pass. Nothing here knows of slipring.

Every --reference steps each reduce-scatter's output is compared with the fp64 sum of what the ranks have sent: the greatest
error and the root mean square one, relative to the sum's root mean square. --compare prints two runs' losses and errors side by
side. It fails when losses are further apart than the tolerance, relative at any step, or when the second run's errors are more
than a tenth above the first one's and above what rounding once gives.
"""
import argparse
import json
import math
import os
import sys

ROUNDED_ONCE = {"bf16": 2**-9, "fp16": 2**-12, "fp32": 2**-24}  # greatest, relative to the element


def rank_program(a):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
    import torch_ranks

    errors = {"calls": 0, "worst": 0.0, "square": 0.0, "of": 0.0}
    looks = {"now": False}

    def gather(x):
        whole = torch.empty((x.shape[0] * dist.get_world_size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(whole, x)
        return whole

    def measure(sent, part):
        """The sum in fp64, from what every rank has sent to this one."""
        ranks = dist.get_world_size()
        parts = [torch.empty_like(part) for _ in range(ranks)]
        pieces = [piece.contiguous() for piece in sent.chunk(ranks)]
        if part.is_cuda:
            dist.all_to_all(parts, pieces)
        else:  # gloo has none
            everything = [torch.empty_like(sent) for _ in range(ranks)]
            dist.all_gather(everything, sent)
            parts = [one.chunk(ranks)[dist.get_rank()] for one in everything]
        exact = sum(one.double() for one in parts)
        apart = (part.double() - exact).abs()
        errors["calls"] += 1
        errors["worst"] = max(errors["worst"], (apart / exact.abs().clamp_min(1e-30)).max().item())
        errors["square"] += apart.square().mean().item()
        errors["of"] += exact.square().mean().item()

    def scatter(x):
        part = torch.empty((x.shape[0] // dist.get_world_size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(part, x)
        if looks["now"]:
            measure(x, part)
        return part

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return gather(x)

        @staticmethod
        def backward(ctx, grad):
            return scatter(grad.contiguous())

    class Scatter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return scatter(x)

        @staticmethod
        def backward(ctx, grad):
            return gather(grad.contiguous())

    class Block(torch.nn.Module):
        """x is this rank's tokens x hidden."""

        def __init__(self, make):
            super().__init__()
            ranks, hidden, inner = dist.get_world_size(), a.hidden, 4 * a.hidden
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
            self.qkv = torch.nn.Parameter(make(3 * hidden // ranks, hidden, hidden))
            self.o = torch.nn.Parameter(make(hidden, hidden // ranks, hidden))
            self.up = torch.nn.Parameter(make(inner // ranks, hidden, hidden))
            self.down = torch.nn.Parameter(make(hidden, inner // ranks, inner))

        def attend(self, x):
            q, k, v = F.linear(x, self.qkv).view(x.shape[0], 3, -1, a.head).permute(1, 2, 0, 3)
            weights = torch.softmax((q @ k.transpose(1, 2)).float() * a.head**-0.5, -1).to(x.dtype)
            return (weights @ v).transpose(0, 1).reshape(x.shape[0], -1)

        def forward(self, x):
            whole = Gather.apply(self.norms[0](x))
            x = x + Scatter.apply(F.linear(self.attend(whole), self.o))
            whole = Gather.apply(self.norms[1](x))
            return x + Scatter.apply(F.linear(F.gelu(F.linear(whole, self.up)), self.down))

    if a.cpu:
        dist.init_process_group("gloo")
        device = "cpu"
        torch.set_num_threads(1)
    else:
        torch_ranks.start(a)
        device = "cuda"
    ranks, rank = dist.get_world_size(), dist.get_rank()
    random = torch.Generator(device).manual_seed(1000 + rank)

    def make(rows, columns, fan_in):
        return torch.randn(rows, columns, generator=random, device=device) * fan_in**-0.5

    dtype = torch_ranks.DTYPES[a.dtype]
    model = torch.nn.Sequential(*(Block(make) for _ in range(a.layers))).to(device, dtype)
    x, target = make(a.tokens // ranks, a.hidden, 1).to(dtype), make(a.tokens // ranks, a.hidden, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(a.steps):
        looks["now"] = a.reference > 0 and step % a.reference == a.reference - 1
        loss = F.mse_loss(model(x).float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / ranks)
    figures = torch.tensor([errors["worst"], errors["square"], errors["of"]], dtype=torch.float64, device=device)
    worst = figures[:1].clone()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    dist.all_reduce(figures)
    if rank == 0:
        rms = math.sqrt(figures[1].item() / figures[2].item()) if figures[2] > 0 else 0.0
        result = {"losses": losses, "dtype": a.dtype, "calls": errors["calls"], "worst": worst.item(), "rms": rms}
        print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}; {errors['calls']} reduce-scatters against fp64: rms {rms:.2e}, worst {worst.item():.2e}")
        if a.json:
            with open(a.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


def compare(a):
    plain, ours = (json.load(open(path, encoding="utf-8")) for path in a.compare)
    steps = list(zip(plain["losses"], ours["losses"], strict=True))
    apart = max(abs(x - y) / abs(x) if math.isfinite(x) and math.isfinite(y) else math.inf for x, y in steps)
    shown = sorted({0, 1, 2, 5, 10, 20, 50, 100, 150, len(steps) - 1})
    print("| step | NCCL | slipring | apart |\n| --- | --- | --- | --- |")
    for step in (step for step in shown if step < len(steps)):
        x, y = steps[step]
        print(f"| {step} | {x:.6f} | {y:.6f} | {abs(x - y) / abs(x):.1e} |")
    print("\n| reduce-scatters against fp64 | NCCL | slipring |\n| --- | --- | --- |")
    for name in ("calls", "rms", "worst"):
        print(f"| {name} | {plain[name]:.4g} | {ours[name]:.4g} |")
    print(f"losses are within {apart:.1e} at all {len(steps)} steps")
    wrong = []
    if not apart <= a.tolerance:
        wrong.append(f"losses are {apart:.1e} apart, more than {a.tolerance:.1e}")
    if ours["rms"] > 1.1 * plain["rms"] and ours["rms"] > ROUNDED_ONCE[ours["dtype"]]:
        wrong.append(f"the error is {ours['rms']:.2e}, NCCL's {plain['rms']:.2e}")
    if plain["calls"] != ours["calls"] or not plain["calls"]:
        wrong.append(f"{plain['calls']} and {ours['calls']} calls were compared")
    for line in wrong:
        print(f"WRONG: {line}")
    sys.exit(1 if wrong else 0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--dtype", choices=ROUNDED_ONCE, default="bf16")
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--head", type=int, default=64)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--reference", type=int, default=10, help="compare with fp64 every so many steps; 0: never [10]")
    p.add_argument("--one-gpu", action="store_true", help="all ranks on device 0, over NCCL's sockets")
    p.add_argument("--cpu", action="store_true", help="with gloo: tries this program itself")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--compare", nargs=2, metavar="FILE")
    p.add_argument("--tolerance", type=float, default=1e-2)
    a = p.parse_args()
    a.tf32 = False
    if a.compare:
        compare(a)
    else:
        rank_program(a)


if __name__ == "__main__":
    main()
