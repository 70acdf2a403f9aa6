/* SPDX-License-Identifier: Apache-2.0 */
/* What a gather in a graph does otherwise (ring_record.h): staging, and its end.
 *
 * Slots are filled and read in turns of SLR_SLOTS pieces, from piece k + 1 on:
 *
 *   k = 0    fill the slots; meet; copy from the peers' slots
 *   k > 0    write done(o, me) = k; wait done(me, r) >= k; fill the slots; write ready(me, r) and wait
 *            ready(o, me) of the turn's last piece; copy from the peers' slots
 *
 * What is not staged waits for nothing there, and stands on a stream of its own, beside the copies
 * from the peers' places. That slots are free for k = 0: the end of a replay waits for done(me, r) of
 * all readers, and a launch for that of calls that were not in a graph (slr_ring_await_slots).
 *
 * Turns fit peers that are not in a graph, which fill a slot as soon as it has been read. These do
 * publish(k + 1) publish(k + 2) pull(k + 1) publish(k + 3) pull(k + 2) (docs/protocol.md, 3). A turn's words before
 * it needs their pull(k), its copies their publish(k + 2), and these need the turns before. Their
 * publish(k + 3) needs this turn, pull(k + 1) its first words. So turns stand in that order, between
 * publish(k + 2) and pull(k + 1), and publish(k + 3). */
#include "kernels/ring_impl.h"

static uint32_t end_of(const struct slr_gather *g, uint32_t from)
{
    return g->plan.pieces - from < SLR_SLOTS ? g->plan.pieces : from + SLR_SLOTS;
}

static enum slr_status fill_slots(struct slr_ring *ring, const struct slr_gather *g, CUstream stream, uint32_t from)
{
    slr_timing_mark(ring->now.timing, SLR_TRACK_PUBLISH, stream);
    for (uint32_t piece = from; piece < end_of(g, from); piece++) {
        struct slr_recorded_node copy = {.way = SLR_NODE_STAGES,
                                         .piece = piece,
                                         .slots = g->plan.slots,
                                         .own = g->send,
                                         .at = slr_plan_piece_begin(&g->plan, piece),
                                         .bytes = slr_plan_piece_bytes(&g->plan, piece)};
        SLR_TRY(slr_record_slot_copy(ring, stream, &copy));
        copy.way = SLR_NODE_TWINS;
        if (ring->slots[g->plan.slots].twin)
            SLR_TRY(slr_record_slot_copy(ring, stream, &copy));
        slr_timing_did(ring->now.timing, SLR_TRACK_PUBLISH, stream, SLR_SPAN_STAGE, -1, (int)piece, copy.bytes);
    }
    return SLR_OK;
}

static void took(struct slr_ring *ring, const struct slr_recorded_node *copy)
{
    if (ring->now.timing)
        slr_timing_did_on(ring->now.timing, SLR_TRACK_PULL, ring->tail,
                          (struct slr_timed_span){.kind = SLR_SPAN_PULL,
                                                  .peer = copy->peer,
                                                  .piece = (int)copy->piece,
                                                  .bytes = copy->bytes,
                                                  .staged = true});
}

static enum slr_status copy_from_slots(struct slr_ring *ring, const struct slr_gather *g, uint32_t from)
{
    slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->tail);
    for (uint32_t piece = from; piece < end_of(g, from); piece++)
        for (int step = 1; step < ring->nranks; step++) {
            const int owner = (ring->rank + step) % ring->nranks;
            const struct slr_recorded_node copy = {.way = SLR_NODE_UNSTAGES,
                                                   .peer = owner,
                                                   .piece = piece,
                                                   .slots = g->plan.slots,
                                                   .own = g->recv + (size_t)owner * g->plan.shard,
                                                   .at = slr_plan_piece_begin(&g->plan, piece),
                                                   .bytes = slr_plan_piece_bytes(&g->plan, piece)};
            SLR_TRY(slr_record_slot_copy(ring, ring->tail, &copy));
            took(ring, &copy);
        }
    return SLR_OK;
}

/* Says what has been taken and waits until it has been taken here; fills the slots; the same of `ready`. */
static enum slr_status next_pieces(struct slr_ring *ring, const struct slr_gather *g, uint32_t from)
{
    struct slr_memops m;
    m.count = 0;
    ring->recorded->reach = from;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_write(&m, slr_dflag(ring, SLR_FLAG_DONE, peer, ring->rank), from);
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), from);
    SLR_TRY(slr_memops_put(ring, &m, ring->tail));
    SLR_TRY(fill_slots(ring, g, ring->tail, from));
    ring->recorded->reach = end_of(g, from);
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_say_ready(&m, ring, peer, 0);
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_await_ready(&m, ring, peer, 0);
    SLR_TRY(slr_memops_put(ring, &m, ring->tail));
    return copy_from_slots(ring, g, from);
}

enum slr_status slr_record_staging(struct slr_ring *ring, const struct slr_gather *g)
{
    ring->recorded->reach = end_of(g, 0);
    return fill_slots(ring, g, ring->pull, 0);
}

/* Beside the rest, for parts of a GEMM. */
static enum slr_status settle_early(struct slr_ring *ring)
{
    struct slr_memops m;
    m.count = 0;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_await_ready(&m, ring, peer, 0);
    SLR_TRY(slr_memops_put(ring, &m, ring->publish));
    ring->now.settling = ring->now.settled;
    return SLR_CU(cuEventRecord, ring->now.settled, ring->publish);
}

enum slr_status slr_record_staged(struct slr_ring *ring, const struct slr_gather *g)
{
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->pull));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, ring->published, 0));
    SLR_TRY(copy_from_slots(ring, g, 0));
    for (uint32_t from = SLR_SLOTS; from < g->plan.pieces; from += SLR_SLOTS)
        SLR_TRY(next_pieces(ring, g, from));
    ring->recorded->reach = 0;
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->tail));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->publish, ring->published, 0));
    return settle_early(ring);
}

static enum slr_status put_done(struct slr_ring *ring)
{
    struct slr_memops m;
    m.count = 0;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_write(&m, slr_dflag(ring, SLR_FLAG_DONE, peer, ring->rank), 0);
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), 0);
    return slr_memops_put(ring, &m, ring->pull);
}

static enum slr_status put_end(struct slr_ring *ring)
{
    struct slr_memops m;
    m.count = 0;
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank)
            slr_memops_say_ready(&m, ring, peer, 0);
    for (int peer = 0; peer < ring->nranks; peer++) {
        if (peer == ring->rank)
            continue;
        slr_memops_await_ready(&m, ring, peer, 0);
        slr_memops_wait_zero(&m, slr_dflag(ring, SLR_FLAG_BROKEN, peer, ring->rank));
        slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), 0);
    }
    ring->recorded->ends = true;
    return slr_memops_put(ring, &m, ring->pull);
}

static enum slr_status correct_recorded(struct slr_ring *ring, const struct slr_gather *g)
{
    for (int step = 1; step < ring->nranks; step++) {
        const int peer = (ring->rank - step + ring->nranks) % ring->nranks;
        slr_timing_mark(ring->now.timing, SLR_TRACK_PUBLISH, ring->pull);
        SLR_TRY(slr_record_copy(ring, ring->pull, peer, SLR_NODE_CORRECTS, g->send, 0, g->plan.shard));
        slr_timing_did(ring->now.timing, SLR_TRACK_PUBLISH, ring->pull, SLR_SPAN_PUSH, peer, 0, g->plan.shard);
    }
    return SLR_OK;
}

enum slr_status slr_record_rest(struct slr_ring *ring, const struct slr_gather *g)
{
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->pull, ring->published, 0));
    SLR_TRY(put_done(ring));
    SLR_TRY(correct_recorded(ring, g));
    slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->pull);
    SLR_TRY(put_end(ring));
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->pull));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, ring->published, 0));
    return SLR_CU(cuStreamWaitEvent, ring->tail, ring->now.settled, 0);
}
