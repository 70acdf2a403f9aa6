/* SPDX-License-Identifier: Apache-2.0 */
/* Groups in captures: what of a group is enqueued at its end, as NCCL does it. */
#include "graphs.h"

#define REPLAYS 4

static void copy(uint8_t *to, const uint8_t *from, size_t bytes, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

static void tell(cudaEvent_t event, cudaStream_t from, cudaStream_t to)
{
    CUDA(cudaEventRecord(event, from));
    CUDA(cudaStreamWaitEvent(to, event, 0));
}

/* Two gathers of two communicators, or of one, in a graph. */
struct pair {
    struct gather g[2];
    ncclComm_t comm[2], own; /* own: to be destroyed */
    cudaGraphExec_t exec;
};

static void pair_open(struct world *w, struct pair *p, bool two)
{
    p->own = NULL;
    if (two)
        NCCL(ncclCommSplit(w->comm, 0, w->nranks - w->rank, &p->own, NULL));
    for (int i = 0; i < 2; i++) {
        buffers_open(w, &p->g[i], SHARD / (size_t)(i + 1), false);
        p->comm[i] = i && two ? p->own : w->comm;
        if (i && two)
            p->g[i].rank = w->nranks - 1 - w->rank;
        gather_load(&p->g[i], 1, w->s);
        gather_call(&p->g[i], p->comm[i], w->s); /* connects */
        gather_check(&p->g[i], 1, w->s, "before the capture");
    }
}

/* Memory that peers can not map, from now on. */
static void pair_managed(struct world *w, struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        memory_put(p->g[i].send);
        memory_put(p->g[i].recv);
        CUDA(cudaMallocManaged((void **)&p->g[i].send, p->g[i].shard, cudaMemAttachGlobal));
        CUDA(cudaMallocManaged((void **)&p->g[i].recv, p->g[i].shard * (size_t)w->nranks, cudaMemAttachGlobal));
    }
}

static void pair_close(struct pair *p, bool managed)
{
    CUDA(cudaGraphExecDestroy(p->exec));
    for (int i = 0; i < 2; i++) {
        if (managed) {
            CUDA(cudaFree(p->g[i].send));
            CUDA(cudaFree(p->g[i].recv));
            CUDA(cudaFreeHost(p->g[i].host));
        } else {
            buffers_close(&p->g[i]);
        }
    }
    if (p->own)
        NCCL(ncclCommDestroy(p->own));
}

static void pair_replay(struct world *w, struct pair *p, const char *what)
{
    for (int n = 0; n < REPLAYS; n++) {
        const uint64_t seed = 2 * ++w->seed;
        for (int i = 0; i < 2; i++)
            gather_load(&p->g[i], seed + (uint64_t)i, w->s);
        CUDA(cudaGraphLaunch(p->exec, w->s));
        for (int i = 0; i < 2; i++)
            gather_check(&p->g[i], seed + (uint64_t)i, w->s, what);
    }
}

/* What is sent is what stands there when the group ends. */
static void inside(struct world *w, bool more)
{
    struct gather g, other;
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &other, SHARD, false);
    capture_begin(w->s);
    NCCL(ncclGroupStart());
    gather_call(&g, w->comm, w->s);
    if (more) /* nothing, but the group is more than its call */
        NCCL(ncclBroadcast(g.send, g.send, 0, ncclInt8, 0, w->comm, w->s));
    copy(g.send, other.send, SHARD, w->s);
    NCCL(ncclGroupEnd());
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int n = 0; n < REPLAYS; n++) {
        const uint64_t seed = 2 * ++w->seed;
        gather_load(&g, seed, w->s);
        gather_load(&other, seed + 1, w->s);
        CUDA(cudaGraphLaunch(exec, w->s));
        gather_check(&g, seed + 1, w->s, w->name);
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    buffers_close(&other);
}

static void one_written_inside(struct world *w)
{
    inside(w, false);
}

static void written_inside(struct world *w)
{
    inside(w, true);
}

/* The ranks call the gathers of two communicators in different orders, on one stream; NCCL's own order is not said. */
static void in_either_order(struct world *w, bool managed)
{
    struct pair p;
    pair_open(w, &p, true);
    if (managed)
        pair_managed(w, &p);
    capture_begin(w->s);
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        const int which = (i + w->rank) % 2;
        gather_call(&p.g[which], p.comm[which], w->s);
    }
    NCCL(ncclGroupEnd());
    p.exec = graph_executable(capture_end(w->s));
    pair_replay(w, &p, w->name);
    pair_close(&p, managed);
}

static void either_order(struct world *w)
{
    in_either_order(w, false);
}

static void either_order_managed(struct world *w)
{
    in_either_order(w, true);
}

/* A communicator's streams in one group wait for each other, before its gathers and behind them. */
static void two_streams(struct world *w)
{
    struct pair p;
    pair_open(w, &p, false);
    const size_t all = p.g[1].shard * (size_t)w->nranks;
    uint8_t *seen = memory_get(all), *kept = memory_get(SHARD);
    capture_begin(w->s);
    copy(kept, p.g[0].send, SHARD, w->s);
    CUDA(cudaMemsetAsync(p.g[0].send, 0, SHARD, w->s));
    tell(w->event, w->s, w->side);
    hold(w->side, 5);
    copy(p.g[0].send, kept, SHARD, w->side);
    NCCL(ncclGroupStart());
    gather_call(&p.g[0], w->comm, w->s);
    gather_call(&p.g[1], w->comm, w->side);
    NCCL(ncclGroupEnd());
    copy(seen, p.g[1].recv, all, w->s);
    CUDA(cudaMemsetAsync(p.g[1].recv, 0, all, w->s));
    copy(p.g[1].recv, seen, all, w->s);
    tell(w->back, w->side, w->s);
    p.exec = graph_executable(capture_end(w->s));
    pair_replay(w, &p, w->name);
    pair_close(&p, false);
    memory_put(seen);
    memory_put(kept);
}

/* Beside an operation of NCCL's; twice the same communicator. */
static void besides(struct world *w, bool managed)
{
    uint8_t *summed = memory_get(SHARD);
    struct pair p;
    pair_open(w, &p, false);
    if (managed)
        pair_managed(w, &p);
    nccl_connects(w->comm, w->s);
    capture_begin(w->s);
    NCCL(ncclGroupStart());
    gather_call(&p.g[0], w->comm, w->s);
    NCCL(ncclAllReduce(summed, summed, SHARD, ncclInt8, ncclSum, w->comm, w->s));
    gather_call(&p.g[1], w->comm, w->s);
    NCCL(ncclGroupEnd());
    p.exec = graph_executable(capture_end(w->s));
    pair_replay(w, &p, w->name);
    pair_close(&p, managed);
    memory_put(summed);
}

static void beside(struct world *w)
{
    besides(w, false);
}

static void beside_managed(struct world *w)
{
    besides(w, true);
}

/* Groups on some ranks only, also around single calls. */
static void uneven(struct world *w)
{
    struct pair p;
    pair_open(w, &p, false);
    capture_begin(w->s);
    for (int round = 0; round < 2; round++) {
        const bool one = (w->rank + round) % 2;
        if (one)
            NCCL(ncclGroupStart());
        for (int i = 0; i < 2; i++) {
            NCCL(ncclGroupStart());
            gather_call(&p.g[i], w->comm, w->s);
            NCCL(ncclGroupEnd());
        }
        if (one)
            NCCL(ncclGroupEnd());
    }
    p.exec = graph_executable(capture_end(w->s));
    pair_replay(w, &p, w->name);
    pair_close(&p, false);
}

const struct graph_case graph_group_cases[] = {{.name = "group-written-inside", .body = written_inside},
                                               {.name = "group-one-written-inside", .body = one_written_inside},
                                               {.name = "group-either-order", .body = either_order},
                                               {.name = "group-either-order-managed", .body = either_order_managed},
                                               {.name = "group-two-streams", .body = two_streams},
                                               {.name = "group-beside", .body = beside},
                                               {.name = "group-beside-managed", .body = beside_managed},
                                               {.name = "group-uneven", .body = uneven},
                                               {.name = NULL}};
