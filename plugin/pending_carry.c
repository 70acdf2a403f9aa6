/* Events of the application that carry pending gathers from stream to stream: see pending.h. */
#include "base/cu.h"
#include "plugin/pending_impl.h"

#define SHARED_EVENTS 64

/* How often events may have been recorded where slipring does not look. */
static _Atomic uint64_t unseen;

/* Events that other processes may record; under the pending lock. */
static CUevent shared[SHARED_EVENTS];
static unsigned shareds;
static bool all_shared; /* there was no room */

void slr_pending_events_unseen(void)
{
    atomic_fetch_add(&unseen, 1);
}

static bool is_shared(CUevent event)
{
    for (unsigned i = 0; i < shareds; i++)
        if (shared[i] == event)
            return true;
    return all_shared;
}

/* Takes the event out of a list. */
static void drop(CUevent *event_list, unsigned *count, CUevent event)
{
    for (unsigned i = 0; i < *count; i++)
        if (event_list[i] == event)
            event_list[i--] = event_list[--*count];
}

static void forget(CUevent event)
{
    for (struct slr_comm *c = slr_pending_first(); c; c = c->pending.next)
        drop(c->pending.carrier, &c->pending.carriers, event);
}

void slr_pending_event_shared(CUevent event)
{
    slr_pending_lock();
    forget(event);
    if (!is_shared(event)) {
        if (shareds < SHARED_EVENTS)
            shared[shareds++] = event;
        else
            all_shared = true;
    }
    slr_pending_unlock();
}

void slr_pending_event_end(CUevent event)
{
    slr_pending_lock();
    forget(event);
    drop(shared, &shareds, event);
    slr_pending_unlock();
}

/* What is known of the gather's events, after those that may have been recorded unseen are left out. */
static void refresh(struct slr_comm *c)
{
    uint64_t now = atomic_load(&unseen);
    if (c->pending.unseen != now)
        c->pending.carriers = 0;
    c->pending.unseen = now;
}

static struct slr_comm *carried_by(CUevent event)
{
    for (struct slr_comm *c = slr_pending_first(); c; c = c->pending.next) {
        refresh(c);
        for (unsigned i = 0; i < c->pending.carriers; i++)
            if (c->pending.carrier[i] == event)
                return c;
    }
    return NULL;
}

static bool same_context(const struct slr_comm *c, CUstream stream)
{
    CUcontext ctx = NULL;
    CUresult r = stream ? slr_real.cuStreamGetCtx ? slr_real.cuStreamGetCtx(stream, &ctx) : CUDA_ERROR_NOT_FOUND
                        : slr_real.cuCtxGetCurrent(&ctx);
    return r == CUDA_SUCCESS && ctx == c->shared.ctx;
}

static struct slr_comm *called_on(CUstream stream)
{
    for (struct slr_comm *c = slr_pending_first(); c; c = c->pending.next) {
        const struct slr_holder *h = slr_pending_holder(c, stream);
        if (h && h->origin && same_context(c, stream)) /* every context has a legacy default stream */
            return c;
    }
    return NULL;
}

/* False: not done; the ring's part of it failed. */
static bool record(struct slr_comm *c, CUevent event, CUstream stream, CUresult *result)
{
    if (slr_shared_enter(&c->shared) != SLR_OK)
        return false;
    bool ready = slr_ring_carry(&c->ring, stream) == SLR_OK;
    if (ready)
        *result = slr_real.cuEventRecord(event, c->ring.carrier);
    slr_shared_leave();
    refresh(c);
    if (ready && *result == CUDA_SUCCESS && c->pending.carriers < SLR_CARRIERS && !is_shared(event))
        c->pending.carrier[c->pending.carriers++] = event;
    return ready;
}

bool slr_pending_record(CUevent event, CUstream stream, bool per_thread, unsigned flags, const char *who,
                        CUresult *result)
{
    CUstream s = slr_stream_name(stream, per_thread);
    bool done = false;
    slr_guard++;
    slr_pending_lock();
    forget(event);
    struct slr_comm *c = flags == 0 && s != CU_STREAM_PER_THREAD ? called_on(s) : NULL;
    slr_pending_join_observed(s, c ? SLR_SPARE_OWN : SLR_SPARE_NONE, c, SLR_R_JOIN_OTHER_OP, who);
    if (c && slr_pending_holder(c, s)) /* what was joined can have ended it */
        done = record(c, event, s, result);
    if (!done)
        slr_pending_join_observed(s, SLR_SPARE_NONE, NULL, SLR_R_JOIN_OTHER_OP, who);
    slr_pending_unlock();
    slr_guard--;
    return done;
}

static bool may_hold(struct slr_comm *c, CUstream stream)
{
    const struct slr_holder *h = slr_pending_holder(c, stream);
    if (stream == CU_STREAM_PER_THREAD || !same_context(c, stream)) /* every context has a legacy default stream */
        return false;
    return h ? !h->origin : c->pending.holders < SLR_HOLDERS && !slr_stream_captures(stream);
}

/* False: not done; `stream` could not be made to wait. */
static bool hand_over(struct slr_comm *c, CUstream stream)
{
    if (slr_shared_enter(&c->shared) != SLR_OK)
        return false;
    enum slr_status s = slr_ring_wait_before(&c->ring, stream);
    slr_shared_leave();
    if (s == SLR_OK && !slr_pending_holder(c, stream))
        slr_pending_hold(c, stream, false);
    return s == SLR_OK;
}

bool slr_pending_wait(CUstream stream, CUevent event, bool per_thread, unsigned flags, const char *who,
                      CUresult *result)
{
    CUstream s = slr_stream_name(stream, per_thread);
    bool done = false;
    slr_guard++;
    slr_pending_lock();
    struct slr_comm *c = flags == 0 ? carried_by(event) : NULL;
    if (c && may_hold(c, s)) {
        /* A wait shows nothing of what the stream holds from others; it only must not be their origin (pending.h). */
        slr_pending_join_observed(s, SLR_SPARE_HANDED, NULL, SLR_R_JOIN_OTHER_OP, who);
        if (carried_by(event) == c)
            done = hand_over(c, s);
        *result = CUDA_SUCCESS;
    }
    if (!done)
        slr_pending_join_observed(s, SLR_SPARE_NONE, NULL, SLR_R_JOIN_OTHER_OP, who);
    slr_pending_unlock();
    slr_guard--;
    return done;
}
