/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that do not do the same. NCCL pairs the calls of a communicator by their order, whatever they come from: so
 * all of this is right, and means the same, without slipring. */
#include "graphs.h"

#include <string.h>
#include <time.h>

#define ROUNDS 20
#define GRAPHS 3
#define LATER_MS 300
#define MANY 300      /* calls; there are descriptors for 256 */
#define ABORT_MS 2500 /* two seconds, and what the machine does meanwhile */

/* Shard r has to be what rank r sent in round `seed[r]`. */
static void check_pairs(struct world *w, const struct gather *g, const uint64_t *seed, const char *what)
{
    struct gather one = *g;
    for (int r = 0; r < w->nranks; r++) {
        uint8_t *want = malloc(g->shard);
        CUDA(cudaMemcpyAsync(one.host, g->recv + (size_t)r * g->shard, g->shard, cudaMemcpyDeviceToHost, w->s));
        CUDA(cudaStreamSynchronize(w->s));
        shard_fill(want, g->shard, seed[r], r, false);
        EXPECT(memcmp(want, one.host, g->shard) == 0, "rank %d: %s: shard %d of %zu bytes differs", w->rank, what, r,
               g->shard);
        free(want);
    }
}

/* Graphs of one size in another order on each rank: rank r's n-th call is paired with the others' n-th. */
static void crossed(struct world *w)
{
    struct gather g[GRAPHS];
    cudaGraphExec_t exec[GRAPHS];
    for (int i = 0; i < GRAPHS; i++) {
        buffers_open(w, &g[i], SHARD + 5, i == 1);
        exec[i] = graph_executable(record(w, &g[i]));
    }
    for (int n = 0; n < ROUNDS; n++) {
        w->seed += GRAPHS;
        for (int i = 0; i < GRAPHS; i++)
            gather_load(&g[i], w->seed + (uint64_t)i, w->s);
        for (int i = 0; i < GRAPHS; i++)
            CUDA(cudaGraphLaunch(exec[(i + n * w->rank) % GRAPHS], w->s));
        for (int i = 0; i < GRAPHS; i++) {
            uint64_t seed[8];
            for (int r = 0; r < w->nranks; r++)
                seed[r] = w->seed + (uint64_t)((i + n * r) % GRAPHS);
            check_pairs(w, &g[(i + n * w->rank) % GRAPHS], seed, "in another order");
        }
    }
    for (int i = 0; i < GRAPHS; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_close(&g[i]);
    }
}

static cudaGraphExec_t record_both(struct world *w, struct gather *g)
{
    capture_begin(w->s);
    gather_call(&g[0], w->comm, w->s);
    gather_call(&g[1], w->comm, w->s);
    return graph_executable(capture_end(w->s));
}

/* One rank has a graph with two gathers, another two graphs, of which it launches one more often, a third calls. */
static void uneven(struct world *w)
{
    struct gather g[2];
    cudaGraphExec_t both, one[2];
    for (int i = 0; i < 2; i++)
        buffers_open(w, &g[i], SHARD / 2 + (size_t)i, i == 0);
    both = record_both(w, g);
    for (int i = 0; i < 2; i++)
        one[i] = graph_executable(record(w, &g[i]));
    for (int n = 0; n < ROUNDS; n++) {
        w->seed += 2;
        for (int i = 0; i < 2; i++)
            gather_load(&g[i], w->seed + (uint64_t)i, w->s);
        const int how = (n + w->rank) % 3;
        if (how == 0)
            CUDA(cudaGraphLaunch(both, w->s));
        for (int i = 0; i < 2 && how == 1; i++)
            CUDA(cudaGraphLaunch(one[i], w->s));
        for (int i = 0; i < 2 && how == 2; i++)
            gather_call(&g[i], w->comm, w->s);
        for (int i = 0; i < 2; i++)
            gather_check(&g[i], w->seed + (uint64_t)i, w->s, "from other graphs");
    }
    CUDA(cudaGraphExecDestroy(both));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaGraphExecDestroy(one[i]));
        buffers_close(&g[i]);
    }
}

/* Each rank comes to its executable graph in its own way, and one of them updates it. */
static void made_otherwise(struct world *w)
{
    struct gather g[2];
    cudaGraph_t graph[2];
    CUgraph other;
    CUgraphNode node;
    CUgraphExecUpdateResultInfo info;
    for (int i = 0; i < 2; i++) {
        buffers_open(w, &g[i], SHARD + 3, false);
        graph[i] = record(w, &g[i]);
    }
    cudaGraphExec_t exec;
    if (w->rank % 3 == 0) {
        CUDA(cudaGraphInstantiate(&exec, graph[1], 0));
        DRIVER(cuGraphExecUpdate(exec, graph[0], &info));
    } else if (w->rank % 3 == 1) {
        DRIVER(cuGraphClone(&other, graph[0]));
        exec = graph_executable(other);
    } else {
        DRIVER(cuGraphCreate(&other, 0));
        DRIVER(cuGraphAddChildGraphNode(&node, other, NULL, 0, graph[0]));
        exec = graph_executable(other);
    }
    for (int n = 0; n < 4; n++)
        replay(w, exec, &g[0], "made in another way");
    if (w->rank == 0) /* the others go on with the buffers that they had */
        DRIVER(cuGraphExecUpdate(exec, graph[1], &info));
    for (int n = 0; n < 4; n++)
        replay(w, exec, &g[w->rank == 0], "updated on one rank");
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaGraphDestroy(graph[i]));
        buffers_close(&g[i]);
    }
}

/* What one rank records and never launches changes nothing, however long it stays. */
static void idle(struct world *w)
{
    struct gather g, other;
    cudaGraphExec_t never = NULL;
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &other, SHARD * 2 + 1, true);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    if (w->rank == 0)
        never = graph_executable(record(w, &other));
    for (int n = 0; n < ROUNDS; n++) {
        replay(w, exec, &g, "beside a graph that is never launched");
        if (n % 3 == 0)
            eager(w, &other, "of the buffers of a graph that is never launched");
    }
    if (never)
        CUDA(cudaGraphExecDestroy(never));
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
    buffers_close(&other);
}

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* One rank launches more often: its replays wait for the peers' calls, which come later, as calls. */
static void ahead(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    for (int n = 0; n < 3; n++) {
        replay(w, exec, &g, "before a rank is ahead");
        w->seed++;
        gather_load(&g, w->seed, w->s);
        if (w->rank != 0)
            sleep_ms(LATER_MS);
        for (int i = 0; i < 4; i++)
            if (w->rank == 0)
                CUDA(cudaGraphLaunch(exec, w->s));
            else
                gather_call(&g, w->comm, w->s);
        EXPECT(w->rank != 0 || cudaStreamQuery(w->s) == cudaErrorNotReady, "rank 0: its replays did not wait");
        cudaGetLastError();
        gather_check(&g, w->seed, w->s, "of a rank that is ahead");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

/* One rank calls so often that it comes round to what its peers have not replayed yet. */
static void behind(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    replay(w, exec, &g, "before a rank is far ahead");
    w->seed++;
    gather_load(&g, w->seed, w->s);
    if (w->rank != 0)
        sleep_ms(LATER_MS);
    for (int i = 0; i < MANY; i++)
        if (w->rank == 0)
            gather_call(&g, w->comm, w->s);
        else
            CUDA(cudaGraphLaunch(exec, w->s));
    gather_check(&g, w->seed, w->s, "of a rank that is far ahead");
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

/* The peers' calls never come: the replay waits for ever, until an abort ends it, soon. */
static void more(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    cudaGraphExec_t exec = graph_executable(record(w, &g));
    replay(w, exec, &g, "before a rank replays once more");
    if (w->rank == 0) {
        CUDA(cudaGraphLaunch(exec, w->s));
        sleep_ms(LATER_MS);
        EXPECT(cudaStreamQuery(w->s) == cudaErrorNotReady, "rank 0: a replay ended without its peers");
        cudaGetLastError();
    } else {
        sleep_ms(2 * LATER_MS);
    }
    CUDA(cudaGraphExecDestroy(exec)); /* what is in flight goes on; NCCL's abort waits for the last graph */
    const long begun = now_ms();
    NCCL(ncclCommAbort(w->comm));
    w->comm = NULL;
    CUDA(cudaStreamSynchronize(w->s));
    EXPECT(now_ms() - begun < ABORT_MS, "rank %d: it took %ld ms to end", w->rank, now_ms() - begun);
    buffers_close(&g);
}

/* Some ranks capture their thread's default stream, and all launch on either. */
static void own_stream(struct world *w)
{
    cudaStream_t made = w->s;
    struct gather g[2];
    cudaGraphExec_t exec[2];
    for (int i = 0; i < 2; i++) {
        buffers_open(w, &g[i], SHARD, i == 1);
        w->s = (w->rank + i) % 2 ? cudaStreamPerThread : made;
        exec[i] = graph_executable(record(w, &g[i]));
    }
    for (int n = 0; n < ROUNDS; n++) {
        w->s = (n + w->rank) % 3 ? cudaStreamPerThread : made;
        if (n % 5 == w->rank)
            eager(w, &g[n % 2], "beside what others' default streams have recorded");
        else
            replay(w, exec[n % 2], &g[n % 2], "recorded by default streams of some threads");
    }
    w->s = made;
    for (int i = 0; i < 2; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        buffers_close(&g[i]);
    }
}

static void use_own_stream(void *arg)
{
    struct gather *g = arg;
    CUDA(cudaSetDevice(rank_device(g->rank)));
    CUDA(cudaMemsetAsync(g->recv, 0x55, 16, cudaStreamPerThread));
    CUDA(cudaStreamSynchronize(cudaStreamPerThread));
}

/* Another thread uses its default stream while this one's captures. */
static void own_streams(struct world *w)
{
    cudaStream_t made = w->s;
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    w->s = cudaStreamPerThread;
    capture_begin(w->s);
    gather_call(&g, w->comm, w->s);
    on_threads(1, &g, sizeof g, use_own_stream);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int n = 0; n < ROUNDS; n++)
        replay(w, exec, &g, "captured beside another thread's default stream");
    w->s = made;
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&g);
}

const struct graph_case graph_unlike_cases[] = {{.name = "crossed", .body = crossed},
                                                {.name = "uneven", .body = uneven},
                                                {.name = "otherwise", .body = made_otherwise},
                                                {.name = "idle", .body = idle},
                                                {.name = "own-stream", .body = own_stream},
                                                {.name = "own-streams", .body = own_streams},
                                                {.name = "ahead", .body = ahead},
                                                {.name = "behind", .body = behind},
                                                {.name = "more", .body = more},
                                                {.name = NULL}};
