/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ring.h"

#include <stdlib.h>
#include "base/cu.h"
#include "kernels/flags.h"

static CUdeviceptr dflag(const struct slr_ring *ring, enum slr_flag_kind kind, int owner, int reader)
{
    return ring->dflags + slr_flag_offset(ring->nranks, kind, owner, reader);
}

static CUstreamBatchMemOpParams op_write(CUdeviceptr addr, uint32_t value)
{
    CUstreamBatchMemOpParams op = {0};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = addr;
    op.writeValue.value = value;
    /* The default orders the stream's earlier copies before the word, for the whole system. */
    op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return op;
}

static CUstreamBatchMemOpParams op_wait(CUdeviceptr addr, uint32_t value)
{
    CUstreamBatchMemOpParams op = {0};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = addr;
    op.waitValue.value = value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return op;
}

/* Holds the stream for ever when the owner has failed; only slr_ring_release clears the word. */
static CUstreamBatchMemOpParams op_intact(const struct slr_ring *ring, int owner)
{
    CUstreamBatchMemOpParams op = op_wait(dflag(ring, SLR_FLAG_BROKEN, owner, ring->rank), 0);
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return op;
}

/* Which peers an operation is for. */
typedef bool (*peer_filter)(const struct slr_route *route);

static bool every_peer(const struct slr_route *route)
{
    (void)route;
    return true;
}

static bool takes_itself(const struct slr_route *route)
{
    return !route || route->delivery != SLR_BY_PUSH;
}

static bool by_slot(const struct slr_route *route)
{
    return !route || route->delivery == SLR_BY_SLOT;
}

static bool zero_copy(const struct slr_route *route)
{
    return route && route->delivery == SLR_ZERO_COPY;
}

static bool arrives(const struct slr_route *route)
{
    return route && route->source == SLR_ARRIVES;
}

static const struct slr_route *route_of(const struct slr_gather *g, int peer)
{
    return g->route ? &g->route[peer] : NULL;
}

static bool any(const struct slr_ring *ring, const struct slr_gather *g, peer_filter which)
{
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank && which(route_of(g, peer)))
            return true;
    return false;
}

struct memops {
    CUstreamBatchMemOpParams op[SLR_MAX_RANKS];
    unsigned count;
};

static enum slr_status put(struct memops *m, CUstream stream)
{
    return m->count ? SLR_CU(cuStreamBatchMemOp, stream, m->count, m->op, 0) : SLR_OK;
}

/* One memory operation on this rank's own words for each of the peers, in one call on the publish
 * stream. */
static enum slr_status for_peers(struct slr_ring *ring, const struct slr_gather *g, peer_filter which, bool write,
                                 enum slr_flag_kind kind, uint32_t value)
{
    /* One call of the driver for all peers. */
    struct memops m = {.count = 0};
    for (int step = 1; step < ring->nranks; step++) {
        int peer = (ring->rank + step) % ring->nranks;
        CUdeviceptr addr = dflag(ring, kind, ring->rank, peer);
        if (which(route_of(g, peer)))
            m.op[m.count++] = write ? op_write(addr, value) : op_wait(addr, value);
    }
    return put(&m, ring->publish);
}

/* Tells the owners that push that the receive buffer is theirs to write to. */
static enum slr_status open_buffer(struct slr_ring *ring, const struct slr_gather *g, uint32_t first)
{
    struct memops m = {.count = 0};
    for (int peer = 0; peer < ring->nranks; peer++)
        if (peer != ring->rank && arrives(route_of(g, peer)))
            m.op[m.count++] = op_write(dflag(ring, SLR_FLAG_OPEN, peer, ring->rank), first);
    return put(&m, ring->pull);
}

enum slr_status slr_ring_try(struct slr_ring *ring)
{
    /* The word of a rank to itself is used by no gather. */
    CUstreamBatchMemOpParams write = op_write(dflag(ring, SLR_FLAG_READY, ring->rank, ring->rank), 1);
    SLR_TRY(SLR_CU(cuStreamBatchMemOp, ring->publish, 1, &write, 0));
    SLR_TRY(SLR_CU(cuStreamSynchronize, ring->publish));
    /* Accepted is not done: the host looks. */
    if (atomic_load(slr_flag(ring->flags, ring->nranks, SLR_FLAG_READY, ring->rank, ring->rank)) != 1)
        return SLR_CUDA;
    SLR_TRY(SLR_CU(cuStreamWaitValue32, ring->pull, dflag(ring, SLR_FLAG_READY, ring->rank, ring->rank), 1,
                   CU_STREAM_WAIT_VALUE_GEQ));
    return SLR_CU(cuStreamSynchronize, ring->pull);
}

static size_t slot_at(const struct slr_ring *ring, uint32_t seq)
{
    return (size_t)((seq - 1) % SLR_SLOTS) * ring->slot;
}

static CUdeviceptr slot_of(const struct slr_ring *ring, int owner, uint32_t seq)
{
    return ring->slots[owner] + slot_at(ring, seq);
}

/* What the publish stream was last given is measured. */
static void publish_did(struct slr_ring *ring, enum slr_span_kind kind, int peer, uint32_t piece, size_t bytes)
{
    slr_timing_did(ring->timing, SLR_LANE_PUBLISH, ring->publish, kind, peer, (int)piece, bytes);
}

static void pull_did(struct slr_ring *ring, enum slr_span_kind kind, int peer, uint32_t piece, size_t bytes)
{
    slr_timing_did(ring->timing, SLR_LANE_PULL, ring->pull, kind, peer, (int)piece, bytes);
}

static enum slr_status stage(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece)
{
    /* Nobody reads the slot, so nothing is copied there; its piece is published all the same. */
    if (!any(ring, g, by_slot))
        return SLR_OK;
    slr_timing_mark(ring->timing, SLR_LANE_PUBLISH, ring->publish);
    /* The first pieces of a communicator find the slots empty; later the words have wrapped or not,
     * both compare right. */
    SLR_TRY(for_peers(ring, g, every_peer, false, SLR_FLAG_DONE, seq - SLR_SLOTS));
    publish_did(ring, SLR_SPAN_WAIT, -1, piece, 0);
    size_t bytes = slr_plan_piece_bytes(&g->plan, piece);
    CUdeviceptr from = g->send + slr_plan_piece_begin(&g->plan, piece);
    SLR_TRY(SLR_CU(cuMemcpyAsync, slot_of(ring, ring->rank, seq), from, bytes, ring->publish));
    if (ring->twin)
        SLR_TRY(SLR_CU(cuMemcpyAsync, ring->twin + slot_at(ring, seq), from, bytes, ring->publish));
    publish_did(ring, SLR_SPAN_STAGE, -1, piece, bytes);
    return SLR_OK;
}

static enum slr_status push_to(struct slr_ring *ring, const struct slr_gather *g, uint32_t first, uint32_t piece,
                               int peer)
{
    size_t at = slr_plan_piece_begin(&g->plan, piece), bytes = slr_plan_piece_bytes(&g->plan, piece);
    slr_timing_mark(ring->timing, SLR_LANE_PUBLISH, ring->publish);
    /* The buffer stays open for the whole gather: asked once. */
    if (piece == 0) {
        SLR_TRY(SLR_CU(cuStreamWaitValue32, ring->publish, dflag(ring, SLR_FLAG_OPEN, ring->rank, peer), first,
                       CU_STREAM_WAIT_VALUE_GEQ));
        publish_did(ring, SLR_SPAN_WAIT, peer, piece, 0);
    }
    SLR_TRY(SLR_CU(cuMemcpyAsync, g->route[peer].to + at, g->send + at, bytes, ring->publish));
    publish_did(ring, SLR_SPAN_PUSH, peer, piece, bytes);
    return SLR_CU(cuStreamWriteValue32, ring->publish, dflag(ring, SLR_FLAG_READY, ring->rank, peer), first + piece,
                  CU_STREAM_WRITE_VALUE_DEFAULT);
}

/* The reader that is at step j when this rank is pushed to it is rank - j: the same pairs as in the
 * pulls. */
static enum slr_status publish_piece(struct slr_ring *ring, const struct slr_gather *g, uint32_t first, uint32_t piece)
{
    uint32_t seq = first + piece;
    /* Who reads is served before those who are written to: a push waits for its receiver, and the
     * words of the others must not stand behind that. */
    SLR_TRY(stage(ring, g, seq, piece));
    SLR_TRY(for_peers(ring, g, takes_itself, true, SLR_FLAG_READY, seq));
    for (int step = 1; step < ring->nranks; step++) {
        int peer = (ring->rank - step + ring->nranks) % ring->nranks;
        if (!takes_itself(route_of(g, peer)))
            SLR_TRY(push_to(ring, g, first, piece, peer));
    }
    return SLR_OK;
}

static CUevent chunk_event(const struct slr_ring *ring, uint32_t q, int step)
{
    return ring->chunk_event[q * (uint32_t)(ring->nranks - 1) + (uint32_t)step - 1];
}

static bool ends_chunk(const struct slr_plan *p, uint32_t piece)
{
    return (piece + 1) % p->group == 0 || piece + 1 == p->pieces;
}

/* Behind the copy: waits for ever if the owner has broken it (flags.h), and tells the owner that
 * its slot has been read. */
static enum slr_status copied(struct slr_ring *ring, int owner, uint32_t seq)
{
    CUstreamBatchMemOpParams ops[2] = {op_intact(ring, owner),
                                       op_write(dflag(ring, SLR_FLAG_DONE, owner, ring->rank), seq)};
    return SLR_CU(cuStreamBatchMemOp, ring->pull, 2, ops, 0);
}

/* Before the copy. The first piece of a gather has been waited for (await_owners). */
static enum slr_status await_owner(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece,
                                   int step)
{
    int owner = (ring->rank + step) % ring->nranks;
    /* The first owner has been waited for by await_owners, with every piece. */
    if (step == 1)
        return SLR_OK;
    if (piece > 0 || arrives(route_of(g, owner)))
        SLR_TRY(SLR_CU(cuStreamWaitValue32, ring->pull, dflag(ring, SLR_FLAG_READY, owner, ring->rank), seq,
                       CU_STREAM_WAIT_VALUE_GEQ));
    pull_did(ring, SLR_SPAN_WAIT, owner, piece, 0);
    return SLR_OK;
}

static enum slr_status pull_step(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, uint32_t piece,
                                 int step)
{
    int owner = (ring->rank + step) % ring->nranks;
    const struct slr_route *route = route_of(g, owner);
    size_t at = slr_plan_piece_begin(&g->plan, piece), bytes = slr_plan_piece_bytes(&g->plan, piece);
    CUdeviceptr to = g->recv + (size_t)owner * g->plan.shard + at;
    CUdeviceptr from = route && route->source == SLR_FROM_PLACE ? route->from + at : slot_of(ring, owner, seq);
    SLR_TRY(await_owner(ring, g, seq, piece, step));
    if (!arrives(route)) {
        SLR_TRY(SLR_CU(cuMemcpyAsync, to, from, bytes, ring->pull));
        pull_did(ring, SLR_SPAN_PULL, owner, piece, bytes);
    }
    /* Also for what arrived by itself: `done` tells the owner that this rank is past the piece. */
    SLR_TRY(copied(ring, owner, seq));
    if (ends_chunk(&g->plan, piece))
        SLR_TRY(SLR_CU(cuEventRecord, chunk_event(ring, piece / g->plan.group, step), ring->pull));
    return SLR_OK;
}

/* Waits until the first owner has piece g; for the first piece of a gather, until each has that
 * this rank reads from, so that all ranks begin together (ring.h). */
static enum slr_status await_owners(struct slr_ring *ring, const struct slr_gather *g, uint32_t seq, bool all)
{
    struct memops m = {.count = 0};
    for (int step = 1; step < ring->nranks; step++) {
        int owner = (ring->rank + step) % ring->nranks;
        if (step == 1 || (all && !arrives(route_of(g, owner))))
            m.op[m.count++] = op_wait(dflag(ring, SLR_FLAG_READY, owner, ring->rank), seq);
    }
    return put(&m, ring->pull);
}

static enum slr_status pull_piece(struct slr_ring *ring, const struct slr_gather *g, uint32_t first, uint32_t piece)
{
    uint32_t seq = first + piece;
    int next = (ring->rank + 1) % ring->nranks;
    slr_timing_mark(ring->timing, SLR_LANE_PULL, ring->pull);
    SLR_TRY(await_owners(ring, g, seq, piece == 0));
    pull_did(ring, SLR_SPAN_WAIT, next, piece, 0);
    for (int step = 1; step < ring->nranks; step++)
        SLR_TRY(pull_step(ring, g, seq, piece, step));
    return SLR_OK;
}

static enum slr_status grow_events(struct slr_ring *ring, uint32_t want)
{
    if (want <= ring->chunk_events)
        return SLR_OK;
    /* Never fewer again: what counts is the largest plan. */
    CUevent *list = realloc(ring->chunk_event, want * sizeof *list);
    if (!list)
        return SLR_NOMEM;
    ring->chunk_event = list;
    for (; ring->chunk_events < want; ring->chunk_events++)
        SLR_TRY(SLR_CU(cuEventCreate, &list[ring->chunk_events], CU_EVENT_DISABLE_TIMING));
    return SLR_OK;
}

static enum slr_status copy_own_shard(struct slr_ring *ring, const struct slr_gather *g)
{
    CUdeviceptr own = g->recv + (size_t)ring->rank * g->plan.shard;
    /* NCCL's in-place: the own shard is where it belongs. */
    if (own == g->send)
        return SLR_OK;
    slr_timing_mark(ring->timing, SLR_LANE_APP, g->stream);
    SLR_TRY(SLR_CU(cuMemcpyAsync, own, g->send, g->plan.shard, g->stream));
    slr_timing_did(ring->timing, SLR_LANE_APP, g->stream, SLR_SPAN_OWN, -1, -1, g->plan.shard);
    return SLR_OK;
}

enum slr_status slr_ring_entry(struct slr_ring *ring, CUstream stream)
{
    /* An event that is recorded again means only its latest record, and waits that are enqueued
     * already keep the earlier one: so one event serves all streams of a group. */
    SLR_TRY(SLR_CU(cuEventRecord, ring->entry, stream));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->publish, ring->entry, 0));
    return SLR_CU(cuStreamWaitEvent, ring->pull, ring->entry, 0);
}

enum slr_status slr_ring_wait_entries(struct slr_ring *ring, CUstream stream)
{
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->pull)); /* recorded anew by each gather */
    return SLR_CU(cuStreamWaitEvent, stream, ring->published, 0);
}

enum slr_status slr_ring_wait_stream(struct slr_ring *ring, CUstream from, CUstream to)
{
    SLR_TRY(SLR_CU(cuEventRecord, ring->entry, from));
    return SLR_CU(cuStreamWaitEvent, to, ring->entry, 0);
}

/* A shard that a peer reads where it lies is sent only when it has been read: until then the
 * application may not write to it. */
static enum slr_status await_readers(struct slr_ring *ring, const struct slr_gather *g, uint32_t last)
{
    if (!any(ring, g, zero_copy))
        return SLR_OK;
    slr_timing_mark(ring->timing, SLR_LANE_PUBLISH, ring->publish);
    SLR_TRY(for_peers(ring, g, zero_copy, false, SLR_FLAG_DONE, last));
    publish_did(ring, SLR_SPAN_WAIT, -1, g->plan.pieces - 1, 0);
    return SLR_OK;
}

/* How many pieces are published before the first is pulled: each slot holds one. */
static uint32_t pieces_ahead(const struct slr_plan *p)
{
    return p->pieces < SLR_SLOTS ? p->pieces : SLR_SLOTS;
}

enum slr_status slr_ring_begin(struct slr_ring *ring, const struct slr_gather *g)
{
    uint32_t first = atomic_load(&ring->issued) + 1; /* pieces count from 1 */
    SLR_TRY(grow_events(ring, g->plan.chunks * (uint32_t)(ring->nranks - 1)));
    atomic_store(&ring->issued, first + g->plan.pieces - 1);
    /* Before everything else: a pusher that waits for it may hold up what this rank waits for. */
    SLR_TRY(open_buffer(ring, g, first));
    for (uint32_t piece = 0; piece < pieces_ahead(&g->plan); piece++)
        SLR_TRY(publish_piece(ring, g, first, piece));
    return SLR_OK;
}

enum slr_status slr_ring_finish(struct slr_ring *ring, const struct slr_gather *g)
{
    uint32_t ahead = pieces_ahead(&g->plan), last = atomic_load(&ring->issued), first = last - g->plan.pieces + 1;
    for (uint32_t piece = 0; piece < g->plan.pieces; piece++) {
        SLR_TRY(pull_piece(ring, g, first, piece));
        if (piece + ahead < g->plan.pieces)
            SLR_TRY(publish_piece(ring, g, first, piece + ahead));
    }
    SLR_TRY(await_readers(ring, g, last));
    /* `finished` is recorded on one stream and has to stand for both. */
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->publish));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->pull, ring->published, 0));
    pull_did(ring, SLR_SPAN_WAIT, -1, g->plan.pieces - 1, 0);
    SLR_TRY(SLR_CU(cuEventRecord, ring->finished, ring->pull));
    ring->carrying = false;
    /* Last, on the application's stream: no peer waits for it, and nothing of the ring stands
     * behind it. */
    return copy_own_shard(ring, g);
}

enum slr_status slr_ring_join(struct slr_ring *ring, CUstream stream)
{
    /* The carrier has waited for the gather, so it now stands for the carrier's events as well. */
    if (ring->carrying)
        SLR_TRY(SLR_CU(cuEventRecord, ring->finished, ring->carrier));
    return SLR_CU(cuStreamWaitEvent, stream, ring->finished, 0);
}

enum slr_status slr_ring_join_measured(struct slr_ring *ring, CUstream stream)
{
    slr_timing_mark(ring->timing, SLR_LANE_APP, stream);
    SLR_TRY(slr_ring_join(ring, stream));
    slr_timing_did(ring->timing, SLR_LANE_APP, stream, SLR_SPAN_WAIT, -1, -1, 0);
    return SLR_OK;
}

enum slr_status slr_ring_carry(struct slr_ring *ring, CUstream stream)
{
    if (ring->carrying)
        return SLR_OK;
    /* The carrier waits for both, so its events complete when a plain gather would have been
     * over. */
    SLR_TRY(SLR_CU(cuEventRecord, ring->before, stream));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->carrier, ring->before, 0));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->carrier, ring->finished, 0));
    ring->carrying = true;
    return SLR_OK;
}

enum slr_status slr_ring_wait_before(struct slr_ring *ring, CUstream stream)
{
    return SLR_CU(cuStreamWaitEvent, stream, ring->before, 0);
}

enum slr_status slr_ring_wait_chunk(struct slr_ring *ring, CUstream stream, uint32_t q, int step)
{
    return SLR_CU(cuStreamWaitEvent, stream, chunk_event(ring, q, step), 0);
}
