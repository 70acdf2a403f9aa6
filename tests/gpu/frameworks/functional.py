#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forward passes of a tensor parallel MLP by collectives that are called by hand: gather, two products, reduce-scatter.

--form says how: `functional` by torch.distributed's functional collectives, `c10d` by all_gather_into_tensor and
reduce_scatter_tensor, `compiled` the functional ones under torch.compile, `captured` those of c10d in a CUDA graph and
`replayed` the functional ones in one, `coalesced` those of c10d, the tokens' halves in one group. --nap N: all memory is
of an allocator that sleeps every N steps, and wakes up with other memory at the same addresses.
"""
import contextlib

import common
import sleeping

SIZES = {"hidden": 8192, "inner": 7168, "tokens": 8192, "layers": 6}
ONE_GPU = {"hidden": 2048, "inner": 8192, "tokens": 2048}
CPU = {"hidden": 32, "inner": 64, "tokens": 16}
FORMS = ("functional", "c10d", "compiled", "captured", "replayed", "coalesced")
BEFORE_CAPTURE = 3  # steps, as PyTorch's manual wants it


def collectives(functional):
    """gather(part) and scatter(whole), along the first dimension."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as funcol

    if functional:
        group = dist.group.WORLD
        return (lambda part: funcol.all_gather_tensor(part, 0, group),
                lambda whole: funcol.reduce_scatter_tensor(whole, "sum", 0, group))

    def gather(part):
        whole = part.new_empty((part.shape[0] * common.RANKS, *part.shape[1:]))
        dist.all_gather_into_tensor(whole, part)
        return whole

    def scatter(whole):
        part = torch.empty_like(whole[: whole.shape[0] // common.RANKS])
        dist.reduce_scatter_tensor(part, whole)
        return part

    return gather, scatter


def capture(body, device):
    """A CUDA graph of body(), and what a replay leaves."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(BEFORE_CAPTURE):
            body()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = body()
    return graph, result


def main():
    p = common.parser(__doc__, SIZES, ONE_GPU, CPU)
    p.add_argument("--form", choices=FORMS, default="functional")
    p.add_argument("--nap", type=int, default=0, metavar="N")
    o = common.parse(p)
    import torch
    import torch.nn.functional as F

    device = common.torch_start(o)
    import torch.distributed as dist

    gather, scatter = collectives(o.form in ("functional", "compiled", "replayed"))
    group = dist._coalescing_manager if o.form == "coalesced" else contextlib.nullcontext
    parts = 2 if o.form == "coalesced" else 1
    torch.manual_seed(o.seed + 100 * common.RANK)

    def weight(rows, columns, scale):
        return (torch.randn(rows, columns, device=device) * scale).bfloat16()

    sleeper = sleeping.Sleeper() if o.nap else None
    inner, losses = o.inner // common.RANKS, []
    with sleeper.pool() if sleeper else contextlib.nullcontext():
        weights = [(weight(inner, o.hidden, o.hidden**-0.5), weight(o.hidden, inner, o.inner**-0.5))
                   for _ in range(o.layers)]
        base = torch.randn(o.tokens // common.RANKS, o.hidden, device=device).bfloat16()
        scale = torch.ones((), device=device)

    def forward(base, scale):
        x = list((base * scale.to(base.dtype)).chunk(parts))
        for up, down in weights:
            with group():
                wholes = [gather(part) for part in x]
            products = [F.linear(F.gelu(F.linear(whole, up)), down) for whole in wholes]
            with group():
                sums = [scatter(product) for product in products]
            x = [part + some for part, some in zip(x, sums)]
        return sum(part.float().square().mean() for part in x)

    body = torch.compile(forward) if o.form == "compiled" else forward
    with torch.no_grad(), sleeper.pool() if sleeper else contextlib.nullcontext():
        graph = None
        if o.form in ("captured", "replayed") and device.type == "cuda":
            graph, loss = capture(lambda: body(base, scale), device)

        def step(n):
            if sleeper and n and n % o.nap == 0:
                sleeper.nap([base, scale] + [one for layer in weights for one in layer] + losses)
            scale.fill_(1 + (n % 16) / 16)  # so that what is left of another step shows
            if not graph:
                losses.append(body(base, scale))  # held here, so that it is kept when the memory sleeps
                return losses[-1]
            graph.replay()
            return loss

        # NCCL waits for graphs when a communicator is destroyed.
        common.torch_drive(o, device, step, graph.reset if graph else lambda: None, form=o.form)


if __name__ == "__main__":
    common.run(main)
