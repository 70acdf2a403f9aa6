/* SPDX-License-Identifier: Apache-2.0 */
/* The first calls of a communicator whose ranks share a process, where ranks do not make them alike. NCCL has the first
 * one of every rank; nothing has been gathered before these cases. */
#define SLIPRING_WEAK
#include "plugin/slipring.h"

#include "graphs.h"

#define LIMIT_MS 8000

/* One rank has the first two in a group, the others call. */
static void grouped(struct world *w)
{
    struct gather g, more;
    buffers_open(w, &g, SHARD, false);
    buffers_open(w, &more, SHARD, true);
    w->seed++;
    gather_load(&g, w->seed, w->s);
    gather_load(&more, w->seed + 100, w->s);
    if (w->rank == 0)
        NCCL(ncclGroupStart());
    gather_call(&g, w->comm, w->s);
    gather_call(&more, w->comm, w->s);
    if (w->rank == 0)
        NCCL(ncclGroupEnd());
    gather_check(&g, w->seed, w->s, "the first one");
    gather_check(&more, w->seed + 100, w->s, "the second one");
    eager(w, &g, "the third one");
    buffers_close(&more);
    buffers_close(&g);
}

/* One rank leaves the first one to NCCL anyway. */
static void in_region(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    const bool leaves = w->rank == 0 && slipring_loaded();
    EXPECT(!leaves || slipring_region_begin(SLIPRING_REGION_GATHERS) == 0, "no region");
    eager(w, &g, "the first one");
    EXPECT(!leaves || slipring_region_end() == 0, "the region does not end");
    eager(w, &g, "the second one");
    eager(w, &g, "the third one");
    buffers_close(&g);
}

static bool told(ncclComm_t comm)
{
    ncclResult_t e = ncclSuccess;
    for (int ms = 0; ms < LIMIT_MS && e == ncclSuccess; ms += 10) {
        NCCL(ncclCommGetAsyncError(comm, &e));
        sleep_ms(10);
    }
    return e != ncclSuccess;
}

/* One rank replays it over the ring. Only under slipring: NCCL itself can do this. */
static void replayed(struct world *w)
{
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    nccl_connects(w->comm, w->s);
    cudaGraphExec_t exec = w->rank == 0 ? graph_executable(record(w, &g)) : NULL;
    bool refused = false;
    if (exec)
        CUDA(cudaGraphLaunch(exec, w->s));
    else
        refused = ncclAllGather(g.send, g.recv, g.shard, ncclUint8, w->comm, w->s) != ncclSuccess;
    EXPECT(refused || told(w->comm), "rank %d: no error in time", w->rank);
    if (exec)
        CUDA(cudaGraphExecDestroy(exec));
    NCCL(ncclCommAbort(w->comm));
    w->comm = NULL;
    CUDA(cudaStreamSynchronize(w->s));
    buffers_close(&g);
}

const struct graph_case graph_first_cases[] = {{.name = "first-grouped", .body = grouped, .first = true},
                                               {.name = "first-in-region", .body = in_region, .first = true},
                                               {.name = "first-replayed", .body = replayed, .first = true},
                                               {.name = NULL}};
