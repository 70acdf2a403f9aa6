/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that makes all of its calls before its peers make their first one. With NCCL that is right, as its calls
 * return when they are enqueued, as long as the stream's queue has room. */
#include "graphs.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define GATHERS 2
#define STEPS 300     /* more than the 256 calls that a rank keeps an account of */
#define STEPS_BOTH 30 /* calls take more of the queue's room than a launch does */

/* One for all ranks: made before they are forked. */
static atomic_int *told;

__attribute__((constructor)) static void make_told(void)
{
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Of reduce-scatters, which are between the gathers and are counted with them; NULL: there are none. */
#define SUMS 1024
static _Thread_local float *sums;

/* What is sent next is what the next rank has sent now, moved on by a byte: so what arrives says how many steps it has
 * come, and from where. */
static void step(struct world *w, struct gather *g)
{
    for (int i = 0; i < GATHERS; i++) {
        const uint8_t *next = g[i].recv + (size_t)((w->rank + 1) % w->nranks) * g[i].shard;
        gather_call(&g[i], w->comm, w->s);
        CUDA(cudaMemcpyAsync(g[i].send, next + 1, g[i].shard - 1, cudaMemcpyDeviceToDevice, w->s));
        CUDA(cudaMemcpyAsync(g[i].send + g[i].shard - 1, next, 1, cudaMemcpyDeviceToDevice, w->s));
    }
    if (sums)
        NCCL(ncclReduceScatter(sums, sums + SUMS * w->nranks, SUMS, ncclFloat, ncclSum, w->comm, w->s));
}

static void check(struct world *w, struct gather *g, unsigned steps)
{
    uint8_t *sent = malloc(g->shard), *want = malloc(g->shard);
    const size_t moved = (steps - 1) % g->shard;
    CUDA(cudaMemcpyAsync(g->host, g->recv, g->shard * (size_t)w->nranks, cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    for (int r = 0; r < w->nranks; r++) {
        shard_fill(sent, g->shard, w->seed, (r + (int)steps - 1) % w->nranks, false);
        memcpy(want, sent + moved, g->shard - moved);
        memcpy(want + g->shard - moved, sent, moved);
        EXPECT(memcmp(want, g->host + (size_t)r * g->shard, g->shard) == 0, "rank %d: shard %d of %zu bytes differs",
               w->rank, r, g->shard);
    }
    free(sent);
    free(want);
}

/* BOTH: in turns. */
enum way { CALLS, REPLAYS, BOTH };

static void steps(struct world *w, struct gather *g, cudaGraphExec_t exec, enum way way, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (way == REPLAYS || (way == BOTH && i % 2 == 1))
            CUDA(cudaGraphLaunch(exec, w->s));
        else
            step(w, g);
}

/* `first`: rank 0; `odd`, `even`: the others. */
static void go_ahead(struct world *w, enum way first, enum way odd, enum way even)
{
    const enum way own = w->rank == 0 ? first : w->rank % 2 == 1 ? odd : even;
    const unsigned far = w->replays ? w->replays : own == BOTH ? STEPS_BOTH : STEPS;
    struct gather g[GATHERS];
    for (int i = 0; i < GATHERS; i++)
        buffers_open(w, &g[i], i ? SHARD / 8 + 3 : SHARD + 1, false);
    capture_begin(w->s);
    step(w, g);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    w->seed++;
    for (int i = 0; i < GATHERS; i++)
        gather_load(&g[i], w->seed, w->s);
    /* Together, so that something is known of each other's buffers; then alone. */
    steps(w, g, exec, own, 3);
    CUDA(cudaStreamSynchronize(w->s));
    while (w->rank != 0 && !atomic_load(told))
        sleep_ms(1);
    steps(w, g, exec, own, far);
    EXPECT(w->rank != 0 || cudaStreamQuery(w->s) == cudaErrorNotReady, "rank 0: its peers have come already");
    cudaGetLastError();
    if (w->rank == 0)
        atomic_store(told, 1);
    for (int i = 0; i < GATHERS; i++)
        check(w, &g[i], far + 3);
    steps(w, g, exec, own, 4);
    for (int i = 0; i < GATHERS; i++)
        check(w, &g[i], far + 7);
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < GATHERS; i++)
        buffers_close(&g[i]);
}

static void far_ahead(struct world *w)
{
    go_ahead(w, REPLAYS, REPLAYS, REPLAYS);
}

static void far_ahead_mixed(struct world *w)
{
    go_ahead(w, REPLAYS, CALLS, REPLAYS);
}

/* The others replay what rank 0 has called. */
static void far_behind(struct world *w)
{
    go_ahead(w, CALLS, REPLAYS, REPLAYS);
}

/* Three calls a step: which of them uses what of 256 calls before is another each time. */
static void far_ahead_scatters(struct world *w)
{
    const size_t bytes = SUMS * sizeof *sums * (size_t)(w->nranks + 1);
    sums = memory_get(bytes);
    CUDA(cudaMemsetAsync(sums, 0, bytes, w->s));
    go_ahead(w, REPLAYS, REPLAYS, REPLAYS);
    memory_put(sums);
    sums = NULL;
}

/* What a call has put into the slots is read after the launch that comes next. */
static void far_ahead_both(struct world *w)
{
    go_ahead(w, BOTH, BOTH, BOTH);
}

const struct graph_case graph_ahead_cases[] = {
    {.name = "far-ahead", .body = far_ahead},           {.name = "far-ahead-mixed", .body = far_ahead_mixed},
    {.name = "far-ahead-both", .body = far_ahead_both}, {.name = "far-ahead-scatters", .body = far_ahead_scatters},
    {.name = "far-behind", .body = far_behind},         {.name = NULL}};
