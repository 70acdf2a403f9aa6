/* SPDX-License-Identifier: Apache-2.0 */
/* The ring: what an owner copies, on the publish stream. */
#include "kernels/ring_impl.h"

static void did(struct slr_ring *ring, enum slr_span_kind kind, int peer, uint32_t piece, size_t bytes)
{
    slr_timing_did(ring->timing, SLR_TRACK_PUBLISH, ring->publish, kind, peer, (int)piece, bytes);
}

/* The slot is free when its readers have copied the piece that was there. In the first pieces of a
 * gather that is an earlier gather's, which had readers of its own; at its end all peers have said
 * `done`, whether they read the slot or not. */
static enum slr_status await_slot(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece)
{
    struct slr_memops m;
    m.count = 0;
    for (int step = 1; step < ring->nranks; step++) {
        int peer = (ring->rank + step) % ring->nranks;
        if (piece < SLR_SLOTS || slr_delivery_to(g, peer) == SLR_BY_SLOT)
            slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), seq - SLR_SLOTS);
    }
    return slr_memops_put(ring, &m, ring->publish);
}

enum slr_status slr_ring_stage(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece)
{
    size_t bytes = slr_plan_piece_bytes(&g->plan, piece);
    CUdeviceptr from = g->send + slr_plan_piece_begin(&g->plan, piece);
    CUdeviceptr to = ring->slots[ring->rank] + slr_slot_at(ring, seq);
    slr_timing_mark(ring->timing, SLR_TRACK_PUBLISH, ring->publish);
    SLR_TRY(await_slot(ring, g, seq, piece));
    did(ring, SLR_SPAN_WAIT, -1, piece, 0);
    SLR_TRY(SLR_CU(cuMemcpyAsync, to, from, bytes, ring->publish));
    if (ring->twin)
        SLR_TRY(SLR_CU(cuMemcpyAsync, ring->twin + slr_slot_at(ring, seq), from, bytes, ring->publish));
    did(ring, SLR_SPAN_STAGE, -1, piece, bytes);
    ring->staged = seq;
    struct slr_memops m;
    m.count = 0;
    for (int step = 1; step < ring->nranks; step++) {
        int peer = (ring->rank + step) % ring->nranks;
        if (slr_delivery_to(g, peer) == SLR_BY_SLOT)
            slr_memops_say_ready(&m, ring, peer, slr_ready_value(seq, 0));
    }
    return slr_memops_put(ring, &m, ring->publish);
}

/* The reader that is at step j when this rank writes to it is rank - j: the same pairs as in the
 * pulls. */
static int reader_at(const struct slr_ring *ring, int step)
{
    return (ring->rank - step + ring->nranks) % ring->nranks;
}

static enum slr_status correct_peer(struct slr_ring *ring, const struct slr_gather *g, uint32_t last, int peer)
{
    slr_timing_mark(ring->timing, SLR_TRACK_PUBLISH, ring->publish);
    /* Behind the wrong bytes, which must not come last, and what used the buffer before the gather. */
    struct slr_memops m;
    m.count = 0;
    slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), last);
    SLR_TRY(slr_memops_put(ring, &m, ring->publish));
    did(ring, SLR_SPAN_WAIT, peer, 0, 0);
    SLR_TRY(SLR_CU(cuMemcpyAsync, g->route[peer].to, g->send, g->plan.shard, ring->publish));
    did(ring, SLR_SPAN_PUSH, peer, 0, g->plan.shard);
    slr_memops_say_ready(&m, ring, peer, slr_ready_value(last, 1));
    return slr_memops_put(ring, &m, ring->publish);
}

enum slr_status slr_ring_correct(struct slr_ring *ring, const struct slr_gather *g, uint32_t last)
{
    for (int step = 1; step < ring->nranks; step++)
        if (slr_delivery_to(g, reader_at(ring, step)) == SLR_CORRECTED)
            SLR_TRY(correct_peer(ring, g, last, reader_at(ring, step)));
    return SLR_OK;
}
