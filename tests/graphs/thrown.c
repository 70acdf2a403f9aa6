/* SPDX-License-Identifier: Apache-2.0 */
/* A capture is no communication: what one rank records and does not run changes nothing for its peers. One rank at a
 * time records a gather, in every way in which the recording can end without having run, and all ranks go on gathering.
 *
 *   thrown [CASE]      graph: destroyed; exec: instantiated, and destroyed; broken: the capture fails; often: many; region: recorded
 *                      in a region of slipring's API, where there is one; without CASE all of them
 */
#define SLIPRING_WEAK
#include "plugin/slipring.h"

#include <string.h>
#include "../order/forms.h"

#define SHARD ((size_t)60000)
#define GATHERS 4
#define PAUSE_MS 60 /* a tick of slipring's watchdog */
#define LIMIT_MS 20000

struct world {
    struct rank *r;
    ncclComm_t comm;
    cudaStream_t stream;
    struct gather in, out; /* `in`: recorded */
};

static void begin(struct world *w, cudaStream_t stream)
{
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    gather_call(&w->in, w->comm, stream);
}

static cudaGraph_t record(struct world *w)
{
    cudaGraph_t graph;
    begin(w, w->stream);
    CUDA(cudaStreamEndCapture(w->stream, &graph));
    return graph;
}

static void throw_graph(struct world *w)
{
    CUDA(cudaGraphDestroy(record(w)));
}

static void throw_exec(struct world *w)
{
    cudaGraph_t graph = record(w);
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaGraphExecDestroy(exec));
}

static void throw_broken(struct world *w)
{
    cudaGraph_t graph;
    begin(w, w->stream);
    EXPECT(cudaStreamSynchronize(w->stream) != cudaSuccess, "a stream that captures was waited for");
    EXPECT(cudaStreamEndCapture(w->stream, &graph) != cudaSuccess, "the capture is not broken");
    cudaGetLastError();
}

/* Nothing is kept of them. */
static void throw_often(struct world *w)
{
    for (int i = 0; i < 12; i++)
        throw_broken(w);
}

static void throw_region(struct world *w)
{
    if (slipring_loaded())
        CHECK(slipring_region_begin(SLIPRING_REGION_GATHERS) == 0, "no region");
    throw_graph(w);
    if (slipring_loaded())
        CHECK(slipring_region_end() == 0, "the region does not end");
}

static const struct way {
    const char *name;
    void (*throw)(struct world *w);
} ways[] = {{"graph", throw_graph},
            {"exec", throw_exec},
            {"broken", throw_broken},
            {"often", throw_often},
            {"region", throw_region}};

/* False: the communicator has failed. */
static bool wait_for(struct world *w)
{
    ncclResult_t e = ncclSuccess;
    for (int ms = 0; ms < LIMIT_MS && e == ncclSuccess && cudaStreamQuery(w->stream) != cudaSuccess; ms++) {
        sleep_ms(1);
        NCCL(ncclCommGetAsyncError(w->comm, &e));
    }
    return e == ncclSuccess;
}

static bool gather_on(struct world *w, uint64_t seed)
{
    for (uint64_t i = 0; i < GATHERS; i++) {
        gather_load(&w->out, seed + i, w->stream);
        ncclResult_t r = ncclAllGather(w->out.send, w->out.recv, SHARD, ncclUint8, w->comm, w->stream);
        if (r != ncclSuccess || !wait_for(w))
            return false;
        gather_check(&w->out, seed + i, w->stream, "after what was thrown away");
        sleep_ms(PAUSE_MS / GATHERS + 1);
    }
    return true;
}

/* Each rank in turn. */
static bool throw_away(struct world *w, const struct way *way, uint64_t seed)
{
    for (int who = 0; who < w->r->nranks; who++) {
        if (who == w->r->rank)
            way->throw(w);
        if (!gather_on(w, seed + (uint64_t)(who * GATHERS)))
            return false;
    }
    return true;
}

static void body(struct rank *r)
{
    struct world w = {.r = r};
    const char *only = r->arg;
    bool right = true;
    NCCL(ncclCommInitRank(&w.comm, r->nranks, r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking));
    nccl_connects(w.comm, w.stream);
    gather_alloc(&w.in, r->rank, r->nranks, SHARD);
    gather_alloc(&w.out, r->rank, r->nranks, SHARD);
    for (int i = 0; i < LENGTH(ways) && right; i++)
        if (!only || strcmp(only, ways[i].name) == 0)
            right = throw_away(&w, &ways[i], (uint64_t)i * 100);
    EXPECT(right, "rank %d: the communicator has failed", r->rank);
    NCCL((right ? ncclCommDestroy : ncclCommAbort)(w.comm));
    gather_free(&w.in);
    gather_free(&w.out);
    CUDA(cudaStreamDestroy(w.stream));
}

int main(int argc, char **argv)
{
    return forms_run(2, 60, body, argc > 1 ? argv[1] : NULL);
}
