/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that another process may write to as well, by an IPC handle.
 *
 *   given GEMM     "over": a GEMM behind the gather writes where its shard was; "apart": to memory of its own
 *
 * Ranks 0 and 1 gather, large. Then rank 0 gathers something small with rank 2, which is not in the first gather and takes
 * the small one for news of it: rank 0 has called it behind the large one, on the same stream. So rank 2 writes where rank 0
 * has sent from. */
#include <cublas_v2.h>
#include <string.h>
#include "zero.h"

enum { M = 8, K = 32, COLS = 2048, SMALL = 64, ROUNDS = 12, WRITTEN = 8 }; /* from that round on rank 2 writes */
#define SHARD ((size_t)K * COLS * sizeof(float))

struct given {
    struct gather large, small;
    ncclComm_t pair, news;
    void *theirs; /* rank 0's send buffer, in rank 2 */
    float *weight, *c;
    cublasHandle_t blas;
    bool over;
};

/* Rank 2 opens what rank 0 sends from; all know by NCCL how. */
static void give(struct rank *r, struct given *g)
{
    cudaIpcMemHandle_t own, all[3];
    char *device;
    CUDA(cudaMalloc((void **)&device, sizeof all));
    CUDA(cudaIpcGetMemHandle(&own, g->large.send));
    to_device(device + sizeof own * (size_t)r->rank, &own, sizeof own);
    NCCL(ncclAllGather(device + sizeof own * (size_t)r->rank, device, sizeof own, ncclUint8, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(all, device, sizeof all, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    if (r->rank == 2)
        CUDA(cudaIpcOpenMemHandle(&g->theirs, all[0], cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaFree(device));
}

static void multiply(struct given *g)
{
    const float one = 1, none = 0;
    BLAS(cublasSgemm(g->blas, CUBLAS_OP_N, CUBLAS_OP_N, M, COLS * 2, K, &one, g->weight, M,
                     (const float *)g->large.recv, K, &none, g->over ? (float *)g->large.send : g->c, M));
}

static void round_of(struct rank *r, struct given *g, uint64_t round)
{
    const bool large = r->rank < 2, written = round >= WRITTEN;
    if (large)
        gather_load(&g->large, round, r->stream);
    CUDA(cudaDeviceSynchronize());
    sleep_ms(40); /* time to map peers' memory */
    zero_barrier(r);
    if (large)
        gather_call(&g->large, g->pair, r->stream);
    if (large && !written)
        multiply(g);
    if (written && r->rank != 1)
        gather_call(&g->small, g->news, r->stream);
    if (written && r->rank == 2)
        CUDA(cudaMemsetAsync(g->theirs, 0xee, SHARD, r->stream));
    if (large)
        gather_check(&g->large, round, r->stream, "what was sent from memory that is given");
    CUDA(cudaStreamSynchronize(r->stream));
    zero_barrier(r);
}

static void body(struct rank *r)
{
    struct given g = {.over = strcmp(r->arg, "over") == 0};
    rank_open(r);
    NCCL(ncclCommSplit(r->comm, r->rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR, r->rank, &g.pair, NULL));
    NCCL(ncclCommSplit(r->comm, r->rank != 1 ? 0 : NCCL_SPLIT_NOCOLOR, r->rank, &g.news, NULL));
    gather_alloc(&g.large, r->rank % 2, 2, SHARD);
    gather_alloc(&g.small, r->rank / 2, 2, SMALL);
    CUDA(cudaMalloc((void **)&g.weight, M * K * sizeof(float)));
    CUDA(cudaMemset(g.weight, 0, M * K * sizeof(float)));
    CUDA(cudaMalloc((void **)&g.c, M * COLS * 2 * sizeof(float)));
    BLAS(cublasCreate(&g.blas));
    BLAS(cublasSetStream(g.blas, r->stream));
    give(r, &g);
    for (uint64_t round = 0; round < ROUNDS; round++)
        round_of(r, &g, round);
    if (g.theirs)
        CUDA(cudaIpcCloseMemHandle(g.theirs));
    zero_barrier(r);
    BLAS(cublasDestroy(g.blas));
    CUDA(cudaFree(g.weight));
    CUDA(cudaFree(g.c));
    gather_free(&g.large);
    gather_free(&g.small);
    if (g.pair)
        NCCL(ncclCommDestroy(g.pair));
    if (g.news)
        NCCL(ncclCommDestroy(g.news));
    rank_close(r);
}

int main(int argc, char **argv)
{
    return argc < 2 ? 2 : zero_run(3, 60, argv, body, argv[1]);
}
