/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs and reduce-scatters in CUDA graphs: captured as frameworks do, replayed in any turn with calls, gathers and other
 * graphs, while graphs come and go. */
#include "scatter_graphs.h"

#include <cuda.h>

#define DRV(call) CHECK((call) == CUDA_SUCCESS, "%s", #call)

enum { SITES = 4, STEPS = 90 };

/* ---- graphs ---- */

static cudaGraph_t graph_of_turn(struct turn *u)
{
    capture_begin(u->t->w->s);
    turn_play(u);
    return capture_end(u->t->w->s);
}

/* A turn of the site by the graph, or as ever; on the host's side nothing waits. */
static void turn_run(struct turn *u, cudaGraphExec_t exec)
{
    struct world *w = u->t->w;
    turn_load(u, w->s);
    if (exec)
        CUDA(cudaGraphLaunch(exec, w->s));
    else
        turn_play(u);
    turn_expect(u, u->c, 0, u->t->count, false);
    turn_expect_c(u);
    turn_fetch(u, w->s);
}

static void turn_now(struct turn *u, cudaGraphExec_t exec, const char *what)
{
    turn_run(u, exec);
    CUDA(cudaStreamSynchronize(u->t->w->s));
    turn_check(u, what);
}

static void pair_open(struct world *w, struct site *t, struct turn *u, const struct shape *shape)
{
    site_open(t, w, shape);
    site_play(t, LEARNED, "before graphs");
    turn_open(u, t);
}

static void pair_close(struct site *t, struct turn *u)
{
    turn_close(u);
    site_close(t);
}

/* ---- one pair in a graph ---- */

/* Bursts of launches, with a call between some. */
static void form(struct world *w, const struct scatter_case *c)
{
    struct turn each[BURST];
    struct site t;
    nccl_connects(w->comm, w->s);
    site_open(&t, w, c->arg);
    site_play(&t, LEARNED, "before the graph");
    for (int i = 0; i < BURST; i++)
        turn_open(&each[i], &t);
    cudaGraphExec_t exec = graph_executable(graph_of_turn(&each[0]));
    for (int at = 0; at < REPLAYS; at += BURST) {
        for (int i = 0; i < BURST; i++)
            turn_run(&each[i], at == BURST && i == 1 ? NULL : exec);
        CUDA(cudaStreamSynchronize(w->s));
        for (int i = 0; i < BURST; i++)
            turn_check(&each[i], c->name);
    }
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < BURST; i++)
        turn_close(&each[i]);
    site_close(&t);
}

/* No GEMM: what is sent is copied there. */
static void copies(struct turn *u)
{
    struct site *t = u->t;
    CUDA(cudaMemcpyAsync(t->c, t->spare, t->all * t->elem, cudaMemcpyDeviceToDevice, t->w->s));
}

static void plain(struct world *w, const struct scatter_case *c)
{
    static const struct other copied = {.make = copies, .model = is_all_spare};
    struct turn u;
    struct site t;
    nccl_connects(w->comm, w->s);
    site_open(&t, w, c->arg);
    turn_open(&u, &t);
    capture_begin(w->s);
    other_enqueue(&u, &copied);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int i = 0; i < REPLAYS; i++) {
        other_play(&u, &copied, i % 3 == 2 ? NULL : exec);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, c->name);
    }
    CUDA(cudaGraphExecDestroy(exec));
    pair_close(&t, &u);
}

/* ---- several ---- */

static const struct shape shapes[SITES] = {
    {.type = BF16, .m = 40, .cols = 12, .k = 48},
    {.type = BF16, .m = 24, .cols = 7, .k = 32, .ta = true, .side = true, .back = true},
    {.type = FP32, .api = SGEMM, .m = 33, .cols = 3, .k = 16, .avg = true},
    {.type = FP16, .api = LT_BIAS, .m = 16, .cols = 24, .k = 24, .recv = RECV_IN_PLACE},
};

struct several {
    struct site t[SITES];
    struct turn u[SITES];
    struct gather g[2];
};

static void several_open(struct world *w, struct several *v)
{
    static const size_t shards[] = {4096, 30001};
    nccl_connects(w->comm, w->s);
    for (int i = 0; i < SITES; i++)
        pair_open(w, &v->t[i], &v->u[i], &shapes[i]);
    for (int i = 0; i < LENGTH(v->g); i++)
        gather_alloc(&v->g[i], w->rank, w->nranks, shards[i]);
}

static void several_close(struct several *v)
{
    for (int i = 0; i < LENGTH(v->g); i++)
        gather_free(&v->g[i]);
    for (int i = 0; i < SITES; i++)
        pair_close(&v->t[i], &v->u[i]);
}

/* All pairs, and gathers between them, in one graph. */
static void together(struct world *w, const struct scatter_case *c)
{
    struct several v;
    several_open(w, &v);
    capture_begin(w->s);
    gather_call(&v.g[0], w->comm, w->s);
    for (int i = 0; i < SITES; i++) {
        turn_play(&v.u[i]);
        if (i == 1)
            gather_call(&v.g[1], w->comm, w->s);
    }
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (uint64_t n = 1; n <= REPLAYS; n++) {
        for (int i = 0; i < SITES; i++)
            turn_load(&v.u[i], w->s);
        for (int i = 0; i < LENGTH(v.g); i++)
            gather_load(&v.g[i], 2 * n + (uint64_t)i, w->s);
        if ((int)(n % (uint64_t)w->nranks) == w->rank)
            hold(w->s, 5);
        CUDA(cudaGraphLaunch(exec, w->s));
        for (int i = 0; i < SITES; i++) {
            turn_expect(&v.u[i], v.u[i].c, 0, v.t[i].count, false);
            turn_expect_c(&v.u[i]);
            turn_fetch(&v.u[i], w->s);
        }
        for (int i = 0; i < LENGTH(v.g); i++)
            gather_check(&v.g[i], 2 * n + (uint64_t)i, w->s, c->name);
        for (int i = 0; i < SITES; i++)
            turn_check(&v.u[i], c->name);
        turn_now(&v.u[n % SITES], NULL, "between replays");
    }
    CUDA(cudaGraphExecDestroy(exec));
    several_close(&v);
}

static void add_gather(struct several *v, int of, uint64_t seed, cudaStream_t stream, const char *what)
{
    gather_load(&v->g[of], seed, stream);
    gather_call(&v->g[of], v->t[0].w->comm, stream);
    gather_check(&v->g[of], seed, stream, what);
}

/* A graph for each pair; replays, calls and gathers in random turn. `arg`: each rank decides for itself what it replays and
 * what it calls, which programs may not while ways are tried. Without arg the graphs are captured anew now and then. */
static void turns(struct world *w, const struct scatter_case *c)
{
    cudaGraphExec_t exec[SITES];
    struct several v;
    several_open(w, &v);
    for (int i = 0; i < SITES; i++)
        exec[i] = graph_executable(graph_of_turn(&v.u[i]));
    for (uint64_t step = 1; step <= STEPS; step++) {
        const int i = (int)(hash64(1, step) % SITES);
        const uint64_t own = c->arg ? (uint64_t)w->rank : 99;
        if (!c->arg && hash64(2, step) % 20 == 0) {
            CUDA(cudaGraphExecDestroy(exec[i]));
            exec[i] = graph_executable(graph_of_turn(&v.u[i]));
        }
        if (hash64(3, step) % 4 == 0)
            add_gather(&v, (int)(step % 2), step, w->s, c->name);
        turn_now(&v.u[i], hash64(own, step) % 3 ? exec[i] : NULL, c->name);
    }
    for (int i = 0; i < SITES; i++)
        CUDA(cudaGraphExecDestroy(exec[i]));
    several_close(&v);
}

/* Streams of the launches differ, and calls are on the other one. */
static void streams(struct world *w, const struct scatter_case *c)
{
    struct site t[2];
    struct turn u[2];
    nccl_connects(w->comm, w->s);
    for (int i = 0; i < 2; i++)
        pair_open(w, &t[i], &u[i], &shapes[i * 2]);
    cudaGraphExec_t exec = graph_executable(graph_of_turn(&u[0]));
    for (int n = 0; n < 4 * BURST; n++) {
        const cudaStream_t on = n % 2 ? w->third : w->s, off = n % 2 ? w->s : w->third;
        for (int i = 0; i < 2; i++)
            turn_load(&u[i], i ? off : on);
        CUDA(cudaDeviceSynchronize());
        if (n % w->nranks == w->rank)
            hold(n % 4 < 2 ? on : off, 10);
        for (int i = 0; i < 2; i++)
            if (i == (n % 4 < 2)) {
                site_gemm(&t[1], off);
                site_call(&t[1], off);
            } else {
                CUDA(cudaGraphLaunch(exec, on));
            }
        for (int i = 0; i < 2; i++) {
            turn_expect(&u[i], u[i].c, 0, t[i].count, false);
            turn_expect_c(&u[i]);
            turn_fetch(&u[i], i ? off : on);
        }
        CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < 2; i++)
            turn_check(&u[i], c->name);
    }
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 2; i++)
        pair_close(&t[i], &u[i]);
}

/* Gathers between launches, which the host does not wait for; the ranks come to them one after the other. */
static void gathers(struct world *w, const struct scatter_case *c)
{
    struct turn each[BURST];
    struct gather g[BURST];
    struct site t;
    nccl_connects(w->comm, w->s);
    site_open(&t, w, &usual);
    site_play(&t, LEARNED, "before the graph");
    for (int i = 0; i < BURST; i++) {
        turn_open(&each[i], &t);
        gather_alloc(&g[i], w->rank, w->nranks, 20000);
    }
    cudaGraphExec_t exec = graph_executable(graph_of_turn(&each[0]));
    for (uint64_t n = 1; n <= REPLAYS; n++) {
        for (int i = 0; i < BURST; i++) {
            gather_load(&g[i], n * BURST + (uint64_t)i, w->s);
            if ((int)((n + (uint64_t)i) % (uint64_t)w->nranks) == w->rank)
                hold(w->s, 2);
            gather_call(&g[i], w->comm, w->s);
            turn_run(&each[i], exec);
        }
        for (int i = 0; i < BURST; i++) {
            gather_check(&g[i], n * BURST + (uint64_t)i, w->s, c->name);
            turn_check(&each[i], c->name);
        }
    }
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < BURST; i++) {
        turn_close(&each[i]);
        gather_free(&g[i]);
    }
    site_close(&t);
}

/* ---- the life of graphs ---- */

/* From one pair's buffers to another's, and back. */
static void updated(struct world *w, const struct scatter_case *c)
{
    struct site t[3];
    struct turn u[3];
    cudaGraph_t graph[3];
    cudaGraphExec_t exec;
    nccl_connects(w->comm, w->s);
    for (int i = 0; i < 3; i++) {
        pair_open(w, &t[i], &u[i], &usual);
        graph[i] = graph_of_turn(&u[i]);
    }
    CUDA(cudaGraphInstantiate(&exec, graph[0], 0));
    for (int i = 0; i < REPLAYS; i++) {
        cudaGraphExecUpdateResultInfo info;
        const int to = i * 2 % 3;
        CUDA(cudaGraphExecUpdate(exec, graph[to], &info));
        turn_now(&u[to], exec, c->name);
        turn_now(&u[to], exec, c->name);
        if (i % 3 == 0)
            turn_now(&u[(to + 1) % 3], NULL, "between updates");
    }
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphDestroy(graph[i]));
    turn_now(&u[(REPLAYS - 1) * 2 % 3], exec, "when all graphs are gone");
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 3; i++)
        pair_close(&t[i], &u[i]);
}

/* A clone; two children of one graph. */
static void cloned(struct world *w, const struct scatter_case *c)
{
    struct site t[2];
    struct turn u[2];
    cudaGraph_t graph[2], clone, parent;
    cudaGraphNode_t first, second;
    nccl_connects(w->comm, w->s);
    for (int i = 0; i < 2; i++) {
        pair_open(w, &t[i], &u[i], &shapes[i * 3]);
        graph[i] = graph_of_turn(&u[i]);
    }
    CUDA(cudaGraphClone(&clone, graph[0]));
    CUDA(cudaGraphCreate(&parent, 0));
    CUDA(cudaGraphAddChildGraphNode(&first, parent, NULL, 0, graph[0]));
    CUDA(cudaGraphAddChildGraphNode(&second, parent, &first, 1, graph[1]));
    for (int i = 0; i < 2; i++)
        CUDA(cudaGraphDestroy(graph[i]));
    cudaGraphExec_t one = graph_executable(clone), both = graph_executable(parent);
    for (int n = 0; n < REPLAYS; n++) {
        turn_now(&u[0], one, "a clone");
        turn_load(&u[1], w->s);
        turn_expect(&u[1], u[1].c, 0, t[1].count, false);
        turn_expect_c(&u[1]);
        turn_now(&u[0], both, c->name);
        turn_fetch(&u[1], w->s);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u[1], c->name);
    }
    CUDA(cudaGraphExecDestroy(one));
    CUDA(cudaGraphExecDestroy(both));
    for (int i = 0; i < 2; i++)
        pair_close(&t[i], &u[i]);
}

/* A graph that is captured and thrown away, and one that is captured anew each time. */
static void again(struct world *w, const struct scatter_case *c)
{
    struct site t;
    struct turn u;
    nccl_connects(w->comm, w->s);
    pair_open(w, &t, &u, &usual);
    for (int i = 0; i < REPLAYS; i++) {
        CUDA(cudaGraphDestroy(graph_of_turn(&u)));
        cudaGraphExec_t exec = graph_executable(graph_of_turn(&u));
        turn_now(&u, exec, c->name);
        turn_now(&u, exec, c->name);
        CUDA(cudaGraphExecDestroy(exec));
        turn_now(&u, NULL, "between graphs");
    }
    pair_close(&t, &u);
}

/* The GEMM's graph has gone when what is sent is captured; its nodes may be where that one's were. */
static void left(struct world *w, const struct scatter_case *c)
{
    static const struct other copied_there = {.make = copies, .model = is_all_spare};
    struct site t;
    struct turn u;
    nccl_connects(w->comm, w->s);
    pair_open(w, &t, &u, &usual);
    for (int i = 0; i < REPLAYS; i++) {
        capture_begin(w->s);
        site_gemm(&t, w->s);
        CUDA(cudaGraphDestroy(capture_end(w->s)));
        capture_begin(w->s);
        other_enqueue(&u, &copied_there);
        cudaGraphExec_t exec = graph_executable(capture_end(w->s));
        other_play(&u, &copied_there, exec);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, c->name);
        CUDA(cudaGraphExecDestroy(exec));
    }
    pair_close(&t, &u);
}

/* The body of a conditional node, which runs once. NCCL_GRAPH_MIXING_SUPPORT=0, which NCCL wants for bodies, is the
 * caller's. */
static void in_body(struct world *w, const struct scatter_case *c)
{
    struct site t;
    struct turn u;
    CUgraph graph, ended;
    CUgraphNode node;
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    p.conditional.type = CU_GRAPH_COND_TYPE_IF;
    p.conditional.size = 1;
    nccl_connects(w->comm, w->s);
    pair_open(w, &t, &u, &usual);
    DRV(cuCtxGetCurrent(&p.conditional.ctx));
    DRV(cuGraphCreate(&graph, 0));
    DRV(cuGraphConditionalHandleCreate(&p.conditional.handle, graph, p.conditional.ctx, 1,
                                       CU_GRAPH_COND_ASSIGN_DEFAULT));
    DRV(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p));
    DRV(cuStreamBeginCaptureToGraph(w->s, p.conditional.phGraph_out[0], NULL, NULL, 0,
                                    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    turn_play(&u);
    DRV(cuStreamEndCapture(w->s, &ended));
    cudaGraphExec_t exec = graph_executable(graph);
    for (int i = 0; i < REPLAYS; i++)
        turn_now(&u, i % 3 == 2 ? NULL : exec, c->name);
    CUDA(cudaGraphExecDestroy(exec));
    pair_close(&t, &u);
}

#define G(name_, ...)                                                                                                  \
    {                                                                                                                  \
        .name = "graph-" name_, .list = "graphs", .body = form, .arg = &(const struct shape)                           \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define EVEN .m = 40, .cols = 12, .k = 48

const struct scatter_case graph_cases[] = {
    G("bf16", EVEN),
    G("fp16-avg", .type = FP16, .avg = true, EVEN, .tb = true),
    G("fp32-in-place", .type = FP32, .api = SGEMM, EVEN, .recv = RECV_IN_PLACE),
    G("lt-bias-side", .api = LT_BIAS, EVEN, .side = true, .back = true),
    G("in-place-side", EVEN, .recv = RECV_IN_PLACE, .side = true, .back = true),
    G("odd", .m = 33, .cols = 7, .k = 51),
    G("one-column", .m = 40, .cols = 1, .k = 48),
    G("reads-c", .type = FP16, .api = HGEMM, EVEN, .beta = 1),
    G("recv-in-a", EVEN, .recv = RECV_IN_A),
    G("recv-in-workspace", .api = LT, EVEN, .recv = RECV_IN_WORKSPACE),
    G("recv-in-handle-workspace", .type = FP32, .api = SGEMM, EVEN, .recv = RECV_IN_WORKSPACE),
    {.name = "graph-plain", .list = "graphs", .body = plain, .arg = &usual},
    {.name = "graph-together", .list = "graphs", .body = together},
    {.name = "graph-turns", .list = "graphs", .body = turns},
    {.name = "graph-mixed", .list = "graphs-mixed", .body = turns, .arg = &usual},
    {.name = "graph-gathers", .list = "graphs", .body = gathers},
    {.name = "graph-streams", .list = "graphs", .body = streams},
    {.name = "graph-updated", .list = "graphs", .body = updated},
    {.name = "graph-cloned", .list = "graphs", .body = cloned},
    {.name = "graph-again", .list = "graphs", .body = again},
    {.name = "graph-body", .list = "graphs-body", .body = in_body},
    {.name = "graph-left", .list = "graphs-wrong", .body = left},
    {.name = NULL}};
