/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL that does nothing but note which function was called last. As in NCCL, the pnccl name is the same function. */
#include "base/real.h"
#include <string.h>

const char *fake_nccl_last(void);
static _Thread_local const char *last = "";

const char *fake_nccl_last(void)
{
    const char *name = last;
    last = "";
    return name;
}

#define FAKE(name, params)                                                                                             \
    ncclResult_t p##name params __attribute__((alias(#name)));                                                         \
    ncclResult_t name params                                                                                           \
    {                                                                                                                  \
        last = #name;                                                                                                  \
        return ncclInProgress; /* a result that no wrapper makes up */                                                 \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
FAKE(ncclGetUniqueId, (ncclUniqueId * id))
FAKE(ncclGetVersion, (int *version))
FAKE(ncclCommCount, (const ncclComm_t comm, int *count))
FAKE(ncclCommCuDevice, (const ncclComm_t comm, int *device))
FAKE(ncclCommUserRank, (const ncclComm_t comm, int *rank))
FAKE(ncclCommInitRankConfig, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))
FAKE(ncclCommInitAll, (ncclComm_t * comms, int ndev, const int *devlist))
FAKE(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config))
FAKE(ncclCommFinalize, (ncclComm_t comm))
FAKE(ncclCommDestroy, (ncclComm_t comm))
FAKE(ncclCommAbort, (ncclComm_t comm))
FAKE(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
FAKE(ncclAllGather,
     (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))
FAKE(ncclReduceScatter, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                         ncclComm_t comm, cudaStream_t stream))
FAKE(ncclAllReduce, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                     cudaStream_t stream))
FAKE(ncclGroupStart, (void))
FAKE(ncclGroupEnd, (void))
/* Of the newest versions. */
FAKE(ncclAllGatherConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream, const ncclCollConfig_t *config))
FAKE(ncclReduceConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
FAKE(ncclReduceScatterConfig, (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config))
FAKE(ncclPutSignal, (const void *from, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset,
                     int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream))
FAKE(ncclSignal, (int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream))
FAKE(ncclWaitSignal, (int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream))
FAKE(ncclCommSuspend, (ncclComm_t comm, int flags))
FAKE(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id))
FAKE(ncclCommGrow,
     (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm, ncclConfig_t *config))
/* ncclCommShrink, ncclCommRevoke and others are missing, as in an older NCCL. */

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
    __attribute__((alias("ncclCommInitRank")));
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    last = "ncclCommInitRank";
    for (size_t i = 0; i < sizeof(id.internal); i++) /* passed by value, on the stack */
        if (id.internal[i] != (char)i)
            return ncclInvalidArgument;
    *comm = (ncclComm_t)comm;
    return nranks == 4 && rank == 3 ? ncclInProgress : ncclInvalidArgument;
}
