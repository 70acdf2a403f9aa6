#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of a plain MLP under DistributedDataParallel, bf16: gradients are averaged by buckets, in place, on a stream
of their own, while the backward pass computes the next ones."""
import common

SIZES = {"hidden": 4096, "inner": 16384, "tokens": 8192, "layers": 4}
ONE_GPU = {"hidden": 1024, "inner": 4096, "tokens": 2048}
CPU = {"hidden": 32, "inner": 64, "tokens": 16, "layers": 2}


def main():
    o = common.parse(common.parser(__doc__, SIZES, ONE_GPU, CPU))
    import torch

    device = common.torch_start(o)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(o.hidden, o.inner, bias=False)
            self.down = torch.nn.Linear(o.inner, o.hidden, bias=False)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    model = torch.nn.Sequential(*(Layer() for _ in range(o.layers))).to(device, torch.bfloat16)
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    torch.manual_seed(o.seed + 100 * common.RANK)
    x, target = (torch.randn(o.tokens // common.RANKS, o.hidden, device=device).bfloat16() for _ in range(2))

    def step(_):
        loss = (parallel(x).float() - target.float()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    common.torch_drive(o, device, step)


if __name__ == "__main__":
    common.run(main)
