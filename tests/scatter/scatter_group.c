/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatters in groups, alone and with others; and such groups captured into a graph. */
#include "scatter_graphs.h"

#include <string.h>

enum { TURNS = 12, SITES = 3 };

static const struct shape shapes[SITES] = {
    {.type = BF16, .m = 40, .cols = 12, .k = 48},
    {.type = FP32, .m = 17, .cols = 5, .k = 16, .avg = true},
    {.type = FP16, .m = 24, .cols = 9, .k = 24, .recv = RECV_IN_PLACE},
};

/* What else is in the group: an all-gather and an all-reduce of integers. */
struct beside {
    struct gather g;
    int32_t *sum, *host;
};
enum { SUMS = 777, SHARD = 5000 };

struct groups {
    struct world *w;
    struct site t[SITES];
    struct turn u[SITES];
    struct beside beside;
    int sites;
    uint64_t seed;
    const char *name;
};

static void beside_open(struct groups *g)
{
    gather_alloc(&g->beside.g, g->w->rank, g->w->nranks, SHARD);
    CUDA(cudaMalloc((void **)&g->beside.sum, SUMS * 4));
    CUDA(cudaMallocHost((void **)&g->beside.host, SUMS * 4));
}

static void beside_close(struct groups *g)
{
    gather_free(&g->beside.g);
    CUDA(cudaFree(g->beside.sum));
    CUDA(cudaFreeHost(g->beside.host));
}

static void beside_load(struct groups *g)
{
    struct beside *b = &g->beside;
    gather_load(&b->g, ++g->seed, g->w->s);
    for (int i = 0; i < SUMS; i++)
        b->host[i] = integer(g->seed * 16 + (uint64_t)g->w->rank, (uint64_t)i, 1000);
    CUDA(cudaMemcpyAsync(b->sum, b->host, SUMS * 4, cudaMemcpyHostToDevice, g->w->s));
}

static void sums_check(struct groups *g)
{
    struct beside *b = &g->beside;
    CUDA(cudaMemcpyAsync(b->host, b->sum, SUMS * 4, cudaMemcpyDeviceToHost, g->w->s));
    CUDA(cudaStreamSynchronize(g->w->s));
    for (int i = 0; i < SUMS; i++) {
        int want = 0;
        for (int r = 0; r < g->w->nranks; r++)
            want += integer(g->seed * 16 + (uint64_t)r, (uint64_t)i, 1000);
        EXPECT(b->host[i] == want, "rank %d: %s: all-reduce: element %d is %d, expected %d", g->w->rank, g->name, i,
               b->host[i], want);
    }
}

static void gemms(struct groups *g)
{
    for (int i = 0; i < g->sites; i++)
        site_gemm(&g->t[i], g->w->s);
}

static void several(struct groups *g)
{
    gemms(g);
    NCCL(ncclGroupStart());
    for (int i = 0; i < g->sites; i++)
        site_call(&g->t[i], g->w->s);
    NCCL(ncclGroupEnd());
}

static void gemms_inside(struct groups *g)
{
    NCCL(ncclGroupStart());
    for (int i = 0; i < g->sites; i++) {
        site_gemm(&g->t[i], g->w->s);
        site_call(&g->t[i], g->w->s);
    }
    NCCL(ncclGroupEnd());
}

static void streams(struct groups *g)
{
    struct world *w = g->w;
    gemms(g);
    edge(w, 0, w->s, w->side);
    NCCL(ncclGroupStart());
    for (int i = 0; i < g->sites; i++)
        site_call(&g->t[i], i & 1 ? w->side : w->s);
    NCCL(ncclGroupEnd());
    edge(w, 1, w->side, w->s);
}

/* The same again on another communicator, whose ranks are in the other order: into scratch, which nobody looks at. */
static void comms(struct groups *g)
{
    struct site *t = &g->t[0];
    gemms(g);
    NCCL(ncclGroupStart());
    site_call(t, g->w->s);
    NCCL(
        world_reduce(t->w, t->spare, t->scratch, t->count, nccl_type(t->shape.type), ncclSum, g->w->reversed, g->w->s));
    NCCL(ncclGroupEnd());
}

static void with_gather(struct groups *g)
{
    gemms(g);
    NCCL(ncclGroupStart());
    gather_call(&g->beside.g, g->w->comm, g->w->s);
    for (int i = 0; i < g->sites; i++)
        site_call(&g->t[i], g->w->s);
    NCCL(ncclGroupEnd());
}

static void mixed(struct groups *g)
{
    gemms(g);
    NCCL(ncclGroupStart());
    site_call(&g->t[0], g->w->s);
    NCCL(ncclAllReduce(g->beside.sum, g->beside.sum, SUMS, ncclInt32, ncclSum, g->w->comm, g->w->s));
    site_call(&g->t[1], g->w->s);
    gather_call(&g->beside.g, g->w->comm, g->w->s);
    NCCL(ncclGroupEnd());
}

/* Not all of one group may be moved over the ring. */
static void with_integers(struct groups *g)
{
    struct world *w = g->w;
    gemms(g);
    NCCL(ncclGroupStart());
    site_call(&g->t[0], w->s);
    site_call(&g->t[1], w->s);
    NCCL(ncclReduceScatter(g->t[2].spare, g->t[2].scratch, g->t[2].count, ncclUint8, ncclMax, w->comm, w->s));
    site_call(&g->t[2], w->s);
    NCCL(ncclGroupEnd());
}

static void nested(struct groups *g)
{
    gemms(g);
    NCCL(ncclGroupStart());
    NCCL(ncclGroupStart());
    site_call(&g->t[0], g->w->s);
    NCCL(ncclGroupEnd());
    site_call(&g->t[1], g->w->s);
    NCCL(ncclGroupEnd());
}

/* What is sent is what stands there when the group ends. */
static void written_inside(struct groups *g)
{
    struct site *t = &g->t[0];
    gemms(g);
    NCCL(ncclGroupStart());
    site_call(t, g->w->s);
    CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, g->w->s));
    NCCL(ncclGroupEnd());
    for (int r = 0; r < g->w->nranks; r++)
        memcpy(g->u[0].c[r], g->u[0].spare[r], t->all * sizeof(int));
}

/* Nothing is broadcast, but the group is more than its call. */
static void written_inside_two(struct groups *g)
{
    struct site *t = &g->t[0];
    gemms(g);
    NCCL(ncclGroupStart());
    site_call(t, g->w->s);
    NCCL(ncclBroadcast(t->c, t->c, 0, ncclInt8, 0, g->w->comm, g->w->s));
    CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, g->w->s));
    NCCL(ncclGroupEnd());
    for (int r = 0; r < g->w->nranks; r++)
        memcpy(g->u[0].c[r], g->u[0].spare[r], t->all * sizeof(int));
}

static void one_by_one(struct groups *g)
{
    for (int i = 0; i < g->sites; i++) {
        site_gemm(&g->t[i], g->w->s);
        site_call(&g->t[i], g->w->s);
    }
}

/* In and out of groups in turn: what is learned of one is not true of the other. */
static void in_turn(struct groups *g)
{
    if (g->seed % 2)
        several(g);
    else
        one_by_one(g);
}

/* Some ranks group, some do not. */
static void uneven(struct groups *g)
{
    if (g->w->rank % 2)
        several(g);
    else
        one_by_one(g);
}

struct group {
    void (*play)(struct groups *g);
    int sites;
    bool gathers, sums;
};

/* The group, or the graph that holds it. */
static void turn(struct groups *g, const struct group *how, cudaGraphExec_t exec)
{
    struct world *w = g->w;
    for (int i = 0; i < g->sites; i++)
        turn_load(&g->u[i], w->s);
    beside_load(g);
    if (exec)
        CUDA(cudaGraphLaunch(exec, w->s));
    else
        how->play(g);
    for (int i = 0; i < g->sites; i++) {
        turn_expect(&g->u[i], g->u[i].c, 0, g->t[i].count, false);
        turn_expect_c(&g->u[i]);
        turn_fetch(&g->u[i], w->s);
    }
    CUDA(cudaStreamSynchronize(w->s));
    for (int i = 0; i < g->sites; i++)
        turn_check(&g->u[i], g->name);
    if (how->gathers)
        gather_check(&g->beside.g, g->seed, w->s, g->name);
    if (how->sums)
        sums_check(g);
}

static void groups_open(struct groups *g)
{
    for (int i = 0; i < g->sites; i++) {
        site_open(&g->t[i], g->w, &shapes[i]);
        turn_open(&g->u[i], &g->t[i]);
    }
    beside_open(g);
}

static void groups_close(struct groups *g)
{
    beside_close(g);
    for (int i = 0; i < g->sites; i++) {
        turn_close(&g->u[i]);
        site_close(&g->t[i]);
    }
}

static void body(struct world *w, const struct scatter_case *c)
{
    const struct group *how = c->arg;
    struct groups g = {.w = w, .sites = how->sites, .name = c->name};
    groups_open(&g);
    for (int i = 0; i < TURNS; i++)
        turn(&g, how, NULL);
    groups_close(&g);
}

/* Ranks replay it or make the calls, each by itself. */
static void graph(struct world *w, const struct scatter_case *c)
{
    const struct group *how = c->arg;
    struct groups g = {.w = w, .sites = how->sites, .name = c->name};
    nccl_connects(w->comm, w->s);
    nccl_connects(w->reversed, w->s);
    groups_open(&g);
    capture_begin(w->s);
    how->play(&g);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int i = 0; i < TURNS; i++)
        turn(&g, how, (i + w->rank) % 4 ? exec : NULL);
    CUDA(cudaGraphExecDestroy(exec));
    groups_close(&g);
}

#define GROUP(name_, ...)                                                                                              \
    {                                                                                                                  \
        .name = "group-" name_, .list = "group", .body = body, .arg = &(const struct group)                            \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

#define GRAPH(name_, ...)                                                                                              \
    {                                                                                                                  \
        .name = "group-graph-" name_, .list = "group-graphs", .body = graph, .arg = &(const struct group)              \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

const struct scatter_case group_cases[] = {GROUP("one", .play = several, .sites = 1),
                                           GROUP("several", .play = several, .sites = 3),
                                           GROUP("gemms-inside", .play = gemms_inside, .sites = 2),
                                           GROUP("streams", .play = streams, .sites = 3),
                                           GROUP("comms", .play = comms, .sites = 1),
                                           GROUP("with-gather", .play = with_gather, .sites = 3, .gathers = true),
                                           GROUP("mixed", .play = mixed, .sites = 2, .gathers = true, .sums = true),
                                           GROUP("with-integers", .play = with_integers, .sites = 3),
                                           GROUP("nested", .play = nested, .sites = 2),
                                           GROUP("written-inside", .play = written_inside, .sites = 1),
                                           GROUP("written-inside-two", .play = written_inside_two, .sites = 1),
                                           GROUP("in-turn", .play = in_turn, .sites = 3),
                                           GROUP("uneven", .play = uneven, .sites = 3),
                                           GRAPH("several", .play = several, .sites = 3),
                                           GRAPH("gemms-inside", .play = gemms_inside, .sites = 2),
                                           GRAPH("streams", .play = streams, .sites = 3),
                                           GRAPH("comms", .play = comms, .sites = 1),
                                           GRAPH("with-gather", .play = with_gather, .sites = 3, .gathers = true),
                                           GRAPH("mixed", .play = mixed, .sites = 2, .gathers = true, .sums = true),
                                           GRAPH("with-integers", .play = with_integers, .sites = 3),
                                           GRAPH("nested", .play = nested, .sites = 2),
                                           GRAPH("uneven", .play = uneven, .sites = 3),
                                           {.name = NULL}};
