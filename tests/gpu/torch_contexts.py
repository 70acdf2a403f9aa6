#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gathers and products of PyTorch's on streams of other contexts than the primary one; every value is compared.

    RANK=.. WORLD_SIZE=2 LOCAL_RANK=.. torch_contexts.py green|current|created [--one-gpu] [--rounds 8]

green: on a stream of a green context. current: with that context current as well, as torch.cuda.green_contexts has it.
created: gathers on a stream of a context of cuCtxCreate, looked at there; no kernel of PyTorch's can be launched on it.

Exit status: 0, 1 for a value that is wrong, 77 when the driver can not make such a context.
"""
import argparse
import ctypes
import os
import sys

import torch
import torch.distributed as dist

ROWS, INNER, COLUMNS = 1024, 512, 768
SM, DEFAULT_STREAM, NON_BLOCKING = 1, 1, 1


class Resource(ctypes.Structure):
    """CUdevResource: its fields are CUDA's own business."""

    _fields_ = [("bytes", ctypes.c_uint8 * 256)]


def driver(name, *arguments):
    result = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if result in (801, 500):  # not supported, or not there
        print(f"{name}: not supported")
        sys.exit(77)
    if result:
        sys.exit(f"{name}: error {result}")


def green_context(device):
    whole, part, count = Resource(), Resource(), ctypes.c_uint(1)
    description, green, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuDeviceGetDevResource", device, ctypes.byref(whole), SM)
    driver("cuDevSmResourceSplitByCount", ctypes.byref(part), ctypes.byref(count), ctypes.byref(whole), None, 0, 16)
    driver("cuDevResourceGenerateDesc", ctypes.byref(description), ctypes.byref(part), 1)
    driver("cuGreenCtxCreate", ctypes.byref(green), description, device, DEFAULT_STREAM)
    driver("cuCtxFromGreenCtx", ctypes.byref(context), green)
    return green, context


def a_stream(kind, device):
    """The stream, and the context that is to be current, if any."""
    stream, context = ctypes.c_void_p(), ctypes.c_void_p()
    if kind != "created":
        green, context = green_context(device)
        driver("cuGreenCtxStreamCreate", ctypes.byref(stream), green, NON_BLOCKING, 0)
        return stream, context if kind == "current" else None
    driver("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    driver("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
    driver("cuCtxPopCurrent_v2", ctypes.byref(context))
    return stream, None


def shard(rank, number):
    """Small integers, so that products are exact."""
    values = torch.arange(ROWS * INNER, dtype=torch.int64).reshape(ROWS, INNER) * (rank + 3) + number
    return ((values * 2654435761) % 5 - 2).to(torch.float32).cuda()


def gathered(world, number):
    return torch.cat([shard(rank, number) for rank in range(world)])


def product_on(stream, rank, world, number, weight):
    """A gather and the product behind it on that stream. NCCL's own stream is told, and tells it."""
    mine, want = shard(rank, number), gathered(world, number)
    full = torch.empty(world * ROWS, INNER, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        dist.all_gather_into_tensor(full, mine)
        result = full @ weight
    stream.synchronize()
    return torch.equal(full, want) and torch.equal(result, want @ weight)


def nccl():
    """ncclAllGather on a stream of our own choice, with a communicator of our own."""
    preloaded, real = ctypes.CDLL(None), ctypes.CDLL("libnccl.so.2")

    class library:  # a program that is linked with NCCL would have these
        pass

    for function in ("ncclGetUniqueId", "ncclCommInitRank", "ncclAllGather"):
        setattr(library, function, getattr(preloaded if hasattr(preloaded, function) else real, function))
    return library


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 128)]


def communicator(library, rank, world):
    name = UniqueId()
    if rank == 0 and library.ncclGetUniqueId(ctypes.byref(name)):
        sys.exit("ncclGetUniqueId failed")
    told = torch.tensor(list(bytes(name)), dtype=torch.uint8, device="cuda")
    dist.broadcast(told, 0)
    name = UniqueId.from_buffer_copy(bytes(told.cpu().tolist()))
    comm = ctypes.c_void_p()
    if library.ncclCommInitRank(ctypes.byref(comm), world, name, rank):
        sys.exit("ncclCommInitRank failed")
    return comm


def raw_gather(library, comm, stream, rank, world, number):
    mine, want = shard(rank, number), gathered(world, number)
    full = torch.empty(world * ROWS, INNER, device="cuda")
    torch.cuda.synchronize()
    got = library.ncclAllGather(
        ctypes.c_void_p(mine.data_ptr()), ctypes.c_void_p(full.data_ptr()), ctypes.c_size_t(mine.numel()), 7, comm, stream
    )
    if got:
        sys.exit(f"ncclAllGather: error {got}")
    driver("cuStreamSynchronize", stream)
    return torch.equal(full, want)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("green", "current", "created"))
    parser.add_argument("--one-gpu", action="store_true", help="all ranks on device 0, over NCCL's sockets")
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if arguments.one_gpu:  # NCCL refuses two ranks on one GPU of one host
        os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
    device = 0 if arguments.one_gpu else int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    torch.zeros(1, device="cuda")
    dist.init_process_group("nccl")
    weight = shard(7, 1)[:INNER, :INNER].repeat(1, 2)[:, :COLUMNS].contiguous()
    stream, context = a_stream(arguments.kind, device)
    library = nccl()
    comm = communicator(library, rank, world)
    wrong = 0
    for number in range(arguments.rounds):
        wrong += not raw_gather(library, comm, stream, rank, world, number)
        if arguments.kind == "created":
            continue
        if context:
            driver("cuCtxPushCurrent_v2", context)
        wrong += not product_on(torch.cuda.ExternalStream(stream.value), rank, world, number, weight)
        if context:
            driver("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    print(f"rank {rank}: {arguments.kind}: {arguments.rounds} rounds, {wrong} wrong")
    dist.destroy_process_group()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
