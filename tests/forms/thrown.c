/* A capture is no communication: what one rank records and does not run changes nothing for its peers. One rank at a
 * time records a gather, in every way in which the recording can end without having run, and all ranks go on gathering.
 *
 *   thrown [CASE]      graph: destroyed; exec: instantiated, and destroyed; broken: the capture fails; region: recorded
 *                      in a region of slipring's API, where there is one; without CASE all of them
 */
#define SLIPRING_WEAK
#include "plugin/slipring.h"

#include <string.h>
#include "forms.h"

#define SHARD ((size_t)60000)
#define GATHERS 4
#define PAUSE_MS 60 /* a tick of slipring's watchdog */

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
} ways[] = {{"graph", throw_graph}, {"exec", throw_exec}, {"broken", throw_broken}, {"region", throw_region}};

static void gather_on(struct world *w, uint64_t seed)
{
    for (uint64_t i = 0; i < GATHERS; i++) {
        gather_load(&w->out, seed + i, w->stream);
        gather_call(&w->out, w->comm, w->stream);
        gather_check(&w->out, seed + i, w->stream, "after what was thrown away");
        sleep_ms(PAUSE_MS / GATHERS + 1);
    }
}

static void body(struct rank *r)
{
    struct world w = {.r = r};
    const char *only = r->arg;
    uint64_t seed = 0;
    NCCL(ncclCommInitRank(&w.comm, r->nranks, r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking));
    gather_alloc(&w.in, r->rank, r->nranks, SHARD);
    gather_alloc(&w.out, r->rank, r->nranks, SHARD);
    for (int i = 0; i < LENGTH(ways); i++) {
        for (int who = 0; who < r->nranks && (!only || strcmp(only, ways[i].name) == 0); who++) {
            if (who == r->rank)
                ways[i].throw(&w);
            gather_on(&w, seed += GATHERS);
        }
    }
    gather_free(&w.in);
    gather_free(&w.out);
    CUDA(cudaStreamDestroy(w.stream));
    NCCL(ncclCommDestroy(w.comm));
}

int main(int argc, char **argv)
{
    return forms_run(2, 60, body, argc > 1 ? argv[1] : NULL);
}
