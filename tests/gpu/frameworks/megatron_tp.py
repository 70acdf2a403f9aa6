#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of an MLP of megatron-core's ColumnParallelLinear and RowParallelLinear, with sequence parallelism or without.

With it (--form sequence) each rank has its part of the tokens between the layers: they are gathered in front of the
columns, again for the gradient of the weight, and summed behind the rows. Without (--form whole) each rank has all of
them: what the rows make, and in the backward pass what the columns make, is summed in place by all-reduces. All ranks
are one tensor parallel group.
"""
import functools
import os

import common

SIZES = {"hidden": 8192, "inner": 7168, "tokens": 8192, "layers": 3}
ONE_GPU = {"hidden": 2048, "inner": 8192, "tokens": 2048}
CPU = {"hidden": 32, "inner": 64, "tokens": 16}


def make_layers(o, device):
    import torch
    from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=common.RANKS, create_gloo_process_groups=False)
    on_cpu = device.type == "cpu"
    if on_cpu:  # Megatron-LM asks CUDA where to put what it gathers
        torch.cuda.current_device = lambda: device
    else:
        tensor_parallel.model_parallel_cuda_manual_seed(o.seed)
    config = ModelParallelConfig(
        tensor_model_parallel_size=common.RANKS, sequence_parallel=o.form == "sequence", use_cpu_initialization=on_cpu,
        params_dtype=torch.bfloat16, bf16=True, gradient_accumulation_fusion=False,
    )

    def init(columns):
        return functools.partial(torch.nn.init.normal_, mean=0.0, std=columns**-0.5)

    column = functools.partial(tensor_parallel.ColumnParallelLinear, config=config, init_method=init(o.hidden),
                               bias=False, gather_output=False)
    row = functools.partial(tensor_parallel.RowParallelLinear, config=config, init_method=init(o.inner), bias=False,
                            input_is_parallel=True, skip_bias_add=False)
    return [(column(o.hidden, o.inner), row(o.inner, o.hidden)) for _ in range(o.layers)]


def main():
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # as Megatron-LM wants it
    p = common.parser(__doc__, SIZES, ONE_GPU, CPU)
    p.add_argument("--form", choices=("sequence", "whole"), default="sequence")
    o = common.parse(p)
    import torch
    import torch.nn.functional as F

    device = common.torch_start(o)
    layers = make_layers(o, device)
    weights = [one.weight for layer in layers for one in layer]
    optimizer = common.MasterSGD(weights, o.inner)
    parts = common.RANKS if o.form == "sequence" else 1
    torch.manual_seed(o.seed + (100 * common.RANK if parts > 1 else 0))
    shape = (o.tokens // parts, 1, o.hidden)
    x, target = (torch.randn(shape, device=device).bfloat16() for _ in range(2))

    def step(_):
        y = x
        for column, row in layers:
            y = y + row(F.gelu(column(y)[0]))[0]
        loss = (y.float() - target.float()).square().sum(-1).mean()
        loss.backward()
        optimizer.step()
        return loss

    import importlib.metadata

    common.torch_drive(o, device, step, megatron=importlib.metadata.version("megatron-core"))


if __name__ == "__main__":
    common.run(main)
