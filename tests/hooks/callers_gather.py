#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An all-gather and the GEMM that consumes it, from Python through ctypes, as vLLM calls NCCL.

    callers_gather.py RANKS [--one-gpu]

Each rank is a process of its own. The data are small integers, so the product is exact. --one-gpu: all ranks on device
0, over NCCL's sockets.
"""
import ctypes
import os
import sys

COLS, OTHER, K = 24, 40, 64  # gathered columns of each rank; rows of the weight; inner size
CUDA_R_32F, COMPUTE_32F, OP_N, OP_T, ALGO_DEFAULT = 0, 68, 0, 1, -1
TO_DEVICE, TO_HOST, NCCL_FLOAT = 1, 2, 7
ROUNDS = 3


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def library(name):
    """Of CUDA 13, or else 12; GATHER_CUDA names the one to be used."""
    for major in os.environ.get("GATHER_CUDA", "13 12").split():
        try:
            return ctypes.CDLL(f"{name}.so.{major}")
        except OSError as error:
            last = error
    raise last


def check(what, status):
    if status != 0:
        raise RuntimeError(f"{what}: status {status}")


class Rank:
    def __init__(self, rank, ranks, pipes, one_gpu):
        self.rank, self.ranks = rank, ranks
        self.rt = library("libcudart")
        self.nccl = ctypes.CDLL("libnccl.so.2")
        self.blas = library("libcublas")
        count = ctypes.c_int()
        check("cudaGetDeviceCount", self.rt.cudaGetDeviceCount(ctypes.byref(count)))
        check("cudaSetDevice", self.rt.cudaSetDevice(0 if one_gpu else rank % count.value))
        self.stream, self.comm, self.handle = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        check("cudaStreamCreate", self.rt.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1))
        check("ncclCommInitRank", self.nccl.ncclCommInitRank(ctypes.byref(self.comm), ranks, self.share_id(pipes), rank))
        check("cublasCreate", self.blas.cublasCreate_v2(ctypes.byref(self.handle)))
        check("cublasSetStream", self.blas.cublasSetStream_v2(self.handle, self.stream))

    def share_id(self, pipes):
        unique = UniqueId()
        if self.rank == 0:
            check("ncclGetUniqueId", self.nccl.ncclGetUniqueId(ctypes.byref(unique)))
            for _, end in pipes[1:]:
                os.write(end, bytes(unique))
        else:
            unique = UniqueId.from_buffer_copy(os.read(pipes[self.rank][0], 128))
        return unique

    def buffer(self, count):
        pointer = ctypes.c_void_p()
        check("cudaMalloc", self.rt.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4 * count)))
        return pointer

    def copy(self, to, source, count, kind):
        check("cudaMemcpyAsync", self.rt.cudaMemcpyAsync(to, source, ctypes.c_size_t(4 * count), kind, self.stream))

    def upload(self, pointer, values):
        host = (ctypes.c_float * len(values))(*values)
        self.copy(pointer, host, len(values), TO_DEVICE)
        check("cudaStreamSynchronize", self.rt.cudaStreamSynchronize(self.stream))

    def download(self, pointer, count):
        host = (ctypes.c_float * count)()
        self.copy(host, pointer, count, TO_HOST)
        check("cudaStreamSynchronize", self.rt.cudaStreamSynchronize(self.stream))
        return host

    def gather(self, send, recv):
        check("ncclAllGather", self.nccl.ncclAllGather(send, recv, ctypes.c_size_t(COLS * K), NCCL_FLOAT, self.comm, self.stream))

    def gemm(self, weight, gathered, out):
        """Column-major: out (OTHER x n) = weight (OTHER x K) * gathered (K x n)."""
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        check("cublasGemmEx", self.blas.cublasGemmEx(
            self.handle, OP_N, OP_N, OTHER, COLS * self.ranks, K, ctypes.byref(one), weight, CUDA_R_32F, OTHER,
            gathered, CUDA_R_32F, K, ctypes.byref(zero), out, CUDA_R_32F, OTHER, COMPUTE_32F, ALGO_DEFAULT))  # fmt: skip


def small(seed, i):
    return (seed * 7919 + i * 104729) % 11 - 5


def expected(ranks, number):
    """All elements of the product, column after column."""
    weight = [[small(1000 + number, k * OTHER + row) for k in range(K)] for row in range(OTHER)]
    for owner in range(ranks):
        for column in range(COLS):
            shard = [small(number * 10 + owner, column * K + k) for k in range(K)]
            for row in range(OTHER):
                yield sum(a * b for a, b in zip(weight[row], shard))


def run(rank, ranks, pipes, one_gpu):
    r = Rank(rank, ranks, pipes, one_gpu)
    send, recv = r.buffer(COLS * K), r.buffer(COLS * K * ranks)
    weight, out = r.buffer(OTHER * K), r.buffer(OTHER * COLS * ranks)
    for number in range(ROUNDS):
        r.upload(weight, [small(1000 + number, i) for i in range(OTHER * K)])
        r.upload(recv, [9e9] * (COLS * K * ranks))
        r.upload(send, [small(number * 10 + rank, i) for i in range(COLS * K)])
        r.gather(send, recv)
        r.gemm(weight, recv, out)
        have = r.download(out, OTHER * COLS * ranks)
        for i, want in enumerate(expected(ranks, number)):
            if have[i] != want:
                raise RuntimeError(f"rank {rank}, round {number}: element {i} is {have[i]}, expected {want}")
    check("ncclCommDestroy", r.nccl.ncclCommDestroy(r.comm))


def main():
    ranks, one_gpu = int(sys.argv[1]), "--one-gpu" in sys.argv[2:]
    pipes = [os.pipe() for _ in range(ranks)]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            if one_gpu:
                os.environ.update(NCCL_HOSTID=f"rank{rank}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
            run(rank, ranks, pipes, one_gpu)
            return
        children.append(child)
    worst = max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    sys.exit(abs(worst))


if __name__ == "__main__":
    main()
