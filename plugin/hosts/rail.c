/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/hosts/hosts.h"

#include "base/settings.h"
#include "plugin/trials/program.h"

/* NCCL's kernels of the rail want a block or two each, which a GEMM beside them is to leave them first. */
static enum slr_status open_all(struct slr_hosts *h)
{
    int least = 0, greatest = 0;
    SLR_TRY(SLR_CU(cuCtxGetStreamPriorityRange, &least, &greatest));
    SLR_TRY(SLR_CU(cuStreamCreateWithPriority, &h->stream, CU_STREAM_NON_BLOCKING, greatest));
    SLR_TRY(SLR_CU(cuEventCreate, &h->entry, CU_EVENT_DISABLE_TIMING));
    return SLR_CU(cuEventCreate, &h->done, CU_EVENT_DISABLE_TIMING);
}

enum slr_status slr_rail_open(struct slr_hosts *h)
{
    const enum slr_status s = open_all(h);
    if (s != SLR_OK)
        slr_rail_close(h);
    return s;
}

void slr_rail_close(struct slr_hosts *h)
{
    slr_trial_drop(&h->entry);
    slr_trial_drop(&h->done);
    for (int step = 1; step < h->hosts; step++) {
        slr_trial_drop(&h->come[step]);
        for (int i = 0; i < SLR_ARRIVALS; i++)
            slr_trial_drop(&h->arrived[step][i]);
    }
    if (h->stream)
        slr_real.cuStreamDestroy(h->stream);
    h->stream = NULL;
}

/* One step, as a group of its own, so that NCCL's kernel of it ends when it is over. */
static ncclResult_t exchange(const struct slr_hosts *h, int step, const void *send, void *recv, size_t bytes)
{
    ncclResult_t r = slr_real.ncclGroupStart();
    if (r != ncclSuccess)
        return r;
    r = slr_real.ncclSend(send, bytes, ncclUint8, slr_hosts_to_step(h, step), h->rail, (cudaStream_t)h->stream);
    if (r == ncclSuccess)
        r = slr_real.ncclRecv(recv, bytes, ncclUint8, slr_hosts_of_step(h, step), h->rail, (cudaStream_t)h->stream);
    const ncclResult_t ended = slr_real.ncclGroupEnd();
    return r == ncclSuccess ? ended : r;
}

static ncclResult_t come(struct slr_hosts *h, int step, ncclResult_t r)
{
    if (r != ncclSuccess)
        return r;
    return SLR_CU(cuEventRecord, h->come[step], h->stream) == SLR_OK ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t slr_rail_add(struct slr_hosts *h, CUdeviceptr sum, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    void *at = (void *)(uintptr_t)sum;
    return come(h, 1, slr_real.ncclAllReduce(at, at, count, type, op, h->rail, (cudaStream_t)h->stream));
}

ncclResult_t slr_rail_connect(struct slr_hosts *h, CUdeviceptr memory)
{
    ncclResult_t r = ncclSuccess;
    for (int step = 1; step < h->hosts && r == ncclSuccess; step++) {
        r = exchange(h, step, (const void *)(uintptr_t)memory, (void *)(uintptr_t)(memory + 1), 1);
        if (SLR_CU(cuEventCreate, &h->come[step], CU_EVENT_DISABLE_TIMING) != SLR_OK)
            r = ncclUnhandledCudaError;
    }
    const bool adds = slr_get(SLR_S_ALL_REDUCE) != 0;
    return r == ncclSuccess && adds ? slr_rail_add(h, memory, 1, ncclUint8, ncclSum) : r;
}

static int rank_of_step(const struct slr_hosts *h, int step)
{
    return slr_hosts_of_step(h, step) * h->per + h->place;
}

static int awaited(const struct slr_hosts *h)
{
    if (slr_real.cuEventQuery(h->entry) != CUDA_SUCCESS)
        return -1;
    for (int step = 1; step < h->hosts; step++)
        if (slr_real.cuEventQuery(h->come[step]) == CUDA_ERROR_NOT_READY)
            return rank_of_step(h, step);
    return -1;
}

/* Under the lock under which it ends, before its events do. */
int slr_rail_awaits(struct slr_hosts *h)
{
    pthread_mutex_lock(&h->shadow.lock);
    const int rank = atomic_load(&h->shadow.ended) ? -1 : awaited(h);
    pthread_mutex_unlock(&h->shadow.lock);
    return rank;
}

enum slr_status slr_rail_enter(const struct slr_hosts *h, CUstream stream)
{
    SLR_TRY(SLR_CU(cuEventRecord, h->entry, stream));
    return SLR_CU(cuStreamWaitEvent, h->stream, h->entry, 0);
}

static enum slr_status record(struct slr_hosts *h, CUevent *arrived)
{
    if (!*arrived)
        SLR_TRY(SLR_CU(cuEventCreate, arrived, CU_EVENT_DISABLE_TIMING));
    return SLR_CU(cuEventRecord, *arrived, h->stream);
}

static ncclResult_t run_pieces(struct slr_hosts *h, int step, const char *send, char *recv, size_t bytes, size_t each)
{
    for (size_t at = 0, i = 0; at < bytes; at += each, i++) {
        const size_t now = bytes - at < each ? bytes - at : each;
        const ncclResult_t r = exchange(h, step, send + at, recv + at, now);
        if (r != ncclSuccess)
            return r;
        if (record(h, &h->arrived[step][i]) != SLR_OK)
            return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

ncclResult_t slr_rail_step(struct slr_hosts *h, int step, const void *send, char *recv, size_t bytes, size_t each)
{
    return come(h, step, run_pieces(h, step, send, recv + (size_t)rank_of_step(h, step) * bytes, bytes, each));
}

ncclResult_t slr_rail_exchange(struct slr_hosts *h, int step, const void *send, void *recv, size_t bytes)
{
    return come(h, step, exchange(h, step, send, recv, bytes));
}
