/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls that make, end and describe communicators. */
#include "comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return nccl_warn(ncclInvalidArgument, "GetVersion : version argument is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetVersion);

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct block_id block;
    if (!id)
        return nccl_warn(ncclInvalidArgument, "GetUniqueId : out argument is NULL");
    ncclResult_t rc = block_create(&block);
    if (rc != ncclSuccess)
        return rc;
    memset(id, 0, sizeof *id);
    memcpy(id, &block, sizeof block);
    return ncclSuccess;
}
NCCL_ALIAS(ncclGetUniqueId);

static ncclResult_t run_init(struct job *job)
{
    return comm_connect(job->comm, &job->id, &job->comm->abort);
}

static ncclResult_t init_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *id, int rank,
                              const ncclConfig_t *config)
{
    if (!newcomm)
        return nccl_warn(ncclInvalidArgument, "CommInitRank : comm argument is NULL");
    *newcomm = NULL;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return nccl_warn(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, nranks);
    ncclResult_t rc = comm_check_config(config);
    if (rc != ncclSuccess)
        return rc;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return ncclSystemError;
    if ((rc = comm_new(&job->comm, nranks, rank, config)) != ncclSuccess) {
        free(job);
        return rc;
    }
    job->run = run_init;
    job->tells = job->comm;
    memcpy(&job->id, id, sizeof job->id);
    job->user = newcomm;
    *newcomm = job->comm;
    return group_submit_job(job);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return group_note_error(init_rank(comm, nranks, &id, rank, NULL));
}
NCCL_ALIAS(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    return group_note_error(init_rank(comm, nranks, &id, rank, config));
}
NCCL_ALIAS(ncclCommInitRankConfig);

/* Every rank holds all ids, so one of them is enough here. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nid, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    if (nid < 1 || nid > nranks || !ids)
        return group_note_error(nccl_warn(ncclInvalidArgument, "CommInitRankScalable : invalid number of ids %d", nid));
    return group_note_error(init_rank(comm, nranks, &ids[0], rank, config));
}
NCCL_ALIAS(ncclCommInitRankScalable);

static ncclResult_t check_devices(const struct softdrv *drv, int ndev, const int *devlist)
{
    int count = 0;
    if (drv->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return ncclUnhandledCudaError;
    if (ndev > count && !devlist)
        return nccl_warn(ncclInvalidArgument, "CommInitAll : %d devices wanted, there are %d", ndev, count);
    for (int i = 0; devlist && i < ndev; i++) {
        if (devlist[i] < 0 || devlist[i] >= count)
            return nccl_warn(ncclInvalidArgument, "CommInitAll : invalid device %d", devlist[i]);
        for (int j = 0; j < i; j++)
            if (devlist[i] == devlist[j])
                return nccl_warn(ncclInvalidUsage, "CommInitAll : device %d is listed twice", devlist[i]);
    }
    return ncclSuccess;
}

static ncclResult_t use_device(const struct softdrv *drv, int ordinal)
{
    CUdevice dev;
    CUcontext ctx;
    if (drv->cuDeviceGet(&dev, ordinal) != CUDA_SUCCESS || drv->cuDevicePrimaryCtxRetain(&ctx, dev) != CUDA_SUCCESS ||
        drv->cuCtxSetCurrent(ctx) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "can not use device %d", ordinal);
    return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
    const struct softdrv *drv = softdrv_get();
    CUcontext before = NULL;
    ncclUniqueId id;
    if (!comms || ndev < 1)
        return nccl_warn(ncclInvalidArgument, "Invalid device count requested : %d", ndev);
    if (!drv)
        return ncclUnhandledCudaError;
    ncclResult_t rc = check_devices(drv, ndev, devlist);
    if (rc != ncclSuccess || (rc = ncclGetUniqueId(&id)) != ncclSuccess)
        return rc;
    drv->cuCtxGetCurrent(&before);
    ncclGroupStart();
    for (int i = 0; i < ndev && rc == ncclSuccess; i++)
        if ((rc = group_note_error(use_device(drv, devlist ? devlist[i] : i))) == ncclSuccess)
            rc = ncclCommInitRank(&comms[i], ndev, id, i);
    ncclResult_t end = ncclGroupEnd();
    drv->cuCtxSetCurrent(before);
    return rc != ncclSuccess ? rc : end;
}
NCCL_ALIAS(ncclCommInitAll);

static ncclResult_t finalize(struct ncclComm *c)
{
    comm_drain(c);
    comm_wait_for_graphs(c, "CommFinalize");
    return (ncclResult_t)c->error;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    struct ncclComm *c;
    ncclResult_t rc = comm_get_ready(comm, "CommFinalize", &c);
    if (rc != ncclSuccess)
        return rc;
    atomic_store(&c->finalized, 1);
    rc = c->blocking ? finalize(c) : later_call(c, finalize);
    comm_put(c);
    return rc;
}
NCCL_ALIAS(ncclCommFinalize);

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    struct ncclComm *c = comm_get(comm);
    if (!c)
        return nccl_warn(ncclInvalidArgument, "CommDestroy : comm is not a live communicator");
    if (later_ask(c) == ncclInProgress) {
        comm_put(c);
        return nccl_warn(ncclInvalidArgument, "CommDestroy : the communicator's previous operation is not over");
    }
    comm_drain(c);
    comm_wait_for_graphs(c, "CommDestroy");
    int windows = registrations_drop(c);
    if (windows)
        nccl_warn(ncclSuccess, "CommDestroy : %d windows of the communicator were not deregistered", windows);
    comm_remove(c, RANK_LEFT);
    comm_put(c);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommDestroy);

/* What the call takes beside all else (SOFTGPU_NCCL_ABORT_MS). */
static void abort_takes(void)
{
    const char *ms = getenv("SOFTGPU_NCCL_ABORT_MS");
    long n = ms ? strtol(ms, NULL, 10) : 0;
    nanosleep(&(struct timespec){.tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000}, NULL);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    struct ncclComm *c = comm_get(comm);
    if (!c)
        return nccl_warn(ncclInvalidArgument, "CommAbort : comm is not a live communicator");
    registrations_drop(c);
    comm_abort(c);
    comm_put(c);
    abort_takes();
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommAbort);

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    struct ncclComm *c;
    if (flags != NCCL_REVOKE_DEFAULT)
        return nccl_warn(ncclInvalidArgument, "CommRevoke : invalid flags %d", flags);
    ncclResult_t rc = comm_get_ready(comm, "CommRevoke", &c);
    if (rc != ncclSuccess)
        return rc;
    atomic_store(&c->revoked, 1);
    block_ring(&c->block, c->rank);
    comm_put(c);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommRevoke);

/* Nothing is held that could be given back: only that no call may be made meanwhile. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    struct ncclComm *c;
    ncclResult_t rc = comm_get_ready(comm, "CommSuspend", &c);
    if (rc != ncclSuccess)
        return rc;
    atomic_store(&c->suspended, (flags & NCCL_SUSPEND_MEM) != 0);
    comm_put(c);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm)
{
    struct ncclComm *c = comm ? comm_get(comm) : NULL;
    if (!c || !atomic_exchange(&c->suspended, 0)) {
        comm_put(c);
        return nccl_warn(ncclInvalidUsage, "CommResume : the communicator is not suspended");
    }
    comm_put(c);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommResume);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!error)
        return nccl_warn(ncclInvalidArgument, "CommGetAsyncError : asyncError argument is NULL");
    struct ncclComm *c = comm ? comm_get(comm) : NULL;
    if (!c && comm && getenv("SOFTGPU_NCCL_ENDED"))
        return nccl_misuse(ncclInvalidArgument, "CommGetAsyncError of a communicator that has ended");
    if (!c)
        return nccl_warn(ncclInvalidArgument, "CommGetAsyncError : comm is not a live communicator");
    *error = later_ask(c);
    comm_put(c);
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommGetAsyncError);

#define COMM_QUERY(name, field)                                                                                        \
    ncclResult_t name(const ncclComm_t comm, int *out)                                                                 \
    {                                                                                                                  \
        struct ncclComm *c;                                                                                            \
        if (!out)                                                                                                      \
            return nccl_warn(ncclInvalidArgument, #name " : result argument is NULL");                                 \
        ncclResult_t rc = comm_get_ready(comm, #name, &c);                                                             \
        if (rc != ncclSuccess)                                                                                         \
            return rc;                                                                                                 \
        *out = c->field;                                                                                               \
        comm_put(c);                                                                                                   \
        return ncclSuccess;                                                                                            \
    }                                                                                                                  \
    NCCL_ALIAS(name)

COMM_QUERY(ncclCommCount, nranks);
COMM_QUERY(ncclCommCuDevice, device);
COMM_QUERY(ncclCommUserRank, rank);
