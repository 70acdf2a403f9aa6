#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of an MLP under torch.distributed.tensor.parallel: Colwise, Rowwise and SequenceParallel."""
import common

SIZES = {"hidden": 8192, "inner": 7168, "tokens": 8192, "layers": 3}
ONE_GPU = {"hidden": 2048, "inner": 8192, "tokens": 2048}
CPU = {"hidden": 32, "inner": 64, "tokens": 16}


def make_model(o, device):
    import torch
    import torch.nn.functional as F
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(o.hidden)
            self.up = torch.nn.Linear(o.hidden, o.inner, bias=False)
            self.down = torch.nn.Linear(o.inner, o.hidden, bias=False)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    mesh = init_device_mesh(device.type, (common.RANKS,))
    with torch.device(device):
        model = torch.nn.Sequential(*(Layer() for _ in range(o.layers))).bfloat16()
    plan = {"norm": SequenceParallel(use_local_output=True), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1))}
    for layer in model:
        parallelize_module(layer, mesh, plan)
    return model


def main():
    o = common.parse(common.parser(__doc__, SIZES, ONE_GPU, CPU))
    import torch

    device = common.torch_start(o)
    model = make_model(o, device)  # the same on all ranks; parallelize_module distributes
    optimizer = common.MasterSGD(model.parameters(), o.inner)
    torch.manual_seed(o.seed + 100 * common.RANK)
    shape = (1, o.tokens // common.RANKS, o.hidden)
    x, target = (torch.randn(shape, device=device).bfloat16() for _ in range(2))

    def step(_):
        loss = (model(x).float() - target.float()).square().sum(-1).mean()
        loss.backward()
        optimizer.step()
        return loss

    common.torch_drive(o, device, step)


if __name__ == "__main__":
    common.run(main)
