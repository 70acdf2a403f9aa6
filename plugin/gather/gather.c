/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gather/gather.h"

#include <string.h>
#include "base/counters.h"
#include "base/real.h"
#include "base/settings.h"
#include "base/status.h"
#include "cache/blocks.h"
#include "cache/pools.h"
#include "plugin/comm/call.h"
#include "plugin/connect/connect.h"
#include "plugin/memory/exports.h"
#include "plugin/pending/order.h"
#include "plugin/pending/pending_state.h"
#include "plugin/produce/product.h"
#include "plugin/transfer/transfer.h"
#include "plugin/trials/trials.h"

/* The communicator's ring for this thread: its context current, its lock held. The context first:
 * it can fail, and then there is no lock to give back. */
static enum slr_status ring_enter(struct slr_lane *lane)
{
    SLR_TRY(slr_shared_work_begin(&lane->comm->shared));
    slr_lane_lock(lane);
    return SLR_OK;
}

static void ring_leave(struct slr_lane *lane)
{
    slr_lane_unlock(lane);
    slr_shared_work_end();
}

/* What the application's call answers when the ring's part ended with `s`. */
static ncclResult_t outcome(struct slr_comm *c, enum slr_status s, const char *failure)
{
    if (s != SLR_OK)
        slr_comm_fail(c, s, -1, failure);
    return slr_comm_answer(c);
}

/* Of another context than the lane's. As NCCL makes the primary context current, a default stream of the program's is that
 * one's to NCCL, and behind the call to the program, too: so both are entered. */
static enum slr_status enter_away(struct slr_lane *lane, CUstream *stream, CUcontext from)
{
    const CUstream name = slr_stream_name(*stream, false);
    if (slr_stream_is_default(name))
        SLR_TRY(slr_ring_entry(&lane->ring, *stream, false));
    return slr_order_bring_from(lane, stream, from);
}

static enum slr_status enter_in_order(struct slr_lane *lane, CUstream stream, CUcontext from)
{
    SLR_TRY(ring_enter(lane));
    enum slr_status s = from ? enter_away(lane, &stream, from) : SLR_OK;
    CUstream name = slr_stream_name(stream, false);
    if (s == SLR_OK)
        s = slr_order_before_gather(lane, name);
    if (s == SLR_OK)
        s = slr_ring_entry(&lane->ring, stream, slr_order_behind_gather(lane, name));
    ring_leave(lane);
    return s;
}

ncclResult_t slr_gather_entry(struct slr_comm *c, CUstream stream, CUcontext from)
{
    if (slr_comm_answer(c) != ncclSuccess)
        return slr_comm_answer(c);
    slr_product_operation(c->shared.ctx);
    slr_solo_note(slr_stream_name(stream, false));
    /* What this call sends may be what an earlier one on the stream is still gathering. */
    slr_pending_join_stream(stream, SLR_R_JOIN_NEXT_GATHER, "ncclAllGather");
    return outcome(c, enter_in_order(c->lane, stream, from),
                   "the ring could not be ordered after the application's stream");
}

void slr_gather_visit(struct slr_call *call)
{
    if (!call->from)
        return;
    call->away = call->stream;
    call->stream = call->comm->lane->ring.visitor; /* made by the entry */
}

/* The program's stream comes behind the visitor; of a default stream both that it may be. */
static enum slr_status send_back(struct slr_lane *lane, const struct slr_call *call)
{
    SLR_TRY(slr_ring_wait_stream(&lane->ring, call->stream, call->away));
    SLR_TRY(slr_context_enter(call->from));
    enum slr_status s = SLR_OK;
    if (slr_stream_is_default(slr_stream_name(call->away, false)))
        s = SLR_CU(cuStreamWaitEvent, call->away, lane->ring.entry, 0);
    if (s == SLR_OK)
        s = slr_ring_stand(&lane->ring, call->away);
    slr_shared_leave();
    return s;
}

ncclResult_t slr_gather_return(const struct slr_call *call, ncclResult_t r)
{
    struct slr_comm *c = call->comm;
    if (!call->from || r != ncclSuccess)
        return r;
    slr_pending_join_stream(call->stream, SLR_R_JOIN_CONTEXT, call->flow->kind->function);
    enum slr_status s = ring_enter(c->lane);
    if (s == SLR_OK) {
        s = send_back(c->lane, call);
        ring_leave(c->lane);
    }
    return outcome(c, s, "a stream of another context could not be ordered behind the ring");
}

ncclResult_t slr_gather_wait_entries(struct slr_comm *c, CUstream stream)
{
    enum slr_status s = ring_enter(c->lane);
    if (s == SLR_OK) {
        s = slr_ring_wait_entries(&c->lane->ring, stream);
        ring_leave(c->lane);
    }
    return outcome(c, s, "the streams of a group could not be ordered");
}

ncclResult_t slr_gather_wait_stream(struct slr_comm *c, CUstream from, CUstream to)
{
    enum slr_status s = ring_enter(c->lane);
    if (s == SLR_OK) {
        s = slr_order_bring(c->lane, &from);
        if (s == SLR_OK)
            s = slr_ring_wait_stream(&c->lane->ring, from, to);
        ring_leave(c->lane);
    }
    return outcome(c, s, "the streams of a group could not be ordered");
}

enum slr_status slr_gather_stands(const struct slr_call *call)
{
    struct slr_lane *lane = call->comm->lane;
    slr_lane_lock(lane);
    enum slr_status s = slr_order_after_gather(lane, slr_stream_name(call->stream, false));
    if (s == SLR_OK)
        s = slr_pending_stand(lane, call->stream);
    slr_lane_unlock(lane);
    return s;
}

void slr_gather_count_routes(const struct slr_comm *c, const struct slr_route *route)
{
    static _Atomic uint64_t *const counter[SLR_DELIVERIES] = {[SLR_BY_SLOT] = &slr_counters.staged,
                                                              [SLR_ZERO_COPY] = &slr_counters.zero_copy,
                                                              [SLR_AS_EXPECTED] = &slr_counters.zero_copy,
                                                              [SLR_CORRECTED] = &slr_counters.pushed};
    for (int r = 0; r < c->nranks; r++)
        if (r != c->rank)
            atomic_fetch_add_explicit(counter[route[r].delivery], 1, memory_order_relaxed);
}

/* Whether a peer can name all of the receive buffer: it lies in one block of the cache. */
static bool nameable(const struct slr_call *call, const struct slr_place *recv)
{
    return recv->generation && recv->offset + call->shard * (size_t)call->comm->nranks <= recv->size;
}

/* What this rank takes from its peers is agreed as late as it can be, so that more of them have
 * said where their shards are. */
static enum slr_status run_ring(const struct slr_call *call, const struct slr_place *send, const struct slr_place *recv,
                                struct slr_gather *g, struct slr_route *route)
{
    struct slr_ring *ring = &call->comm->lane->ring;
    const bool by_engines = ring->code && g->wanted != SLR_WANTS_NOTHING;
    slr_transfer_owner(call, send, by_engines, route);
    slr_expect_begin(call, send);
    SLR_TRY(slr_ring_begin(ring, g)); /* what this rank gives */
    slr_transfer_reader(call, recv, by_engines, route);
    return slr_ring_finish(ring, g); /* what it takes */
}

/* Made anew only when it may be another than the latest. */
static struct slr_plan plan_of(const struct slr_lane *lane, size_t shard)
{
    struct slr_pending *p = lane->pending;
    if (p->plan.shard != shard || p->slot != lane->ring.slots[p->plan.slots].bytes)
        p->plan = slr_gather_plan(lane->comm, shard);
    p->slot = lane->ring.slots[p->plan.slots].bytes;
    return p->plan;
}

/* Under the communicator's lock. The decision has been made: whatever fails here fails the
 * communicator on all ranks, because the others move this call. `as`: the call as the ring serves
 * it, whose buffers `send` and `recv` are. *out: the gather. */
static enum slr_status enqueue(const struct slr_call *call, const struct slr_call *as, const struct slr_place *send,
                               const struct slr_place *recv, enum slr_wanted wanted, struct slr_gather *out)
{
    struct slr_comm *c = call->comm;
    struct slr_lane *lane = c->lane;
    struct slr_route route[SLR_MAX_RANKS];
    memset(route, 0, (size_t)c->nranks * sizeof route[0]);
    struct slr_gather g = {.send = (CUdeviceptr)(uintptr_t)as->send,
                           .recv = (CUdeviceptr)(uintptr_t)as->recv,
                           .vacated = as == call ? 0 : (CUdeviceptr)(uintptr_t)call->send,
                           .stream = call->stream,
                           .wanted = wanted,
                           .beside = call->beside,
                           .route = route};
    g.plan = plan_of(lane, call->shard);
    if (call->arrives) {
        g.arrives = call->arrives;
        g.arrival = slr_arrival_bytes(call->shard, (uint32_t)slr_get(SLR_S_CHUNKS), call->small);
        if (g.arrival < g.plan.piece) /* passed on as they come */
            slr_plan_cut(&g.plan, c->nranks, g.arrival);
    }
    enum slr_status s = run_ring(as, send, recv, &g, route);
    if (s == SLR_OK)
        s = slr_order_after_gather(lane, slr_stream_name(call->stream, false));
    slr_exports_end(c, call->number);
    slr_gather_count_routes(c, route);
    const struct slr_watched w = {
        .status = s, .end = lane->ring.tail, .pieces = g.plan.pieces, .chunks = g.plan.chunks, .route = route};
    SLR_WATCH(enqueued, call, &w);
    g.route = NULL; /* it is on this function's stack */
    *out = g;
    return s;
}

/* As a call whose shard moves to its place in the receive buffer first: in place, from then on. */
static enum slr_status enqueue_moved(const struct slr_call *call, const struct slr_place *recv, enum slr_wanted wanted,
                                     struct slr_gather *out)
{
    const size_t own = call->shard * (size_t)call->comm->rank;
    struct slr_call moved = *call;
    struct slr_place send = *recv;
    moved.send = (const char *)call->recv + own;
    send.offset += own;
    return enqueue(call, &moved, &send, recv, wanted, out);
}

static enum slr_status enqueue_as_expected(const struct slr_call *call, const struct slr_place *send,
                                           const struct slr_place *recv, struct slr_member *out)
{
    struct slr_comm *c = call->comm;
    const struct slr_expectation x =
        slr_expect_of(call, call->behind, slr_trials_tries_whole(&call->turn), nameable(call, recv));
    const struct slr_watched w = {.send = send, .recv = recv};
    SLR_TRY(slr_shared_work_begin(&c->shared));
    SLR_WATCH(begins, call, &w);
    const enum slr_status s = x.overwritten ? enqueue_moved(call, recv, x.wanted, &out->gather)
                                            : enqueue(call, call, send, recv, x.wanted, &out->gather);
    out->expected = x.site;
    out->turn = call->turn;
    slr_shared_work_end();
    return s;
}

void slr_gather_number(struct slr_call *call)
{
    /* Every rank numbers the same calls in the same order, so all verify the same ones. */
    call->verify = slr_verify_due(call->comm);
    call->number = ++call->comm->substituted;
}

/* Between ranks of one process memory of pools is staged: nothing serves in its place. */
static bool any_elsewhere(const struct slr_comm *c)
{
    int r = 0;
    while (r < c->nranks && slr_shared_same_process(&c->shared, r))
        r++;
    return r < c->nranks;
}

/* Memory that gathers use is worth keeping when the application frees it, and worth looking at when
 * it is not known, or not as one block; of receive buffers, too, as peers may write into them (transfer/transfer.h). */
static void met(struct slr_comm *c, const struct slr_place *at, const void *p, size_t bytes)
{
    if (at->generation && !at->collective)
        slr_block_mark_collective(at->generation);
    if (at->generation && bytes <= at->size - at->offset)
        return;
    if (at->generation || !any_elsewhere(c) || !slr_pool_met((CUdeviceptr)(uintptr_t)p))
        slr_exports_unknown(c, (CUdeviceptr)(uintptr_t)p, bytes);
}

ncclResult_t slr_gather_ring(const struct slr_call *call, bool defer, enum slr_reason why)
{
    struct slr_comm *c = call->comm;
    struct slr_lane *lane = c->lane;
    if (slr_comm_answer(c) != ncclSuccess)
        return slr_comm_answer(c);
    slr_reach_look();
    /* Outside of the lock, as the lookup needs nothing of the communicator. */
    struct slr_place send = slr_block_find((CUdeviceptr)(uintptr_t)call->send);
    struct slr_place recv = slr_block_find((CUdeviceptr)(uintptr_t)call->recv);
    slr_lane_lock(lane);
    struct slr_member member;
    const bool together = slr_pending_goes_on(lane, call->stream);
    /* The ring's events are recorded again. */
    if (!together)
        slr_pending_join(lane, SLR_R_JOIN_NEXT_GATHER, "ncclAllGather");
    enum slr_status s = enqueue_as_expected(call, &send, &recv, &member);
    if (together)
        slr_pending_added(lane, s == SLR_OK ? &member : NULL);
    else if (s == SLR_OK)
        slr_pending_add(lane, &member);
    if (s == SLR_OK) {
        met(c, &send, call->send, call->shard);
        met(c, &recv, call->recv, call->shard * (size_t)c->nranks);
        const bool bypassed = slr_reach_doubtful();
        /* Another thread could not join a per-thread default stream, so that is not left open. */
        if (call->verify || !defer || bypassed || call->stream == CU_STREAM_PER_THREAD)
            slr_pending_join(lane,
                             call->verify ? SLR_R_JOIN_VERIFY
                             : !defer     ? why
                             : bypassed   ? SLR_R_JOIN_BYPASSED
                                          : SLR_R_JOIN_PER_THREAD,
                             "ncclAllGather");
    }
    slr_lane_unlock(lane);
    ncclResult_t r = outcome(c, s, "the gather could not be enqueued");
    /* A peer that has failed meanwhile may have published what it does not keep. */
    slr_comm_look_failed(c);
    return r == ncclSuccess ? slr_comm_answer(c) : r;
}
