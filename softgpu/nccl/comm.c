/* SPDX-License-Identifier: Apache-2.0 */
/* The list of live communicators, and making and ending one. */
#include "comm.h"
#include "profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ncclComm *live;
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;

static void comm_free(struct ncclComm *comm)
{
    tuner_stop(comm);
    block_unmap(&comm->block);
    pthread_mutex_destroy(&comm->launch_lock);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    free(comm);
}

struct ncclComm *comm_get(ncclComm_t comm)
{
    pthread_mutex_lock(&live_lock);
    struct ncclComm *c = live;
    while (c && c != comm)
        c = c->next;
    if (c)
        c->refs++;
    pthread_mutex_unlock(&live_lock);
    return c;
}

void comm_put(struct ncclComm *comm)
{
    if (!comm)
        return;
    pthread_mutex_lock(&live_lock);
    int last = --comm->refs == 0;
    pthread_mutex_unlock(&live_lock);
    if (last)
        comm_free(comm);
}

ncclResult_t comm_get_ready(ncclComm_t comm, const char *who, struct ncclComm **out)
{
    struct ncclComm *c = comm ? comm_get(comm) : NULL;
    if (!c)
        return nccl_warn(ncclInvalidArgument, "%s : comm argument is %s", who,
                         comm ? "not a live communicator" : "NULL");
    ncclResult_t rc = later_ask(c);
    if (rc == ncclInProgress)
        rc = nccl_warn(ncclInvalidArgument, "%s : the previous operation of the communicator is not over", who);
    else if (rc == ncclSuccess && (atomic_load(&c->revoked) || atomic_load(&c->finalized)))
        rc = nccl_warn(ncclInvalidUsage, "%s : the communicator was %s", who,
                       atomic_load(&c->revoked) ? "revoked" : "finalized");
    if (rc == ncclSuccess && atomic_load(&c->suspended))
        rc = nccl_warn(ncclInvalidUsage, "%s : the communicator is suspended", who);
    if (rc != ncclSuccess) {
        comm_put(c);
        return rc;
    }
    *out = c;
    return ncclSuccess;
}

ncclResult_t comm_check_config(const ncclConfig_t *config)
{
    if (!config)
        return ncclSuccess;
    if (config->magic != 0xcafebeef || config->size < offsetof(ncclConfig_t, cgaClusterSize))
        return nccl_warn(ncclInvalidArgument, "ncclConfig_t was not made with NCCL_CONFIG_INITIALIZER");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return nccl_warn(ncclInvalidArgument, "Invalid config blocking attribute value %d", config->blocking);
    return ncclSuccess;
}

/* NCCL makes the primary context of its device current (cudaSetDevice), whichever is so when it is called. A reference
 * stays, as the runtime's does, where the program has not got one of its own current. */
static CUresult to_primary(const struct softdrv *drv, CUdevice dev, CUcontext *ctx)
{
    CUcontext primary = NULL;
    CUresult rc = drv->cuDevicePrimaryCtxRetain(&primary, dev);
    if (rc == CUDA_SUCCESS && primary == *ctx)
        rc = drv->cuDevicePrimaryCtxRelease(dev);
    *ctx = primary;
    return rc;
}

ncclResult_t comm_new(struct ncclComm **out, int nranks, int rank, const ncclConfig_t *config)
{
    const struct softdrv *drv = softdrv_get();
    CUcontext ctx = NULL;
    CUdevice dev = 0;
    if (!drv || softdrv_need_context(drv, &ctx) != CUDA_SUCCESS || drv->cuCtxGetDevice(&dev) != CUDA_SUCCESS ||
        to_primary(drv, dev, &ctx) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "no usable CUDA device");
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c)
        return ncclSystemError;
    c->refs = 2; /* the list's and the caller's */
    c->nranks = nranks;
    c->rank = rank;
    c->device = dev;
    c->ctx = ctx;
    c->blocking = !config || config->blocking != 0;
    if (config && config->size > offsetof(ncclConfig_t, maxCTAs) && config->maxCTAs > 0)
        c->max_ctas = config->maxCTAs;
    atomic_store(&c->async, ncclInProgress);
    pthread_mutex_init(&c->launch_lock, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    pthread_mutex_lock(&live_lock);
    c->next = live;
    live = c;
    pthread_mutex_unlock(&live_lock);
    *out = c;
    return ncclSuccess;
}

/* Returns whether the communicator was in the list; the list's reference is then the caller's. */
static int unlink_live(struct ncclComm *comm)
{
    pthread_mutex_lock(&live_lock);
    struct ncclComm **at = &live;
    while (*at && *at != comm)
        at = &(*at)->next;
    int found = *at != NULL;
    if (found)
        *at = comm->next;
    pthread_mutex_unlock(&live_lock);
    return found;
}

void comm_remove(struct ncclComm *comm, enum rank_state how)
{
    if (!unlink_live(comm))
        return;
    profiler_close(comm);
    capture_order_end(comm);
    block_leave(&comm->block, how);
    comm_put(comm);
}

void comm_failed(struct ncclComm *comm, ncclResult_t rc)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->error == ncclSuccess)
        comm->error = rc;
    if (atomic_load(&comm->async) != ncclInProgress)
        atomic_store(&comm->async, comm->error);
    pthread_mutex_unlock(&comm->lock);
}

/* While the communicator is made its block belongs to the thread that makes it. An abort then only sets the flag, and
 * that thread says goodbye to the others; the lock decides which of the two came first. */
void comm_made(const struct job *job)
{
    struct ncclComm *comm = job->comm;
    const int derived = job->tells != comm;
    pthread_mutex_lock(&comm->lock);
    int aborted = atomic_load(&comm->abort);
    comm->made = 1;
    comm->error = job->rc;
    if (!comm->later)
        atomic_store(&comm->async, job->rc);
    if (aborted)
        block_leave(&comm->block, RANK_ABORTED);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (aborted)
        return;
    if (job->rc == ncclSuccess && derived)
        __atomic_store_n(job->user, comm, __ATOMIC_RELEASE);
    if (job->rc != ncclSuccess && (derived || comm->blocking)) {
        *job->user = NULL;
        comm_remove(comm, RANK_ABORTED);
    }
}

void comm_abort(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    int being_made = !comm->made;
    atomic_store(&comm->abort, 1);
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (!being_made && comm->block.hdr)
        block_ring(&comm->block, comm->rank);
    later_abort(comm);
    if (being_made) {
        if (unlink_live(comm))
            comm_put(comm);
        return;
    }
    /* Only the kernel that runs now can touch the caller's buffers; those still queued will see the flag. */
    pthread_mutex_lock(&comm->lock);
    while (comm->running)
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    comm_wait_for_graphs(comm, "CommAbort"); /* replays from now on see the flag */
    comm_remove(comm, RANK_ABORTED);
}

/* ---- who am I, and may I be here ---- */

static uint64_t hash_bytes(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

/* NCCL's rule: NCCL_HOSTID if set, else the host name and the boot. */
static uint64_t host_hash(void)
{
    char text[512] = "";
    const char *id = getenv("NCCL_HOSTID");
    if (id && *id)
        return hash_bytes(0xcbf29ce484222325u, id);
    gethostname(text, 255);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f) {
        size_t at = strlen(text);
        if (!fgets(text + at, (int)(sizeof text - at), f))
            text[at] = 0;
        fclose(f);
    }
    return hash_bytes(0xcbf29ce484222325u, text);
}

static ncclResult_t describe_rank(const struct ncclComm *comm, struct rank_info *info)
{
    const struct softdrv *drv = softdrv_get();
    const char *share = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    CUuuid uuid;
    *info = (struct rank_info){.pid = getpid(), .device = comm->device, .host_hash = host_hash()};
    info->share_gpu = share && !strcmp(share, "1");
    if (drv->cuDeviceGetUuid(&uuid, comm->device) != CUDA_SUCCESS ||
        drv->cuDeviceGetPCIBusId(info->bus_id, sizeof info->bus_id, comm->device) != CUDA_SUCCESS)
        return nccl_warn(ncclUnhandledCudaError, "can not identify device %d", comm->device);
    memcpy(info->gpu_uuid, uuid.bytes, sizeof info->gpu_uuid);
    return ncclSuccess;
}

/* NCCL 2.28 refuses two ranks on one GPU; every rank sees the same places, so every rank refuses. */
static ncclResult_t check_duplicates(struct block *b)
{
    for (int i = 0; i < b->nranks; i++)
        for (int j = i + 1; j < b->nranks; j++) {
            const struct rank_info *x = &b->slots[i].info, *y = &b->slots[j].info;
            if (x->host_hash == y->host_hash && !memcmp(x->gpu_uuid, y->gpu_uuid, sizeof x->gpu_uuid) &&
                !(x->share_gpu && y->share_gpu))
                return nccl_warn(ncclInvalidUsage,
                                 "Duplicate GPU detected : rank %d and rank %d both on CUDA device %s", i, j,
                                 x->bus_id);
        }
    return ncclSuccess;
}

ncclResult_t comm_connect(struct ncclComm *comm, const struct block_id *id, const _Atomic int *abort)
{
    struct rank_info info;
    ncclResult_t rc = describe_rank(comm, &info);
    if (rc == ncclSuccess)
        rc = block_join(&comm->block, id, comm->nranks, comm->rank, &info, abort);
    if (rc == ncclSuccess)
        rc = check_duplicates(&comm->block);
    if (rc == ncclSuccess) /* in NCCL's order: profilers are asked first */
        profiler_open(comm);
    return rc == ncclSuccess ? tuner_start(comm) : rc;
}

/* ---- ending ---- */

void comm_drain(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->done < comm->issued && !atomic_load(&comm->abort))
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}
