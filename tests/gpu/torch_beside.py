#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an all-gather of NCCL and a GEMM beside it, on another stream, take of each other, by NCCL's number of channels.

    torchrun --nproc-per-node 4 torch_beside.py [--mib 256] [--side 8192] [--channels 1 2 4 8 16 32]

The gathers stay with NCCL; a communicator for each number, whose most CTAs are set in its configuration. Medians in ms of
the slowest rank: the gather alone, the GEMMs alone, both started together until the last one has ended, and what the GEMMs
took meanwhile. As many GEMMs as last about as long as the gather do.
"""
import argparse
import os
import statistics

import torch
import torch.distributed as dist


def measure(group, send, recv, multiply, gemms, gather, rounds=30):
    side = torch.cuda.Stream()
    begin, gemm_end, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    total, inner = [], []
    for _ in range(rounds):
        dist.barrier(device_ids=[torch.cuda.current_device()])
        torch.cuda.synchronize()
        begin.record()
        side.wait_event(begin)
        work = dist.all_gather_into_tensor(recv, send, group=group, async_op=True) if gather else None
        with torch.cuda.stream(side):
            for _ in range(gemms):
                multiply()
            gemm_end.record()
        if work:
            work.wait()
        torch.cuda.current_stream().wait_event(gemm_end)
        end.record()
        torch.cuda.synchronize()
        total.append(begin.elapsed_time(end))
        inner.append(begin.elapsed_time(gemm_end))
    worst = torch.tensor([statistics.median(total), statistics.median(inner)], device="cuda")
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=256, help="gathered bytes")
    parser.add_argument("--side", type=int, default=8192, help="of the GEMM's matrices, bf16")
    parser.add_argument("--channels", type=int, nargs="+", default=[0, 1, 2, 4, 8, 16, 32], help="0: NCCL's choice")
    options = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    ranks = dist.get_world_size()
    recv = torch.zeros(options.mib << 20, dtype=torch.uint8, device="cuda")
    send = torch.ones((options.mib << 20) // ranks, dtype=torch.uint8, device="cuda")
    a, b = (torch.randn(options.side, options.side, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    multiply = lambda: torch.mm(a, b, out=c)  # noqa: E731
    rows = []
    for channels in options.channels:
        config = dist.ProcessGroupNCCL.Options()
        if channels:
            config.config.max_ctas = channels
        group = dist.new_group(pg_options=config)
        gather_alone = measure(group, send, recv, multiply, 0, True)[0]
        one = measure(group, send, recv, multiply, 1, False)[0]
        gemms = max(1, round(gather_alone / one))
        alone = measure(group, send, recv, multiply, gemms, False)[0]
        both, inner = measure(group, send, recv, multiply, gemms, True)
        rows.append((channels or "NCCL's", gather_alone, gemms, alone, both, inner))
    if dist.get_rank() == 0:
        print(f"{ranks} ranks, {options.mib} MiB gathered beside GEMMs of side {options.side}, bf16, ms\n")
        print("| channels | gather alone | GEMMs | GEMMs alone | both | GEMMs meanwhile |\n" + "| --- " * 6 + "|")
        for channels, gather_alone, gemms, alone, both, inner in rows:
            print(f"| {channels} | {gather_alone:.3f} | {gemms} | {alone:.3f} | {both:.3f} | {inner:.3f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
