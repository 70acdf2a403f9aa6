/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate tells, handed to those that it concerns (pending.h). */
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/comm/comm.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending.h"
#include "plugin/pending/pending_state.h"

/* ---- queries of streams that hold pending gathers ---- */

/* A look at one pending gather after another, the latest first, for a query of `stream`. */
struct looks {
    CUstream stream;
    CUcontext ctx;   /* NULL: any; the legacy default stream exists in each */
    uint64_t serial; /* of the one that is looked at */
    bool carried;    /* likewise */
    bool aside;      /* likewise: for the stream */
};

/* A query tells of the stream's own work alone; of the legacy default stream, of all that it waits for. `aside`: and
 * a GEMM aside is a part of that. */
static bool is_shown(const struct looks *l, const struct slr_lane *lane, bool aside)
{
    for (unsigned i = 0; i < lane->pending->holders; i++) {
        const struct slr_holder *h = &lane->pending->holder[i];
        if ((!l->ctx || l->ctx == lane->ring.ctx) && (h->stream == l->stream || (!l->stream && h->blocking)) &&
            (!aside || h->aside))
            return true;
    }
    return false;
}

static bool is_next(struct slr_lane *lane, void *looks)
{
    struct looks *l = looks;
    if (lane->pending->serial >= l->serial || !is_shown(l, lane, false))
        return false;
    l->serial = lane->pending->serial;
    l->carried = lane->pending->carried;
    l->aside = is_shown(l, lane, true);
    return true;
}

/* The driver is about to say that the stream is ready: what the host does from then on comes behind the gather, on
 * whatever stream. But a GEMM that reads `send` may be on its way there, in another thread: then it has come first. */
static bool show_ready(struct slr_lane *lane, void *looks)
{
    if (!is_shown(looks, lane, false))
        return false;
    atomic_store(&lane->pending->shown, true);
    return atomic_load(&lane->pending->read);
}

/* What is joined meanwhile the driver knows of, and the ring's streams may have the next gather. */
static bool is_still(struct slr_lane *lane, void *looks)
{
    const struct looks *l = looks;
    return lane->pending->serial == l->serial && is_shown(l, lane, false);
}

/* An error is the driver's to tell. */
static bool under_way(struct slr_lane *lane, const struct looks *l)
{
    if (slr_shared_enter(&lane->comm->shared) != SLR_OK)
        return false;
    const CUresult r = slr_ring_query(&lane->ring, l->carried, l->aside);
    slr_shared_leave();
    return r == CUDA_ERROR_NOT_READY;
}

static bool shows_gather(CUstream stream)
{
    struct looks l = {.stream = stream, .ctx = stream ? NULL : slr_context_now(), .serial = UINT64_MAX};
    bool busy = false;
    for (struct slr_lane *lane; !busy && (lane = slr_pending_find(is_next, &l)) != NULL;) {
        struct slr_lane *still = under_way(lane, &l) ? slr_pending_find(is_still, &l) : NULL;
        busy = still != NULL;
        slr_lane_put(still);
        slr_lane_put(lane);
    }
    struct slr_lane *read = busy ? NULL : slr_pending_find(show_ready, &l);
    slr_lane_put(read);
    return busy || read;
}

static bool query(const struct slr_observed *o, CUresult *answer)
{
    const struct slr_operation op = {.stream = o->stream, .why = o->why, .who = o->who};
    bool busy = false;
    if (!slr_pending_may_observe(op.stream))
        return false;
    if (slr_stream_may_capture(op.stream)) /* what it holds is recorded */
        slr_pending_join_observed(&op);
    else
        busy = shows_gather(op.stream);
    /* The driver all the same: it says what is wrong, and what the query breaks it breaks. */
    if (busy && (*answer = slr_real.cuStreamQuery(op.stream)) == CUDA_SUCCESS)
        *answer = CUDA_ERROR_NOT_READY;
    return busy;
}

/* ---- each to whom it concerns ---- */

/* Without a current context nothing is known of what is observed: all communicators match. */
static bool in_context(struct slr_lane *lane, void *ctx)
{
    return !ctx || lane->ring.ctx == ctx;
}

/* Of other contexts nothing is joined: most of what comes here waits for one alone, but that may be another than the
 * current one. Visits all, as it never matches. */
static bool show(struct slr_lane *lane, void *nothing)
{
    (void)nothing;
    atomic_store(&lane->pending->shown, true);
    return false;
}

static bool on_device(struct slr_lane *lane, void *device)
{
    return lane->comm->shared.device == *(const CUdevice *)device;
}

static void join_each(bool (*match)(struct slr_lane *lane, void *what), void *what, const struct slr_observed *o)
{
    for (struct slr_lane *lane; (lane = slr_pending_find(match, what)) != NULL;) {
        slr_lane_lock(lane);
        slr_pending_join(lane, o->why, o->who);
        slr_lane_unlock(lane);
        slr_lane_put(lane);
    }
}

static bool each(struct slr_lane *lane, void *nothing)
{
    (void)lane, (void)nothing;
    return true;
}

/* A copy between two devices, which comes behind all work of both (Programming Guide, peer-to-peer memory copy),
 * whatever context is current. */
static bool find_devices(const struct slr_observed *o, CUdevice device[2])
{
    for (int i = 0; i < 2; i++) {
        int ordinal = -1;
        if (!o->end[i] ||
            slr_real.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, o->end[i]) != CUDA_SUCCESS)
            return false;
        device[i] = ordinal;
    }
    return device[0] != device[1];
}

/* False: there is no such context, and the driver says so. */
static bool find_observed(const struct slr_observed *o, CUcontext *home)
{
    if (!o->ctx && !o->green)
        *home = slr_context_now();
    else
        *home = o->ctx ? slr_context_home(o->ctx) : slr_context_home_of_green(o->green);
    return *home || (!o->ctx && !o->green);
}

static void join_all(const struct slr_observed *o)
{
    CUcontext ctx;
    CUdevice device[2];
    if (!find_observed(o, &ctx))
        return;
    slr_pending_find(show, NULL);
    join_each(in_context, ctx, o);
    struct slr_lane *rest = slr_pending_find(each, NULL);
    if (rest && find_devices(o, device))
        for (int i = 0; i < 2; i++)
            join_each(on_device, &device[i], o);
    slr_lane_put(rest);
}

bool slr_pending_observe(const struct slr_observed *o, CUresult *answer)
{
    if (o->unseen)
        slr_pending_events_unseen();
    switch (o->act) {
    case SLR_ACT_RECORD:
        return slr_pending_record(o, answer);
    case SLR_ACT_WAIT:
        return slr_pending_wait(o, answer);
    case SLR_ACT_QUERY:
        return query(o, answer);
    case SLR_ACT_EVENT_END:
        slr_pending_event_end(o->event);
        return false;
    case SLR_ACT_ALLOC:
        slr_pending_alloc(o);
        return false;
    case SLR_ACT_FREE:
        slr_pending_free(o);
        return false;
    case SLR_ACT_HOST:
        join_all(o);
        return false;
    case SLR_ACT_NEXT:
        if (!slr_nothing_captures())
            slr_pending_join_stream(o->stream, o->why, o->who);
        return false;
    case SLR_ACT_OPERATION:
        slr_pending_join_stream(o->stream, o->why, o->who);
        return false;
    case SLR_ACT_NONE:
        return false;
    }
    return false;
}

/* From the latest to the first: `before` is the number of the one that was found last. */
static bool comes_before(struct slr_lane *lane, void *before)
{
    return lane->pending->serial < *(const uint64_t *)before;
}

static void join_before_opening(void)
{
    uint64_t before = UINT64_MAX;
    for (struct slr_lane *lane; (lane = slr_pending_find(comes_before, &before)) != NULL;) {
        before = lane->pending->serial;
        if (slr_lane_lock_soon(lane)) {
            slr_pending_join(lane, SLR_R_JOIN_BYPASSED, "dlopen");
            slr_lane_unlock(lane);
        }
        slr_lane_put(lane);
    }
}

static void order_before_opening(void)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        if (slr_lane_lock_soon(comms[i]->lane)) {
            slr_order_note(comms[i]);
            slr_lane_unlock(comms[i]->lane);
        }
        slr_comm_put(comms[i]);
    }
}

void slr_pending_opening(void)
{
    if (slr_guard != 0)
        return;
    slr_guard++;
    join_before_opening();
    order_before_opening();
    slr_guard--;
}
