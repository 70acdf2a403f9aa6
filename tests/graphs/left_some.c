/* SPDX-License-Identifier: Apache-2.0 */
/* One rank leaves a gather to NCCL, the other makes it: the first runs it from a graph, or makes it in a region of
 * slipring's API, alone or in a group. In a region it may wait in NCCL's call, which connects the ranks, and hears of it
 * there. A rank that records the call waits there as well; `captured`: nobody but SLIPRING_STALL_TIMEOUT knows then that
 * the other one does not come. The graphs of the rest are recorded when NCCL has gathered before. Both are told so by
 * ncclCommGetAsyncError, in time, instead of waiting for each other, and no gather ends as if it were whole with what
 * another one sent; the calls before it are right. Only under slipring: NCCL itself can do this. Without
 * SLIPRING_GRAPHS: with it, a call from a graph is a call (graphs.c).
 *
 *   left_some HOW-RANK-LATER [RANKS]      HOW: graph, added, clone, update, beside, turned, captured, region, group; so
 * many more gathers by the leaving RANK; turned: the others launch such a graph behind their gather
 */
#define SLIPRING_WEAK
#include "plugin/slipring.h"

#include <cuda.h>
#include <string.h>
#include <time.h>
#include "../order/forms.h"

#define SHARD ((size_t)50000)
#define LIMIT_MS 8000

struct plan {
    char how[16];
    int leaving, later;
};

static cudaGraph_t capture(struct gather *g, ncclComm_t comm, cudaStream_t stream)
{
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    gather_call(g, comm, stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void drv(CUresult r)
{
    CHECK(r == CUDA_SUCCESS, "the driver answers %d", (int)r);
}

static cudaGraphExec_t added(cudaGraph_t child)
{
    CUgraph parent;
    CUgraphNode node;
    drv(cuGraphCreate(&parent, 0));
    drv(cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
    CUDA(cudaGraphDestroy(child));
    return instantiate(parent);
}

static cudaGraphExec_t cloned(cudaGraph_t graph)
{
    CUgraph clone;
    drv(cuGraphClone(&clone, graph));
    CUDA(cudaGraphDestroy(graph));
    return instantiate(clone);
}

/* What was instantiated gathered on another communicator. */
static cudaGraphExec_t updated(struct gather *g, ncclComm_t comm, ncclComm_t other, cudaStream_t stream)
{
    cudaGraphExec_t exec = instantiate(capture(g, other, stream));
    cudaGraph_t graph = capture(g, comm, stream);
    CUgraphExecUpdateResultInfo info;
    drv(cuGraphExecUpdate(exec, graph, &info));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* An executable graph that gathers, made in one of several ways. NULL: `how` is none of them. */
static cudaGraphExec_t record(const char *how, struct gather *g, ncclComm_t comm, ncclComm_t other, cudaStream_t stream)
{
    if (strcmp(how, "graph") == 0 || strcmp(how, "beside") == 0 || strcmp(how, "turned") == 0)
        return instantiate(capture(g, comm, stream));
    if (strcmp(how, "added") == 0)
        return added(capture(g, comm, stream));
    if (strcmp(how, "clone") == 0)
        return cloned(capture(g, comm, stream));
    return strcmp(how, "update") == 0 ? updated(g, comm, other, stream) : NULL;
}

static ncclResult_t call(struct gather *g, ncclComm_t comm, cudaStream_t stream)
{
    return ncclAllGather(g->send, g->recv, SHARD, ncclUint8, comm, stream);
}

static ncclResult_t in_region(struct gather *g, ncclComm_t comm, cudaStream_t stream, bool group)
{
    if (group)
        NCCL(ncclGroupStart());
    CHECK(slipring_loaded() && slipring_region_begin(SLIPRING_REGION_GATHERS) == 0, "no slipring here");
    const ncclResult_t e = call(g, comm, stream);
    CHECK(slipring_region_end() == 0, "the region does not end");
    return group ? ncclGroupEnd() : e;
}

static ncclResult_t captured(struct gather *g, ncclComm_t comm, cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const ncclResult_t e = call(g, comm, stream);
    EXPECT(e != ncclSuccess, "rank %d: it has been recorded", g->rank);
    cudaStreamEndCapture(stream, &graph);
    if (graph)
        CUDA(cudaGraphDestroy(graph));
    return e;
}

/* What a rank launches: recorded while the communicator is whole. */
struct launch {
    struct gather apart;
    cudaStream_t on;
    cudaGraphExec_t exec; /* NULL: nothing */
};

static void prepare(struct launch *l, const struct plan *p, struct gather *g, ncclComm_t comm, ncclComm_t other,
                    cudaStream_t stream)
{
    l->on = stream;
    if (strcmp(p->how, "beside") == 0) { /* nothing of the graph holds up what comes on the stream, or meets it */
        CUDA(cudaStreamCreateWithFlags(&l->on, cudaStreamNonBlocking));
        gather_alloc(&l->apart, g->rank, g->nranks, SHARD);
        g = &l->apart;
    }
    l->exec = record(p->how, g, comm, other, stream);
}

static ncclResult_t leave(const struct plan *p, struct launch *l, struct gather *g, ncclComm_t comm,
                          cudaStream_t stream)
{
    if (strcmp(p->how, "captured") == 0)
        return captured(g, comm, stream);
    if (!l->exec)
        return in_region(g, comm, stream, strcmp(p->how, "group") == 0);
    CUDA(cudaGraphLaunch(l->exec, l->on));
    return ncclSuccess;
}

static ncclResult_t error_of(ncclComm_t comm)
{
    ncclResult_t e = ncclSuccess;
    NCCL(ncclCommGetAsyncError(comm, &e));
    return e;
}

/* False: the time is over, or the stream has come to the end of what it can not have got. */
static bool await_error(ncclComm_t comm, cudaStream_t stream)
{
    for (int ms = 0; ms < LIMIT_MS; ms += 10) {
        bool ended = cudaStreamQuery(stream) == cudaSuccess; /* in this order: the error comes before the end */
        if (error_of(comm) != ncclSuccess)
            return true;
        if (ended)
            return false;
        sleep_ms(10);
    }
    return false;
}

/* Those whose graphs are launched: NCCL has connected the ranks before. */
static bool records(const char *how)
{
    return strcmp(how, "region") && strcmp(how, "group") && strcmp(how, "captured");
}

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    struct gather g;
    struct launch launch = {.exec = NULL};
    const bool leaves = r->rank == p->leaving, turned = !leaves && strcmp(p->how, "turned") == 0;
    cudaStream_t stream;
    ncclComm_t comm, other;
    NCCL(ncclCommInitRank(&comm, r->nranks, r->id, r->rank));
    NCCL(ncclCommSplit(comm, 0, r->rank, &other, NULL));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    gather_alloc(&g, r->rank, r->nranks, SHARD);
    for (int i = 0; i < 2 && records(p->how); i++)
        NCCL(in_region(&g, i ? other : comm, stream, false));
    for (uint64_t i = 0; i < 3; i++) {
        gather_load(&g, i, stream);
        gather_call(&g, comm, stream);
        gather_check(&g, i, stream, "before");
    }
    if (leaves || turned)
        prepare(&launch, p, &g, comm, other, stream);
    bool refused = leaves && leave(p, &launch, &g, comm, stream) != ncclSuccess;
    for (int i = 0; i < (leaves ? p->later : 1) && !refused; i++)
        refused = call(&g, comm, stream) != ncclSuccess;
    refused = refused || (turned && leave(p, &launch, &g, comm, stream) != ncclSuccess);
    EXPECT(refused || await_error(comm, stream), "rank %d: no error in time", r->rank);
    if (launch.exec)
        CUDA(cudaGraphExecDestroy(launch.exec)); /* what is in flight goes on; NCCL's abort waits for the last graph */
    NCCL(ncclCommAbort(comm));
    NCCL(ncclCommAbort(other));
    CUDA(cudaStreamSynchronize(stream));
    gather_free(&g);
    CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    struct plan plan;
    if (argc < 2 || sscanf(argv[1], "%15[a-z]-%d-%d", plan.how, &plan.leaving, &plan.later) != 3)
        return 2;
    return forms_run(2, 30, body, &plan);
}
