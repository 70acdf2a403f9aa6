#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of a Llama of transformers under FSDP2: fully_shard of each layer and of the whole, bf16, AdamW."""
import common
import llama


def main():
    p = common.parser(__doc__, llama.SIZES, llama.ONE_GPU, llama.CPU)
    p.add_argument("--replicas", type=int, default=1, metavar="N", help="of the model (HSDP); ranks one behind the other shard one")
    o = common.parse(p)
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = common.torch_start(o, deterministic=True)
    model = llama.make(o, device)
    mesh = init_device_mesh(device.type, (common.RANKS,))
    if o.replicas > 1:
        mesh = init_device_mesh(device.type, (o.replicas, common.RANKS // o.replicas), mesh_dim_names=("replicate", "shard"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = llama.tokens(o, device, o.seed + 100 * common.RANK)

    def step(_):
        loss = model(input_ids=text, labels=text).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    common.torch_drive(o, device, step, transformers=llama.version())


if __name__ == "__main__":
    common.run(main)
