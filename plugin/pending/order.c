/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pending/order.h"

#include "base/real.h"
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/comm/comm.h"
#include "plugin/graphs/graphs.h"
#include "plugin/pending/pending_state.h"

/* Operations of NCCL after which a communicator that never gathers is taken to stay so. */
#define OPEN_QUESTION 32

static void destroy(struct slr_ordered *o)
{
    if (o->behind)
        slr_real.cuEventDestroy(o->behind);
    o->behind = NULL;
}

/* ---- streams of other contexts ---- */

enum slr_status slr_order_bring(struct slr_lane *lane, CUstream *stream)
{
    const CUcontext away = slr_stream_away(*stream, lane->ring.ctx);
    return away ? slr_order_bring_from(lane, stream, away) : SLR_OK;
}

/* An event is recorded on streams of its own context alone, and waited for on all streams. */
enum slr_status slr_order_bring_from(struct slr_lane *lane, CUstream *stream, CUcontext ctx)
{
    CUevent there = NULL;
    SLR_TRY(slr_ring_open_visitor(&lane->ring));
    SLR_TRY(slr_context_enter(ctx));
    enum slr_status s = SLR_CU(cuEventCreate, &there, CU_EVENT_DISABLE_TIMING);
    if (s == SLR_OK)
        s = SLR_CU(cuEventRecord, there, *stream);
    if (s == SLR_OK)
        s = SLR_CU(cuStreamWaitEvent, lane->ring.visitor, there, 0);
    if (there)
        slr_real.cuEventDestroy(there);
    slr_shared_leave();
    *stream = lane->ring.visitor;
    return s;
}

/* Records the event behind what is on the stream now. */
static enum slr_status note(struct slr_lane *lane, struct slr_ordered *o, CUstream stream)
{
    SLR_TRY(slr_order_bring(lane, &stream));
    if (!o->behind)
        SLR_TRY(SLR_CU(cuEventCreate, &o->behind, CU_EVENT_DISABLE_TIMING));
    SLR_TRY(SLR_CU(cuEventRecord, o->behind, stream));
    o->noted = true;
    return SLR_OK;
}

/* The operation on `stream` is the latest one from now on; no event stands behind it yet. */
static void enter(struct slr_ordered *o, CUstream stream)
{
    atomic_store(&o->id, slr_stream_id_of(stream));
    o->stream = stream;
    atomic_store(&o->open, true);
    o->noted = false;
}

/* Makes `stream` wait for the operation. */
static enum slr_status wait_for(struct slr_lane *lane, struct slr_ordered *o, CUstream stream)
{
    /* What is captured is no operation; its launches are ordered by the program. An event recorded
     * there would become a part of the graph. */
    if (!o->noted && slr_stream_may_capture(o->stream))
        return SLR_OK;
    if (!o->noted)
        SLR_TRY(note(lane, o, o->stream));
    return SLR_CU(cuStreamWaitEvent, stream, o->behind, 0);
}

/* There is such an operation, and it is on this stream. A handle may be another stream's by now when streams
 * end unseen. */
static bool here(const struct slr_ordered *o, CUstream stream)
{
    return !slr_reach_past() && atomic_load(&o->open) && atomic_load(&o->id) == slr_stream_id_of(stream);
}

/* Or on another one. */
static bool elsewhere(const struct slr_ordered *o, CUstream stream)
{
    return atomic_load(&o->open) && !here(o, stream);
}

/* Nobody else can record there later, or nobody at all may. */
static bool at_once(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD || slr_reach_doubtful();
}

/* The event stands for what is on the gather's stream itself, the ring's join for the gather. */
static enum slr_status wait_for_gather(struct slr_lane *lane, CUstream stream)
{
    lane->order->several = true;
    SLR_TRY(wait_for(lane, &lane->order->gather, stream));
    return slr_ring_join(&lane->ring, stream);
}

enum slr_status slr_order_before_gather(struct slr_lane *lane, CUstream stream)
{
    struct slr_order *o = lane->order;
    if (elsewhere(&o->nccl, stream)) {
        o->several = true;
        SLR_TRY(wait_for(lane, &o->nccl, stream));
    }
    return elsewhere(&o->gather, stream) ? wait_for_gather(lane, stream) : SLR_OK;
}

bool slr_order_elsewhere(const struct slr_lane *lane, CUstream stream)
{
    return elsewhere(&lane->order->nccl, stream) || elsewhere(&lane->order->gather, stream);
}

/* A gather that is not pending any more has been joined to its origin. */
bool slr_order_behind_gather(const struct slr_lane *lane, CUstream stream)
{
    return here(&lane->order->gather, stream) && !lane->pending->active;
}

enum slr_status slr_order_after_gather(struct slr_lane *lane, CUstream stream)
{
    struct slr_order *o = lane->order;
    enter(&o->gather, stream);
    /* Whatever waits for this gather waits for NCCL's operation before it, too. */
    atomic_store(&o->nccl.open, false);
    o->gathered = true;
    o->nccl_behind = false;
    return o->several || at_once(stream) ? note(lane, &o->gather, stream) : SLR_OK;
}

/* ---- launches on a stream of another context ---- */

/* By one of the ring's streams, which comes behind all that the launch has to. There is none as long as there were no
 * gathers. */
enum slr_status slr_order_before_away(struct slr_lane *lane, CUstream stream, CUcontext ctx, bool gather)
{
    if (!lane->order->gathered || !atomic_load(&lane->ring.opened))
        return SLR_OK;
    SLR_TRY(slr_order_before_gather(lane, lane->ring.tail));
    if (gather)
        SLR_TRY(slr_ring_await_slots(&lane->ring, lane->ring.tail));
    SLR_TRY(SLR_CU(cuEventRecord, lane->ring.published, lane->ring.tail)); /* recorded anew by each gather */
    SLR_TRY(slr_context_enter(ctx));
    const enum slr_status s = SLR_CU(cuStreamWaitEvent, stream, lane->ring.published, 0);
    slr_shared_leave();
    return s;
}

static enum slr_status note_away(struct slr_lane *lane, struct slr_ordered *o, CUstream stream, CUcontext ctx)
{
    SLR_TRY(slr_order_bring_from(lane, &stream, ctx));
    SLR_TRY(note(lane, o, stream));
    atomic_store(&o->id, SLR_NO_STREAM);
    atomic_store(&o->open, true);
    return SLR_OK;
}

enum slr_status slr_order_after_away(struct slr_lane *lane, CUstream stream, CUcontext ctx, bool gather)
{
    struct slr_order *o = lane->order;
    SLR_TRY(note_away(lane, gather ? &o->gather : &o->nccl, stream, ctx));
    o->several = true;
    o->nccl_behind = !gather;
    if (!gather)
        return SLR_OK;
    atomic_store(&o->nccl.open, false);
    o->gathered = true;
    return slr_ring_launched(&lane->ring, o->gather.behind);
}

static void failed(struct slr_comm *c, enum slr_status s)
{
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, "the streams of a communicator could not be ordered");
}

/* Under the communicator's lock. */
static enum slr_status before_nccl(struct slr_comm *c, CUstream stream)
{
    struct slr_order *o = c->lane->order;
    if (!o->gathered || o->nccl_behind || slr_stream_may_capture(stream))
        return SLR_OK;
    /* NCCL orders its next operations behind this one, so only this one waits. But one that overtakes
     * the gather on its stream does not wait for it. */
    o->nccl_behind = elsewhere(&o->gather, stream) || !c->lane->pending->active;
    if (!elsewhere(&o->gather, stream))
        return SLR_OK;
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = wait_for_gather(c->lane, stream);
    slr_shared_work_end();
    return s;
}

/* Nothing would change by entering the stream. */
static bool is_latest(const struct slr_ordered *o, CUstream stream)
{
    return here(o, stream) && !o->noted;
}

/* Of a graph, whose operations are in the body of a conditional node perhaps, and do not run: the next one waits, too. */
static enum slr_status before_launch(struct slr_comm *c, CUstream stream)
{
    const bool behind = c->lane->order->nccl_behind;
    const enum slr_status s = before_nccl(c, stream);
    c->lane->order->nccl_behind = behind;
    return s;
}

static enum slr_status after_nccl(struct slr_comm *c, CUstream stream)
{
    struct slr_order *o = c->lane->order;
    /* Behind a gather on another stream several streams are in use; before any gather it is not
     * known which stream they will be on. */
    bool doubtful = o->gathered ? elsewhere(&o->gather, stream) : o->seen++ < OPEN_QUESTION;
    /* The usual case, one stream: the event is recorded when it is asked for, if ever. */
    bool late = !o->several && !doubtful && !at_once(stream);
    if (slr_stream_may_capture(stream)) {
        slr_graph_hold(slr_graph_captured_into(stream), c, 0); /* its launches are operations */
        return SLR_OK;
    }
    if (late && is_latest(&o->nccl, stream))
        return SLR_OK;
    if (late) {
        enter(&o->nccl, stream);
        return SLR_OK;
    }
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enter(&o->nccl, stream);
    enum slr_status s = note(c->lane, &o->nccl, stream);
    slr_shared_work_end();
    return s;
}

/* A communicator that passes everything, or has failed, has no gathers to be ordered with. */
static void in_order(struct slr_comm *c, CUstream stream, enum slr_status (*what)(struct slr_comm *c, CUstream stream))
{
    if (!c || c->pass != SLR_R_RING || atomic_load(&c->error) != ncclSuccess)
        return;
    slr_guard++;
    slr_lane_lock(c->lane);
    enum slr_status s = what(c, stream);
    slr_lane_unlock(c->lane);
    slr_guard--;
    failed(c, s);
}

/* The gathers of one that spans hosts are those of its inside. */
static void under_lock(struct slr_comm *c, CUstream stream,
                       enum slr_status (*what)(struct slr_comm *c, CUstream stream))
{
    struct slr_comm *inside = slr_comm_inside(c);
    in_order(inside ? inside : c, stream, what);
    slr_comm_put(inside);
}

void slr_order_before_nccl(struct slr_comm *c, CUstream stream)
{
    under_lock(c, stream, before_nccl);
}

void slr_order_before_launch(struct slr_comm *c, CUstream stream)
{
    under_lock(c, stream, before_launch);
}

void slr_order_after_nccl(struct slr_comm *c, CUstream stream)
{
    under_lock(c, stream, after_nccl);
}

/* The event outlives the stream; without it nothing could be waited for any more. And the next stream
 * with this handle is another one. */
static enum slr_status leave(struct slr_lane *lane, struct slr_ordered *o, CUstream stream)
{
    if (!here(o, stream))
        return SLR_OK;
    const enum slr_status s = note(lane, o, stream);
    atomic_store(&o->id, SLR_NO_STREAM);
    return s;
}

/* Under the communicator's lock. */
static enum slr_status stream_ends(struct slr_comm *c, CUstream stream)
{
    SLR_TRY(slr_shared_work_begin(&c->shared));
    enum slr_status s = leave(c->lane, &c->lane->order->gather, stream);
    if (s == SLR_OK)
        s = leave(c->lane, &c->lane->order->nccl, stream);
    slr_shared_work_end();
    return s;
}

/* Of a stream that is about to be destroyed. Without the lock, where there is nothing to be noted: whoever
 * has the lock may wait in the driver for what this thread is to do next. */
static void leave_noted(struct slr_ordered *o, CUstream stream)
{
    slr_stream_id id = slr_stream_id_of(stream);
    if (here(o, stream) && atomic_load(&o->noted))
        atomic_compare_exchange_strong(&o->id, &id, SLR_NO_STREAM);
}

/* Without the lock: no other thread begins to use a stream that is about to be destroyed. */
static bool concerns(const struct slr_comm *c, CUstream stream)
{
    return c->pass == SLR_R_RING && (here(&c->lane->order->gather, stream) || here(&c->lane->order->nccl, stream));
}

/* The default streams are never destroyed. A stream of another rank is in no communicator of this
 * one. */
void slr_order_stream_end(CUstream stream)
{
    struct slr_comm *comms[SLR_MANY_COMMS];
    slr_stream_ends();
    if (slr_stream_is_default(stream) || slr_guard != 0)
        return;
    int n = slr_comm_hold_all(comms, SLR_MANY_COMMS);
    for (int i = 0; i < n; i++) {
        leave_noted(&comms[i]->lane->order->gather, stream);
        leave_noted(&comms[i]->lane->order->nccl, stream);
        if (concerns(comms[i], stream))
            under_lock(comms[i], stream, stream_ends);
        slr_comm_put(comms[i]);
    }
}

static enum slr_status note_late(struct slr_lane *lane, struct slr_ordered *o)
{
    const bool wanted = atomic_load(&o->open) && !o->noted && !slr_stream_may_capture(o->stream);
    return wanted ? note(lane, o, o->stream) : SLR_OK;
}

void slr_order_note(struct slr_comm *c)
{
    if (c->pass != SLR_R_RING || atomic_load(&c->error) != ncclSuccess || slr_shared_work_begin(&c->shared) != SLR_OK)
        return;
    enum slr_status s = note_late(c->lane, &c->lane->order->gather);
    if (s == SLR_OK)
        s = note_late(c->lane, &c->lane->order->nccl);
    slr_shared_work_end();
    failed(c, s);
}

void slr_order_close(struct slr_lane *lane)
{
    destroy(&lane->order->gather);
    destroy(&lane->order->nccl);
}
