/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's functions as this library exports them. */
#include "interpose/hook.h"
#include "interpose/resolve.h"
#include "plugin/calls/calls.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/memory/registration.h"

/* nccl.h leaves the parameters of these open. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* The real function when the hook is to step aside, else the plugin's. Asked in this order: a
 * process with slipring switched off loads and registers nothing. */
#define NCCL_HOOK(fn, real_args, ours)                                                                                 \
    do {                                                                                                               \
        if (!slr_find(SLR_LIB_NCCL) || !slr_real.fn) {                                                                 \
            slr_hook_missing("libnccl.so.2", #fn);                                                                     \
            return ncclInternalError;                                                                                  \
        }                                                                                                              \
        return slr_hooks_on() && slr_hook_nccl_ready() ? (ours) : slr_real.fn real_args;                               \
    } while (0)

/* Likewise, of what a group orders with its calls. */
#define NCCL_HOOK_IN_GROUP(fn, real_args, ours) NCCL_HOOK(fn, real_args, (slr_group_goes_on(), ours))

SLR_API
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    NCCL_HOOK_IN_GROUP(ncclCommInitRank, (comm, nranks, id, rank),
                       slr_comm_init_rank(comm, nranks, id, rank, NULL, false));
}

SLR_API
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    NCCL_HOOK_IN_GROUP(ncclCommInitRankConfig, (comm, nranks, id, rank, config),
                       slr_comm_init_rank(comm, nranks, id, rank, config, true));
}

SLR_API
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    NCCL_HOOK_IN_GROUP(ncclCommInitRankScalable, (comm, nranks, rank, nid, ids, config),
                       slr_comm_init_rank_scalable(comm, nranks, rank, nid, ids, config));
}

SLR_API
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    NCCL_HOOK_IN_GROUP(ncclCommInitAll, (comms, ndev, devlist), slr_comm_init_all(comms, ndev, devlist));
}

SLR_API
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    NCCL_HOOK_IN_GROUP(ncclCommSplit, (comm, color, key, newcomm, config),
                       slr_comm_split(comm, color, key, newcomm, config));
}

SLR_API
ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                            int flags)
{
    NCCL_HOOK_IN_GROUP(ncclCommShrink, (comm, exclude, count, newcomm, config, flags),
                       slr_comm_shrink(comm, exclude, count, newcomm, config, flags));
}

SLR_API
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    NCCL_HOOK_IN_GROUP(ncclCommFinalize, (comm), slr_comm_finalize(comm));
}

SLR_API
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    NCCL_HOOK_IN_GROUP(ncclCommDestroy, (comm), slr_comm_destroy(comm));
}

SLR_API
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    NCCL_HOOK_IN_GROUP(ncclCommAbort, (comm), slr_comm_abort(comm));
}

SLR_API
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    NCCL_HOOK_IN_GROUP(ncclCommRevoke, (comm, flags), slr_comm_revoke(comm, flags));
}

SLR_API
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    NCCL_HOOK(ncclCommGetAsyncError, (comm, error), slr_comm_get_async_error(comm, error));
}

SLR_API
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    NCCL_HOOK(ncclAllGather, (send, recv, count, type, comm, stream),
              slr_all_gather(send, recv, count, type, comm, stream));
}

SLR_API
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    NCCL_HOOK(ncclReduceScatter, (send, recv, count, type, op, comm, stream),
              slr_reduce_scatter(send, recv, count, type, op, comm, stream));
}

/* Everything else that takes a stream goes to NCCL, and is noticed; behind the statement `first`, if there is one. */
#define NCCL_NOTICED(fn, id, n, t, first, params, args)                                                                \
    static ncclResult_t noticed_##fn params                                                                            \
    {                                                                                                                  \
        struct slr_other o = {.func = id, .count = n, .type = t, .comm = comm, .stream = stream};                      \
        first slr_group_goes_on();                                                                                     \
        slr_other_begin(&o);                                                                                           \
        return slr_other_end(&o, slr_real.fn args);                                                                    \
    }                                                                                                                  \
    SLR_API                                                                                                            \
    ncclResult_t fn params                                                                                             \
    {                                                                                                                  \
        NCCL_HOOK(fn, args, noticed_##fn args);                                                                        \
    }
#define NCCL_OTHER_OF(fn, id, n, t, params, args) NCCL_NOTICED(fn, id, n, t, , params, args)
#define NCCL_OTHER(fn, id, params, args) NCCL_OTHER_OF(fn, id, count, type, params, args)

NCCL_OTHER(ncclAllReduce, SLR_NCCL_ALL_REDUCE,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
            cudaStream_t stream),
           (send, recv, count, type, op, comm, stream))
NCCL_OTHER(ncclReduce, SLR_NCCL_REDUCE,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
            cudaStream_t stream),
           (send, recv, count, type, op, root, comm, stream))
NCCL_OTHER(ncclBroadcast, SLR_NCCL_BROADCAST,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream),
           (send, recv, count, type, root, comm, stream))
NCCL_OTHER(ncclBcast, SLR_NCCL_BROADCAST,
           (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
           (buffer, count, type, root, comm, stream))
NCCL_OTHER(ncclSend, SLR_NCCL_SEND,
           (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
           (send, count, type, peer, comm, stream))
NCCL_OTHER(ncclRecv, SLR_NCCL_RECV,
           (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
           (recv, count, type, peer, comm, stream))
NCCL_OTHER(ncclAlltoAll, SLR_NCCL_ALL_TO_ALL,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
           (send, recv, count, type, comm, stream))
NCCL_OTHER(ncclGather, SLR_NCCL_GATHER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream),
           (send, recv, count, type, root, comm, stream))
NCCL_OTHER(ncclScatter, SLR_NCCL_SCATTER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream),
           (send, recv, count, type, root, comm, stream))

/* One-sided: the peer's window is written behind what the own stream waits for, as with NCCL alone. */
NCCL_OTHER(ncclPutSignal, SLR_NCCL_PUT_SIGNAL,
           (const void *from, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset,
            int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream),
           (from, count, type, peer, window, offset, signal, context, flags, comm, stream))
NCCL_OTHER_OF(ncclSignal, SLR_NCCL_SIGNAL, 0, ncclUint8,
              (int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream),
              (peer, signal, context, flags, comm, stream))
NCCL_OTHER_OF(ncclWaitSignal, SLR_NCCL_WAIT_SIGNAL, 0, ncclUint8,
              (int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream), (n, signals, comm, stream))

/* With a configuration of the call. NCCL wants it to be the same on all ranks, so this may decide. */
NCCL_OTHER(ncclAllReduceConfig, SLR_NCCL_ALL_REDUCE,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, op, comm, stream, config))
NCCL_OTHER(ncclAlltoAllConfig, SLR_NCCL_ALL_TO_ALL,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
            const ncclCollConfig_t *config),
           (send, recv, count, type, comm, stream, config))
NCCL_OTHER(ncclBroadcastConfig, SLR_NCCL_BROADCAST,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, root, comm, stream, config))
NCCL_OTHER(ncclGatherConfig, SLR_NCCL_GATHER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, root, comm, stream, config))
NCCL_OTHER(ncclReduceConfig, SLR_NCCL_REDUCE,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, op, root, comm, stream, config))
NCCL_OTHER(ncclScatterConfig, SLR_NCCL_SCATTER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream, const ncclCollConfig_t *config),
           (send, recv, count, type, root, comm, stream, config))

/* The two that slipring substitutes: without a configuration they are the plain calls. */
#define NCCL_CONFIGURED(fn, id, plain, params, args)                                                                   \
    NCCL_NOTICED(fn, id, count, type, if (!config) return plain;, params, args)
NCCL_CONFIGURED(ncclAllGatherConfig, SLR_NCCL_ALL_GATHER, slr_all_gather(send, recv, count, type, comm, stream),
                (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                 const ncclCollConfig_t *config),
                (send, recv, count, type, comm, stream, config))
NCCL_CONFIGURED(ncclReduceScatterConfig, SLR_NCCL_REDUCE_SCATTER,
                slr_reduce_scatter(send, recv, count, type, op, comm, stream),
                (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                 cudaStream_t stream, const ncclCollConfig_t *config),
                (send, recv, count, type, op, comm, stream, config))

SLR_API
ncclResult_t ncclGroupStart(void)
{
    NCCL_HOOK(ncclGroupStart, (), slr_group_start());
}

SLR_API
ncclResult_t ncclGroupEnd(void)
{
    NCCL_HOOK(ncclGroupEnd, (), slr_group_end());
}

SLR_API
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    NCCL_HOOK(ncclGroupSimulateEnd, (info), slr_group_simulate_end(info));
}

SLR_API
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    NCCL_HOOK_IN_GROUP(ncclCommRegister, (comm, buffer, bytes, handle), slr_comm_register(comm, buffer, bytes, handle));
}

SLR_API
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    NCCL_HOOK_IN_GROUP(ncclCommDeregister, (comm, handle), slr_comm_deregister(comm, handle));
}

SLR_API
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes, ncclWindow_t *window, int flags)
{
    NCCL_HOOK_IN_GROUP(ncclCommWindowRegister, (comm, buffer, bytes, window, flags),
                       slr_comm_window_register(comm, buffer, bytes, window, flags));
}

SLR_API
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    NCCL_HOOK_IN_GROUP(ncclCommWindowDeregister, (comm, window), slr_comm_window_deregister(comm, window));
}

SLR_API
ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
    NCCL_HOOK(ncclMemAlloc, (p, bytes), slr_mem_alloc(p, bytes));
}

SLR_API
ncclResult_t ncclMemFree(void *p)
{
    NCCL_HOOK(ncclMemFree, (p), slr_mem_free(p));
}

#define L(fn)
#define P(fn)
#define N(fn) SLR_HOOK_NAME(fn);
#define B(fn)
#define T(fn)
#include "interpose/hooks.def"
