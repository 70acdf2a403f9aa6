/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that free and allocate their buffers around every gather, three sizes in turn.
 *
 *   churn RANKS ITERATIONS [stable] [grow]
 *
 * stable: from an iteration that leaves the peers time to map the blocks on, each size has its address. grow: the last
 * rank never gets the same block for what it sends; every iteration wants more.
 */
#include <string.h>
#include "zero.h"

enum { SIZES = 3, WARM = 24 };
static const size_t shards[SIZES] = {65536, 98304, 147456};

struct plan {
    int iterations;
    bool stable, grow;
};

/* When the device is said to be full: as a careful program, with what it has at hand. */
static void alloc_or(struct gather *g, size_t extra, const struct gather *spare)
{
    if (cudaMalloc((void **)&g->send, g->shard + extra) != cudaSuccess)
        g->send = spare->send;
    if (cudaMalloc((void **)&g->recv, g->shard * (size_t)g->nranks) != cudaSuccess)
        g->recv = spare->recv;
}

static void free_or(const struct gather *g, const struct gather *spare)
{
    if (g->send != spare->send)
        CUDA(cudaFree(g->send));
    if (g->recv != spare->recv)
        CUDA(cudaFree(g->recv));
}

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    bool grows = p->grow && r->rank == r->nranks - 1;
    struct gather g, spare, seen[SIZES] = {0};
    zero_host(&g, r, shards[SIZES - 1]);
    spare = g;
    zero_alloc(&spare, 0);
    rank_open(r);
    for (int i = 0; i < p->iterations; i++) {
        int k = i % SIZES;
        g.shard = shards[k];
        alloc_or(&g, grows ? (size_t)(i + 1) * 65536 : 0, &spare);
        zero_round(r, &g, (uint64_t)i, "churn");
        if (i >= WARM && p->stable && !grows)
            EXPECT(g.send == seen[k].send && g.recv == seen[k].recv, "rank %d: size %d moved in iteration %d", r->rank,
                   k, i);
        seen[k] = g;
        free_or(&g, &spare);
        if (i < WARM)
            sleep_ms(30);
    }
    rank_close(r);
    zero_free(&spare);
    CUDA(cudaFreeHost(g.host));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    struct plan plan = {.iterations = atoi(argv[2])};
    for (int i = 3; i < argc; i++) {
        plan.stable |= !strcmp(argv[i], "stable");
        plan.grow |= !strcmp(argv[i], "grow");
    }
    return zero_run(atoi(argv[1]), 280, argv, body, &plan);
}
