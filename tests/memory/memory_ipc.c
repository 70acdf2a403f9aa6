/* SPDX-License-Identifier: Apache-2.0 */
/* The application's own CUDA IPC on memory that it has allocated, freed and allocated again: rank 0 exports, the others
 * open, read, close; the handles travel by all-gather.   ipc RANKS */
#include <string.h>
#include "../programs/ranks.h"

enum { BYTES = 3 << 20 };

/* All ranks' copies of `bytes` bytes; also a barrier. */
static void exchange(struct rank *r, const void *mine, size_t bytes, uint8_t *all)
{
    void *send, *recv;
    CUDA(cudaMalloc(&send, bytes));
    CUDA(cudaMalloc(&recv, bytes * (size_t)r->nranks));
    CUDA(cudaMemcpyAsync(send, mine, bytes, cudaMemcpyHostToDevice, r->stream));
    NCCL(ncclAllGather(send, recv, bytes, ncclInt8, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(all, recv, bytes * (size_t)r->nranks, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaFree(send));
    CUDA(cudaFree(recv));
}

static void check(struct rank *r, const cudaIpcMemHandle_t *handle, uint8_t *host, int round)
{
    void *theirs;
    CUDA(cudaIpcOpenMemHandle(&theirs, *handle, cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaMemcpy(host, theirs, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BYTES; i++)
        CHECK(host[i] == 50 + round, "rank %d, round %d: byte %d is %d", r->rank, round, i, host[i]);
    CUDA(cudaIpcCloseMemHandle(theirs));
}

static void body(struct rank *r)
{
    uint8_t *host = malloc(BYTES), all[64 * sizeof(cudaIpcMemHandle_t)];
    rank_open(r);
    for (int round = 0; round < 8; round++) {
        cudaIpcMemHandle_t handle = {0};
        void *p;
        CUDA(cudaMalloc(&p, BYTES));
        CUDA(cudaMemset(p, 50 + round, BYTES));
        CUDA(cudaDeviceSynchronize());
        if (r->rank == 0)
            CUDA(cudaIpcGetMemHandle(&handle, p));
        exchange(r, &handle, sizeof handle, all);
        if (r->rank != 0) {
            memcpy(&handle, all, sizeof handle);
            check(r, &handle, host, round);
        }
        exchange(r, &handle, sizeof handle, all);
        CUDA(cudaFree(p));
    }
    free(host);
    rank_close(r);
}

int main(int argc, char **argv)
{
    return argc == 2 ? ranks_run(atoi(argv[1]), 120, body, NULL) : 2;
}
