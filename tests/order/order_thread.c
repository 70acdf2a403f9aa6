/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of one communicator by two threads in turn, each on its own default stream: all of these have one name,
 * and NCCL runs what is on them in the order of the calls. Built with per-thread default streams, so that 0 is one. */
#include "order.h"

#include <string.h>

enum op { NONE, GATHER, GROUPED, BROADCAST, SCATTER, GRAPH };

/* recv -> side, by one thread; from there, or else from recv, to `pool` by another one, which looks. */
static const struct {
    const char *name;
    enum op first, second;
    bool ends; /* the first thread, before the second one begins */
} pairs[] = {
    {"thread-gather", NONE, GATHER, false},
    {"thread-broadcast", NONE, BROADCAST, false},
    {"thread-scatter", NONE, SCATTER, false},
    {"thread-graph", NONE, GRAPH, false},
    {"thread-broadcast-gather", BROADCAST, GATHER, false},
    {"thread-broadcast-scatter", BROADCAST, SCATTER, false},
    {"thread-broadcast-graph", BROADCAST, GRAPH, false},
    {"thread-scatter-gather", SCATTER, GATHER, false},
    {"thread-graph-broadcast", GRAPH, BROADCAST, false},
    {"thread-ends-group", GROUPED, BROADCAST, true},
    {"thread-ends-broadcast", BROADCAST, GATHER, true},
    {"thread-ends-graph", GRAPH, BROADCAST, true},
};

struct step {
    struct look *l;
    enum op op;
    const uint8_t *in; /* the own shard is there, at least */
    uint8_t *out;
    bool late;
    cudaGraphExec_t graph;
};

static void gather(const struct step *s, cudaStream_t stream)
{
    const size_t own = (size_t)s->l->g.rank * SHARD;
    NCCL(ncclAllGather(s->in + own, s->out, SHARD, ncclUint8, s->l->comm, stream));
}

/* All ranks have the same numbers, so their mean is the own shard of them. */
static void scatter(const struct step *s)
{
    uint8_t *own = s->out + (size_t)s->l->g.rank * SHARD;
    NCCL(ncclReduceScatter(s->in, own, SHARD / sizeof(float), ncclFloat, ncclAvg, s->l->comm, cudaStreamPerThread));
}

static void make(void *arg)
{
    const struct step *s = arg;
    CUDA(cudaSetDevice(rank_device(s->l->g.rank))); /* a new thread's is the first one */
    if (s->late)
        hold(cudaStreamPerThread, 40);
    switch (s->op) {
    case NONE:
        break;
    case GATHER:
        gather(s, cudaStreamPerThread);
        break;
    case GROUPED:
        NCCL(ncclGroupStart());
        gather(s, cudaStreamPerThread);
        NCCL(ncclGroupEnd());
        break;
    case BROADCAST:
        NCCL(ncclBroadcast(s->in, s->out, s->l->all, ncclUint8, 0, s->l->comm, cudaStreamPerThread));
        break;
    case SCATTER:
        scatter(s);
        break;
    case GRAPH:
        CUDA(cudaGraphLaunch(s->graph, 0));
        break;
    }
}

static void make_and_see(void *arg)
{
    const struct step *s = arg;
    make(arg);
    if (s->op == SCATTER) {
        const struct step rest = {.l = s->l, .in = s->out, .out = s->out};
        gather(&rest, cudaStreamPerThread);
    }
    see(s->l, s->out, cudaStreamPerThread);
}

/* What a graph launches is captured before. */
static void prepare(struct step *s)
{
    if (s->op != GRAPH)
        return;
    capture_begin(s->l->other);
    gather(s, s->l->other);
    s->graph = graph_executable(capture_end(s->l->other));
}

static void two_threads(struct look *l)
{
    int at = 0;
    while (strcmp(pairs[at].name, l->c->name))
        at++;
    struct step one = {.l = l,
                       .op = pairs[at].first,
                       .in = l->g.recv,
                       .out = l->side,
                       .late = l->late && pairs[at].ends},
                two = {.l = l, .op = pairs[at].second, .in = one.op == NONE ? l->g.recv : l->side, .out = l->pool};
    prepare(&one);
    prepare(&two);
    if (pairs[at].ends)
        on_threads(1, &one, sizeof one, make);
    else
        make(&one);
    on_threads(1, &two, sizeof two, make_and_see);
    CUDA(cudaDeviceSynchronize());
    if (one.graph)
        CUDA(cudaGraphExecDestroy(one.graph));
    if (two.graph)
        CUDA(cudaGraphExecDestroy(two.graph));
    CUDA(cudaFree(l->pool));
}

static void poison(struct look *l)
{
    CUDA(cudaMalloc(&l->pool, l->all));
    CUDA(cudaMemset(l->pool, 0x7f, l->all));
    CUDA(cudaMemset(l->side, 0x7f, l->all));
}

#define PAIR(of)                                                                                                       \
    {                                                                                                                  \
        .name = of, .stream = STREAM_PER_THREAD, .floats = true, .quiet = true, .before = poison, .look = two_threads  \
    }

const struct order_case order_thread_cases[] = {
    PAIR("thread-gather"),
    PAIR("thread-broadcast"),
    PAIR("thread-scatter"),
    PAIR("thread-graph"),
    PAIR("thread-broadcast-gather"),
    PAIR("thread-broadcast-scatter"),
    PAIR("thread-broadcast-graph"),
    PAIR("thread-scatter-gather"),
    PAIR("thread-graph-broadcast"),
    PAIR("thread-ends-group"),
    PAIR("thread-ends-broadcast"),
    PAIR("thread-ends-graph"),
    {.name = NULL},
};
