/* SPDX-License-Identifier: Apache-2.0 */
#include "buffers.h"

#include <dirent.h>
#include <string.h>

void buffer_alloc(enum memory kind, struct buffer *b, size_t bytes)
{
    int types = kind == MEM_PRIVATE ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    *b = (struct buffer){.p = NULL};
    if (kind == MEM_NCCL) {
        NCCL(ncclMemAlloc((void **)&b->p, bytes));
    } else if (kind == MEM_CUDA) {
        CUDA(cudaMalloc((void **)&b->p, bytes));
    } else if (kind == MEM_POOL) {
        CUDA(cudaMallocAsync((void **)&b->p, bytes, NULL));
        CUDA(cudaDeviceSynchronize());
    } else {
        /* A shard of 64 KiB lies across the border of two pieces: the buffer begins before it. */
        virtual_alloc(&b->v, bytes, kind == MEM_PIECES ? 2 : 1, types, 0);
        b->p = (uint8_t *)(uintptr_t)(kind == MEM_PIECES ? b->v.p + b->v.bytes / 2 - 4096 : b->v.p);
    }
}

void buffer_free(enum memory kind, struct buffer *b)
{
    if (kind == MEM_NCCL)
        NCCL(ncclMemFree(b->p));
    else if (kind == MEM_CUDA)
        CUDA(cudaFree(b->p));
    else if (kind == MEM_POOL)
        CUDA(cudaFreeAsync(b->p, NULL));
    else
        virtual_free(&b->v);
}

void bench_alloc(struct bench *b, size_t shard)
{
    size_t all = shard * (size_t)b->r->nranks;
    zero_host(&b->g, b->r, shard);
    buffer_alloc(b->p->memory, &b->send_buffer, shard);
    buffer_alloc(b->p->memory, &b->recv_buffer, all);
    b->g.send = b->send_buffer.p;
    b->g.recv = b->recv_buffer.p;
    CUDA(cudaMalloc((void **)&b->reference, all));
    CUDA(cudaMallocHost((void **)&b->seen, all));
}

void bench_free(struct bench *b)
{
    buffer_free(b->p->memory, &b->send_buffer);
    buffer_free(b->p->memory, &b->recv_buffer);
    CUDA(cudaFree(b->reference));
    CUDA(cudaFreeHost(b->seen));
    CUDA(cudaFreeHost(b->g.host));
}

static void begin(struct bench *b, struct held *h, ncclComm_t comm, void *p, size_t bytes)
{
    *h = (struct held){NULL, NULL};
    if (b->p->how == HOW_REGISTER)
        NCCL(ncclCommRegister(comm, p, bytes, &h->handle));
    else
        NCCL(ncclCommWindowRegister(comm, p, bytes, &h->window, NCCL_WIN_COLL_SYMMETRIC));
}

static void end(struct bench *b, struct held *h, ncclComm_t comm)
{
    if (b->p->how == HOW_REGISTER)
        NCCL(ncclCommDeregister(comm, h->handle));
    else
        NCCL(ncclCommWindowDeregister(comm, h->window));
}

void bench_register(struct bench *b, ncclComm_t comm)
{
    if (b->p->how == HOW_NOT)
        return;
    if (b->p->how == HOW_GROUP)
        NCCL(ncclGroupStart());
    if (b->p->send)
        begin(b, &b->send, comm, b->g.send, b->g.shard);
    if (b->p->recv)
        begin(b, &b->recv, comm, b->g.recv, b->g.shard * (size_t)b->g.nranks);
    if (b->p->how == HOW_GROUP)
        NCCL(ncclGroupEnd());
}

void bench_deregister(struct bench *b, ncclComm_t comm)
{
    if (b->p->how == HOW_NOT)
        return;
    if (b->p->send)
        end(b, &b->send, comm);
    if (b->p->recv)
        end(b, &b->recv, comm);
}

static void compare(struct bench *b, ncclComm_t comm)
{
    size_t all = b->g.shard * (size_t)b->g.nranks;
    NCCL(pncclAllGather(b->g.send, b->reference, b->g.shard, ncclUint8, comm, b->r->stream));
    CUDA(cudaMemcpyAsync(b->seen, b->reference, all, cudaMemcpyDeviceToHost, b->r->stream));
    CUDA(cudaStreamSynchronize(b->r->stream));
    EXPECT(!memcmp(b->seen, b->g.host, all), "rank %d: not what NCCL gathers", b->g.rank);
}

void bench_gather(struct bench *b, ncclComm_t comm, int first, uint64_t seed)
{
    gather_load(&b->g, seed, b->r->stream);
    CUDA(cudaStreamSynchronize(b->r->stream));
    zero_barrier(b->r);
    for (int k = 0; k < b->g.nranks; k++) {
        if ((first + k) % b->g.nranks == b->g.rank)
            gather_call(&b->g, comm, b->r->stream);
        zero_barrier(b->r);
    }
    gather_check(&b->g, seed, b->r->stream, b->p->name);
    compare(b, comm);
}

int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}
