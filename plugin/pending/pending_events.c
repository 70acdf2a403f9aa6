/* SPDX-License-Identifier: Apache-2.0 */
/* Carriers: events of the application that take pending gathers from stream to stream (pending.h).
 */
#include "base/status.h"
#include "cache/captures.h"
#include "kernels/gemm.h"
#include "plugin/comm/comm.h"
#include "plugin/graphs/graphs.h"
#include "plugin/pending/pending_state.h"

/* How often events may have been recorded where slipring does not look. A counter, not a loop over
 * all carriers: it is raised from inside of slipring's own calls, where no lock may be taken. */
static _Atomic uint64_t unseen;

void slr_pending_events_unseen(void)
{
    atomic_fetch_add(&unseen, 1);
}

/* Visits all pending communicators, as it never matches. */
static bool forget(struct slr_lane *lane, void *event)
{
    struct slr_pending *p = lane->pending;
    for (unsigned i = 0; i < p->carriers; i++)
        if (p->carrier[i] == event)
            p->carrier[i--] = p->carrier[--p->carriers];
    return false;
}

void slr_pending_event_end(CUevent event)
{
    slr_pending_find(forget, event);
    slr_event_ends(event);
}

/* What is known of the gather's events, after those that may have been recorded unseen are left
 * out. */
static void refresh(struct slr_lane *lane)
{
    uint64_t now = atomic_load(&unseen);
    if (lane->pending->unseen != now)
        lane->pending->carriers = 0;
    lane->pending->unseen = now;
}

static bool carries(struct slr_lane *lane, void *event)
{
    refresh(lane);
    for (unsigned i = 0; i < lane->pending->carriers; i++)
        if (lane->pending->carrier[i] == event)
            return true;
    return false;
}

/* Under the lane's lock. */
static bool carried_by(struct slr_lane *lane, CUevent event)
{
    slr_table_lock();
    bool yes = lane->pending->active && carries(lane, event);
    slr_table_unlock();
    return yes;
}

/* Under the lane's lock, after the event has been recorded on the ring's stream for
 * carriers. NULL: that failed; but what later carriers come after has been fixed. */
static void add_carrier(struct slr_lane *lane, CUevent event)
{
    slr_table_lock();
    refresh(lane);
    lane->pending->carried = true;
    if (event && lane->pending->carriers < SLR_CARRIERS && !slr_event_is_shared(event))
        lane->pending->carrier[lane->pending->carriers++] = event;
    slr_table_unlock();
}

/* A stream, in its context: every context has a legacy default stream. */
struct stream_place {
    CUstream stream;
    CUcontext ctx;
};

static bool is_origin(struct slr_lane *lane, void *place)
{
    const struct stream_place *at = place;
    const struct slr_holder *h = slr_pending_holder(lane, at->stream);
    return h && h->origin && !h->overtaken && at->ctx == lane->ring.ctx;
}

/* Visits all, as it never matches. */
static bool overtaken_by_alloc(struct slr_lane *lane, void *place)
{
    const struct stream_place *at = place;
    if (lane->pending->carried && is_origin(lane, place))
        atomic_store(&slr_pending_holder(lane, at->stream)->overtaken, true);
    return false;
}

void slr_pending_alloc(const struct slr_observed *o)
{
    struct stream_place at = {.stream = o->stream, .ctx = slr_stream_context(o->stream)};
    slr_pending_find(overtaken_by_alloc, &at);
}

static bool other_memory(const struct slr_lane *lane, const struct slr_gather *g, const void *range)
{
    return slr_extent_apart(*(const struct slr_extent *)range, g, lane->ring.nranks);
}

void slr_pending_free(const struct slr_observed *o)
{
    struct slr_operation op = {.stream = o->stream, .why = o->why, .who = o->who};
    struct slr_extent freed;
    CUdeviceptr base;
    size_t size;
    /* Where it ends is asked only if it matters. What can not be told may be the gather's. */
    if (slr_pending_observed(&op) && slr_real.cuMemGetAddressRange &&
        slr_real.cuMemGetAddressRange(&base, &size, o->memory) == CUDA_SUCCESS) {
        freed = (struct slr_extent){.begin = base, .end = base + size};
        op.overtakes = other_memory;
        op.what = &freed;
        op.waits_for_nothing = true;
    }
    slr_pending_join_observed(&op);
}

/* False: not done; the ring's part of it failed. */
static bool record(struct slr_lane *lane, CUevent event, CUstream stream, CUresult *result)
{
    if (slr_shared_work_begin(&lane->comm->shared) != SLR_OK)
        return false;
    struct slr_holder *h = slr_pending_holder(lane, stream); /* `stream` is a name */
    bool ready = slr_ring_carry(&lane->ring, stream, h && h->moved_on) == SLR_OK;
    if (h && ready) {
        slr_table_lock();
        h->moved_on = false;
        slr_table_unlock();
    }
    if (ready)
        *result = slr_real.cuEventRecord(event, lane->ring.carrier);
    slr_shared_work_end();
    if (ready)
        add_carrier(lane, *result == CUDA_SUCCESS ? event : NULL);
    return ready;
}

bool slr_pending_record(const struct slr_observed *o, CUresult *answer)
{
    struct stream_place at = {.stream = o->stream};
    struct slr_operation op = {.stream = at.stream, .why = o->why, .who = o->who};
    struct slr_lane *lane = NULL;
    bool done = false;
    slr_pending_find(forget, o->event);
    /* This record replaces any before it. Flags may ask for what a carrier can not give. */
    if (o->flags == 0 && at.stream != CU_STREAM_PER_THREAD && (at.ctx = slr_stream_context(at.stream)) != NULL)
        lane = slr_pending_find(is_origin, &at);
    /* An event is the carrier of one gather only: others that the stream holds are joined. */
    op.of = lane;
    slr_pending_join_observed(&op);
    if (lane) {
        slr_lane_lock(lane);
        if (is_origin(lane, &at)) /* what was joined can have ended it */
            done = record(lane, o->event, at.stream, answer);
        slr_lane_unlock(lane);
        slr_lane_put(lane);
    }
    /* The driver will record on the stream itself, so it has to be behind the gather. */
    op.of = NULL;
    if (!done)
        slr_pending_join_observed(&op);
    return done;
}

/* Under the lane's lock. The origin can not follow itself, a capturing stream would record
 * the wait into its graph. */
static bool may_follow(struct slr_lane *lane, CUstream stream)
{
    const struct slr_holder *h = slr_pending_holder(lane, stream);
    if (h)
        return !h->origin;
    return lane->pending->holders < SLR_HOLDERS && (slr_nothing_captures() || lane->kind->takes(lane, stream));
}

/* False: not done; `stream` could not be made to wait. */
static bool follow(struct slr_lane *lane, CUstream stream)
{
    if (slr_shared_work_begin(&lane->comm->shared) != SLR_OK)
        return false;
    enum slr_status s = slr_ring_wait_before(&lane->ring, stream);
    slr_shared_work_end();
    if (s == SLR_OK && !slr_pending_holder(lane, stream))
        slr_pending_follow(lane, stream);
    return s == SLR_OK;
}

static bool wait_for(struct slr_lane *lane, CUstream stream, CUevent event)
{
    if (!slr_lane_lock_soon(lane))
        return false;
    bool done = carried_by(lane, event) && may_follow(lane, stream) && follow(lane, stream);
    slr_lane_unlock(lane);
    return done;
}

/* The context is compared first: the lock of a communicator of another context is another rank's,
 * and is not waited for. */
static enum { NO, YES, BUSY } could_follow(struct slr_lane *lane, CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD || slr_stream_context(stream) != lane->ring.ctx)
        return NO;
    if (!slr_lane_lock_soon(lane))
        return BUSY;
    bool could = lane->pending->active && may_follow(lane, stream);
    slr_lane_unlock(lane);
    return could ? YES : NO;
}

static bool any(const struct slr_lane *lane, const struct slr_gather *g, const void *what)
{
    (void)lane, (void)g, (void)what;
    return true;
}

bool slr_pending_wait(const struct slr_observed *o, CUresult *answer)
{
    struct slr_operation op = {.stream = o->stream, .why = o->why, .who = o->who, .overtakes = any};
    bool done = false;
    /* Looked at again under the lock (wait_for): the gather may end in between. */
    struct slr_lane *lane = o->flags == 0 ? slr_pending_find(carries, o->event) : NULL;
    const int follows = lane ? could_follow(lane, op.stream) : NO;
    if (follows == YES) { /* nothing captures the event: the ring has recorded it */
        slr_pending_join_observed(&op);
        done = wait_for(lane, op.stream, o->event);
        *answer = CUDA_SUCCESS;
    }
    /* A stream that can not follow the gather of an event that carries it waits for all of it: so it does
     * by the driver's wait, if the communicator is busy. And an event that was recorded in a capture would
     * draw a stream into it that is not joined yet, and could not be joined there. */
    if ((lane && follows == NO) || !slr_nothing_captures())
        op.overtakes = NULL;
    slr_lane_put(lane);
    if (!done)
        slr_pending_join_observed(&op);
    return done;
}
