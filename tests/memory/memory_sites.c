/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory beside the application's own, by the number of call sites: buffers of its own for each gather, every
 * one gathered three times.
 *
 *   sites RANKS
 *
 * Prints a table. The memory is that of one communicator, whatever the number of its call sites.
 */
#include <time.h>
#include "../programs/ranks.h"

#define SHARD ((size_t)2 << 20) /* the driver's page: nothing is rounded */

struct site {
    uint8_t *send, *recv;
};

static size_t free_memory(void)
{
    size_t bytes, total;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemGetInfo(&bytes, &total));
    return bytes;
}

static void gather(struct rank *r, ncclComm_t comm, const struct site *s, int seed)
{
    static uint8_t host[64];
    CUDA(cudaMemsetAsync(s->send, seed + r->rank, SHARD, r->stream));
    NCCL(ncclAllGather(s->send, s->recv, SHARD, ncclInt8, comm, r->stream));
    for (int o = 0; o < r->nranks; o++)
        CUDA(cudaMemcpyAsync(host + o, s->recv + (size_t)(o + 1) * SHARD - 1, 1, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int o = 0; o < r->nranks; o++)
        CHECK(host[o] == (uint8_t)(seed + o), "rank %d: shard %d is %d, expected %d", r->rank, o, host[o],
              (uint8_t)(seed + o));
}

/* Bytes that are gone beside the buffers of `count` sites, which have a communicator to themselves. */
static size_t overhead(struct rank *r, int count)
{
    size_t before = free_memory(), own = (size_t)count * SHARD * (size_t)(1 + r->nranks);
    struct site *site = calloc((size_t)count, sizeof *site);
    ncclComm_t comm;
    NCCL(ncclCommSplit(r->comm, 0, r->rank, &comm, NULL));
    for (int i = 0; i < count; i++) {
        CUDA(cudaMalloc((void **)&site[i].send, SHARD));
        CUDA(cudaMalloc((void **)&site[i].recv, SHARD * (size_t)r->nranks));
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++)
            gather(r, comm, &site[i], 3 * i + round);
        nanosleep(&(struct timespec){.tv_nsec = 120000000}, NULL); /* peers may map what they were offered */
    }
    size_t gone = before - free_memory() - own;
    NCCL(ncclCommDestroy(comm));
    for (int i = 0; i < count; i++) {
        CUDA(cudaFree(site[i].send));
        CUDA(cudaFree(site[i].recv));
    }
    free(site);
    return gone;
}

static void body(struct rank *r)
{
    static const int counts[] = {1, 10, 100};
    rank_open(r);
    size_t first = 0, before = free_memory();
    for (int i = 0; i < 3; i++) {
        size_t gone = overhead(r, counts[i]);
        if (r->rank == 0)
            printf("%3d call sites: %6.1f MiB; a buffer for each: %6.1f MiB\n", counts[i], (double)gone / (1 << 20),
                   (double)((size_t)counts[i] * SHARD) / (1 << 20));
        first = i == 0 ? gone : first;
        CHECK(gone == first, "rank %d: %zu bytes with %d call sites, %zu with one", r->rank, gone, counts[i], first);
        for (int ms = 0; ms < 3000 && free_memory() < before; ms += 10)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    rank_close(r);
}

int main(int argc, char **argv)
{
    return argc == 2 ? ranks_run(atoi(argv[1]), 100, body, NULL) : 2;
}
