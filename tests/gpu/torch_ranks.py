# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch programs here share: the ranks of torchrun, on one GPU or several, and the report of rank 0."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def parser(text):
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--dtype", choices=DTYPES, default="bf16")
    p.add_argument("--tf32", action="store_true", help="let fp32 products use TF32")
    p.add_argument("--one-gpu", action="store_true", help="all ranks on device 0, over NCCL's sockets")
    p.add_argument("--json", metavar="FILE", help="losses and times of rank 0")
    return p


def start(arguments):
    """Joins the process group as torchrun's environment says; returns rank and number of ranks."""
    rank = int(os.environ["RANK"])
    if arguments.one_gpu:  # NCCL refuses two ranks on one GPU of one host
        os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(0 if arguments.one_gpu else int(os.environ["LOCAL_RANK"]))
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    dist.init_process_group("nccl")
    return rank, dist.get_world_size()


def train(arguments, step):
    """Calls step() for each step; it returns the loss, equal on all ranks. Returns the losses and the seconds."""
    losses, seconds = [], []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    return losses, seconds


def finish(arguments, losses, seconds, **more):
    if dist.get_rank() == 0:
        steady = seconds[len(seconds) // 5 :]
        result = {
            "losses": [value.hex() for value in losses],
            "first": losses[0],
            "last": losses[-1],
            "ms": 1e3 * statistics.median(steady),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "device": torch.cuda.get_device_name(),
            **more,
        }
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file)
        print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}, {result['ms']:.2f} ms a step")
    dist.destroy_process_group()
