#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of a plain MLP under DeepSpeed's ZeRO-3, bf16: parameters are gathered in front of each layer."""
import common

SIZES = {"hidden": 4096, "inner": 16384, "tokens": 4096, "layers": 4}
ONE_GPU = {"hidden": 1024, "inner": 4096, "tokens": 2048}
CPU = {"hidden": 32, "inner": 64, "tokens": 16, "layers": 2}


def configuration(o):
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "steps_per_print": 1 << 30,
        "wall_clock_breakdown": False,
    }


def main():
    import os

    o = common.parse(common.parser(__doc__, SIZES, ONE_GPU, CPU))
    if o.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ.setdefault("DS_BUILD_OPS", "0")
    import deepspeed
    import torch

    device = common.torch_start(o)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(o.hidden)
            self.up = torch.nn.Linear(o.hidden, o.inner, bias=False)
            self.down = torch.nn.Linear(o.inner, o.hidden, bias=False)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    model = torch.nn.Sequential(*(Layer() for _ in range(o.layers)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=configuration(o),
                                      dist_init_required=False)
    torch.manual_seed(o.seed + 100 * common.RANK)
    x, target = (torch.randn(o.tokens // common.RANKS, o.hidden, device=device).bfloat16() for _ in range(2))

    def step(_):
        loss = (engine(x).float() - target.float()).square().mean()
        engine.backward(loss)
        engine.step()
        return loss

    common.torch_drive(o, device, step, deepspeed=deepspeed.__version__)


if __name__ == "__main__":
    common.run(main)
