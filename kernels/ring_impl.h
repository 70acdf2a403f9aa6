/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the ring, for this folder only: operations on its words, what the reader's part and the owner's
 * know of each other, and what is remembered while it is recorded. */
#ifndef SLR_KERNELS_RING_IMPL_H
#define SLR_KERNELS_RING_IMPL_H

#include "kernels/flags.h"
#include "kernels/ring_record.h"
#include "kernels/timing.h"

/* Operations on words that one call of the driver enqueues; a call costs more than ten of them. */
struct slr_memops {
    CUstreamBatchMemOpParams op[4 * SLR_MAX_RANKS]; /* as many as the driver takes */
    unsigned count;                                 /* the rest is not initialised */
};

/* word = value, behind everything that the stream has done, for the whole system; and until the
 * word has reached the value. The same for words of 64 bits, and for ready(me, peer) and
 * ready(peer, me). */
void slr_memops_write(struct slr_memops *m, CUdeviceptr word, uint32_t value);
void slr_memops_wait(struct slr_memops *m, CUdeviceptr word, uint32_t value);
void slr_memops_write64(struct slr_memops *m, CUdeviceptr word, uint64_t value);
void slr_memops_wait64(struct slr_memops *m, CUdeviceptr word, uint64_t value);
void slr_memops_say_ready(struct slr_memops *m, const struct slr_ring *ring, int peer, uint64_t value);
void slr_memops_await_ready(struct slr_memops *m, const struct slr_ring *ring, int peer, uint64_t value);
void slr_memops_wait_zero(struct slr_memops *m, CUdeviceptr word); /* until the word is 0 */
/* Enqueues and empties it. `stream` is one of the ring's. */
enum slr_status slr_memops_put(struct slr_ring *ring, struct slr_memops *m, CUstream stream);

/* A word as this device sees it. */
static inline CUdeviceptr slr_dflag(const struct slr_ring *ring, enum slr_flag_kind kind, int owner, int reader)
{
    return ring->dflags + slr_flag_offset(ring->nranks, kind, owner, reader);
}

static inline size_t slr_slot_at(const struct slr_slots *slots, uint32_t seq)
{
    return (size_t)((seq - 1) % SLR_SLOTS) * slots->bytes;
}

/* The slot of a piece with this number that a copy in a graph fills or reads. */
static inline CUdeviceptr slr_recorded_slot(const struct slr_ring *ring, const struct slr_recorded_node *copy,
                                            uint32_t seq)
{
    const struct slr_slots *slots = &ring->slots[copy->slots];
    const CUdeviceptr base = copy->way == SLR_NODE_STAGES  ? slots->at[ring->rank]
                             : copy->way == SLR_NODE_TWINS ? slots->twin
                                                           : slots->at[copy->peer];
    return base + slr_slot_at(slots, seq);
}

/* Ways of this rank's shard to a peer, and of the peer's to this rank. */
static inline enum slr_delivery slr_delivery_to(const struct slr_gather *g, int peer)
{
    return g->route ? g->route[peer].delivery : SLR_BY_SLOT;
}

static inline enum slr_source slr_source_of(const struct slr_gather *g, int peer)
{
    return g->route ? g->route[peer].source : SLR_FROM_SLOT;
}

/* Behind the copy of chunk `q` of the shard that arrives at `step`. */
static inline CUevent slr_chunk_event(const struct slr_ring *ring, uint32_t q, int step)
{
    return ring->now.chunk_event[q * (uint32_t)(ring->nranks - 1) + (uint32_t)step - 1];
}

/* Behind all copies of the pull stream. */
static inline CUevent slr_last_event(const struct slr_ring *ring)
{
    return slr_chunk_event(ring, ring->now.chunks - 1, ring->nranks - 1);
}

/* Before pieces are numbered: what has not been told anew for very many pieces is brought up, as
 * numbers that are compared cyclically must not be half of the range apart. */
void slr_ring_keep_up(struct slr_ring *ring);

/* In which ways peers get this rank's shard: a bit for each enum slr_delivery. */
unsigned slr_ring_deliveries(const struct slr_ring *ring, const struct slr_gather *g);

/* ---- the order of its streams: ring_streams.c ---- */

/* The next operation comes behind the latest one. */
enum slr_status slr_ring_stand_behind(struct slr_ring *ring);

/* Puts the streams behind the entries, if any, and behind the operation before: in a group that may
 * have received what this one sends, and the words of the two must not come in another order.
 * `publish`, `own`: these streams have work. */
enum slr_status slr_ring_begin_streams(struct slr_ring *ring, bool publish, bool own);

/* Makes the one stream of the ring's wait for what is on the other one now. */
enum slr_status slr_ring_in_turn(struct slr_ring *ring, CUstream before, CUstream behind);

/* ---- the owner's part ---- */

static inline bool slr_ring_stages(unsigned deliveries)
{
    return (deliveries & 1u << SLR_BY_SLOT) != 0;
}

/* Whether this rank moves bytes to a peer, which is the publish stream's work. All else that an
 * owner says stands on the pull stream. */
static inline bool slr_ring_sends(unsigned deliveries)
{
    return (deliveries & (1u << SLR_BY_SLOT | 1u << SLR_CORRECTED)) != 0;
}

/* ---- while it is recorded: ring_record.c, ring_staged.c ---- */

/* `stream` has just been given the operations. */
void slr_record_words(struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op, unsigned count);

/* Puts copies on the stream, from or, where they correct, to the stand-in for the peer's place. */
enum slr_status slr_record_copy(struct slr_ring *ring, CUstream stream, int peer, enum slr_recorded_way way,
                                CUdeviceptr own, size_t at, size_t bytes);

/* Staging, before and behind the meeting of a gather. The latter leaves `published` behind what
 * comes from slots. */
enum slr_status slr_record_staging(struct slr_ring *ring, const struct slr_gather *g);
enum slr_status slr_record_staged(struct slr_ring *ring, const struct slr_gather *g);

/* The end, behind the copies of the pull stream. Leaves `published` behind it, and the tail. */
enum slr_status slr_record_rest(struct slr_ring *ring, const struct slr_gather *g);

/* Puts a copy of a piece between `own` and a slot on the stream; on in replays that use it. */
enum slr_status slr_record_slot_copy(struct slr_ring *ring, CUstream stream, const struct slr_recorded_node *copy);

/* To this rank's end. */
static inline bool slr_recorded_takes(enum slr_recorded_way way)
{
    return way == SLR_NODE_PULLS || way == SLR_NODE_UNSTAGES;
}

#endif
