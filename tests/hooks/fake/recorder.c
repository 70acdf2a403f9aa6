/* SPDX-License-Identifier: Apache-2.0 */
#include "recorder.h"

#include <errno.h>
#include <execinfo.h>
#include <string.h>
#include "cache/blocks.h"
#include "kernels/gemm.h"
#include "plugin/calls/calls.h"
#include "plugin/comm/stream.h"
#include "plugin/fuse/fuse.h"
#include "plugin/graphs/graphs.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/memory/registration.h"
#include "plugin/passed/turn.h"
#include "plugin/pending/pending.h"
#include "plugin/pending/order.h"
#include "plugin/produce/produce.h"
#include "plugin/record/record.h"

#define EXPORT __attribute__((visibility("default")))

void slr_test_pending(int gathers);
struct recorded_join *slr_test_joins(void);
void slr_test_guard(int guard);
void slr_test_take(int result);
const char *slr_test_hook(void);
const struct slr_gemm *slr_test_gemm(void);

static _Thread_local struct recorded_join joins;
static _Thread_local const char *hook = "";
static _Thread_local int take = -1;
static _Thread_local struct slr_gemm gemm;
static _Thread_local struct slr_lt lt;

EXPORT void slr_test_pending(int gathers)
{
    unsigned unresolved = atomic_load(&slr_gate_word) & SLR_GATE_UNRESOLVED;
    atomic_store(&slr_gate_word, unresolved | (unsigned)gathers);
}

EXPORT struct recorded_join *slr_test_joins(void)
{
    return &joins;
}

EXPORT void slr_test_guard(int guard)
{
    slr_guard = guard;
}

EXPORT void slr_test_take(int result)
{
    take = result;
}

EXPORT const char *slr_test_hook(void)
{
    const char *last = hook;
    hook = "";
    return last;
}

EXPORT const struct slr_gemm *slr_test_gemm(void)
{
    return &gemm;
}

/* Overwrites what a careless stub would not have saved. */
static void clobber(void)
{
    errno = ENOTRECOVERABLE;
#if defined(__x86_64__)
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n\tpcmpeqd %%xmm1, %%xmm1\n\tpcmpeqd %%xmm2, %%xmm2\n\t"
                     "pcmpeqd %%xmm3, %%xmm3\n\tpcmpeqd %%xmm4, %%xmm4\n\tpcmpeqd %%xmm5, %%xmm5\n\t"
                     "pcmpeqd %%xmm6, %%xmm6\n\tpcmpeqd %%xmm7, %%xmm7\n\txorl %%r8d, %%r8d\n\txorl %%r9d, %%r9d\n\t"
                     "xorl %%ecx, %%ecx\n\txorl %%edx, %%edx\n\txorl %%r10d, %%r10d"
                     :
                     :
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "r8", "r9", "r10", "rcx", "rdx");
#endif
}

bool slr_pending_observe(const struct slr_observed *o, CUresult *answer)
{
    joins.unseen += o->unseen;
    if (o->act == SLR_ACT_EVENT_END) {
        joins.ended++;
        joins.event = (uint64_t)(uintptr_t)o->event;
    } else if (o->act != SLR_ACT_NONE) {
        joins.calls++;
        joins.seen = *o;
        joins.guard = slr_guard;
        joins.frames = backtrace(joins.frame, 32);
    }
    clobber();
    if (take >= 0)
        *answer = (CUresult)take;
    return take >= 0;
}

void slr_pending_events_unseen(void)
{
    joins.unseen++;
    clobber();
}

void slr_product_observe(const struct slr_observed *o)
{
    (void)o;
    clobber();
}

bool slr_produce_copy(const struct slr_observed *o, uint64_t joined, CUresult *answer)
{
    (void)o, (void)joined, (void)answer;
    clobber();
    return false;
}

uint64_t slr_pending_joins(void)
{
    return 0;
}

void slr_product_on_all(void) {}
void slr_stream_ends(void) {}
void slr_pending_opening(void) {}

void slr_event_share(CUevent event)
{
    (void)event;
}

void slr_late_stream_end(CUstream stream)
{
    (void)stream;
}

void slr_order_stream_end(CUstream stream)
{
    (void)stream;
}

/* Each hook notes its name and does what the real function does, as the plugin would when it passes a call on. */
#define PASS(name, real, params, args)                                                                                 \
    ncclResult_t name params                                                                                           \
    {                                                                                                                  \
        ncclResult_t r;                                                                                                \
        hook = #name;                                                                                                  \
        slr_guard++;                                                                                                   \
        r = slr_real.real args;                                                                                        \
        slr_guard--;                                                                                                   \
        return r;                                                                                                      \
    }

ncclResult_t slr_comm_init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config,
                                bool with_config)
{
    ncclResult_t r;
    hook = with_config ? "slr_comm_init_rank_config" : "slr_comm_init_rank";
    slr_guard++;
    r = with_config ? slr_real.ncclCommInitRankConfig(comm, nranks, id, rank, config)
                    : slr_real.ncclCommInitRank(comm, nranks, id, rank);
    slr_guard--;
    return r;
}

PASS(slr_comm_init_rank_scalable, ncclCommInitRankScalable,
     (ncclComm_t * comm, int nranks, int rank, int nid, ncclUniqueId *ids, ncclConfig_t *config),
     (comm, nranks, rank, nid, ids, config))
PASS(slr_comm_init_all, ncclCommInitAll, (ncclComm_t * comms, int ndev, const int *devlist), (comms, ndev, devlist))
PASS(slr_comm_split, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config),
     (comm, color, key, newcomm, config))
PASS(slr_comm_shrink, ncclCommShrink,
     (ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config, int flags),
     (comm, exclude, count, newcomm, config, flags))
PASS(slr_get_unique_id, ncclGetUniqueId, (ncclUniqueId * id), (id))
PASS(slr_comm_get_unique_id, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id), (comm, id))
PASS(slr_comm_grow, ncclCommGrow,
     (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm, ncclConfig_t *config),
     (comm, nranks, id, rank, newcomm, config))
PASS(slr_comm_finalize, ncclCommFinalize, (ncclComm_t comm), (comm))
PASS(slr_comm_destroy, ncclCommDestroy, (ncclComm_t comm), (comm))
PASS(slr_comm_abort, ncclCommAbort, (ncclComm_t comm), (comm))
PASS(slr_comm_suspend, ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags))
PASS(slr_comm_revoke, ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags))
PASS(slr_comm_get_async_error, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error), (comm, error))
/* Likewise, of those that may have a configuration. */
#define PASS_EITHER(name, real, params, ...)                                                                           \
    ncclResult_t name params                                                                                           \
    {                                                                                                                  \
        ncclResult_t r;                                                                                                \
        hook = #name;                                                                                                  \
        slr_guard++;                                                                                                   \
        r = config ? slr_real.real##Config(__VA_ARGS__, config) : slr_real.real(__VA_ARGS__);                          \
        slr_guard--;                                                                                                   \
        return r;                                                                                                      \
    }
PASS_EITHER(slr_all_gather, ncclAllGather,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
             const ncclCollConfig_t *config),
            send, recv, count, type, comm, stream)
PASS_EITHER(slr_reduce_scatter, ncclReduceScatter,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
             cudaStream_t stream, const ncclCollConfig_t *config),
            send, recv, count, type, op, comm, stream)
PASS_EITHER(slr_all_reduce, ncclAllReduce,
            (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
             cudaStream_t stream, const ncclCollConfig_t *config),
            send, recv, count, type, op, comm, stream)
PASS(slr_group_start, ncclGroupStart, (void), ())
PASS(slr_comm_register, ncclCommRegister, (const ncclComm_t comm, void *buffer, size_t bytes, void **handle),
     (comm, buffer, bytes, handle))
PASS(slr_comm_deregister, ncclCommDeregister, (const ncclComm_t comm, void *handle), (comm, handle))
PASS(slr_comm_window_register, ncclCommWindowRegister,
     (ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags),
     (comm, buffer, bytes, window, flags))
PASS(slr_comm_window_deregister, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window), (comm, window))
PASS(slr_mem_alloc, ncclMemAlloc, (void **p, size_t bytes), (p, bytes))
PASS(slr_mem_free, ncclMemFree, (void *p), (p))

void slr_other_begin(struct slr_other *o)
{
    (void)o;
    hook = "slr_other_begin";
}

ncclResult_t slr_other_end(struct slr_other *o, ncclResult_t r)
{
    (void)o;
    return r;
}

void slr_workspace_set(cublasHandle_t handle, const void *p, size_t bytes)
{
    gemm = (struct slr_gemm){.handle = handle, .written[0] = {(uintptr_t)p, (uintptr_t)p + bytes}};
    hook = __func__;
}

void slr_workspace_reset(cublasHandle_t handle)
{
    gemm.handle = handle;
    hook = __func__;
}

void slr_workspace_forget(cublasHandle_t handle)
{
    gemm.handle = handle;
    hook = __func__;
}

PASS(slr_group_end, ncclGroupEnd, (void), ())
PASS(slr_group_simulate_end, ncclGroupSimulateEnd, (ncclSimInfo_t * info), (info))
void slr_group_goes_on(void) {}

cublasStatus_t slr_gemm_call(struct slr_gemm *g)
{
    hook = "slr_gemm_call";
    gemm = *g;
    if (g->lt) {
        lt = *g->lt;
        gemm.lt = &lt;
    }
    return CUBLAS_STATUS_SUCCESS;
}

void slr_plugin_at_exit(void) {}
void slr_about_queues(unsigned long from, unsigned long to)
{
    (void)from;
    (void)to;
}

void slr_front_on(void) {}
void slr_front_operation(CUstream stream)
{
    (void)stream;
}

bool slr_front_launch(slr_launch_fn *launch, const struct slr_launch *l, CUresult *answer)
{
    (void)launch;
    (void)l;
    (void)answer;
    return false;
}

void slr_plugin_after_fork_child(void) {}

/* The fake driver has not what following graphs takes. */
bool slr_graphs_any(void)
{
    return false;
}

CUgraph slr_graph_captured_into(CUstream stream)
{
    (void)stream;
    return NULL;
}

void slr_graph_made(CUgraph graph)
{
    (void)graph;
}

void slr_graph_cloned(CUgraph clone, CUgraph graph)
{
    (void)clone, (void)graph;
}

void slr_graph_instantiated(CUgraphExec exec, CUgraph graph, CUresult r)
{
    (void)exec, (void)graph, (void)r;
}

void slr_graph_updated(CUgraphExec exec, CUgraph graph)
{
    (void)exec, (void)graph;
}

void slr_graph_child_added(CUgraph graph, CUgraph child, CUgraphNode node)
{
    (void)graph, (void)child, (void)node;
}

void slr_graph_body_added(CUgraph graph, CUgraph body)
{
    (void)graph, (void)body;
}

void slr_graph_child_set(CUgraphExec exec, CUgraph child)
{
    (void)exec, (void)child;
}

void slr_graph_launch_captured(CUgraph into, CUgraphExec exec)
{
    (void)into, (void)exec;
}

void slr_graph_node_ends(CUgraphNode node)
{
    (void)node;
}

bool slr_graph_ends(CUgraph graph)
{
    (void)graph;
    return true;
}

CUgraph slr_graph_exec_ends(CUgraphExec exec)
{
    (void)exec;
    return NULL;
}

void slr_graph_enters(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
}

void slr_graph_runs(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
}

unsigned long long slr_graph_capture(CUstream stream, CUgraph *graph)
{
    (void)stream, (void)graph;
    return 0;
}

void slr_record_end(CUstream stream)
{
    (void)stream;
}

void slr_record_ended(unsigned long long capture)
{
    (void)capture;
}

bool slr_replay_begin(CUgraphExec exec, CUstream stream, struct slr_replay **replay, CUresult *r)
{
    (void)exec, (void)stream, (void)r;
    *replay = NULL;
    return true;
}

void slr_replay_end(struct slr_replay *replay, CUresult r)
{
    (void)replay, (void)r;
}
