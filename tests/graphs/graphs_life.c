/* SPDX-License-Identifier: Apache-2.0 */
/* How graphs, buffers, ranks and communicators come and go while gathers are replayed. */
#include "graphs.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define GRAPHS 5
#define TURNS 500
#define REPLAYS 4
#define LIMIT_MS 8000
#define LATE_MS 20

/* The same on all ranks. */
static uint64_t draw(struct world *w, uint64_t n)
{
    return hash64(4711, w->seed++) % n;
}

/* ---- 500 of everything ---- */

static void eager_anew(struct world *w, size_t shard, bool in_place)
{
    struct gather g;
    buffers_open(w, &g, shard, in_place);
    eager(w, &g, "of new buffers");
    buffers_close(&g);
}

static void turns(struct world *w)
{
    static const size_t shards[GRAPHS] = {100, 5000, SHARD, 100003, 200000};
    struct gather g[GRAPHS];
    cudaGraphExec_t exec[GRAPHS];
    for (int i = 0; i < GRAPHS; i++) {
        buffers_open(w, &g[i], shards[i], i % 2);
        exec[i] = graph_executable(record(w, &g[i]));
    }
    for (int n = 0; n < TURNS; n++) {
        const uint64_t what = draw(w, 3 * GRAPHS);
        if (what < 2 * GRAPHS)
            replay(w, exec[what % GRAPHS], &g[what % GRAPHS], "in any turn");
        else if (what % 2)
            eager(w, &g[what % GRAPHS], "of a graph's buffers");
        else
            eager_anew(w, shards[what % GRAPHS] + 1, what % 3 == 0);
    }
    for (int i = 0; i < GRAPHS; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_close(&g[i]);
    }
}

/* A rank is late, and the others take its shard from where they think that it is. */
static void late(struct world *w)
{
    struct gather g[3];
    cudaGraphExec_t exec[3];
    for (int i = 0; i < 3; i++) {
        buffers_open(w, &g[i], SHARD, i == 2);
        exec[i] = graph_executable(record(w, &g[i]));
    }
    for (int n = 0; n < 60; n++) {
        const uint64_t who = draw(w, (uint64_t)w->nranks), which = draw(w, 3);
        if ((int)who == w->rank)
            sleep_ms(5);
        replay(w, exec[which], &g[which], "of a rank that is late");
    }
    for (int i = 0; i < 3; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_close(&g[i]);
    }
}

/* ---- what is made of a graph ---- */

static void cloned(struct world *w)
{
    struct gather g;
    CUgraph clone;
    buffers_open(w, &g, SHARD, false);
    cudaGraph_t graph = record(w, &g);
    DRIVER(cuGraphClone(&clone, graph));
    CUDA(cudaGraphDestroy(graph));
    cudaGraphExec_t exec = graph_executable(clone);
    for (int i = 0; i < REPLAYS; i++)
        replay(w, exec, &g, "a clone");
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

/* A graph of two others, one behind the other. */
static CUgraph two_children(struct world *w, struct gather *g, struct gather *other, CUgraphNode node[2])
{
    CUgraph parent;
    buffers_open(w, g, SHARD, false);
    buffers_open(w, other, 2 * SHARD, true);
    cudaGraph_t a = record(w, g), b = record(w, other);
    DRIVER(cuGraphCreate(&parent, 0));
    DRIVER(cuGraphAddChildGraphNode(&node[0], parent, NULL, 0, a));
    DRIVER(cuGraphAddChildGraphNode(&node[1], parent, &node[0], 1, b));
    CUDA(cudaGraphDestroy(a));
    CUDA(cudaGraphDestroy(b));
    return parent;
}

static void child(struct world *w)
{
    struct gather g, other;
    CUgraphNode node[2];
    CUgraph parent = two_children(w, &g, &other, node);
    cudaGraphExec_t exec = graph_executable(parent);
    for (int i = 0; i < REPLAYS; i++) {
        gather_load(&other, w->seed + 100, w->s);
        const uint64_t seed = w->seed + 100;
        replay(w, exec, &g, "a child");
        gather_check(&other, seed, w->s, "a second child");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    buffers_close(&other);
}

/* A node that holds a gather is taken out again, before the graph is instantiated or behind that. */
static void child_removed(struct world *w)
{
    struct gather g, other;
    CUgraphNode node[2];
    CUgraph parent = two_children(w, &g, &other, node);
    DRIVER(cuGraphDestroyNode(node[1]));
    cudaGraphExec_t exec = graph_executable(parent);
    for (int i = 0; i < REPLAYS; i++)
        replay(w, exec, &g, "the child that is left");
    eager(w, &other, "behind graphs without it");
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    buffers_close(&other);
}

/* Which gathers of a graph a child's values are for can not be told: then its launch is refused, as is what can not be
 * instantiated. */
static void child_set(struct world *w)
{
    struct gather g, other;
    CUgraph parent;
    CUgraphNode node;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH};
    CUgraphExec never;
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &other, SHARD, false);
    cudaGraph_t a = record(w, &g), b = record(w, &other);
    DRIVER(cuGraphCreate(&parent, 0));
    DRIVER(cuGraphAddChildGraphNode(&node, parent, NULL, 0, a));
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, parent, 0));
    replay(w, exec, &g, "a child");
    EXPECT(cuGraphInstantiateWithParams(&never, a, &how) != CUDA_SUCCESS, "a graph of words is for device code");
    DRIVER(cuGraphExecChildGraphNodeSetParams(exec, node, b));
    EXPECT(cudaGraphLaunch(exec, w->s) != cudaSuccess, "rank %d: a graph of which the gathers are not known runs",
           w->rank);
    cudaGetLastError();
    eager(w, &other, "behind a launch that was refused");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(parent));
    CUDA(cudaGraphDestroy(a));
    CUDA(cudaGraphDestroy(b));
    buffers_close(&g);
    buffers_close(&other);
}

/* The executable graph goes from one graph's buffers to another's, and back. */
static void updated(struct world *w)
{
    struct gather g[3];
    cudaGraph_t graph[3];
    for (int i = 0; i < 3; i++) {
        buffers_open(w, &g[i], SHARD + 100, false);
        graph[i] = record(w, &g[i]);
    }
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph[0], 0));
    for (int i = 0; i < 12; i++) {
        CUgraphExecUpdateResultInfo info;
        const int to = i * 2 % 3;
        DRIVER(cuGraphExecUpdate(exec, graph[to], &info));
        replay(w, exec, &g[to], "updated");
        if (i % 2)
            replay(w, exec, &g[to], "updated, again");
        if (i % 3 == 0)
            eager(w, &g[(to + 1) % 3], "between updates");
    }
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphDestroy(graph[i]));
    replay(w, exec, &g[22 % 3], "when all graphs are gone");
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 3; i++)
        buffers_close(&g[i]);
}

/* Several executable graphs of one graph, which goes first, and they one by one. */
static void siblings(struct world *w)
{
    struct gather g;
    cudaGraphExec_t exec[3];
    buffers_open(w, &g, SHARD, true);
    cudaGraph_t graph = record(w, &g);
    for (int i = 0; i < 3; i++)
        CUDA(cudaGraphInstantiate(&exec[i], graph, 0));
    CUDA(cudaGraphDestroy(graph));
    for (int gone = 0; gone < 3; gone++) {
        for (int i = gone; i < 3; i++)
            replay(w, exec[i], &g, "one of several");
        CUDA(cudaGraphExecDestroy(exec[gone]));
        eager(w, &g, "when one has gone");
    }
    buffers_close(&g);
}

/* A graph's buffers are freed with it, and others come at their addresses. */
static void again(struct world *w)
{
    for (int i = 0; i < 20; i++) {
        struct gather g;
        buffers_open(w, &g, SHARD + (size_t)(i % 3) * 512, i % 2);
        cudaGraphExec_t exec = graph_executable(record(w, &g));
        replay(w, exec, &g, "recorded again");
        replay(w, exec, &g, "recorded again, twice");
        CUDA(cudaGraphExecDestroy(exec));
        buffers_close(&g);
    }
}

/* ---- ranks that do not do the same ---- */

/* What a rank sends outside of a graph is not staged when its peers have mapped it. */
/* The call is from a graph on some ranks, and others make it. */
static void mixed(struct world *w)
{
    struct gather g[3];
    cudaGraphExec_t exec[3];
    for (int i = 0; i < 3; i++)
        buffers_open(w, &g[i], SHARD / 2 * (size_t)(i + 1) + 3, i == 1);
    for (int i = 0; i < 3; i++)
        exec[i] = (i + w->rank) % 2 ? graph_executable(record(w, &g[i])) : NULL; /* not on all ranks */
    for (int n = 0; n < 60; n++) {
        const int i = (int)draw(w, 3), who = (int)draw(w, (uint64_t)w->nranks + 2);
        if (exec[i] && who != w->rank)
            replay(w, exec[i], &g[i], "from a graph, on some ranks");
        else
            eager(w, &g[i], "made by this rank, and from a graph by others");
    }
    for (int i = 0; i < 3; i++) {
        if (exec[i])
            CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_close(&g[i]);
    }
}

/* A graph can not stage. So who has buffers that are not mapped yet, in a call that its peers replay, waits for that,
 * whoever comes first. */
static void mixed_anew(struct world *w)
{
    struct gather g, fresh;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    for (int n = 0; n < 8 * w->nranks; n++) {
        const bool calls = n % w->nranks == w->rank;
        if (calls == (n / w->nranks % 2 != 0))
            sleep_ms(LATE_MS);
        if (calls) {
            buffers_open(w, &fresh, SHARD, n / w->nranks % 4 < 2);
            eager(w, &fresh, "of new buffers, which others replay");
            buffers_close(&fresh);
        } else {
            replay(w, exec, &g, "which another calls with new buffers");
        }
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

/* One rank at a time records more, and throws it away. */
static void thrown_by_one(struct world *w)
{
    struct gather g, other;
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &other, 2 * SHARD, true);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    for (int n = 0; n < 6 * w->nranks; n++) {
        if (n % w->nranks == w->rank) {
            cudaGraph_t graph = record(w, n % 2 ? &g : &other);
            if (n % 3)
                CUDA(cudaGraphExecDestroy(graph_executable(graph)));
            else
                CUDA(cudaGraphDestroy(graph));
        }
        replay(w, exec, &g, "when a peer has thrown a graph away");
        eager(w, &other, "when a peer has thrown a graph away");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    buffers_close(&other);
}

/* ---- ends ---- */

/* Without slipring a capture does not outlive its communicator either. */
void outlives(struct world *w, cudaGraphExec_t exec)
{
    NCCL(ncclCommDestroy(w->comm));
    w->comm = NULL;
    EXPECT(cudaGraphLaunch(exec, w->s) != cudaSuccess, "rank %d: a graph without its communicator runs", w->rank);
    cudaGetLastError();
    CUDA(cudaStreamSynchronize(w->s));
    CUDA(cudaGraphExecDestroy(exec));
}

static void destroyed(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    replay(w, exec, &g, "before the communicator ends");
    outlives(w, exec);
    buffers_close(&g);
}

/* A peer may be dead by now: then the launch is a call that tells. */
void launch_or_told(struct world *w, cudaGraphExec_t exec)
{
    const cudaError_t got = cudaGraphLaunch(exec, w->s);
    EXPECT(got == cudaSuccess || got == cudaErrorIllegalState, "rank %d: a launch beside a death: %s", w->rank,
           cudaGetErrorString(got));
    cudaGetLastError();
}

static void killed(struct world *w)
{
    struct gather g;
    ncclResult_t error = ncclSuccess;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    replay(w, exec, &g, "before a rank dies");
    if (w->rank == w->nranks - 1) {
        sleep_ms(200);
        raise(SIGKILL);
    }
    launch_or_told(w, exec);
    launch_or_told(w, exec);
    for (int ms = 0; ms < LIMIT_MS && error == ncclSuccess; ms += 10) {
        sleep_ms(10);
        NCCL(ncclCommGetAsyncError(w->comm, &error));
    }
    EXPECT(error != ncclSuccess, "rank %d: nobody says that a rank is gone", w->rank);
    CUDA(cudaGraphExecDestroy(exec));
    NCCL(ncclCommAbort(w->comm));
    w->comm = NULL;
    CUDA(cudaStreamSynchronize(w->s));
    buffers_close(&g);
}

const struct graph_case graph_life_cases[] = {{.name = "turns", .body = turns},
                                              {.name = "late", .body = late},
                                              {.name = "clone", .body = cloned},
                                              {.name = "child", .body = child},
                                              {.name = "child-removed", .body = child_removed},
                                              {.name = "child-set", .body = child_set},
                                              {.name = "update", .body = updated},
                                              {.name = "siblings", .body = siblings},
                                              {.name = "again", .body = again},
                                              {.name = "mixed", .body = mixed},
                                              {.name = "mixed-anew", .body = mixed_anew},
                                              {.name = "thrown", .body = thrown_by_one},
                                              {.name = "destroyed", .body = destroyed},
                                              {.name = "killed", .body = killed, .kills = true},
                                              {.name = NULL}};
