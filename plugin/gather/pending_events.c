/* SPDX-License-Identifier: Apache-2.0 */
/* Carriers: events of the application that take pending gathers from stream to stream (pending.h).
 */
#include "base/cu.h"
#include "plugin/gather/pending_impl.h"

#define SHARED_EVENTS 64

/* How often events may have been recorded where slipring does not look. A counter, not a loop over
 * all carriers: it is raised from inside of slipring's own calls, where no lock may be taken. */
static _Atomic uint64_t unseen;

/* Events that other processes may record; under the table lock, like the carriers. */
static CUevent shared[SHARED_EVENTS];
static unsigned shared_count;
static bool all_shared; /* there was no room: every event counts as one */

void slr_pending_events_unseen(void)
{
    atomic_fetch_add(&unseen, 1);
}

static bool is_shared(CUevent event)
{
    for (unsigned i = 0; i < shared_count; i++)
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

/* Visits all pending communicators, as it never matches. */
static bool forget(struct slr_comm *c, void *event)
{
    drop(c->pending->carrier, &c->pending->carriers, event);
    return false;
}

void slr_pending_event_shared(CUevent event)
{
    slr_pending_find(forget, event);
    slr_table_lock();
    if (!is_shared(event)) {
        if (shared_count < SHARED_EVENTS)
            shared[shared_count++] = event;
        else
            all_shared = true;
    }
    slr_table_unlock();
}

void slr_pending_event_end(CUevent event)
{
    slr_pending_find(forget, event);
    slr_table_lock();
    drop(shared, &shared_count, event);
    slr_table_unlock();
}

/* What is known of the gather's events, after those that may have been recorded unseen are left
 * out. */
static void refresh(struct slr_comm *c)
{
    uint64_t now = atomic_load(&unseen);
    if (c->pending->unseen != now)
        c->pending->carriers = 0;
    c->pending->unseen = now;
}

static bool carries(struct slr_comm *c, void *event)
{
    refresh(c);
    for (unsigned i = 0; i < c->pending->carriers; i++)
        if (c->pending->carrier[i] == event)
            return true;
    return false;
}

/* Under the communicator's lock. */
static bool carried_by(struct slr_comm *c, CUevent event)
{
    slr_table_lock();
    bool yes = c->pending->active && carries(c, event);
    slr_table_unlock();
    return yes;
}

/* Under the communicator's lock, after the event has been recorded on the ring's stream for
 * carriers. NULL: that failed; but what later carriers come after has been fixed. */
static void add_carrier(struct slr_comm *c, CUevent event)
{
    slr_table_lock();
    refresh(c);
    c->pending->carried = true;
    if (event && c->pending->carriers < SLR_CARRIERS && !is_shared(event))
        c->pending->carrier[c->pending->carriers++] = event;
    slr_table_unlock();
}

/* A stream, in its context: every context has a legacy default stream. */
struct stream_place {
    CUstream stream;
    CUcontext ctx;
};

static bool is_origin(struct slr_comm *c, void *place)
{
    const struct stream_place *at = place;
    const struct slr_holder *h = slr_pending_holder(c, at->stream);
    return h && h->origin && at->ctx == c->shared.ctx;
}

static bool is_carried_origin(struct slr_comm *c, void *place)
{
    return c->pending->carried && is_origin(c, place);
}

void slr_pending_alloc(CUstream stream, bool per_thread, const char *who)
{
    struct stream_place at = {.stream = slr_stream_name(stream, per_thread)};
    slr_guard++;
    slr_real.cuCtxGetCurrent(&at.ctx);
    struct slr_comm *c = slr_pending_find(is_carried_origin, &at);
    slr_guard--;
    if (c)
        slr_pending_join_stream(stream, per_thread, SLR_R_JOIN_OTHER_OP, who);
    slr_comm_put(c);
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
    if (ready)
        add_carrier(c, *result == CUDA_SUCCESS ? event : NULL);
    return ready;
}

bool slr_pending_record(CUevent event, CUstream stream, bool per_thread, unsigned flags, const char *who,
                        CUresult *result)
{
    struct stream_place at = {.stream = slr_stream_name(stream, per_thread)};
    struct slr_comm *c = NULL;
    bool done = false;
    slr_guard++;
    slr_pending_find(forget, event);
    /* This record replaces any before it. Flags may ask for what a carrier can not give. */
    if (flags == 0 && at.stream != CU_STREAM_PER_THREAD && (at.ctx = slr_stream_context(at.stream)) != NULL)
        c = slr_pending_find(is_origin, &at);
    /* An event is the carrier of one gather only: others that the stream holds are joined. */
    slr_pending_join_observed(at.stream, c ? SLR_EXCEPT_OWN : SLR_EXCEPT_NONE, c, SLR_R_JOIN_OTHER_OP, who);
    if (c) {
        slr_comm_lock(c);
        if (slr_pending_holder(c, at.stream)) /* what was joined can have ended it */
            done = record(c, event, at.stream, result);
        slr_comm_unlock(c);
        slr_comm_put(c);
    }
    /* The driver will record on the stream itself, so it has to be behind the gather. */
    if (!done)
        slr_pending_join_observed(at.stream, SLR_EXCEPT_NONE, NULL, SLR_R_JOIN_OTHER_OP, who);
    slr_guard--;
    return done;
}

/* Under the communicator's lock. The origin can not follow itself, a capturing stream would record
 * the wait into its graph. */
static bool may_follow(struct slr_comm *c, CUstream stream)
{
    const struct slr_holder *h = slr_pending_holder(c, stream);
    return h ? !h->origin : c->pending->holders < SLR_HOLDERS && !slr_stream_captures(stream);
}

/* False: not done; `stream` could not be made to wait. */
static bool follow(struct slr_comm *c, CUstream stream)
{
    if (slr_shared_enter(&c->shared) != SLR_OK)
        return false;
    enum slr_status s = slr_ring_wait_before(&c->ring, stream);
    slr_shared_leave();
    if (s == SLR_OK && !slr_pending_holder(c, stream))
        slr_pending_follow(c, stream);
    return s == SLR_OK;
}

static bool wait_for(struct slr_comm *c, CUstream stream, CUevent event)
{
    slr_comm_lock(c);
    bool done = carried_by(c, event) && may_follow(c, stream) && follow(c, stream);
    slr_comm_unlock(c);
    return done;
}

/* The context is compared first: the lock of a communicator of another context is another rank's,
 * and is not waited for. */
static bool could_follow(struct slr_comm *c, CUstream stream)
{
    if (stream == CU_STREAM_PER_THREAD || slr_stream_context(stream) != c->shared.ctx)
        return false;
    slr_comm_lock(c);
    bool could = c->pending->active && may_follow(c, stream);
    slr_comm_unlock(c);
    return could;
}

bool slr_pending_wait(CUstream stream, CUevent event, bool per_thread, unsigned flags, const char *who,
                      CUresult *result)
{
    CUstream s = slr_stream_name(stream, per_thread);
    bool done = false;
    slr_guard++;
    /* Looked at again under the lock (wait_for): the gather may end in between. */
    struct slr_comm *c = flags == 0 ? slr_pending_find(carries, event) : NULL;
    if (c && could_follow(c, s)) {
        /* A wait shows nothing of what the stream follows. What it is the origin of must be joined:
         * nothing is put on an origin (pending.h). */
        slr_pending_join_observed(s, SLR_EXCEPT_FOLLOWERS, NULL, SLR_R_JOIN_OTHER_OP, who);
        done = wait_for(c, s, event);
        *result = CUDA_SUCCESS;
    }
    slr_comm_put(c);
    if (!done)
        slr_pending_join_observed(s, SLR_EXCEPT_NONE, NULL, SLR_R_JOIN_OTHER_OP, who);
    slr_guard--;
    return done;
}
