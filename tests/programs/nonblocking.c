/* SPDX-License-Identifier: Apache-2.0 */
/* Makes all communicators of a program non-blocking: a library to be loaded before slipring, so that programs of these
 * tests need not know. It does what a program with such communicators does: it asks ncclCommGetAsyncError until nothing
 * is in progress, behind each call or group. */
#pragma GCC visibility push(default) /* what nccl.h declares is what this library exports */
#include <nccl.h>
ncclResult_t ncclGroupStart(void); /* without a prototype there */
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config); /* new in 2.29 */
#pragma GCC visibility pop
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 64 /* communicators of a group */

static _Thread_local int depth, count;
static _Thread_local ncclComm_t used[MOST];

static void *look_up(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (p)
        return p;
    fprintf(stderr, "nonblocking: no %s\n", name);
    abort();
}

/* What the program would have called. */
#define NEXT(fn) ((__typeof__(&fn))look_up(#fn))

static ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t now = ncclInProgress;
    while (now == ncclInProgress) {
        const ncclResult_t r = NEXT(ncclCommGetAsyncError)(comm, &now);
        if (r != ncclSuccess)
            return r;
        if (now == ncclInProgress)
            usleep(50);
    }
    return now;
}

static void use(ncclComm_t comm)
{
    int i = 0;
    while (i < count && used[i] != comm)
        i++;
    if (i == MOST)
        abort();
    used[i] = comm;
    count += i == count;
}

/* Behind a call on `comm`, which tells how far NCCL is: now, or at the end of the group. */
static ncclResult_t after(ncclComm_t comm, ncclResult_t r)
{
    if ((r != ncclSuccess && r != ncclInProgress) || !comm)
        return r;
    if (!depth)
        return settle(comm);
    use(comm);
    return ncclSuccess;
}

static ncclConfig_t not_blocking(const ncclConfig_t *config)
{
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    if (config)
        c = *config;
    c.blocking = 0;
    return c;
}

static int failed(ncclResult_t r)
{
    return r != ncclSuccess && r != ncclInProgress;
}

/* As a blocking one, which does not exist when making it has failed. */
static ncclResult_t made(ncclComm_t *comm, ncclResult_t r)
{
    r = after(comm ? *comm : NULL, r);
    if (failed(r) && comm && *comm && !depth) {
        NEXT(ncclCommAbort)(*comm);
        *comm = NULL;
    }
    return r;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ncclConfig_t c = not_blocking(config);
    return made(comm, NEXT(ncclCommInitRankConfig)(comm, nranks, id, rank, &c));
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    ncclConfig_t c = not_blocking(config);
    return made(comm, NEXT(ncclCommInitRankScalable)(comm, nranks, rank, nid, ids, &c));
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    ncclUniqueId id;
    int before = 0;
    ncclResult_t r = ncclGetUniqueId(&id);
    cudaGetDevice(&before);
    ncclGroupStart();
    for (int i = 0; i < ndev && !failed(r); i++) {
        cudaSetDevice(devlist ? devlist[i] : i);
        r = ncclCommInitRank(&comms[i], ndev, id, i);
    }
    cudaSetDevice(before);
    const ncclResult_t end = ncclGroupEnd();
    return failed(r) ? r : end;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    ncclConfig_t c = not_blocking(config);
    return after(comm, NEXT(ncclCommSplit)(comm, color, key, newcomm, config ? &c : NULL));
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int n, ncclComm_t *newcomm, ncclConfig_t *config, int flags)
{
    ncclConfig_t c = not_blocking(config);
    return after(comm, NEXT(ncclCommShrink)(comm, exclude, n, newcomm, config ? &c : NULL, flags));
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config)
{
    ncclConfig_t c = not_blocking(config);
    return made(newcomm, NEXT(ncclCommGrow)(comm, nranks, id, rank, newcomm, comm && !config ? NULL : &c));
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return after(comm, NEXT(ncclCommFinalize)(comm));
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return NEXT(ncclGroupStart)();
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    count = --depth ? count : 0;
    return NEXT(ncclGroupSimulateEnd)(info);
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t r = NEXT(ncclGroupEnd)();
    if (depth > 0 && --depth > 0)
        return r;
    const int n = count;
    count = 0;
    for (int i = 0; i < n && !failed(r); i++)
        r = settle(used[i]);
    return r;
}

#define CALL(fn, params, args)                                                                                         \
    ncclResult_t fn params                                                                                             \
    {                                                                                                                  \
        return after(comm, NEXT(fn) args);                                                                             \
    }
#define BUFFERS const void *send, void *recv, size_t n, ncclDataType_t type
#define ON ncclComm_t comm, cudaStream_t stream
CALL(ncclAllGather, (BUFFERS, ON), (send, recv, n, type, comm, stream))
CALL(ncclAllReduce, (BUFFERS, ncclRedOp_t op, ON), (send, recv, n, type, op, comm, stream))
CALL(ncclReduceScatter, (BUFFERS, ncclRedOp_t op, ON), (send, recv, n, type, op, comm, stream))
CALL(ncclReduce, (BUFFERS, ncclRedOp_t op, int root, ON), (send, recv, n, type, op, root, comm, stream))
CALL(ncclBroadcast, (BUFFERS, int root, ON), (send, recv, n, type, root, comm, stream))
CALL(ncclBcast, (void *buffer, size_t n, ncclDataType_t type, int root, ON), (buffer, n, type, root, comm, stream))
CALL(ncclGather, (BUFFERS, int root, ON), (send, recv, n, type, root, comm, stream))
CALL(ncclScatter, (BUFFERS, int root, ON), (send, recv, n, type, root, comm, stream))
CALL(ncclAlltoAll, (BUFFERS, ON), (send, recv, n, type, comm, stream))
CALL(ncclSend, (const void *send, size_t n, ncclDataType_t type, int peer, ON), (send, n, type, peer, comm, stream))
CALL(ncclRecv, (void *recv, size_t n, ncclDataType_t type, int peer, ON), (recv, n, type, peer, comm, stream))
