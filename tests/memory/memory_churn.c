/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that allocate and free their buffers around every gather, as an unmodified program may: three sizes in turn.
 *
 *   churn RANKS ITERATIONS stable|moving|any [different]
 *
 * Every gather's result is compared in full. Small blocks of changing size that live a while disturb the driver's
 * choice of addresses; `stable` wants each size at its own address from its second allocation on all the same, `moving`
 * that at least one moves. `different`: rank 1 allocates its send buffer anew with another size each time.
 */
#include <string.h>
#include "../programs/ranks.h"

enum { SIZES = 3, NOISE = 5 };
static const size_t shards[SIZES] = {65536, 98304, 147456};

struct plan {
    int iterations;
    const char *want;
    bool different;
};

struct seen {
    void *send[SIZES], *recv[SIZES];
    int moved;
};

static void fill(uint8_t *host, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = hash64(seed, i);
        memcpy(host + i, &v, 8);
    }
}

static void note(struct seen *s, int k, int iteration, void *send, void *recv)
{
    if (iteration >= 2 * SIZES)
        s->moved += (s->send[k] != send) + (s->recv[k] != recv);
    s->send[k] = send;
    s->recv[k] = recv;
}

static void noise(void *held[NOISE], int iteration)
{
    void **slot = &held[iteration % NOISE];
    if (*slot)
        CUDA(cudaFree(*slot));
    CUDA(cudaMalloc(slot, 4096 + (size_t)(hash64(5, (uint64_t)iteration) % 12) * 4096));
}

static void gather(struct rank *r, const void *send, void *recv, size_t shard, int iteration, uint8_t *host)
{
    size_t all = shard * (size_t)r->nranks;
    uint8_t *want = host + all;
    CUDA(cudaMemsetAsync(recv, 0xa5, all, r->stream));
    NCCL(ncclAllGather(send, recv, shard, ncclInt8, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(host, recv, all, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int p = 0; p < r->nranks; p++)
        fill(want + (size_t)p * shard, shard, hash64((uint64_t)p, (uint64_t)iteration));
    CHECK(memcmp(host, want, all) == 0, "rank %d: wrong data in iteration %d", r->rank, iteration);
}

static void body(struct rank *r)
{
    const struct plan *plan = r->arg;
    void *held[NOISE] = {0};
    struct seen seen = {0};
    uint8_t *host = malloc(2 * shards[SIZES - 1] * (size_t)r->nranks);
    rank_open(r);
    for (int i = 0; i < plan->iterations; i++) {
        size_t shard = shards[i % SIZES];
        size_t extra = plan->different && r->rank == 1 ? (hash64(9, (uint64_t)i) % 64) * 4096 : 0;
        void *send, *recv;
        noise(held, i);
        CUDA(cudaMalloc(&send, shard + extra));
        CUDA(cudaMalloc(&recv, shard * (size_t)r->nranks));
        if (!extra)
            note(&seen, i % SIZES, i, send, recv);
        fill(host, shard, hash64((uint64_t)r->rank, (uint64_t)i));
        CUDA(cudaMemcpyAsync(send, host, shard, cudaMemcpyHostToDevice, r->stream));
        gather(r, send, recv, shard, i, host);
        CUDA(cudaFree(send));
        CUDA(cudaFree(recv));
    }
    if (strcmp(plan->want, "stable") == 0)
        CHECK(seen.moved == 0, "rank %d: %d addresses moved", r->rank, seen.moved);
    if (strcmp(plan->want, "moving") == 0)
        CHECK(seen.moved > 0, "rank %d: no address moved; the noise does not disturb", r->rank);
    for (int i = 0; i < NOISE; i++)
        CUDA(cudaFree(held[i]));
    free(host);
    rank_close(r);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: churn RANKS ITERATIONS stable|moving|any [different]\n");
        return 2;
    }
    struct plan plan = {.iterations = atoi(argv[2]), .want = argv[3], .different = argc > 4};
    return ranks_run(atoi(argv[1]), 240, body, &plan);
}
