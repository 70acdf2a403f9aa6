/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/hosts/hosts.h"

#include <stdlib.h>
#include "base/settings.h"
#include "cache/captures.h"
#include "plugin/comm/call.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/gather/gather.h"
#include "plugin/timeline/timeline.h"
#include "plugin/util/process.h"

/* ---- the decision ---- */

static bool captures(const struct slr_call *call)
{
    const struct slr_hosts *h = call->comm->hosts;
    if (slr_context_enter(h->ctx) != SLR_OK)
        return true;
    const bool may = slr_stream_may_capture(call->stream);
    slr_shared_leave();
    return may;
}

enum slr_reason slr_hosts_has(const struct slr_call *call)
{
    const struct slr_collective *kind = call->flow->kind;
    if (!call->send || !call->recv || !call->shard)
        return SLR_R_HOSTS_NCCL;
    if (kind->sends_all && !call->comm->hosts->sums)
        return SLR_R_SCATTER_KERNEL;
    if (kind->sends_all && call->comm->hosts->whole &&
        !slr_hosts_one_piece(call->comm->hosts, kind->gets_all, call->bytes))
        return SLR_R_SCATTER_ROOM;
    if (call->bytes < slr_get(SLR_S_MIN_BYTES))
        return SLR_R_TOO_SMALL;
    if (call->config)
        return SLR_R_CONFIGURED;
    return (!call->held && slr_region_gathers()) || captures(call) ? SLR_R_HOSTS_NCCL : SLR_R_HOSTS;
}

/* ---- the calls of the inside ---- */

/* The whole's receive buffer, of a call of the inside's. */
static char *whole_recv(const struct slr_call *call)
{
    const struct slr_hosts *h = call->comm->hosts;
    return (char *)call->recv - (size_t)slr_hosts_of_step(h, call->step) * call->bytes;
}

ncclResult_t slr_hosts_failed(struct slr_comm *inside, ncclResult_t r)
{
    slr_comm_fail(inside, SLR_PEER, -1, "NCCL between the hosts failed");
    return r;
}

ncclResult_t slr_hosts_behind(const struct slr_call *call, CUevent event)
{
    const bool good = SLR_CU(cuEventRecord, event, call->comm->hosts->stream) == SLR_OK &&
                      SLR_CU(cuStreamWaitEvent, call->stream, event, 0) == SLR_OK && slr_gather_stands(call) == SLR_OK;
    return good ? ncclSuccess : ncclUnhandledCudaError;
}

/* What is measured is told as what NCCL does on the inside. */
static ncclResult_t run_rail(const struct slr_call *call)
{
    struct slr_hosts *h = call->comm->hosts;
    const size_t piece = slr_arrival_bytes(call->shard, (uint32_t)slr_get(SLR_S_CHUNKS), call->small);
    const bool measured = slr_timeline_turn(++h->gathers);
    ncclResult_t r = ncclSuccess;
    for (int step = 1; step < h->hosts && r == ncclSuccess; step++) {
        struct slr_timed *timed =
            measured ? slr_timeline_other_begin(call->comm, "Rail", h->gathers, call->count, call->type, h->stream)
                     : NULL;
        r = slr_rail_step(h, step, call->send, whole_recv(call), call->shard, piece);
        slr_timeline_nccl_end(call->comm, timed, r, call->shard);
    }
    return r;
}

/* Step 0 has the rail do its part of all of them. With the guard up. */
static ncclResult_t begin_rail(const struct slr_call *call)
{
    struct slr_comm *c = call->comm;
    if (slr_shared_work_begin(&c->shared) != SLR_OK)
        return slr_hosts_failed(c, ncclUnhandledCudaError);
    const ncclResult_t r = run_rail(call);
    slr_shared_work_end();
    return r == ncclSuccess ? r : slr_hosts_failed(c, r);
}

static ncclResult_t step_ring(const struct slr_call *call, bool entered)
{
    (void)entered;
    const ncclResult_t r = call->step == 0 ? begin_rail(call) : ncclSuccess;
    if (r != ncclSuccess)
        return r;
    return slr_gather_ring(call, true, SLR_R_RING);
}

static const struct slr_flow flow_step = {
    .kind = &slr_collectives[SLR_ALL_GATHER], .enter = slr_hosts_enter_call, .ring = step_ring};

/* The host's ranks have their shards of all hosts: each host's are gathered in place. */
static ncclResult_t inside_by_nccl(const struct slr_call *call)
{
    const struct slr_hosts *h = call->comm->hosts;
    ncclResult_t r = ncclSuccess;
    for (int step = 0; step < h->hosts && r == ncclSuccess; step++) {
        char *recv = whole_recv(call) + (size_t)slr_hosts_of_step(h, step) * call->bytes;
        const void *send = step == 0 ? call->send : recv + (size_t)h->place * call->shard;
        r = slr_real.ncclAllGather(send, recv, call->count, call->type, h->inside, (cudaStream_t)h->stream);
    }
    return r;
}

static ncclResult_t all_by_nccl(const struct slr_call *call, bool entered)
{
    (void)entered;
    struct slr_comm *c = call->comm;
    ncclResult_t r = begin_rail(call);
    if (r != ncclSuccess || slr_shared_work_begin(&c->shared) != SLR_OK)
        return r;
    r = inside_by_nccl(call);
    if (r == ncclSuccess)
        r = slr_hosts_behind(call, c->hosts->done);
    slr_shared_work_end();
    return r == ncclSuccess ? r : slr_hosts_failed(c, r);
}

static const struct slr_flow flow_nccl = {
    .kind = &slr_collectives[SLR_ALL_GATHER], .enter = slr_hosts_enter_call, .ring = all_by_nccl};

static struct slr_call step_of(const struct slr_call *call, struct slr_comm *inside, int step)
{
    const struct slr_hosts *h = inside->hosts;
    struct slr_call x = *call;
    x.flow = &flow_step;
    x.comm = inside;
    x.nccl = h->inside;
    x.bytes = call->shard * (size_t)h->per;
    x.recv = (char *)call->recv + (size_t)slr_hosts_of_step(h, step) * x.bytes;
    x.send = step == 0 ? call->send : (const char *)x.recv + (size_t)h->place * call->shard;
    x.step = step;
    x.beside = SLR_RAIL_BLOCKS;
    x.small = h->small;
    x.arrives = step == 0 ? NULL : h->arrived[step];
    x.why = SLR_R_RING;
    x.turn.site = -1;
    return x;
}

unsigned slr_hosts_calls(const struct slr_call *call, struct slr_comm *inside, bool ring, struct slr_call *out)
{
    const int hosts = inside->hosts->hosts;
    out[0] = step_of(call, inside, 0);
    if (!ring) {
        out[0].flow = &flow_nccl;
        return 1;
    }
    for (int step = 1; step < hosts; step++)
        out[step] = step_of(call, inside, step);
    return (unsigned)hosts;
}

/* ---- communicators split off ---- */

void slr_hosts_split_begin(struct slr_hosts_split *split, struct slr_comm *parent, int color, int key)
{
    slr_comm_hold(parent);
    *split = (struct slr_hosts_split){
        .parent = parent, .turn = slr_shadow_take(&parent->hosts->shadow), .color = color, .key = key};
}

void slr_hosts_split_over(struct slr_hosts_split *split)
{
    if (!split->parent)
        return;
    slr_shadow_over(&split->parent->hosts->shadow, split->turn);
    slr_comm_put(split->parent);
    split->parent = NULL;
}

/* ---- around them ---- */

struct slr_hosts *slr_hosts_new(void)
{
    struct slr_hosts *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    atomic_store(&h->refs, 1);
    slr_shadow_prepare(&h->shadow);
    return h;
}

void slr_hosts_owe(struct slr_hosts *from, struct slr_hosts *h)
{
    slr_hosts_hold(h);
    pthread_mutex_lock(&from->shadow.lock);
    h->later = from->late;
    from->late = h;
    pthread_mutex_unlock(&from->shadow.lock);
}

void slr_hosts_owed(struct slr_hosts *from)
{
    for (struct slr_hosts *h; (h = from->late) != NULL; slr_hosts_put(h)) {
        from->late = h->later;
        if (h->split)
            slr_real.ncclCommAbort(h->split);
    }
}

void slr_hosts_hold(struct slr_hosts *h)
{
    atomic_fetch_add(&h->refs, 1);
}

void slr_hosts_put(struct slr_hosts *h)
{
    if (!h || atomic_fetch_sub(&h->refs, 1) > 1)
        return;
    if (h->stream && slr_context_enter(h->ctx) == SLR_OK) {
        slr_hosts_sums_close(h);
        slr_rail_close(h);
        slr_shared_leave();
    }
    free(h->duel);
    free(h);
}

bool slr_hosts_verify_due(struct slr_call *call)
{
    struct slr_hosts *h = call->comm->hosts;
    const uint64_t every = slr_get(SLR_S_VERIFY);
    if (!every || call->flow->kind->sends_all)
        return false;
    call->number = ++h->singles;
    call->verify = (call->number - 1) % every == 0;
    return call->verify;
}

/* On a stream of another context the visitor stands for it, behind the entry. */
ncclResult_t slr_hosts_enter(struct slr_comm *inside, CUstream stream, CUcontext from)
{
    ncclResult_t r = slr_gather_entry(inside, stream, from);
    if (r != ncclSuccess)
        return r;
    if (from)
        return slr_gather_wait_entries(inside, inside->hosts->stream);
    enum slr_status s = slr_shared_work_begin(&inside->shared);
    if (s == SLR_OK) {
        s = slr_rail_enter(inside->hosts, stream);
        slr_shared_work_end();
    }
    return s == SLR_OK ? ncclSuccess : slr_hosts_failed(inside, ncclUnhandledCudaError);
}

ncclResult_t slr_hosts_enter_call(const struct slr_call *call)
{
    return slr_hosts_enter(call->comm, call->stream, call->from);
}

ncclResult_t slr_hosts_error(const struct slr_comm *whole)
{
    ncclResult_t of_rail = ncclSuccess;
    struct slr_comm *inside = slr_comm_inside(whole);
    ncclResult_t r = inside ? (ncclResult_t)atomic_load(&inside->error) : ncclSuccess;
    slr_comm_put(inside);
    if (r == ncclSuccess && slr_real.ncclCommGetAsyncError(whole->hosts->rail, &of_rail) == ncclSuccess)
        r = of_rail;
    return r;
}
