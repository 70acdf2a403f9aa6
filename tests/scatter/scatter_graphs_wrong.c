/* SPDX-License-Identifier: Apache-2.0 */
/* What is captured between the GEMM and the reduce-scatter, or instead of the call, after earlier turns have told
 * otherwise. */
#include "scatter_graphs.h"

static const struct other usually;

/* The program puts a node there itself, and the stream behind it. */
static void by_node(struct turn *u)
{
    struct site *t = u->t;
    cudaStream_t s = t->w->s;
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *behind;
    cudaGraphNode_t node;
    cudaGraph_t graph;
    size_t n;
    CUDA(cudaStreamGetCaptureInfo(s, &status, NULL, &graph, &behind, NULL, &n));
    CUDA(cudaGraphAddMemcpyNode1D(&node, graph, behind, n, CHANGED(t), FROM_SPARE(t), CHANGED_BYTES(t),
                                  cudaMemcpyDeviceToDevice));
    CUDA(cudaStreamUpdateCaptureDependencies(s, &node, NULL, 1, cudaStreamSetCaptureDependencies));
}

/* On another stream, which the call's waits for besides the GEMM's. */
static void beside(struct turn *u)
{
    struct world *w = u->t->w;
    edge(w, 0, w->s, w->third);
    CUDA(cudaMemcpyAsync(CHANGED(u->t), FROM_SPARE(u->t), CHANGED_BYTES(u->t), cudaMemcpyDeviceToDevice, w->third));
    edge(w, 1, w->third, w->side);
    edge(w, 2, w->s, w->side);
}

static void call_on_side(struct turn *u)
{
    struct world *w = u->t->w;
    site_call(u->t, w->side);
    edge(w, 3, w->side, w->s);
}

/* Something that the GEMM does not wait for reads the receive buffer until the call. */
static void reader(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->got * t->elem, cudaMemcpyDeviceToDevice, w->s));
    edge(w, 0, w->s, w->side);
    hold(w->side, 8);
    CUDA(cudaMemcpyAsync(t->scratch, t->recv, t->got * t->elem, cudaMemcpyDeviceToDevice, w->side));
    site_gemm(t, w->s);
    edge(w, 1, w->s, w->side);
}

/* What is sent is not what the GEMM makes, but what stands beside it. */
static void other_beside(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    edge(w, 0, w->s, w->side);
    hold(w->side, 8);
    CUDA(cudaMemcpyAsync(t->scratch, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, w->side));
    site_gemm(t, w->s);
    edge(w, 1, w->s, w->side);
}

static void send_other(struct turn *u)
{
    struct site *t = u->t;
    struct world *w = t->w;
    NCCL(world_reduce(w, t->scratch, t->recv, t->count, nccl_type(t->shape.type), ncclSum, w->comm, w->side));
    edge(w, 3, w->side, w->s);
}

static void expect_other(struct turn *u)
{
    turn_expect(u, u->spare, 0, u->t->count, false);
}

/* What is sent is what stands there when the group ends. */
static void one_written(struct turn *u)
{
    NCCL(ncclGroupStart());
    site_call(u->t, u->t->w->s);
    copy_c(u);
    NCCL(ncclGroupEnd());
}

/* Nothing is broadcast, but the group is more than its call. */
static void group_written(struct turn *u)
{
    NCCL(ncclGroupStart());
    site_call(u->t, u->t->w->s);
    NCCL(ncclBroadcast(u->t->c, u->t->c, 0, ncclInt8, 0, u->t->w->comm, u->t->w->s));
    copy_c(u);
    NCCL(ncclGroupEnd());
}

static const struct other *other_of(const char *name)
{
    const struct scatter_case *const from[] = {between_cases, instead_cases};
    for (int i = 0; i < LENGTH(from); i++)
        for (const struct scatter_case *c = from[i]; c->name; c++)
            if (!strcmp(name, c->name))
                return c->arg;
    return NULL;
}

static void wrong_in_graph(struct world *w, const struct other *o, const char *what)
{
    struct shape shape = usual;
    struct site t;
    struct turn u;
    shape.beta = o->beta;
    shape.type = o->type;
    if (o->m)
        shape.m = o->m;
    nccl_connects(w->comm, w->s);
    site_open(&t, w, &shape);
    if (o->open)
        o->open(&t);
    turn_open(&u, &t);
    for (int i = 0; i < LEARNED; i++) {
        other_play(&u, &usually, NULL);
        CUDA(cudaStreamSynchronize(w->s)); /* the turn's memory is filled anew */
    }
    capture_begin(w->s);
    other_enqueue(&u, o);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int i = 0; i < REPLAYS; i++) {
        other_play(&u, i % 4 == 3 ? &usually : o, i % 4 == 3 ? NULL : exec);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, what);
    }
    CUDA(cudaGraphExecDestroy(exec));
    turn_close(&u);
    if (o->close)
        o->close(&t);
    site_close(&t);
}

static void other(struct world *w, const struct scatter_case *c)
{
    const struct other *o = other_of(c->arg);
    CHECK(o, "no such case");
    wrong_in_graph(w, o, c->name);
}

void wrong_graph_body(struct world *w, const struct scatter_case *c)
{
    wrong_in_graph(w, c->arg, c->name);
}

#define O(list_, name_)                                                                                                \
    {                                                                                                                  \
        .name = "graph-" name_, .list = list_, .body = other, .arg = name_                                             \
    }
#define S(name_, list_, ...)                                                                                           \
    {                                                                                                                  \
        .name = "graph-" name_, .list = list_, .body = wrong_graph_body, .arg = &(const struct other)                  \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
const struct scatter_case graph_wrong_cases[] = {
    S("reader", "graphs", .make = reader, .call = call_on_side, .expect = expect_recv_read),
    O("graphs-wrong", "memset"),
    O("graphs-wrong", "copy"),
    O("graphs-wrong", "copy-fp32"),
    O("graphs-wrong", "tied"),
    O("graphs-wrong", "gemm-add"),
    O("graphs-wrong", "gemm-moved"),
    O("graphs-wrong", "gemm-twice-beta"),
    O("graphs-wrong", "all-reduce"),
    O("graphs-wrong", "all-gather"),
    O("graphs-wrong", "broadcast"),
    O("graphs-wrong", "scatter-into"),
    O("graphs-wrong", "two-halves"),
    O("graphs-wrong", "shorter"),
    O("graphs-wrong", "copied"),
    O("graphs-wrong", "other-buffer"),
    O("graphs-wrong", "half-count"),
    O("graphs-wrong", "inside"),
    O("graphs-wrong", "other-operation"),
    O("graphs-wrong", "other-type"),
    O("graphs-wrong", "as-fp32"),
    S("node", "graphs-wrong", .between = by_node, .model = is_spare),
    S("other-beside", "graphs-wrong", .make = other_beside, .call = send_other, .expect = expect_other),
    S("beside", "graphs-wrong", .between = beside, .call = call_on_side, .model = is_spare),
    O("graphs-wrong", "gemm-elsewhere"),
    O("graphs-wrong", "gather-elsewhere"),
    O("graphs-wrong", "operands"),
    O("graphs", "recv-read"),
    O("graphs", "other-stream"),
    O("graphs", "twice"),
    O("graphs", "in-group"),
    S("written-in-one", "graphs-wrong", .call = one_written, .model = is_spare),
    S("written-inside", "graphs-wrong", .call = group_written, .model = is_spare),
    O("graphs", "overwritten"),
    O("graphs", "overwritten-tied"),
    O("graphs", "overwritten-by-gather"),
    {.name = NULL}};
