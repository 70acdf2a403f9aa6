/* SPDX-License-Identifier: Apache-2.0 */
/* The reduce-scatter, and the all-reduce (scatter.h).
 *
 *   sender, publish stream                           receiver, pull stream
 *                                                      entered: wait done(me, o) >= all earlier pieces, for
 *                                                        every o: nobody reads my slots any more
 *                                                      write open(o, me) = first piece, for every o: send
 *     for each part, in the order of completion:
 *       wait for the event behind the part
 *       its receiver's first: wait open(me, r)
 *       copy it into my area of r's slots
 *       write ready(me, r) = last piece that is      wait for the entry: the call's stream has come to it
 *         there whole                                write open(o, me) = last piece, for every o
 *                                                    wait open(me, o) >= last piece, for every o
 *                                                    for each part of the own shard:
 *                                                      wait ready(o, me) >= its last piece, for every o
 *                                                      add the contributions -> recv
 *                                                    write done(o, me) = last piece, for every o
 *   tail stream:
 *     wait for the sums; wait broken(o, me) = 0 for every o; wait for the copies; record finished
 *     in a graph, of an all-reduce: wait done(me, o) = last piece, for every o, before
 *
 * Of an all-reduce a sum is written twice, into `recv` and into the own slots, in place of the first sender's
 * contribution, and said: summed(me, o) = last piece of which all is there, for every o. Each rank copies the
 * sums out of their owners' slots, on a stream of its own, `own`:
 *
 *     for each part, for every o:
 *       wait summed(o, me) >= the part's last piece;  copy it out of o's slots
 *     write done(o, me) = last piece, for every o
 *
 * So no rank writes into another's buffers, nothing has to be mapped but the slots, and a replay needs no
 * addresses. In place the region of shard o in `recv` is free when o has said that it is summed: o had taken this
 * rank's contribution before. A rank whose shard is empty has nothing to sum, and says so where it would.
 *
 * Where the ring's ranks are not all (`complete`), the sum is made in the slots first, completed there by whom the caller
 * knows, and then copied to `recv` and said. That waits for ranks elsewhere, which wait for no rank of this ring.
 *
 * Where an all-reduce is `early`, the meeting comes behind the sums: each part is added when it is computed, and copies
 * go on while the GEMM computes the next ones. Nothing stands between the GEMM and the call but other GEMMs, which use
 * nothing of all this, and the GEMM was not over when the call was made. In place, nobody has been told that the GEMM's
 * output is there, so nobody looks at it but who comes behind the call. A part of the own shard has been added when its
 * event is over; a peer's region is written when that peer has added this rank's part of it. Else, what stood on the
 * stream before the GEMM is over when its first part is, the GEMM uses nothing that is written, and no peer has that
 * memory: its own GEMM, whose first parts this rank has got, could still read it.
 *
 * A call is a meeting, as NCCL's: `recv` is written, and the call over, when the streams of all ranks have come
 * to it. So what stands before it on one rank may still use a peer's `recv`, and what comes behind it may look at
 * what stood before it on a peer. Only slots are written before, where a GEMM's parts are there early. A call
 * without such parts begins at its entry, says `open` once, and pushes behind that. Each shard has two pieces or
 * more: what `open` says of the slots, and of the meeting, are two numbers.
 *
 * Of a call that is `apart` nobody but the caller sees the sums, so nothing has to be met for them: `open` is said once, of
 * the slots, and each part is added as soon as all contributions are there.
 *
 * Pieces only count: a shard has as many on all ranks, whatever parts it is computed and sent in, so
 * a sender whose GEMM was cut and one whose GEMM was not, or that had none, serve each other. Where a part
 * does not end with a piece, it is said with the part behind it, and its receiver waits for that one. Equal parts, as
 * many as divide PIECES, do end with pieces.
 *
 * Why it can not deadlock: it adds to the argument for gathers (docs/protocol.md, 3) the sequence
 *
 *   entered open push(1) .. push(n) meet sum(1) .. sum(m) [copy(1) .. copy(m)] done conclude
 *
 * which every rank enqueues in one piece, in the communicator's order. entered needs the peers' done of
 * earlier operations, push the peers' open, meet theirs (it writes before it waits), sum the peers' pushes, copy
 * their sums, conclude this rank's own. Early sums stand before this rank's meet, which no peer's push waits for.
 * Events behind parts, and the entry, stand on the program's streams, before the call.
 *
 * In a graph (ring_record.h) nothing says in which order the driver puts nodes into its queues that no
 * edge orders. So there that sequence is made of edges, on each rank: the pushes stand behind `open`, and
 * meet and the sums behind the pushes, and copies behind the sums. Then whatever order the driver takes is the one
 * above. Parts of a GEMM stand in it where they like, as they wait for nobody.
 *
 * Failure: the words are the gathers', and so is what a dead, failed or slow peer does to them. A failed
 * rank, whose pushes have been released, may write over what a receiver is adding: it says `broken`
 * before, and the receiver's stream stays at conclude. The wait for `summed` is a receiver's, and ends with those
 * for `ready`. */
#include "kernels/scatter.h"

#include "kernels/ring_impl.h"

#define PIECES 240u /* divides evenly by all small numbers */
#define GRAIN 16u   /* bytes: a multiple of every element */
/* Of the sums. They are short, and limited by memory: few blocks, beside a GEMM, made the whole longer
 * (docs/measurements.md). */
#define BLOCKS 264u
#define AREA_ALIGN 256u /* bytes; as cuMemAlloc's */

static size_t grains(size_t bytes)
{
    return (bytes + GRAIN - 1) / GRAIN;
}

struct slr_plan slr_scatter_plan(size_t shard)
{
    return (struct slr_plan){.shard = shard, .pieces = PIECES, .chunks = PIECES, .group = 1};
}

size_t slr_scatter_bound(const struct slr_plan *plan, uint32_t pieces)
{
    const size_t bytes = grains(plan->shard) * pieces / plan->pieces * GRAIN;
    return bytes < plan->shard ? bytes : plan->shard;
}

uint32_t slr_scatter_whole(const struct slr_plan *plan, size_t bytes)
{
    return bytes == plan->shard ? plan->pieces
                                : (uint32_t)(((bytes / GRAIN + 1) * plan->pieces - 1) / grains(plan->shard));
}

uint32_t slr_scatter_touched(const struct slr_plan *plan, size_t bytes)
{
    const size_t all = grains(plan->shard);
    return (uint32_t)((grains(bytes) * plan->pieces + all - 1) / all);
}

static size_t area_bytes(size_t shard)
{
    return (shard + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
}

size_t slr_scatter_most(size_t slot, int nranks)
{
    return SLR_SLOTS * slot / (size_t)(nranks - 1) / AREA_ALIGN * AREA_ALIGN;
}

size_t slr_scatter_slot(size_t shard, int nranks)
{
    return shard > SIZE_MAX / SLR_MAX_RANKS ? shard
                                            : (area_bytes(shard) * (size_t)(nranks - 1) + SLR_SLOTS - 1) / SLR_SLOTS;
}

/* Of one writer in the receiver's slots: these are for the others only. */
static CUdeviceptr area(CUdeviceptr slots, int receiver, int writer, size_t shard)
{
    return slots + (size_t)(writer < receiver ? writer : writer - 1) * area_bytes(shard);
}

/* So many pieces of a shard are complete with the part; are touched by it. */
static uint32_t pieces_whole(const struct slr_scatter *s, const struct slr_scatter_part *part)
{
    const size_t end = part->at + part->bytes;
    return end == s->length[part->shard] ? s->plan.pieces : slr_scatter_whole(&s->plan, end);
}

static uint32_t pieces_touched(const struct slr_scatter *s, const struct slr_scatter_part *part)
{
    return slr_scatter_touched(&s->plan, part->at + part->bytes);
}

static const struct slr_slots *slots_of(const struct slr_ring *ring, const struct slr_scatter *s)
{
    return &ring->slots[s->plan.slots];
}

static int peer_at(const struct slr_ring *ring, int step)
{
    return (ring->rank + step) % ring->nranks;
}

/* ---- sender ---- */

/* `index`: of the part in its shard. */
static enum slr_status push(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first,
                            const struct slr_scatter_part *part, int index)
{
    const struct slr_plan *p = &s->plan;
    const int to = part->shard;
    const uint32_t there = pieces_whole(s, part);
    struct slr_memops m;
    m.count = 0;
    if (part->done)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->publish, part->done, 0));
    if (index == 0) {
        slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_OPEN, ring->rank, to), first);
        SLR_TRY(slr_memops_put(ring, &m, ring->publish));
    }
    if (part->done || s->earlier + index == 0)
        slr_timing_did(ring->now.timing, SLR_TRACK_PUBLISH, ring->publish, SLR_SPAN_WAIT, to, s->earlier + index, 0);
    SLR_TRY(SLR_CU(cuMemcpyAsync, area(slots_of(ring, s)->at[to], to, ring->rank, p->shard) + part->at,
                   s->send + (size_t)to * s->stride + part->at, part->bytes, ring->publish));
    slr_timing_did(ring->now.timing, SLR_TRACK_PUBLISH, ring->publish, SLR_SPAN_PUSH, to, s->earlier + index,
                   part->bytes);
    if (there > 0)
        slr_memops_say_ready(&m, ring, to, slr_ready_value(first - 1 + there, 0));
    return slr_memops_put(ring, &m, ring->publish);
}

/* A shard's parts come one after the other, from its first byte on. */
static enum slr_status push_all(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first)
{
    int parts[SLR_MAX_RANKS] = {0};
    struct slr_memops m;
    m.count = 0;
    if (s->earlier == 0)
        slr_timing_mark(ring->now.timing, SLR_TRACK_PUBLISH, ring->publish);
    for (int step = 1; step < ring->nranks; step++)
        if (s->length[peer_at(ring, step)] == 0)
            slr_memops_say_ready(&m, ring, peer_at(ring, step), slr_ready_value(first - 1 + s->plan.pieces, 0));
    SLR_TRY(slr_memops_put(ring, &m, ring->publish));
    for (unsigned i = 0; i < s->parts; i++)
        if (s->part[i].shard != ring->rank)
            SLR_TRY(push(ring, s, first, &s->part[i], parts[s->part[i].shard]++));
    return SLR_OK;
}

/* ---- receiver ---- */

/* With the first piece's number: peers may send. With the last one's: and this rank's stream has come to the call. */
static void say_open(const struct slr_ring *ring, struct slr_memops *m, uint32_t piece)
{
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_write(m, slr_dflag(ring, SLR_FLAG_OPEN, peer_at(ring, step), ring->rank), piece);
}

static enum slr_status open_slots(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first, uint32_t last)
{
    struct slr_memops m;
    m.count = 0;
    if (s->earlier == 0)
        slr_timing_mark(ring->now.timing, SLR_TRACK_PULL, ring->pull);
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer_at(ring, step)), first - 1);
    say_open(ring, &m, s->entry && !s->apart ? first : last);
    SLR_TRY(slr_memops_put(ring, &m, ring->pull));
    if (s->earlier == 0)
        slr_timing_did(ring->now.timing, SLR_TRACK_PULL, ring->pull, SLR_SPAN_WAIT, -1, -1, 0);
    return SLR_OK;
}

/* Behind the sum of the own shard's piece. */
static enum slr_status say_summed(struct slr_ring *ring, uint32_t piece)
{
    struct slr_memops m;
    m.count = 0;
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_write(&m, slr_dflag(ring, SLR_FLAG_SUMMED, ring->rank, peer_at(ring, step)), piece);
    return slr_memops_put(ring, &m, ring->pull);
}

/* Where peers find it. */
static enum slr_status spread(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first,
                              const struct slr_scatter_part *part)
{
    const struct slr_slots *slots = slots_of(ring, s);
    const CUdeviceptr there = slots->at[ring->rank] + part->at;
    if (slots->twin)
        SLR_TRY(SLR_CU(cuMemcpyAsync, slots->twin + part->at, there, part->bytes, ring->pull));
    const uint32_t whole = pieces_whole(s, part);
    return whole > 0 ? say_summed(ring, first - 1 + whole) : SLR_OK;
}

/* `m`: what it waits for besides. */
static enum slr_status sum_part(struct slr_ring *ring, const struct slr_scatter *s, struct slr_memops *m,
                                uint32_t first, const struct slr_scatter_part *part, int index)
{
    const struct slr_plan *p = &s->plan;
    const uint32_t need = pieces_touched(s, part);
    const CUdeviceptr also = s->all ? slots_of(ring, s)->at[ring->rank] + part->at : 0;
    const void *in[SLR_MAX_RANKS];
    for (int r = 0; r < ring->nranks; r++) {
        CUdeviceptr from =
            r == ring->rank ? s->send + (size_t)r * s->stride : area(s->arrives[r], ring->rank, r, p->shard);
        in[r] = (const void *)(uintptr_t)(from + part->at);
        if (r != ring->rank)
            slr_memops_await_ready(m, ring, r, slr_ready_value(first - 1 + need, 0));
    }
    if ((s->early || s->apart) && part->done)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->pull, part->done, 0));
    SLR_TRY(slr_memops_put(ring, m, ring->pull));
    slr_timing_did(ring->now.timing, SLR_TRACK_PULL, ring->pull, SLR_SPAN_WAIT, -1, s->earlier + index, 0);
    const CUdeviceptr to = s->complete ? also : s->recv + part->at;
    SLR_TRY(slr_reduce(s->reduce, ring->pull, s->type, (void *)(uintptr_t)to,
                       (void *)(uintptr_t)(s->complete ? 0 : also), in, ring->nranks, part->bytes / s->elem, s->divisor,
                       BLOCKS));
    slr_timing_did(ring->now.timing, SLR_TRACK_PULL, ring->pull, SLR_SPAN_SUM, -1, s->earlier + index, part->bytes);
    if (s->complete) {
        SLR_TRY(s->complete(s->of, ring->pull, also, part->bytes));
        SLR_TRY(SLR_CU(cuMemcpyAsync, s->recv + part->at, also, part->bytes, ring->pull));
    }
    return s->all ? spread(ring, s, first, part) : SLR_OK;
}

/* Until all ranks' streams have come to the call. */
static enum slr_status meet(struct slr_ring *ring, const struct slr_scatter *s, struct slr_memops *m, uint32_t last)
{
    if (s->entry) {
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->pull, s->entry, 0));
        say_open(ring, m, last);
    }
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_wait(m, slr_dflag(ring, SLR_FLAG_OPEN, ring->rank, peer_at(ring, step)), last);
    return SLR_OK;
}

static enum slr_status add_all(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first, uint32_t last)
{
    struct slr_memops m;
    m.count = 0;
    if (!s->early && !s->apart)
        SLR_TRY(meet(ring, s, &m, last));
    int index = 0;
    for (unsigned i = 0; i < s->parts; i++)
        if (s->part[i].shard == ring->rank)
            SLR_TRY(sum_part(ring, s, &m, first, &s->part[i], index++));
    if (s->early)
        SLR_TRY(meet(ring, s, &m, last));
    SLR_TRY(slr_memops_put(ring, &m, ring->pull)); /* of an empty shard only the meeting is left */
    return index == 0 ? say_summed(ring, last) : SLR_OK;
}

/* ---- the sums of the others ---- */

/* One part of each. */
static enum slr_status copy_sums(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first, size_t at,
                                 size_t bytes, int index)
{
    struct slr_memops m;
    struct slr_scatter_part part[SLR_MAX_RANKS];
    m.count = 0;
    for (int step = 1; step < ring->nranks; step++) {
        const int o = peer_at(ring, step);
        const size_t length = s->length[o], end = at + bytes < length ? at + bytes : length;
        part[o] = (struct slr_scatter_part){.shard = o, .at = at, .bytes = at < end ? end - at : 0};
        if (part[o].bytes)
            slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_SUMMED, o, ring->rank),
                            first - 1 + pieces_touched(s, &part[o]));
    }
    SLR_TRY(slr_memops_put(ring, &m, ring->own));
    slr_timing_did(ring->now.timing, SLR_TRACK_COPY, ring->own, SLR_SPAN_WAIT, -1, s->earlier + index, 0);
    for (int step = 1; step < ring->nranks; step++) {
        const struct slr_scatter_part *p = &part[peer_at(ring, step)];
        if (p->bytes == 0)
            continue;
        SLR_TRY(SLR_CU(cuMemcpyAsync, s->all + (size_t)p->shard * s->stride + p->at,
                       slots_of(ring, s)->at[p->shard] + p->at, p->bytes, ring->own));
        slr_timing_did(ring->now.timing, SLR_TRACK_COPY, ring->own, SLR_SPAN_PULL, p->shard, s->earlier + index,
                       p->bytes);
    }
    return SLR_OK;
}

/* All of them, when the call's stream has come to the call; in the parts of shard 0, than which none is longer. */
static enum slr_status copy_all(struct slr_ring *ring, const struct slr_scatter *s, uint32_t first)
{
    int index = 0;
    if (s->entry && !s->early)
        SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->own, s->entry, 0));
    slr_timing_mark(ring->now.timing, SLR_TRACK_COPY, ring->own);
    for (unsigned i = 0; i < s->parts; i++)
        if (s->part[i].shard == 0)
            SLR_TRY(copy_sums(ring, s, first, s->part[i].at, s->part[i].bytes, index++));
    return SLR_OK;
}

/* `read`: the stream that has read what peers have written last; behind what `pull` does. */
static enum slr_status conclude(struct slr_ring *ring, const struct slr_scatter *s, CUstream read, uint32_t last)
{
    struct slr_memops m;
    m.count = 0;
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_write(&m, slr_dflag(ring, SLR_FLAG_DONE, peer_at(ring, step), ring->rank), last);
    SLR_TRY(slr_memops_put(ring, &m, read));
    SLR_TRY(SLR_CU(cuEventRecord, ring->now.owned, read));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, ring->now.owned, 0));
    /* What stands behind it in a graph may fill the slots without asking (ring_staged.c). */
    for (int step = 1; step < ring->nranks && ring->recorded && s->all; step++)
        slr_memops_wait(&m, slr_dflag(ring, SLR_FLAG_DONE, ring->rank, peer_at(ring, step)), last);
    for (int step = 1; step < ring->nranks; step++)
        slr_memops_wait_zero(&m, slr_dflag(ring, SLR_FLAG_BROKEN, peer_at(ring, step), ring->rank));
    SLR_TRY(slr_memops_put(ring, &m, ring->tail));
    SLR_TRY(SLR_CU(cuEventRecord, ring->published, ring->publish));
    SLR_TRY(SLR_CU(cuStreamWaitEvent, ring->tail, ring->published, 0));
    return SLR_CU(cuEventRecord, ring->now.finished, ring->tail);
}

void slr_ring_scatter_number(struct slr_ring *ring, const struct slr_plan *plan, bool all)
{
    const uint32_t before = atomic_load(&ring->issued);
    slr_ring_keep_up(ring);
    atomic_store(&ring->entered, before + plan->pieces);
    if (all)
        atomic_store(&ring->spread, before + plan->pieces);
    atomic_store(&ring->issued, before + plan->pieces);
}

enum slr_status slr_ring_scatter(struct slr_ring *ring, const struct slr_scatter *s)
{
    const uint32_t before = atomic_load(&ring->issued), first = before + 1, last = before + s->plan.pieces;
    if (ring->recorded) {
        ring->recorded->scatter = true;
        ring->recorded->before = before;
    }
    slr_ring_scatter_number(ring, &s->plan, s->all != 0);
    if (s->all && !ring->recorded) /* sums, which peers read */
        ring->staged = last;
    ring->now.carrying = ring->now.restated = false;
    ring->now.settling = NULL;
    SLR_TRY(slr_ring_begin_streams(ring, true, s->all != 0));
    SLR_TRY(open_slots(ring, s, first, last));
    /* The order in which nodes of a graph were captured is nothing. And a word that is written beside a large copy takes as
     * long as that: a peer that waits to be told would wait for this rank's first push. */
    if (ring->recorded || !s->entry)
        SLR_TRY(slr_ring_in_turn(ring, ring->pull, ring->publish));
    SLR_TRY(push_all(ring, s, first));
    if (ring->recorded)
        SLR_TRY(slr_ring_in_turn(ring, ring->publish, ring->pull));
    SLR_TRY(add_all(ring, s, first, last));
    if (!s->all)
        return conclude(ring, s, ring->pull, last);
    if (ring->recorded)
        SLR_TRY(slr_ring_in_turn(ring, ring->pull, ring->own));
    SLR_TRY(copy_all(ring, s, first));
    SLR_TRY(slr_ring_in_turn(ring, ring->pull, ring->own)); /* `published` is recorded anew below */
    return conclude(ring, s, ring->own, last);
}
