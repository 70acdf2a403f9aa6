/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in the bodies of conditional nodes, as XLA's loops and torch.cond make them, and in other graphs of the
 * program's that a stream is captured into: they stay with NCCL, in one order with what the ring moves. The device code
 * that turns a loop is the software GPU's; on a driver without it a body runs once. */
#include "graphs.h"

#include <dlfcn.h>
#include <string.h>
#include "softgpu/softgpu.h"

#define LATE_MS 40
#define ROUNDS 6
#define CROWD 20

/* ---- loops ---- */

struct loop {
    CUgraph graph, *body;
    CUgraphNode node;
    CUgraphConditionalHandle handle;
    bool once;           /* the body runs once */
    CUfunction setter;   /* NULL: so it does, or there is no such device code */
    unsigned char *left; /* device memory: a word, the turns to come */
};

static CUcontext current(void)
{
    CUcontext ctx;
    DRIVER(cuCtxGetCurrent(&ctx));
    return ctx;
}

static CUfunction find_setter(void)
{
    softgpuSetConditional_t get;
    CUfunction f = NULL;
    *(void **)&get = dlsym(RTLD_DEFAULT, "softgpuSetConditional");
    if (get)
        DRIVER(get(&f));
    return f;
}

/* In a graph of its own, or at the end of what `stream` captures. */
static void loop_open(struct world *w, struct loop *l, cudaStream_t capturing)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUstreamCaptureStatus status;
    const CUgraphNode *deps = NULL;
    size_t n = 0;
    l->setter = l->once ? NULL : find_setter();
    l->left = memory_get(4);
    CUDA(cudaMemsetAsync(l->left, 0, 4, w->side)); /* a stream that captures nothing */
    CUDA(cudaStreamSynchronize(w->side));
    if (capturing)
        DRIVER(cuStreamGetCaptureInfo(capturing, &status, NULL, &l->graph, &deps, NULL, &n));
    else
        DRIVER(cuGraphCreate(&l->graph, 0));
    DRIVER(cuGraphConditionalHandleCreate(&l->handle, l->graph, current(), 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    p.conditional.handle = l->handle;
    p.conditional.type = l->setter ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF;
    p.conditional.size = 1;
    p.conditional.ctx = current();
    DRIVER(cuGraphAddNode(&l->node, l->graph, deps, NULL, n, &p));
    l->body = p.conditional.phGraph_out;
    if (capturing)
        DRIVER(cuStreamUpdateCaptureDependencies(capturing, &l->node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
}

static unsigned turns_of(const struct loop *l, unsigned wanted)
{
    return l->setter ? wanted : 1;
}

static void body_begin(cudaStream_t stream, CUgraph graph, const CUgraphNode *after)
{
    DRIVER(cuStreamBeginCaptureToGraph(stream, graph, after, NULL, after != NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void body_end(cudaStream_t stream, CUgraph graph)
{
    CUgraph ended;
    DRIVER(cuStreamEndCapture(stream, &ended));
    EXPECT(ended == graph, "another graph has been captured");
}

/* A turn less. */
static void count_turn(const struct loop *l, cudaStream_t stream)
{
    struct softgpu_set_conditional a = {l->handle, (CUdeviceptr)l->left, 1};
    void *params[] = {&a};
    if (l->setter)
        DRIVER(cuLaunchKernel(l->setter, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* One turn: each rank sends next what the one behind it has sent. */
static void turn(struct world *w, struct gather *g, cudaStream_t stream)
{
    gather_call(g, w->comm, stream);
    CUDA(cudaMemcpyAsync(g->send, g->recv + (size_t)((g->rank + 1) % g->nranks) * g->shard, g->shard,
                         cudaMemcpyDeviceToDevice, stream));
}

static void loop_fill(struct world *w, struct loop *l, struct gather *g)
{
    body_begin(w->s, *l->body, NULL);
    turn(w, g, w->s);
    count_turn(l, w->s);
    body_end(w->s, *l->body);
}

/* What round `seed` has become after so many turns. */
static void check_turned(struct world *w, const struct gather *g, uint64_t seed, unsigned turns, const char *what)
{
    uint8_t *want = malloc(g->shard);
    CUDA(cudaMemcpyAsync(g->host, g->recv, g->shard * (size_t)g->nranks, cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    for (int r = 0; r < g->nranks; r++) {
        shard_fill(want, g->shard, seed, (int)(((unsigned)r + turns - 1) % (unsigned)g->nranks), false);
        EXPECT(memcmp(want, g->host + (size_t)r * g->shard, g->shard) == 0, "rank %d: %s: shard %d differs", w->rank,
               what, r);
    }
    free(want);
}

static void set_turns(const struct loop *l, unsigned turns, cudaStream_t stream)
{
    DRIVER(cuMemsetD32Async((CUdeviceptr)l->left, turns, 1, stream));
}

static void run_loop(struct world *w, const struct loop *l, cudaGraphExec_t exec, struct gather *g, unsigned turns,
                     const char *what)
{
    w->seed++;
    gather_load(g, w->seed, w->s);
    set_turns(l, turns, w->s);
    CUDA(cudaGraphLaunch(exec, w->s));
    check_turned(w, g, w->seed, turns_of(l, turns), what);
}

static void loop_close(struct loop *l)
{
    memory_put(l->left);
}

/* ---- cases ---- */

static void in_loop(struct world *w)
{
    struct loop l = {.once = false};
    struct gather g, beside;
    loop_open(w, &l, NULL);
    buffers_open(w, &g, SHARD + 3, false);
    buffers_open(w, &beside, SHARD, true);
    loop_fill(w, &l, &g);
    cudaGraphExec_t exec = graph_executable(l.graph);
    for (unsigned n = 1; n <= ROUNDS; n++) {
        run_loop(w, &l, exec, &g, n, "a loop");
        w->seed += 2; /* at once behind and before it, without the host's waiting */
        gather_load(&beside, w->seed, w->s);
        gather_call(&beside, w->comm, w->s);
        gather_load(&g, w->seed + 1, w->s);
        set_turns(&l, n, w->s);
        CUDA(cudaGraphLaunch(exec, w->s));
        if (n % 2)
            gather_call(&beside, w->comm, w->s);
        gather_check(&beside, w->seed, w->s, "beside a loop");
        check_turned(w, &g, ++w->seed, turns_of(&l, n), "a loop between calls");
    }
    CUDA(cudaGraphExecDestroy(exec));
    eager(w, &beside, "after a loop");
    buffers_close(&g);
    buffers_close(&beside);
    loop_close(&l);
}

/* The way of XLA: what a step does is captured into a graph of its own, which becomes a child in the body. */
static CUgraphNode step_in(struct world *w, struct loop *l, struct gather *g, CUgraph *traced)
{
    CUgraphNode step;
    DRIVER(cuGraphCreate(traced, 0));
    body_begin(w->s, *traced, NULL);
    turn(w, g, w->s);
    body_end(w->s, *traced);
    DRIVER(cuGraphAddChildGraphNode(&step, *l->body, NULL, 0, *traced));
    if (l->setter) {
        body_begin(w->s, *l->body, &step);
        count_turn(l, w->s);
        body_end(w->s, *l->body);
    }
    return step;
}

static void scan(struct world *w)
{
    struct loop l[2] = {{.once = false}, {.once = false}};
    struct gather g[2];
    CUgraph traced[2];
    CUgraphNode step = NULL;
    CUgraphExecUpdateResultInfo info;
    for (int i = 0; i < 2; i++) {
        buffers_open(w, &g[i], SHARD + 5, false);
        loop_open(w, &l[i], NULL);
        CUgraphNode made = step_in(w, &l[i], &g[i], &traced[i]);
        step = i ? step : made;
    }
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, l[0].graph, 0));
    for (unsigned n = 1; n <= ROUNDS; n++) {
        run_loop(w, &l[0], exec, &g[0], n, "a scan");
        eager(w, &g[1], "between scans");
    }
    CUDA(cudaGraphExecChildGraphNodeSetParams(exec, step, traced[1]));
    run_loop(w, &l[0], exec, &g[1], 3, "a scan whose step was set");
    DRIVER(cuGraphExecUpdate(exec, l[1].graph, &info));
    for (unsigned n = 1; n <= ROUNDS; n++)
        run_loop(w, &l[1], exec, &g[1], n, "a scan that was updated");
    eager(w, &g[0], "after a scan");
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaGraphDestroy(traced[i]));
        CUDA(cudaGraphDestroy(l[i].graph));
        buffers_close(&g[i]);
        loop_close(&l[i]);
    }
}

/* The way of torch.cond: while a stream is captured, the loop's body is, on another one. The gather before it may be the
 * ring's. */
static void within(struct world *w)
{
    struct loop l = {.once = false};
    struct gather g, before;
    cudaStream_t inner;
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &before, SHARD, false);
    CUDA(cudaStreamCreateWithFlags(&inner, cudaStreamNonBlocking));
    CUDA(cudaStreamBeginCapture(w->s, cudaStreamCaptureModeRelaxed));
    gather_call(&before, w->comm, w->s);
    CUDA(cudaMemcpyAsync(g.send, before.recv + (size_t)w->rank * SHARD, SHARD, cudaMemcpyDeviceToDevice, w->s));
    loop_open(w, &l, w->s);
    body_begin(inner, *l.body, NULL);
    turn(w, &g, inner);
    count_turn(&l, inner);
    body_end(inner, *l.body);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (unsigned n = 1; n <= ROUNDS; n++) {
        w->seed++;
        gather_load(&before, w->seed, w->s);
        gather_load(&g, w->seed + 100, w->s);
        set_turns(&l, n, w->s);
        CUDA(cudaGraphLaunch(exec, w->s));
        gather_check(&before, w->seed, w->s, "before a loop in its graph");
        check_turned(w, &g, w->seed, turns_of(&l, n), "a loop behind a gather in its graph");
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaStreamDestroy(inner));
    buffers_close(&g);
    buffers_close(&before);
    loop_close(&l);
}

/* Several bodies are captured at once, each on its stream. */
static void crowd(struct world *w)
{
    struct loop l = {.once = false};
    struct gather g;
    cudaStream_t stream[CROWD];
    CUgraph graph[CROWD];
    loop_open(w, &l, NULL);
    buffers_open(w, &g, SHARD, false);
    body_begin(w->s, *l.body, NULL);
    for (int i = 0; i < CROWD; i++) {
        CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        DRIVER(cuGraphCreate(&graph[i], 0));
        body_begin(stream[i], graph[i], NULL);
    }
    turn(w, &g, w->s);
    count_turn(&l, w->s);
    body_end(w->s, *l.body);
    for (int i = 0; i < CROWD; i++) {
        body_end(stream[i], graph[i]);
        DRIVER(cuGraphDestroy(graph[i]));
        CUDA(cudaStreamDestroy(stream[i]));
    }
    cudaGraphExec_t exec = graph_executable(l.graph);
    run_loop(w, &l, exec, &g, 2, "a body that was captured beside others");
    CUDA(cudaGraphExecDestroy(exec));
    eager(w, &g, "afterwards");
    buffers_close(&g);
    loop_close(&l);
}

/* A third of the ranks has one launch with three turns, another one three with one turn, the rest plain graphs, which
 * are left to NCCL as well (SLIPRING_GRAPHS=off). */
static void unlike(struct world *w)
{
    enum { TURNS = 3 };
    struct loop l = {.once = false};
    struct gather g;
    const int how = w->rank % 3;
    cudaGraphExec_t exec;
    buffers_open(w, &g, SHARD, false);
    loop_open(w, &l, NULL);
    nccl_connects(w->comm, w->s);
    loop_fill(w, &l, &g);
    if (how == 1) {
        capture_begin(w->s);
        turn(w, &g, w->s);
        exec = graph_executable(capture_end(w->s));
        DRIVER(cuGraphDestroy(l.graph));
    } else {
        exec = graph_executable(l.graph);
    }
    const int launches = how || !l.setter ? TURNS : 1;
    for (int n = 0; n < ROUNDS; n++) {
        w->seed++;
        gather_load(&g, w->seed, w->s);
        for (int i = 0; i < launches; i++) {
            set_turns(&l, how ? 1 : TURNS, w->s);
            CUDA(cudaGraphLaunch(exec, w->s));
        }
        check_turned(w, &g, w->seed, TURNS, "in graphs that differ");
        eager(w, &g, "between graphs that differ");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    loop_close(&l);
}

/* ---- order ---- */

/* How a graph gets its broadcast: captured, into a body, into the graph that is embedded in a node, or by setting a child
 * that broadcast on another communicator. */
enum way { PLAIN, BODY, EMBEDDED, SET };

struct cast {
    const void *from;
    void *to;
    size_t bytes;
    int root;
};

static void cast_into(struct world *w, const struct cast *c, ncclComm_t comm, CUgraph graph)
{
    body_begin(w->s, graph, NULL);
    NCCL(ncclBroadcast(c->from, c->to, c->bytes, ncclUint8, c->root, comm, w->s));
    body_end(w->s, graph);
}

static CUgraph cast_on(struct world *w, const struct cast *c, ncclComm_t comm)
{
    CUgraph graph;
    DRIVER(cuGraphCreate(&graph, 0));
    cast_into(w, c, comm, graph);
    return graph;
}

static CUgraph with_child(CUgraph child, CUgraphNode *node)
{
    CUgraph parent;
    DRIVER(cuGraphCreate(&parent, 0));
    DRIVER(cuGraphAddChildGraphNode(node, parent, NULL, 0, child));
    return parent;
}

static cudaGraphExec_t cast_embedded(struct world *w, const struct cast *c)
{
    CUgraph empty, inner;
    CUgraphNode node;
    DRIVER(cuGraphCreate(&empty, 0));
    CUgraph parent = with_child(empty, &node);
    DRIVER(cuGraphChildGraphNodeGetGraph(node, &inner));
    cast_into(w, c, w->comm, inner);
    DRIVER(cuGraphDestroy(empty));
    return graph_executable(parent);
}

static cudaGraphExec_t cast_set(struct world *w, const struct cast *c, ncclComm_t other)
{
    CUgraph first = cast_on(w, c, other), second = cast_on(w, c, w->comm), parent;
    CUgraphNode node;
    CUgraphExec exec;
    parent = with_child(first, &node);
    DRIVER(cuGraphInstantiate(&exec, parent, 0));
    DRIVER(cuGraphExecChildGraphNodeSetParams(exec, node, second));
    DRIVER(cuGraphDestroy(first));
    DRIVER(cuGraphDestroy(second));
    DRIVER(cuGraphDestroy(parent));
    return exec;
}

static cudaGraphExec_t broadcast(struct world *w, const struct cast *c, ncclComm_t other, enum way way)
{
    struct loop l = {.once = true};
    if (way == EMBEDDED)
        return cast_embedded(w, c);
    if (way == SET)
        return cast_set(w, c, other);
    if (way == PLAIN) {
        capture_begin(w->s);
        NCCL(ncclBroadcast(c->from, c->to, c->bytes, ncclUint8, c->root, w->comm, w->s));
        return graph_executable(capture_end(w->s));
    }
    loop_open(w, &l, NULL);
    cast_into(w, c, w->comm, *l.body);
    loop_close(&l);
    return graph_executable(l.graph);
}

/* The launch stands still on one stream; the gather on the other one sends what the graph brings, then the other way
 * round. No event is between the two. */
static void streams(struct world *w, enum way way)
{
    struct gather g, out;
    ncclComm_t other;
    NCCL(ncclCommSplit(w->comm, 0, w->rank, &other, NULL));
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &out, SHARD, false);
    /* Rank 0's shard is everybody's. */
    const struct cast to_send = {out.send, g.send, SHARD, 0},
                      from_recv = {g.recv, out.recv, SHARD * (size_t)w->nranks, w->nranks - 1};
    cudaGraphExec_t before = broadcast(w, &to_send, other, way), behind = broadcast(w, &from_recv, other, way);
    for (int n = 0; n < ROUNDS; n++) {
        w->seed++;
        gather_load(&g, w->seed + 100, w->s);
        gather_load(&out, w->seed, w->s);
        CUDA(cudaStreamSynchronize(w->s));
        hold(w->s, LATE_MS);
        CUDA(cudaGraphLaunch(before, w->s));
        if (n % 2)
            hold(w->side, LATE_MS * 2);
        gather_call(&g, w->comm, w->side);
        CUDA(cudaGraphLaunch(behind, w->s));
        CUDA(cudaMemcpyAsync(out.host, out.recv, SHARD * (size_t)w->nranks, cudaMemcpyDeviceToHost, w->s));
        CUDA(cudaStreamSynchronize(w->s));
        CUDA(cudaStreamSynchronize(w->side));
        uint8_t *want = malloc(SHARD);
        shard_fill(want, SHARD, w->seed, 0, false);
        for (int r = 0; r < w->nranks; r++)
            EXPECT(memcmp(want, out.host + (size_t)r * SHARD, SHARD) == 0, "rank %d: shard %d came too early", w->rank,
                   r);
        free(want);
    }
    CUDA(cudaGraphExecDestroy(before));
    CUDA(cudaGraphExecDestroy(behind));
    buffers_close(&g);
    buffers_close(&out);
    NCCL(ncclCommDestroy(other));
}

static void plain_streams(struct world *w)
{
    streams(w, PLAIN);
}

static void body_streams(struct world *w)
{
    streams(w, BODY);
}

static void embedded_streams(struct world *w)
{
    streams(w, EMBEDDED);
}

static void set_streams(struct world *w)
{
    streams(w, SET);
}

/* ---- other graphs ---- */

/* A captured graph is moved into a node: its gathers are the ring's still. */
static void moved(struct world *w)
{
    struct gather g;
    CUgraph parent;
    CUgraphNode node;
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    buffers_open(w, &g, SHARD, false);
    p.graph.graph = record(w, &g);
    p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    DRIVER(cuGraphCreate(&parent, 0));
    DRIVER(cuGraphAddNode(&node, parent, NULL, NULL, 0, &p));
    cudaGraphExec_t exec = graph_executable(parent);
    for (int n = 0; n < ROUNDS; n++) {
        replay(w, exec, &g, "of a child that was moved");
        eager(w, &g, "beside it");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

const struct graph_case graph_body_cases[] = {
    {.name = "body-loop", .body = in_loop, .loose = true},
    {.name = "body-scan", .body = scan, .loose = true},
    {.name = "body-within", .body = within, .loose = true},
    {.name = "body-crowd", .body = crowd, .loose = true},
    {.name = "body-unlike", .body = unlike, .loose = true},
    {.name = "body-streams", .body = body_streams, .loose = true},
    {.name = "nccl-streams", .body = plain_streams},
    {.name = "nccl-streams-embedded", .body = embedded_streams},
    {.name = "nccl-streams-set", .body = set_streams},
    {.name = "child-moved", .body = moved},
    {.name = NULL},
};
