/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that look at each other's memory: a reduce-scatter is a meeting, so what stands before the call on one rank comes
 * before what stands behind it on any other, and before any of them has its result. */
#include <string.h>

#include "scatter_wrong.h"

/* C, the receive buffer and an own buffer lie in memory that the other ranks have. */
struct shared {
    uint8_t *own, *next; /* the next rank's, as this rank sees it */
    uint8_t *c, *recv;   /* that the site had before */
    float *token;
};

enum { AT_C, AT_RECV, AT_SHOWN, PLACES, PLACE = 1 << 20 };
static struct shared shared[MOST_RANKS]; /* of each rank */

struct place {
    uint8_t *at;
    cudaIpcMemHandle_t handle;
};

static int after(const struct world *w)
{
    /* Of the same host, for memory has to be seen: a number of ranks on each (ranks.h). */
    const char *hosts = getenv("TEST_HOSTS");
    const int per = hosts ? atoi(hosts) : w->nranks;
    return w->rank / per * per + (w->rank + 1) % per;
}

static uint8_t *own(const struct turn *u, int place)
{
    return shared[u->t->w->rank].own + (size_t)place * PLACE;
}

static uint8_t *next(const struct turn *u, int place)
{
    return shared[u->t->w->rank].next + (size_t)place * PLACE;
}

/* What all ranks have. */
static void exchange(struct world *w, const struct place *mine, struct place *all)
{
    void *send, *recv;
    CUDA(cudaMalloc(&send, sizeof *mine));
    CUDA(cudaMalloc(&recv, sizeof *mine * (size_t)w->nranks));
    CUDA(cudaMemcpyAsync(send, mine, sizeof *mine, cudaMemcpyHostToDevice, w->s));
    NCCL(ncclAllGather(send, recv, sizeof *mine, ncclInt8, w->comm, w->s));
    CUDA(cudaMemcpyAsync(all, recv, sizeof *mine * (size_t)w->nranks, cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    CUDA(cudaFree(send));
    CUDA(cudaFree(recv));
}

static void meet_open(struct site *t)
{
    struct world *w = t->w;
    struct shared *x = &shared[w->rank];
    struct place mine = {0}, all[MOST_RANKS];
    CUDA(cudaMalloc((void **)&x->own, (size_t)PLACES * PLACE + PLACE)); /* so large that nothing else is there */
    CUDA(cudaMalloc((void **)&x->token, sizeof *x->token));
    x->c = t->c;
    x->recv = t->recv;
    t->c = x->own + AT_C * PLACE;
    t->recv = x->own + AT_RECV * PLACE;
    mine.at = x->own;
    if (!w->threads)
        CUDA(cudaIpcGetMemHandle(&mine.handle, x->own));
    exchange(w, &mine, all);
    x->next = all[after(w)].at;
    if (!w->threads)
        CUDA(cudaIpcOpenMemHandle((void **)&x->next, all[after(w)].handle, cudaIpcMemLazyEnablePeerAccess));
    else if (cudaDeviceEnablePeerAccess(rank_device(after(w)), 0) != cudaSuccess) /* NCCL may have done it */
        cudaGetLastError();
}

static void meet_close(struct site *t)
{
    struct world *w = t->w;
    struct shared *x = &shared[w->rank];
    if (!w->threads)
        CUDA(cudaIpcCloseMemHandle(x->next));
    nccl_connects(w->comm, w->s); /* all have */
    CUDA(cudaStreamSynchronize(w->s));
    CUDA(cudaFree(x->own));
    CUDA(cudaFree(x->token));
    t->c = x->c;
    t->recv = x->recv;
}

/* All ranks' streams have come here. */
static void barrier(struct turn *u)
{
    struct world *w = u->t->w;
    float *token = shared[w->rank].token;
    NCCL(ncclAllReduce(token, token, 1, ncclFloat, ncclSum, w->reversed, w->s));
}

/* One rank is late. */
static void late(struct turn *u, cudaStream_t stream, unsigned ms)
{
    if (u->t->w->rank == 0)
        hold(stream, ms);
}

static void call_on_side(struct turn *u)
{
    struct world *w = u->t->w;
    edge(w, 1, w->s, w->side);
    site_call(u->t, w->side);
}

/* ---- what comes behind the call looks at what stood before the neighbour's ---- */

static void shows(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    barrier(u);
    edge(w, 0, w->s, w->side);
    late(u, w->side, 8);
    CUDA(cudaMemcpyAsync(own(u, AT_SHOWN), t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, w->side));
    site_gemm(t, w->s);
}

static void looks(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->scratch, next(u, AT_SHOWN), t->all * t->elem, cudaMemcpyDefault, w->side));
    edge(w, 3, w->side, w->s);
    barrier(u);
}

static void expect_scratch(struct turn *u, const int *is, size_t count)
{
    struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    memset(u->want_scratch, 0x7b, t->all * t->elem);
    for (size_t i = 0; i < count; i++)
        elem_put(t->shape.type, u->want_scratch, i, is[i]);
}

static void expect_shown(struct turn *u)
{
    expect_scratch(u, u->spare[after(u->t->w)], u->t->all);
}

/* The GEMM itself stands before it, the part of its own shard, which nobody gets, too. */
static void multiplies_late(struct turn *u)
{
    barrier(u);
    late(u, u->t->w->s, 2);
    site_gemm(u->t, u->t->w->s);
}

static void looks_at_c(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->scratch, next(u, AT_C), t->all * t->elem, cudaMemcpyDefault, w->s));
    barrier(u);
}

static void expect_c(struct turn *u)
{
    expect_scratch(u, u->c[after(u->t->w)], u->t->all);
}

/* ---- what stands before the call looks at the neighbour's receive buffer ---- */

static void looks_before(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    barrier(u);
    edge(w, 0, w->s, w->side);
    late(u, w->side, 8);
    CUDA(cudaMemcpyAsync(t->scratch, next(u, AT_RECV), t->got * t->elem, cudaMemcpyDefault, w->side));
    site_gemm(t, w->s);
}

/* The GEMM itself reads what lies in the neighbour's. */
static void multiplies_there(struct turn *u)
{
    struct site *t = u->t, there = *t;
    struct world *w = t->w;
    const size_t a = (size_t)t->shape.m * (size_t)t->shape.k;
    barrier(u);
    CUDA(cudaMemcpyAsync(next(u, AT_RECV), t->a, a * t->elem, cudaMemcpyDefault, w->s));
    barrier(u);
    late(u, w->s, 2);
    there.a = next(u, AT_RECV);
    site_gemm(&there, w->s);
}

static void ends(struct turn *u)
{
    edge(u->t->w, 3, u->t->w->side, u->t->w->s);
    barrier(u);
}

static void expect_before(struct turn *u)
{
    expect_scratch(u, u->spare[after(u->t->w)], u->t->got);
}

#define MEET(...) .open = meet_open, .close = meet_close, __VA_ARGS__
static const struct other shown = {MEET(.make = shows, .call = call_on_side, .after = looks, .expect = expect_shown)};
static const struct other product = {MEET(.make = multiplies_late, .after = looks_at_c, .expect = expect_c)};
static const struct other operand = {MEET(.make = multiplies_there, .after = barrier)};
static const struct other before = {
    MEET(.make = looks_before, .call = call_on_side, .after = ends, .expect = expect_before)};

const struct scatter_case meet_cases[] = {
    {.name = "meet-shown", .list = "meet", .body = wrong_body, .arg = &shown},
    {.name = "meet-product", .list = "meet", .body = wrong_body, .arg = &product},
    {.name = "meet-operand", .list = "meet", .body = wrong_body, .arg = &operand},
    {.name = "meet-before", .list = "meet", .body = wrong_body, .arg = &before},
    {.name = "meet-graph-shown", .list = "meet-graphs", .body = wrong_graph_body, .arg = &shown},
    {.name = "meet-graph-product", .list = "meet-graphs", .body = wrong_graph_body, .arg = &product},
    {.name = "meet-graph-operand", .list = "meet-graphs", .body = wrong_graph_body, .arg = &operand},
    {.name = "meet-graph-before", .list = "meet-graphs", .body = wrong_graph_body, .arg = &before},
    {.name = NULL}};
