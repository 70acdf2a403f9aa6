#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama of transformers, loaded with tp_plan="auto": forward, backward, AdamW; or, --form prefill, the pass with which
inference begins: all tokens of long prompts, no gradients.

Rank 0 makes the model from a seed and saves it in a temporary folder.
"""
import shutil
import tempfile

import common
import llama


def saved(o):
    """The folder of the model, on all ranks."""
    import torch.distributed as dist

    folder = [None]
    if common.RANK == 0:
        folder[0] = tempfile.mkdtemp()
        llama.make(o, "cpu").bfloat16().save_pretrained(folder[0])
    dist.broadcast_object_list(folder, src=0)
    return folder[0]


def trains(model, o, text):
    import torch

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step(_):
        loss = model(input_ids=text, labels=text).loss
        loss = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def prefills(model, o, text):
    import torch

    model.eval()

    @torch.inference_mode()
    def step(n):
        logits = model(input_ids=(text + n) % o.vocabulary, logits_to_keep=1).logits
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        return logits.float().square().mean()

    return step


def main():
    p = common.parser(__doc__, llama.SIZES, llama.ONE_GPU, llama.CPU)
    p.add_argument("--form", choices=["train", "prefill"], default="train")
    o = common.parse(p)
    o.tokens *= {"train": 1, "prefill": 4}[o.form]
    import torch
    import torch.distributed as dist
    import transformers

    device = common.torch_start(o, deterministic=True)
    folder = saved(o)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", dtype=torch.bfloat16)
    finally:
        dist.barrier()
        if common.RANK == 0:
            shutil.rmtree(folder, ignore_errors=True)
    text = llama.tokens(o, device, o.seed)  # the same on all ranks
    step = {"train": trains, "prefill": prefills}[o.form](model, o, text)
    common.torch_drive(o, device, step, transformers=llama.version())


if __name__ == "__main__":
    common.run(main)
