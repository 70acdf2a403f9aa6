/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs and reduce-scatters in CUDA graphs: captured as frameworks do, replayed in any turn with calls, gathers and other
 * graphs, while graphs come and go; and what is captured between the GEMM and the call, after earlier turns have told
 * otherwise. */
#include "scatter_wrong.h"

enum { LEARNED = 6, REPLAYS = 9, SITES = 4, STEPS = 90 };

static const struct other usually;

/* ---- graphs ---- */

static void begin(struct world *w)
{
    CUDA(cudaStreamBeginCapture(w->s, cudaStreamCaptureModeThreadLocal));
}

static cudaGraph_t end(struct world *w)
{
    cudaGraph_t graph;
    CUDA(cudaStreamEndCapture(w->s, &graph));
    return graph;
}

static cudaGraphExec_t executable(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static cudaGraph_t graph_of_turn(struct turn *u)
{
    begin(u->t->w);
    turn_play(u);
    return end(u->t->w);
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
    cudaGraphExec_t exec = executable(graph_of_turn(&each[0]));
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
    begin(w);
    other_enqueue(&u, &copied);
    cudaGraphExec_t exec = executable(end(w));
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
    begin(w);
    gather_call(&v.g[0], w->comm, w->s);
    for (int i = 0; i < SITES; i++) {
        turn_play(&v.u[i]);
        if (i == 1)
            gather_call(&v.g[1], w->comm, w->s);
    }
    cudaGraphExec_t exec = executable(end(w));
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
        exec[i] = executable(graph_of_turn(&v.u[i]));
    for (uint64_t step = 1; step <= STEPS; step++) {
        const int i = (int)(hash64(1, step) % SITES);
        const uint64_t own = c->arg ? (uint64_t)w->rank : 99;
        if (!c->arg && hash64(2, step) % 20 == 0) {
            CUDA(cudaGraphExecDestroy(exec[i]));
            exec[i] = executable(graph_of_turn(&v.u[i]));
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
    cudaGraphExec_t exec = executable(graph_of_turn(&u[0]));
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
    cudaGraphExec_t exec = executable(graph_of_turn(&each[0]));
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
static void copied(struct world *w, const struct scatter_case *c)
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
    cudaGraphExec_t one = executable(clone), both = executable(parent);
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
        cudaGraphExec_t exec = executable(graph_of_turn(&u));
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
        begin(w);
        site_gemm(&t, w->s);
        CUDA(cudaGraphDestroy(end(w)));
        begin(w);
        other_enqueue(&u, &copied_there);
        cudaGraphExec_t exec = executable(end(w));
        other_play(&u, &copied_there, exec);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, c->name);
        CUDA(cudaGraphExecDestroy(exec));
    }
    pair_close(&t, &u);
}

/* ---- between the GEMM and the call ---- */

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
    CUDA(cudaMemcpyAsync(t->recv, t->spare, t->count * t->elem, cudaMemcpyDeviceToDevice, w->s));
    edge(w, 0, w->s, w->side);
    hold(w->side, 8);
    CUDA(cudaMemcpyAsync(t->scratch, t->recv, t->count * t->elem, cudaMemcpyDeviceToDevice, w->side));
    site_gemm(t, w->s);
    edge(w, 1, w->s, w->side);
}

static void expect_read(struct turn *u)
{
    struct site *t = u->t;
    turn_expect(u, u->c, 0, t->count, false);
    u->want_scratch = malloc(t->all * t->elem);
    memset(u->want_scratch, 0x7b, t->all * t->elem);
    for (size_t i = 0; i < t->count; i++)
        elem_put(t->shape.type, u->want_scratch, i, u->spare[t->w->rank][i]);
}

/* What is sent is what stands there when the group ends. */
static void group_written(struct turn *u)
{
    NCCL(ncclGroupStart());
    site_call(u->t, u->t->w->s);
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
    nccl_connects(w->comm, w->s);
    site_open(&t, w, &shape);
    turn_open(&u, &t);
    for (int i = 0; i < LEARNED; i++)
        other_play(&u, &usually, NULL);
    CUDA(cudaStreamSynchronize(w->s));
    begin(w);
    other_enqueue(&u, o);
    cudaGraphExec_t exec = executable(end(w));
    for (int i = 0; i < REPLAYS; i++) {
        other_play(&u, i % 4 == 3 ? &usually : o, i % 4 == 3 ? NULL : exec);
        CUDA(cudaStreamSynchronize(w->s));
        turn_check(&u, what);
    }
    CUDA(cudaGraphExecDestroy(exec));
    pair_close(&t, &u);
}

static void other(struct world *w, const struct scatter_case *c)
{
    const struct other *o = other_of(c->arg);
    CHECK(o, "no such case");
    wrong_in_graph(w, o, c->name);
}

static void special(struct world *w, const struct scatter_case *c)
{
    wrong_in_graph(w, c->arg, c->name);
}

#define G(name_, ...)                                                                                                  \
    {                                                                                                                  \
        .name = "graph-" name_, .list = "graphs", .body = form, .arg = &(const struct shape)                           \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define O(list_, name_)                                                                                                \
    {                                                                                                                  \
        .name = "graph-" name_, .list = list_, .body = other, .arg = name_                                             \
    }
#define S(name_, list_, ...)                                                                                           \
    {                                                                                                                  \
        .name = "graph-" name_, .list = list_, .body = special, .arg = &(const struct other)                           \
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
    {.name = "graph-plain", .list = "graphs", .body = plain, .arg = &usual},
    {.name = "graph-together", .list = "graphs", .body = together},
    {.name = "graph-turns", .list = "graphs", .body = turns},
    {.name = "graph-mixed", .list = "graphs-mixed", .body = turns, .arg = &usual},
    {.name = "graph-gathers", .list = "graphs", .body = gathers},
    {.name = "graph-streams", .list = "graphs", .body = streams},
    {.name = "graph-updated", .list = "graphs", .body = updated},
    {.name = "graph-copied", .list = "graphs", .body = copied},
    {.name = "graph-again", .list = "graphs", .body = again},
    {.name = "graph-left", .list = "graphs-wrong", .body = left},
    S("reader", "graphs", .make = reader, .call = call_on_side, .expect = expect_read),
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
    S("node", "graphs-wrong", .between = by_node, .model = is_spare),
    S("beside", "graphs-wrong", .between = beside, .call = call_on_side, .model = is_spare),
    O("graphs-wrong", "gemm-elsewhere"),
    O("graphs-wrong", "gather-elsewhere"),
    O("graphs-wrong", "operands"),
    O("graphs", "recv-read"),
    O("graphs", "other-stream"),
    O("graphs", "twice"),
    O("graphs-nccl", "in-group"),
    S("written-inside", "graphs-nccl", .call = group_written, .model = is_spare),
    O("graphs", "overwritten"),
    O("graphs", "overwritten-tied"),
    O("graphs", "overwritten-by-gather"),
    {.name = NULL}};
