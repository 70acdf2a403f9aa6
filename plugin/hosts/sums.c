/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/hosts/hosts.h"

#include "base/log.h"
#include "kernels/scatter.h"
#include "plugin/comm/call.h"
#include "plugin/timeline/timeline.h"
#include "plugin/trials/program.h"
#include "plugin/util/host_memory.h"

#define ALIGN ((size_t)256) /* as cuMemAlloc's */
#define BLOCKS 264u         /* as of the ring's sums (kernels/ring_scatter.c) */

enum { HALVES = 2, AREAS = 2 }; /* of each half: what is sent, and what is received */

void slr_hosts_sums_fit(struct slr_hosts *h, size_t slot)
{
    const size_t rail = slot / HALVES / (size_t)(h->hosts - 1), ring = slr_scatter_most(slot, h->per);
    h->piece = (rail < ring ? rail : ring) / ALIGN * ALIGN;
    h->sums &= h->piece > 0;
}

bool slr_hosts_one_piece(const struct slr_hosts *h, bool all, size_t bytes)
{
    return bytes / (size_t)(all ? h->per : h->per * h->hosts) < h->piece;
}

/* One area: a piece of a shard for each other host. */
static size_t area_bytes(const struct slr_hosts *h)
{
    return h->piece * (size_t)(h->hosts - 1);
}

static CUdeviceptr at(const struct slr_hosts *h, unsigned half, int area, int step)
{
    return h->memory + ((size_t)half * AREAS + (size_t)area) * area_bytes(h) + (size_t)(step - 1) * h->piece;
}

CUdeviceptr slr_hosts_sum_at(const struct slr_hosts *h, int step)
{
    return at(h, h->half, 0, step);
}

static enum slr_status make_events(struct slr_hosts *h)
{
    if (h->unused[HALVES - 1])
        return SLR_OK;
    for (int step = 0; step < h->hosts; step++)
        SLR_TRY(SLR_CU(cuEventCreate, &h->summed[step], CU_EVENT_DISABLE_TIMING));
    for (int half = 0; half < HALVES; half++)
        SLR_TRY(SLR_CU(cuEventCreate, &h->unused[half], CU_EVENT_DISABLE_TIMING));
    return SLR_OK;
}

/* Once. Where the device has none of it the host has: all other ranks are about to make the call. */
static enum slr_status open(struct slr_hosts *h)
{
    const size_t bytes = HALVES * AREAS * area_bytes(h);
    if (slr_real.cuMemAllocAsync(&h->memory, bytes, h->stream) != CUDA_SUCCESS) {
        slr_log(
            SLR_LOG_WARN, "sums_in_host_memory", "wanted=%zu msg=%s", bytes,
            "the device has no memory for what other hosts' sums pass through: reduce-scatters over hosts are slow");
        SLR_TRY(slr_host_memory(&h->host_memory, &h->memory, bytes));
    }
    for (int half = 0; half < HALVES; half++)
        SLR_TRY(SLR_CU(cuEventRecord, h->unused[half], h->stream));
    return SLR_OK;
}

enum slr_status slr_hosts_sums_begin(struct slr_hosts *h, CUstream pull)
{
    SLR_TRY(make_events(h));
    if (!h->memory)
        SLR_TRY(open(h));
    h->half = (h->half + 1) % HALVES;
    return SLR_CU(cuStreamWaitEvent, pull, h->unused[h->half], 0);
}

ncclResult_t slr_hosts_sum_all(struct slr_hosts *h, CUstream pull, CUdeviceptr sum, size_t count, ncclDataType_t type,
                               ncclRedOp_t op)
{
    if (make_events(h) != SLR_OK || SLR_CU(cuEventRecord, h->summed[0], pull) != SLR_OK ||
        SLR_CU(cuStreamWaitEvent, h->stream, h->summed[0], 0) != SLR_OK ||
        SLR_CU(cuEventRecord, h->entry, h->stream) != SLR_OK)
        return ncclUnhandledCudaError;
    const ncclResult_t r = slr_rail_add(h, sum, count, type, op);
    if (r != ncclSuccess)
        return r;
    return SLR_CU(cuStreamWaitEvent, pull, h->come[1], 0) == SLR_OK ? ncclSuccess : ncclUnhandledCudaError;
}

/* Of the piece that has begun: what has been summed for the other hosts goes there, and theirs for this one comes. */
static ncclResult_t exchange_all(struct slr_hosts *h, const struct slr_hosts_sum *s)
{
    const bool measured = slr_timeline_turn(++h->gathers);
    ncclResult_t r = ncclSuccess;
    for (int step = 1; step < h->hosts && r == ncclSuccess; step++) {
        if (SLR_CU(cuStreamWaitEvent, h->stream, h->summed[step], 0) != SLR_OK ||
            (step == 1 && SLR_CU(cuEventRecord, h->entry, h->stream) != SLR_OK))
            return ncclUnhandledCudaError;
        struct slr_timed *timed = measured ? slr_timeline_other_begin(s->call->comm, "RailSums", h->gathers,
                                                                      s->bytes / s->elem, s->call->type, h->stream)
                                           : NULL;
        r = slr_rail_exchange(h, step, (const void *)(uintptr_t)at(h, h->half, 0, step),
                              (void *)(uintptr_t)at(h, h->half, 1, step), s->bytes);
        slr_timeline_nccl_end(s->call->comm, timed, r, s->bytes);
    }
    return r;
}

/* In the order of the hosts. */
static enum slr_status add_all(struct slr_hosts *h, const struct slr_hosts_sum *s)
{
    const void *in[SLR_HOSTS];
    in[h->host] = (const void *)(uintptr_t)s->own;
    for (int step = 1; step < h->hosts; step++)
        in[slr_hosts_of_step(h, step)] = (const void *)(uintptr_t)at(h, h->half, 1, step);
    SLR_TRY(SLR_CU(cuStreamWaitEvent, h->stream, h->summed[0], 0));
    return slr_reduce(s->reduce, h->stream, s->type, (void *)(uintptr_t)s->own, NULL, in, h->hosts, s->bytes / s->elem,
                      s->divisor, BLOCKS);
}

ncclResult_t slr_hosts_sum(struct slr_hosts *h, const struct slr_hosts_sum *s)
{
    const ncclResult_t r = exchange_all(h, s);
    if (r != ncclSuccess)
        return r;
    return add_all(h, s) == SLR_OK ? ncclSuccess : ncclUnhandledCudaError;
}

void slr_hosts_sums_close(struct slr_hosts *h)
{
    for (int step = 0; step < h->hosts; step++)
        slr_trial_drop(&h->summed[step]);
    for (int half = 0; half < HALVES; half++)
        slr_trial_drop(&h->unused[half]);
    if (h->host_memory)
        slr_host_memory_free(h->host_memory);
    else if (h->memory)
        slr_real.cuMemFreeAsync(h->memory, h->stream);
    h->host_memory = NULL;
    h->memory = 0;
}
