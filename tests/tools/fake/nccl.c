/* SPDX-License-Identifier: Apache-2.0 */
/* An NCCL that has a version (FAKE_NCCL) and one function. */
#include <nccl.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    const char *value = getenv("FAKE_NCCL");
    *version = value ? atoi(value) : 0;
    return ncclSuccess;
}

EXPORT ncclResult_t pncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                   cudaStream_t stream)
{
    (void)send;
    (void)recv;
    (void)count;
    (void)type;
    (void)comm;
    (void)stream;
    return ncclInternalError;
}
