/* SPDX-License-Identifier: Apache-2.0 */
/* The vendor's header with its functions exported, and the pnccl aliases. */
#ifndef SOFTGPU_NCCL_API_H
#define SOFTGPU_NCCL_API_H

/* The build hides everything by default; what nccl.h declares is what this library exports. */
#pragma GCC visibility push(default)
#include <nccl.h>
#undef ncclResetDebugInit          /* from NCCL 2.29 on the header has nothing in its place */
ncclResult_t ncclGroupStart(void); /* nccl.h declares these without a prototype */
ncclResult_t ncclGroupEnd(void);
void ncclResetDebugInit(void);
#ifndef NCCL_SUSPEND_MEM /* before NCCL 2.29 */
#define NCCL_SUSPEND_MEM 1
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 0)
typedef struct {
    size_t size; /* of all of it; this is how it begins */
    unsigned magic, version;
} ncclCollConfig_t;
ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceScatterConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
#endif
/* ncclAllGather by a name that NCCL does not have: as a function of a version to come. */
ncclResult_t ncclToComeAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream);
#pragma GCC visibility pop

/* Every exported function has a second name for profilers that interpose the first one. */
#define NCCL_ALIAS(name) extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

#endif
