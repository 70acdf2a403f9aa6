/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include "kernels/ring_impl.h"
#include "kernels/scatter.h"

/* ---- ways of a shard ---- */

/* The reader copies from `send`, or from what it takes for it. */
static bool reads_in_place(enum slr_delivery way)
{
    return way == SLR_ZERO_COPY || way == SLR_AS_EXPECTED || way == SLR_CORRECTED;
}

static int owner_at(const struct slr_ring *ring, int step)
{
    int owner = ring->rank + step; /* step < nranks: no division */
    return owner < ring->nranks ? owner : owner - ring->nranks;
}

/* ---- what an owner copies, on the publish stream ---- */

static void did(struct slr_ring *ring, enum slr_span_kind kind, int peer, uint32_t piece, size_t bytes)
{
    slr_timing_did(ring->now.timing, SLR_TRACK_PUBLISH, ring->publish, kind, peer, (int)piece, bytes);
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

/* Copies piece `piece`, whose number is `seq`, to the slot, and says so. */
static enum slr_status stage(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece)
{
    size_t bytes = slr_plan_piece_bytes(&g->plan, piece);
    CUdeviceptr from = g->send + slr_plan_piece_begin(&g->plan, piece);
    const struct slr_slots *slots = &ring->slots[g->plan.slots];
    CUdeviceptr to = slots->at[ring->rank] + slr_slot_at(slots, seq);
    slr_timing_mark(ring->now.timing, SLR_TRACK_PUBLISH, ring->publish);
    SLR_TRY(await_slot(ring, g, seq, piece));
    did(ring, SLR_SPAN_WAIT, -1, piece, 0);
    SLR_TRY(SLR_CU(cuMemcpyAsync, to, from, bytes, ring->publish));
    if (slots->twin)
        SLR_TRY(SLR_CU(cuMemcpyAsync, slots->twin + slr_slot_at(slots, seq), from, bytes, ring->publish));
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
    slr_timing_mark(ring->now.timing, SLR_TRACK_PUBLISH, ring->publish);
    /* Behind the wrong bytes, which must not come last, and what used the buffer before the gather. */
    struct slr_memops m;
    m.count = 0;
    slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer), last);
    SLR_TRY(slr_memops_put(ring, &m, ring->publish));
    did(ring, SLR_SPAN_WAIT, peer, 0, 0);
    SLR_TRY(slr_ring_copy(ring, ring->publish, g->route[peer].to_kind == SLR_MEMORY_NEAR, g->route[peer].to, g->send,
                          g->plan.shard));
    did(ring, SLR_SPAN_PUSH, peer, 0, g->plan.shard);
    slr_memops_say_ready(&m, ring, peer, slr_ready_value(last, 1));
    return slr_memops_put(ring, &m, ring->publish);
}

/* Writes the shard to the peers that have expected it elsewhere, or nowhere. */
static enum slr_status correct(struct slr_ring *ring, const struct slr_gather *g, uint32_t last)
{
    for (int step = 1; step < ring->nranks; step++)
        if (slr_delivery_to(g, reader_at(ring, step)) == SLR_CORRECTED)
            SLR_TRY(correct_peer(ring, g, last, reader_at(ring, step)));
    return SLR_OK;
}

/* ---- before the copies ---- */

static void pull_did(struct slr_ring *ring, enum slr_span_kind kind, int peer, uint32_t piece, size_t bytes)
{
    slr_timing_did(ring->now.timing, SLR_TRACK_PULL, ring->pull, kind, peer, (int)piece, bytes);
}

static bool ends_chunk(const struct slr_plan *p, uint32_t piece)
{
    return (piece + 1) % p->group == 0 || piece + 1 == p->pieces;
}

/* What an owner says of `send` before anybody reads it: all pieces are there, and whether the reader
 * has been right. */
static void offer(const struct slr_ring *ring, const struct slr_gather *g, struct slr_memops *m, int peer,
                  uint32_t last)
{
    enum slr_delivery way = slr_delivery_to(g, peer);
    if (reads_in_place(way))
        slr_memops_say_ready(m, ring, peer, slr_ready_value(last, way == SLR_AS_EXPECTED));
}

/* ---- a shard that arrives in pieces ---- */

/* Of chunk `q`: when all of it has arrived. */
static CUevent arrival_of(const struct slr_gather *g, uint32_t q)
{
    return g->arrives[(slr_plan_chunk_end(&g->plan, q) - 1) / g->arrival];
}

static uint32_t chunk_last(const struct slr_plan *p, uint32_t q)
{
    const uint32_t end = (q + 1) * p->group;
    return (end < p->pieces ? end : p->pieces) - 1;
}

/* To those that read it where it lies: the chunk that ends with the piece has arrived. */
static enum slr_status offer_chunk(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, bool last)
{
    struct slr_memops m;
    m.count = 0;
    for (int step = 1; step < ring->nranks; step++) {
        const int peer = owner_at(ring, step);
        const enum slr_delivery way = slr_delivery_to(g, peer);
        if (reads_in_place(way))
            slr_memops_say_ready(&m, ring, peer, slr_ready_value(seq, last && way == SLR_AS_EXPECTED));
    }
    return slr_memops_put(ring, &m, ring->publish);
}

/* What an owner does for a piece: says that it is there, when it is, or copies it to the slot. */
static enum slr_status give(struct slr_ring *ring, const struct slr_gather *g, uint32_t first, uint32_t piece,
                            bool stages)
{
    if (g->arrives && piece % g->plan.group == 0)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->publish, arrival_of(g, piece / g->plan.group), 0));
    if (stages)
        SLR_TRY(stage(ring, g, first + piece, piece));
    return g->arrives && ends_chunk(&g->plan, piece) ? offer_chunk(ring, g, first + piece, piece + 1 == g->plan.pieces)
                                                     : SLR_OK;
}

/* Says what is to be read here, then waits until all owners have their first piece, so that all ranks
 * begin together. */
static enum slr_status meet(struct slr_ring *ring, const struct slr_gather *g, uint32_t first, uint32_t last)
{
    struct slr_memops m;
    m.count = 0;
    slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->pull);
    uint32_t in_place = last;
    if (__builtin_expect(g->arrives != NULL, 0))
        in_place = first + chunk_last(&g->plan, 0);
    else
        for (int step = 1; step < ring->nranks; step++)
            offer(ring, g, &m, owner_at(ring, step), last);
    for (int step = 1; step < ring->nranks; step++) {
        int owner = owner_at(ring, step);
        uint32_t piece = slr_source_of(g, owner) == SLR_FROM_SLOT ? first : in_place;
        slr_memops_await_ready(&m, ring, owner, slr_ready_value(piece, 0));
    }
    SLR_TRY(slr_memops_put(ring, &m, ring->pull));
    pull_did(ring, SLR_SPAN_WAIT, owner_at(ring, 1), 0, 0);
    return SLR_OK;
}

/* ---- one piece ---- */

/* Before the copy, where slr_ring_finish's wait for the first piece does not say enough. */
static enum slr_status await_owner(struct slr_ring *ring, uint32_t seq, uint32_t piece, int owner)
{
    if (piece > 0) {
        struct slr_memops m;
        m.count = 0;
        slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->pull);
        slr_memops_await_ready(&m, ring, owner, slr_ready_value(seq, 0));
        SLR_TRY(slr_memops_put(ring, &m, ring->pull));
        pull_did(ring, SLR_SPAN_WAIT, owner, piece, 0);
    }
    return SLR_OK;
}

static enum slr_status end_chunk(struct slr_ring *ring, const struct slr_gather *g, uint32_t piece, int step)
{
    return ends_chunk(&g->plan, piece)
               ? SLR_CU(cuEventRecord, slr_chunk_event(ring, piece / g->plan.group, step), ring->pull)
               : SLR_OK;
}

static bool by_kernel(const struct slr_gather *g, int owner)
{
    return slr_source_of(g, owner) != SLR_FROM_SLOT && g->route[owner].from_kind == SLR_MEMORY_NEAR;
}

/* Some bytes of an owner's shard, which end piece `seq`; none where it is expected nowhere. */
static enum slr_status pull(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, int owner, size_t at,
                            size_t bytes)
{
    enum slr_source way = slr_source_of(g, owner);
    CUdeviceptr to = g->recv + (size_t)owner * g->plan.shard + at;
    const struct slr_slots *slots = &ring->slots[g->plan.slots];
    CUdeviceptr from = way == SLR_FROM_SLOT ? slots->at[owner] + slr_slot_at(slots, seq) : g->route[owner].from + at;
    if (ring->recorded) {
        SLR_TRY(slr_record_copy(ring, ring->pull, owner, SLR_NODE_PULLS, g->recv + (size_t)owner * g->plan.shard, at,
                                bytes));
    } else if (way == SLR_FROM_SLOT || g->route[owner].from) {
        SLR_TRY(slr_ring_copy(ring, ring->pull, by_kernel(g, owner), to, from, bytes));
    } else {
        return SLR_OK;
    }
    pull_did(ring, SLR_SPAN_PULL, owner, (uint32_t)(at / g->plan.piece), bytes);
    return SLR_OK;
}

/* Behind it the owner fills the slot again; the other owners wait for the end only. */
static enum slr_status pull_from_slot(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece,
                                      int owner)
{
    SLR_TRY(await_owner(ring, seq, piece, owner));
    SLR_TRY(pull(ring, g, seq, owner, slr_plan_piece_begin(&g->plan, piece), slr_plan_piece_bytes(&g->plan, piece)));
    return SLR_CU(cuStreamWriteValue32, ring->pull, slr_dflag(ring, SLR_FLAG_DONE, owner, ring->rank), seq,
                  CU_STREAM_WRITE_VALUE_DEFAULT);
}

/* What does not go through a slot is not cut further than it is waited for. */
static enum slr_status pull_chunk(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t q,
                                  int owner)
{
    if (g->arrives)
        SLR_TRY(await_owner(ring, seq, q, owner));
    const size_t at = slr_plan_chunk_begin(&g->plan, q);
    return pull(ring, g, seq, owner, at, slr_plan_chunk_end(&g->plan, q) - at);
}

static enum slr_status pull_step(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece,
                                 int step)
{
    int owner = owner_at(ring, step);
    if (slr_source_of(g, owner) == SLR_FROM_SLOT)
        SLR_TRY(pull_from_slot(ring, g, seq, piece, owner));
    else if (ends_chunk(&g->plan, piece))
        SLR_TRY(pull_chunk(ring, g, seq, piece / g->plan.group, owner));
    return end_chunk(ring, g, piece, step);
}

static enum slr_status pull_piece(struct slr_ring *ring, const struct slr_gather *g, uint32_t first, uint32_t piece)
{
    slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->pull);
    for (int step = 1; step < ring->nranks; step++)
        SLR_TRY(pull_step(ring, g, first + piece, piece, step));
    return SLR_OK;
}

/* No source is a slot, so all of a shard can be read at once. */
static bool can_be_whole(const struct slr_ring *ring, const struct slr_gather *g)
{
    if (g->arrives && g->plan.chunks > 1)
        return false;
    for (int step = 1; step < ring->nranks; step++)
        if (slr_source_of(g, owner_at(ring, step)) == SLR_FROM_SLOT)
            return false;
    return true;
}

/* Every copy takes some microseconds before its first byte moves, so pieces are for who waits for
 * them, and so are events. */
static enum slr_status pull_whole(struct slr_ring *ring, const struct slr_gather *g, uint32_t last)
{
    slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->pull);
    for (int step = 1; step < ring->nranks; step++) {
        SLR_TRY(pull(ring, g, last, owner_at(ring, step), 0, g->plan.shard));
        if (!ring->now.once || step + 1 == ring->nranks)
            SLR_TRY(SLR_CU(cuEventRecord, slr_chunk_event(ring, ring->now.chunks - 1, step), ring->pull));
    }
    return SLR_OK;
}

static enum slr_status grow_events(struct slr_ring *ring, uint32_t want)
{
    if (want <= ring->now.chunk_events)
        return SLR_OK;
    /* Never fewer again: what counts is the largest plan. */
    CUevent *list = realloc(ring->now.chunk_event, want * sizeof *list);
    if (!list)
        return SLR_NOMEM;
    ring->now.chunk_event = list;
    for (; ring->now.chunk_events < want; ring->now.chunk_events++)
        SLR_TRY(SLR_CU(cuEventCreate, &list[ring->now.chunk_events], CU_EVENT_DISABLE_TIMING));
    return SLR_OK;
}

bool slr_ring_in_place(const struct slr_ring *ring, const struct slr_gather *g)
{
    return slr_gather_own(g, ring->rank) == g->send;
}

/* A copy within the device is a kernel: on a stream where neither the application's GEMM nor the
 * peers' shards stand behind it. Where nobody is expected to wait for it alone that is the tail,
 * which has to wait for it anyway. */
static CUstream own_stream(const struct slr_ring *ring, const struct slr_gather *g)
{
    return g->wanted == SLR_WANTS_NOTHING ? ring->tail : ring->own;
}

static bool any_by_kernel(const struct slr_ring *ring, const struct slr_gather *g)
{
    for (int step = 1; step < ring->nranks; step++)
        if (by_kernel(g, owner_at(ring, step)))
            return true;
    return ring->recorded; /* perhaps */
}

/* The driver's kernel takes all multiprocessors, and one that copies peers' shards stands behind it; ours is
 * as fast where both ends are aligned alike. */
static bool leaves_room(const struct slr_ring *ring, const struct slr_gather *g, CUdeviceptr to, CUdeviceptr from)
{
    return ring->code && (to - from) % 16 == 0 && any_by_kernel(ring, g);
}

static enum slr_status copy_own(struct slr_ring *ring, const struct slr_gather *g, CUdeviceptr from, CUstream on)
{
    const CUdeviceptr to = slr_gather_own(g, ring->rank);
    slr_timing_mark(ring->now.timing, SLR_TRACK_APP, on);
    SLR_TRY(slr_ring_copy(ring, on, leaves_room(ring, g, to, from), to, from, g->plan.shard));
    slr_timing_did(ring->now.timing, SLR_TRACK_APP, on, SLR_SPAN_OWN, -1, -1, g->plan.shard);
    ring->now.own_copied = on == ring->tail ? ring->now.finished : ring->now.owned;
    return on == ring->tail ? SLR_OK : SLR_CU(cuEventRecord, ring->now.owned, on);
}

static enum slr_status copy_own_shard(struct slr_ring *ring, const struct slr_gather *g)
{
    return slr_ring_in_place(ring, g) ? SLR_OK : copy_own(ring, g, g->send, own_stream(ring, g));
}

/* Behind what stood before the gather, before anything is said of the shard. */
static enum slr_status vacate(struct slr_ring *ring, const struct slr_gather *g, bool sends)
{
    SLR_TRY(copy_own(ring, g, g->vacated, ring->pull));
    return sends ? SLR_CU(cuStreamWaitEvent, ring->publish, ring->now.owned, 0) : SLR_OK;
}

/* ---- the gather ---- */

/* How many pieces are published before the first is pulled: each slot holds one. */
static uint32_t pieces_ahead(const struct slr_plan *p)
{
    return p->pieces < SLR_SLOTS ? p->pieces : SLR_SLOTS;
}

void slr_ring_number(struct slr_ring *ring, const struct slr_gather *g)
{
    const uint32_t last = atomic_load(&ring->issued) + g->plan.pieces;
    slr_ring_keep_up(ring);
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank && slr_delivery_to(g, peer) == SLR_CORRECTED)
            atomic_store(&ring->corrected[peer], slr_ready_value(last, 1));
    atomic_store(&ring->issued, last);
}

void slr_ring_expects(struct slr_ring *ring, const struct slr_gather *g)
{
    const uint32_t last = atomic_load(&ring->issued);
    for (int step = 1; step < ring->nranks; step++)
        if (slr_source_of(g, owner_at(ring, step)) == SLR_FROM_EXPECTED)
            atomic_store(&ring->expected[owner_at(ring, step)], slr_ready_value(last, 1));
}

enum slr_status slr_ring_begin(struct slr_ring *ring, const struct slr_gather *g)
{
    uint32_t first = atomic_load(&ring->issued) + 1; /* pieces count from 1 */
    SLR_TRY(grow_events(ring, g->plan.chunks * (uint32_t)(ring->nranks - 1)));
    slr_ring_number(ring, g);
    unsigned deliveries = slr_ring_deliveries(ring, g);
    bool sends = slr_ring_sends(deliveries), stages = slr_ring_stages(deliveries);
    SLR_TRY(slr_ring_begin_streams(ring, sends || g->arrives,
                                   !slr_ring_in_place(ring, g) && own_stream(ring, g) == ring->own));
    if (g->vacated)
        SLR_TRY(vacate(ring, g, sends));
    ring->now.stages = stages && g->wanted != SLR_WANTS_NOTHING && !ring->recorded;
    if (ring->recorded)
        return slr_record_staging(ring, g);
    for (uint32_t piece = 0; (stages || g->arrives) && piece < pieces_ahead(&g->plan); piece++)
        SLR_TRY(give(ring, g, first, piece, stages));
    return ring->now.stages ? SLR_CU(cuEventRecord, ring->now.staged, ring->publish) : SLR_OK;
}

/* ---- the end of a gather ---- */

/* What has been read may be overwritten, and so may be what was to be. For slots it has been said. */
static void say_done(const struct slr_ring *ring, const struct slr_gather *g, struct slr_memops *m, uint32_t last)
{
    for (int step = 1; step < ring->nranks; step++)
        if (slr_source_of(g, owner_at(ring, step)) != SLR_FROM_SLOT)
            slr_memops_write(m, slr_dflag(ring, SLR_FLAG_DONE, owner_at(ring, step), ring->rank), last);
}

/* What has been expected somewhere, or nowhere, is right when the owners say so. */
static void await_settled(const struct slr_ring *ring, const struct slr_gather *g, struct slr_memops *m, uint32_t last)
{
    for (int step = 1; step < ring->nranks; step++)
        if (slr_source_of(g, owner_at(ring, step)) == SLR_FROM_EXPECTED)
            slr_memops_await_ready(m, ring, owner_at(ring, step), slr_ready_value(last, 1));
}

/* What this rank has read is right unless its owner says that it has broken it (flags.h): then the
 * stream stays here. A shard that peers read where it lies is sent only when they have read it:
 * until then the application may not write to it. */
static void await_readers(const struct slr_ring *ring, const struct slr_gather *g, struct slr_memops *m, uint32_t last)
{
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_wait_zero(m, slr_dflag(ring, SLR_FLAG_BROKEN, owner_at(ring, step), ring->rank));
    for (int step = 1; step < ring->nranks; step++)
        if (reads_in_place(slr_delivery_to(g, owner_at(ring, step))))
            slr_memops_wait(m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, owner_at(ring, step)), last);
}

/* `finished` is recorded on one stream and has to stand for all. */
static enum slr_status finish_tail(struct slr_ring *ring, const struct slr_gather *g, bool sends)
{
    if (!slr_ring_in_place(ring, g) && own_stream(ring, g) != ring->tail)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, ring->now.owned, 0));
    if (sends) {
        SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->publish));
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, ring->published, 0));
    }
    slr_timing_did(ring->now.timing, SLR_TRACK_PULL, ring->tail, SLR_SPAN_WAIT, -1, (int)g->plan.pieces - 1, 0);
    return SLR_CU(cuEventRecord, ring->now.finished, ring->tail);
}

static enum slr_status conclude(struct slr_ring *ring, const struct slr_gather *g, uint32_t last, bool sends)
{
    struct slr_memops m;
    m.count = 0;
    if (ring->recorded) {
        SLR_TRY(copy_own_shard(ring, g));
        SLR_TRY(slr_record_rest(ring, g));
        return finish_tail(ring, g, false);
    }
    say_done(ring, g, &m, last);
    SLR_TRY(slr_memops_put(ring, &m, ring->pull));
    if (sends)
        SLR_TRY(correct(ring, g, last));
    /* Late: no peer waits for it. */
    SLR_TRY(copy_own_shard(ring, g));
    await_settled(ring, g, &m, last);
    ring->now.settling = m.count > 0 ? ring->now.finished : NULL;
    /* Alone where parts of a GEMM wait for that, else with what only the end needs. */
    if (ring->now.settling && g->wanted != SLR_WANTS_NOTHING) {
        SLR_TRY(slr_memops_put(ring, &m, ring->tail));
        SLR_TRY(SLR_CU(cuEventRecord, ring->now.settled, ring->tail));
        ring->now.settling = ring->now.settled;
    }
    /* That event stands before the words, which no stream of this rank waits for. */
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, slr_last_event(ring), 0));
    slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->tail);
    await_readers(ring, g, &m, last);
    SLR_TRY(slr_memops_put(ring, &m, ring->tail));
    return finish_tail(ring, g, sends);
}

enum slr_status slr_ring_finish(struct slr_ring *ring, const struct slr_gather *g)
{
    uint32_t ahead = pieces_ahead(&g->plan), last = atomic_load(&ring->issued), first = last - g->plan.pieces + 1;
    unsigned deliveries = slr_ring_deliveries(ring, g);
    bool stages = slr_ring_stages(deliveries);
    slr_ring_expects(ring, g);
    ring->now.chunks = g->plan.chunks;
    ring->now.whole = g->wanted != SLR_WANTS_CHUNKS && can_be_whole(ring, g);
    ring->now.once = ring->now.whole && g->wanted == SLR_WANTS_NOTHING;
    ring->now.early = false;
    SLR_TRY(meet(ring, g, first, last));
    if (ring->recorded)
        SLR_TRY(slr_record_staged(ring, g));
    /* A word that is written beside a large copy takes longer, so where nobody waits for the copy it
     * waits for the meeting. */
    if (g->wanted == SLR_WANTS_NOTHING && !slr_ring_in_place(ring, g))
        SLR_TRY(slr_ring_in_turn(ring, ring->pull, own_stream(ring, g)));
    if (ring->now.whole)
        SLR_TRY(pull_whole(ring, g, last));
    for (uint32_t piece = 0; piece < g->plan.pieces; piece++) {
        if (!ring->now.whole)
            SLR_TRY(pull_piece(ring, g, first, piece));
        if ((stages || g->arrives) && piece + ahead < g->plan.pieces)
            SLR_TRY(give(ring, g, first, piece + ahead, stages));
    }
    ring->now.carrying = ring->now.restated = false;
    return conclude(ring, g, last, slr_ring_sends(deliveries) || g->arrives);
}
