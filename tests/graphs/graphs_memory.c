/* SPDX-License-Identifier: Apache-2.0 */
/* Captured gathers whose buffers peers can not map, on some ranks or all, and ones that come before any other gather. */
#include "graphs.h"

#include <pthread.h>
#include <stdatomic.h>

#define REPLAYS 12

enum kind { USUAL, MANAGED, POOL };

/* As buffers_open, out of place, in memory that no other process can be given. */
static void odd_open(struct world *w, struct gather *g, size_t shard, enum kind kind)
{
    *g = (struct gather){.rank = w->rank, .nranks = w->nranks, .shard = shard};
    const size_t all = shard * (size_t)w->nranks;
    if (kind == MANAGED) {
        CUDA(cudaMallocManaged((void **)&g->send, shard, cudaMemAttachGlobal));
        CUDA(cudaMallocManaged((void **)&g->recv, all, cudaMemAttachGlobal));
    } else {
        CUDA(cudaMallocAsync((void **)&g->send, shard, w->s));
        CUDA(cudaMallocAsync((void **)&g->recv, all, w->s));
        CUDA(cudaStreamSynchronize(w->s));
    }
    CUDA(cudaMallocHost((void **)&g->host, all));
}

static void odd_close(struct gather *g)
{
    CUDA(cudaFree(g->send));
    CUDA(cudaFree(g->recv));
    CUDA(cudaFreeHost(g->host));
}

/* One rank's peers can not map its buffers, in turn with calls outside of graphs. */
static void unmapped(struct world *w)
{
    const bool odd = w->rank == w->nranks - 1;
    struct gather g, usual;
    if (odd)
        odd_open(w, &g, SHARD + 5, MANAGED);
    else
        buffers_open(w, &g, SHARD + 5, false);
    buffers_open(w, &usual, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g)), other = graph_executable(record(w, &usual));
    for (int i = 0; i < REPLAYS; i++) {
        replay(w, exec, &g, "one rank's buffers are managed memory");
        if (i % 3 == 0)
            eager(w, &usual, "between");
        replay(w, other, &usual, "the others' graph");
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphExecDestroy(other));
    buffers_close(&usual);
    if (odd)
        odd_close(&g);
    else
        buffers_close(&g);
}

/* Two such gathers, on two streams, of which none waits for the other's: the same memory serves both. */
static void unmapped_streams(struct world *w)
{
    struct gather g[2];
    odd_open(w, &g[0], SHARD, POOL);
    odd_open(w, &g[1], SHARD / 2 + 1, MANAGED);
    capture_begin(w->s);
    CUDA(cudaEventRecord(w->event, w->s));
    CUDA(cudaStreamWaitEvent(w->side, w->event, 0));
    gather_call(&g[0], w->comm, w->s);
    gather_call(&g[1], w->comm, w->side);
    CUDA(cudaEventRecord(w->back, w->side));
    CUDA(cudaStreamWaitEvent(w->s, w->back, 0));
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int i = 0; i < REPLAYS; i++) {
        w->seed++;
        gather_load(&g[0], w->seed, w->s);
        gather_load(&g[1], w->seed, w->s);
        CUDA(cudaGraphLaunch(exec, w->s));
        gather_check(&g[0], w->seed, w->s, "the first of two");
        gather_check(&g[1], w->seed, w->s, "the second of two");
    }
    CUDA(cudaGraphExecDestroy(exec));
    odd_close(&g[0]);
    odd_close(&g[1]);
}

/* A larger one comes later, while graphs with the smaller one live. */
static void unmapped_grows(struct world *w)
{
    enum { SIZES = 3 };
    struct gather g[SIZES];
    cudaGraphExec_t exec[SIZES];
    for (int i = 0; i < SIZES; i++) {
        odd_open(w, &g[i], SHARD << (4 * i), MANAGED);
        exec[i] = graph_executable(record(w, &g[i]));
    }
    for (int i = 0; i < REPLAYS; i++)
        replay(w, exec[i % SIZES], &g[i % SIZES], "one of three sizes");
    for (int i = 0; i < SIZES; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        odd_close(&g[i]);
    }
}

static void *allocate_and_free(void *over)
{
    while (!atomic_load((atomic_bool *)over)) {
        void *p;
        NCCL(ncclMemAlloc(&p, SHARD));
        NCCL(ncclMemFree(p));
    }
    return NULL;
}

/* Virtual memory comes and goes on another thread, while slipring looks at what is new to it. */
static void busy(struct world *w)
{
    struct gather g[4];
    cudaGraphExec_t exec[4];
    atomic_bool over = false;
    pthread_t other;
    EXPECT(pthread_create(&other, NULL, allocate_and_free, &over) == 0, "no thread");
    for (int i = 0; i < 4; i++) {
        buffers_open(w, &g[i], SHARD + (size_t)i, i % 2);
        exec[i] = graph_executable(record(w, &g[i]));
    }
    for (int i = 0; i < REPLAYS; i++)
        replay(w, exec[i % 4], &g[i % 4], "beside allocations");
    atomic_store(&over, true);
    pthread_join(other, NULL);
    for (int i = 0; i < 4; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_close(&g[i]);
    }
}

/* A rank calls from NCCL's memory, which is virtual, what the others replay, whose graphs were captured before there was
 * any. */
static void other_kind(struct world *w)
{
    const bool odd = w->rank == w->nranks - 1;
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    replay(w, exec, &g, "plain memory");
    struct gather other = g;
    if (odd) {
        NCCL(ncclMemAlloc((void **)&other.send, SHARD));
        NCCL(ncclMemAlloc((void **)&other.recv, SHARD * (size_t)w->nranks));
    }
    for (int i = 0; i < REPLAYS; i++) {
        sleep_ms(10); /* what peers can map, they have mapped */
        if (odd)
            eager(w, &other, "from NCCL's memory");
        else
            replay(w, exec, &g, "another one calls from NCCL's memory");
    }
    CUDA(cudaGraphExecDestroy(exec));
    if (odd) {
        NCCL(ncclMemFree(other.send));
        NCCL(ncclMemFree(other.recv));
    }
    buffers_close(&g);
}

/* Nothing is connected, nothing is mapped. */
static void first(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, true);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    for (int i = 0; i < REPLAYS; i++)
        replay(w, exec, &g, "no gather came before the capture");
    eager(w, &g, "behind the replays");
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

const struct graph_case graph_memory_cases[] = {{.name = "unmapped", .body = unmapped},
                                                {.name = "unmapped-streams", .body = unmapped_streams},
                                                {.name = "unmapped-grows", .body = unmapped_grows},
                                                {.name = "other-kind", .body = other_kind},
                                                {.name = "busy", .body = busy},
                                                {.name = "first", .body = first, .first = true},
                                                {.name = NULL}};
