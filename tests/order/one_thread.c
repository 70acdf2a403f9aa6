/* SPDX-License-Identifier: Apache-2.0 */
/* One thread makes the calls of all ranks, all of a rank's in a group before the next rank's: reduce-scatters that the slots
 * do not hold.
 *
 *   one_thread RANKS CALLS [ROUNDS]   so many reduce-scatters in a group, and gathers behind them; some of those alone
 */
#include <cuda_runtime_api.h>
#include <string.h>
#include "../programs/ranks.h"

enum { MOST = 8, COUNT = 64 << 10, GATHERS = 3 }; /* floats a shard */

struct all {
    int ranks, calls;
    ncclComm_t comm[MOST];
    cudaStream_t stream[MOST];
    float *send[MOST], *recv[MOST];
    char *gathered[MOST];
};

static void gather(struct all *a, int rank, size_t bytes)
{
    NCCL(ncclAllGather(a->send[rank], a->gathered[rank], bytes, ncclChar, a->comm[rank], a->stream[rank]));
}

static void go_round(struct all *a)
{
    NCCL(ncclGroupStart());
    for (int r = 0; r < a->ranks; r++) {
        CUDA(cudaSetDevice(r));
        for (int i = 0; i < a->calls; i++)
            NCCL(ncclReduceScatter(a->send[r], a->recv[r] + (size_t)i * COUNT, COUNT, ncclFloat, ncclSum, a->comm[r],
                                   a->stream[r]));
        gather(a, r, 16 << 10);
    }
    NCCL(ncclGroupEnd());
    for (size_t i = 0; i < 2 * GATHERS; i++) {
        NCCL(ncclGroupStart());
        for (int r = 0; r < a->ranks; r++) {
            CUDA(cudaSetDevice(r));
            gather(a, r, (i % 2 ? 32 << 10 : 16 << 10) + 1024 * (i / 2));
        }
        NCCL(ncclGroupEnd());
    }
}

/* Rank r sends r + 1 everywhere. */
static void check(const struct all *a, float *host)
{
    const float want = (float)(a->ranks * (a->ranks + 1) / 2);
    for (int r = 0; r < a->ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamSynchronize(a->stream[r]));
        CUDA(cudaMemcpy(host, a->recv[r], sizeof(float) * COUNT * (size_t)a->calls, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT * a->calls; i++)
            CHECK(host[i] == want, "rank %d: element %d is %g, not %g", r, i, (double)host[i], (double)want);
        CUDA(cudaMemset(a->recv[r], 0xa5, sizeof(float) * COUNT * (size_t)a->calls));
        CUDA(cudaDeviceSynchronize());
    }
}

int main(int argc, char **argv)
{
    struct all a = {.ranks = argc > 2 ? atoi(argv[1]) : 0, .calls = argc > 2 ? atoi(argv[2]) : 0};
    const int rounds = argc > 3 ? atoi(argv[3]) : 3;
    if (a.ranks < 2 || a.ranks > MOST || a.calls < 1)
        return 2;
    const size_t floats = (size_t)COUNT * (size_t)(a.ranks > a.calls ? a.ranks : a.calls);
    float *host = malloc(sizeof *host * floats);
    NCCL(ncclCommInitAll(a.comm, a.ranks, NULL));
    for (int r = 0; r < a.ranks; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamCreate(&a.stream[r]));
        CUDA(cudaMalloc((void **)&a.send[r], sizeof(float) * floats));
        CUDA(cudaMalloc((void **)&a.recv[r], sizeof(float) * floats));
        CUDA(cudaMalloc((void **)&a.gathered[r], (size_t)(64 << 10) * (size_t)a.ranks));
        for (size_t i = 0; i < floats; i++)
            host[i] = (float)(r + 1);
        to_device(a.send[r], host, sizeof(float) * floats);
    }
    for (int i = 0; i < rounds; i++) {
        go_round(&a);
        check(&a, host);
    }
    for (int r = 0; r < a.ranks; r++)
        NCCL(ncclCommDestroy(a.comm[r]));
    free(host);
    return 0;
}
