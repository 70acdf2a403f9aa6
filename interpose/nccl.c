/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's functions as this library exports them. */
#include "interpose/hook.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/wait.h"
#include "interpose/gate.h"
#include "interpose/dlsym.h"
#include "interpose/resolve.h"
#include "plugin/calls/calls.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/memory/registration.h"

/* nccl.h leaves the parameters of these open. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static void in_child(void)
{
    /* The log first: the plugin may write a line. */
    slr_log_after_fork();
    slr_plugin_after_fork_child();
    slr_gate_after_fork();
}

/* Whether slipring can work here, that is, has all functions that it needs. The answer must not change
 * between the calls of a group or of a communicator, so the driver is loaded when nobody has done so yet; NCCL
 * is about to. The first call arranges for slipring's part in a fork and at the process's end. Not a
 * constructor: nothing happens in a process that does not use NCCL, but in the one that `slipring run` starts
 * (plugin/lifecycle/launched.c). atexit and not a destructor: what is registered last runs first, so slipring
 * ends before CUDA's libraries, which registered theirs when they were loaded. */
static bool ready(void)
{
    static struct slr_once once;
    static _Atomic bool found; /* what the libraries have does not change */
    if (slr_once_begin(&once)) {
        if (pthread_atfork(NULL, NULL, in_child) != 0 || atexit(slr_plugin_at_exit) != 0)
            slr_log(SLR_LOG_WARN, "init", "msg=%s", "handlers for fork and exit could not be registered");
        slr_once_end(&once);
    }
    if (!atomic_load_explicit(&found, memory_order_acquire)) {
        if (!slr_resolve(SLR_LIB_NCCL) || !slr_resolve_cuda_load())
            return false;
        atomic_store_explicit(&found, true, memory_order_release);
    }
    slr_reach_install();
    return true;
}

/* The real function when the hook is to step aside, else the plugin's. Asked in this order: a
 * process with slipring switched off loads and registers nothing. */
#define NCCL_HOOK(fn, real_args, ours)                                                                                 \
    do {                                                                                                               \
        if (!slr_find(SLR_LIB_NCCL) || !slr_real.fn) {                                                                 \
            slr_hook_missing("libnccl.so.2", #fn);                                                                     \
            return ncclInternalError;                                                                                  \
        }                                                                                                              \
        return slr_hooks_on() && ready() ? (ours) : slr_real.fn real_args;                                             \
    } while (0)

/* A hook; what the plugin has in its stead takes the same arguments. */
#define NCCL_CALL(fn, ours, params, args)                                                                              \
    SLR_API                                                                                                            \
    ncclResult_t fn params                                                                                             \
    {                                                                                                                  \
        NCCL_HOOK(fn, args, ours args);                                                                                \
    }

/* Likewise, of what a group orders with its calls. */
#define NCCL_ORDERED(fn, ours, params, args)                                                                           \
    SLR_API                                                                                                            \
    ncclResult_t fn params                                                                                             \
    {                                                                                                                  \
        NCCL_HOOK(fn, args, (slr_group_goes_on(), ours args));                                                         \
    }

static ncclResult_t init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return slr_comm_init_rank(comm, nranks, id, rank, NULL, false);
}

static ncclResult_t init_rank_config(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    return slr_comm_init_rank(comm, nranks, id, rank, config, true);
}

NCCL_CALL(ncclGetUniqueId, slr_get_unique_id, (ncclUniqueId * id), (id))
NCCL_ORDERED(ncclCommInitRank, init_rank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank),
             (comm, nranks, id, rank))
NCCL_ORDERED(ncclCommInitRankConfig, init_rank_config,
             (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config),
             (comm, nranks, id, rank, config))
NCCL_ORDERED(ncclCommInitRankScalable, slr_comm_init_rank_scalable,
             (ncclComm_t * comm, int nranks, int rank, int nid, ncclUniqueId *ids, ncclConfig_t *config),
             (comm, nranks, rank, nid, ids, config))
NCCL_ORDERED(ncclCommInitAll, slr_comm_init_all, (ncclComm_t * comms, int ndev, const int *devlist),
             (comms, ndev, devlist))
NCCL_ORDERED(ncclCommSplit, slr_comm_split,
             (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config),
             (comm, color, key, newcomm, config))
NCCL_ORDERED(ncclCommShrink, slr_comm_shrink,
             (ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config, int flags),
             (comm, exclude, count, newcomm, config, flags))
NCCL_CALL(ncclCommGetUniqueId, slr_comm_get_unique_id, (ncclComm_t comm, ncclUniqueId *id), (comm, id))
NCCL_ORDERED(ncclCommGrow, slr_comm_grow,
             (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm, ncclConfig_t *config),
             (comm, nranks, id, rank, newcomm, config))
NCCL_ORDERED(ncclCommFinalize, slr_comm_finalize, (ncclComm_t comm), (comm))
NCCL_ORDERED(ncclCommDestroy, slr_comm_destroy, (ncclComm_t comm), (comm))
NCCL_ORDERED(ncclCommAbort, slr_comm_abort, (ncclComm_t comm), (comm))
NCCL_ORDERED(ncclCommRevoke, slr_comm_revoke, (ncclComm_t comm, int flags), (comm, flags))
NCCL_ORDERED(ncclCommSuspend, slr_comm_suspend, (ncclComm_t comm, int flags), (comm, flags))
NCCL_CALL(ncclCommGetAsyncError, slr_comm_get_async_error, (ncclComm_t comm, ncclResult_t *error), (comm, error))

NCCL_ORDERED(ncclCommRegister, slr_comm_register, (const ncclComm_t comm, void *buffer, size_t bytes, void **handle),
             (comm, buffer, bytes, handle))
NCCL_ORDERED(ncclCommDeregister, slr_comm_deregister, (const ncclComm_t comm, void *handle), (comm, handle))
NCCL_ORDERED(ncclCommWindowRegister, slr_comm_window_register,
             (ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags),
             (comm, buffer, bytes, window, flags))
NCCL_ORDERED(ncclCommWindowDeregister, slr_comm_window_deregister, (ncclComm_t comm, ncclWindow_t window),
             (comm, window))
NCCL_CALL(ncclMemAlloc, slr_mem_alloc, (void **p, size_t bytes), (p, bytes))
NCCL_CALL(ncclMemFree, slr_mem_free, (void *p), (p))

NCCL_CALL(ncclGroupStart, slr_group_start, (void), ())
NCCL_CALL(ncclGroupEnd, slr_group_end, (void), ())
NCCL_CALL(ncclGroupSimulateEnd, slr_group_simulate_end, (ncclSimInfo_t * info), (info))

SLR_API
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    NCCL_HOOK(ncclAllGather, (send, recv, count, type, comm, stream),
              slr_all_gather(send, recv, count, type, comm, stream, NULL));
}

SLR_API
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    NCCL_HOOK(ncclReduceScatter, (send, recv, count, type, op, comm, stream),
              slr_reduce_scatter(send, recv, count, type, op, comm, stream, NULL));
}

SLR_API
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    NCCL_HOOK(ncclAllReduce, (send, recv, count, type, op, comm, stream),
              slr_all_reduce(send, recv, count, type, op, comm, stream, NULL));
}

/* Everything else that takes a stream goes to NCCL, and is noticed. */
#define NCCL_OTHER_OF(fn, id, n, t, params, args)                                                                      \
    static ncclResult_t noticed_##fn params                                                                            \
    {                                                                                                                  \
        struct slr_other o = {.func = id, .count = n, .type = t, .comm = comm, .stream = stream};                      \
        slr_group_goes_on();                                                                                           \
        slr_other_begin(&o);                                                                                           \
        return slr_other_end(&o, slr_real.fn args);                                                                    \
    }                                                                                                                  \
    SLR_API                                                                                                            \
    ncclResult_t fn params                                                                                             \
    {                                                                                                                  \
        NCCL_HOOK(fn, args, noticed_##fn args);                                                                        \
    }
#define NCCL_OTHER(fn, id, params, args) NCCL_OTHER_OF(fn, id, count, type, params, args)

/* What most of them begin and end with, and are given. */
#define BUFFERS const void *send, void *recv, size_t count, ncclDataType_t type
#define ON ncclComm_t comm, cudaStream_t stream
#define CONFIG const ncclCollConfig_t *config

/* Each also with a configuration of the call. NCCL wants it to be the same on all ranks, so this may decide. */
NCCL_OTHER(ncclReduce, SLR_NCCL_REDUCE, (BUFFERS, ncclRedOp_t op, int root, ON),
           (send, recv, count, type, op, root, comm, stream))
NCCL_OTHER(ncclReduceConfig, SLR_NCCL_REDUCE, (BUFFERS, ncclRedOp_t op, int root, ON, CONFIG),
           (send, recv, count, type, op, root, comm, stream, config))
NCCL_OTHER(ncclBroadcast, SLR_NCCL_BROADCAST, (BUFFERS, int root, ON), (send, recv, count, type, root, comm, stream))
NCCL_OTHER(ncclBroadcastConfig, SLR_NCCL_BROADCAST, (BUFFERS, int root, ON, CONFIG),
           (send, recv, count, type, root, comm, stream, config))
NCCL_OTHER(ncclAlltoAll, SLR_NCCL_ALL_TO_ALL, (BUFFERS, ON), (send, recv, count, type, comm, stream))
NCCL_OTHER(ncclAlltoAllConfig, SLR_NCCL_ALL_TO_ALL, (BUFFERS, ON, CONFIG),
           (send, recv, count, type, comm, stream, config))
NCCL_OTHER(ncclGather, SLR_NCCL_GATHER, (BUFFERS, int root, ON), (send, recv, count, type, root, comm, stream))
NCCL_OTHER(ncclGatherConfig, SLR_NCCL_GATHER, (BUFFERS, int root, ON, CONFIG),
           (send, recv, count, type, root, comm, stream, config))
NCCL_OTHER(ncclScatter, SLR_NCCL_SCATTER, (BUFFERS, int root, ON), (send, recv, count, type, root, comm, stream))
NCCL_OTHER(ncclScatterConfig, SLR_NCCL_SCATTER, (BUFFERS, int root, ON, CONFIG),
           (send, recv, count, type, root, comm, stream, config))
NCCL_OTHER(ncclBcast, SLR_NCCL_BROADCAST, (void *buffer, size_t count, ncclDataType_t type, int root, ON),
           (buffer, count, type, root, comm, stream))
NCCL_OTHER(ncclSend, SLR_NCCL_SEND, (const void *send, size_t count, ncclDataType_t type, int peer, ON),
           (send, count, type, peer, comm, stream))
NCCL_OTHER(ncclRecv, SLR_NCCL_RECV, (void *recv, size_t count, ncclDataType_t type, int peer, ON),
           (recv, count, type, peer, comm, stream))

/* One-sided: the peer's window is written behind what the own stream waits for, as with NCCL alone. */
NCCL_OTHER(ncclPutSignal, SLR_NCCL_PUT_SIGNAL,
           (const void *from, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset,
            int signal, int context, unsigned flags, ON),
           (from, count, type, peer, window, offset, signal, context, flags, comm, stream))
NCCL_OTHER_OF(ncclSignal, SLR_NCCL_SIGNAL, 0, ncclUint8, (int peer, int signal, int context, unsigned flags, ON),
              (peer, signal, context, flags, comm, stream))
NCCL_OTHER_OF(ncclWaitSignal, SLR_NCCL_WAIT_SIGNAL, 0, ncclUint8, (int n, ncclWaitSignalDesc_t *signals, ON),
              (n, signals, comm, stream))

/* Those that the ring can have. */
NCCL_CALL(ncclAllGatherConfig, slr_all_gather, (BUFFERS, ON, CONFIG), (send, recv, count, type, comm, stream, config))
NCCL_CALL(ncclReduceScatterConfig, slr_reduce_scatter, (BUFFERS, ncclRedOp_t op, ON, CONFIG),
          (send, recv, count, type, op, comm, stream, config))
NCCL_CALL(ncclAllReduceConfig, slr_all_reduce, (BUFFERS, ncclRedOp_t op, ON, CONFIG),
          (send, recv, count, type, op, comm, stream, config))

#define N(need, fn) SLR_HOOK_NAME(fn);
#include "base/hooks.def"
