/* SPDX-License-Identifier: Apache-2.0 */
/* A gather of the ring inside of a CUDA graph, or a reduce-scatter.
 *
 * The ring is recorded as it is enqueued: ring.c runs on streams that capture, and what depends on
 * the call is remembered as nodes of the graph. All else (the own shard's copy, edges, the parts of
 * a GEMM) is the same in every replay. Before each launch of the executable graph the nodes are
 * given what this replay of the gather has agreed with the peers, as any other call has:
 *
 *   node                          what it is given
 *   words: meet, done, end        the number of the call's last piece, or of pieces in slots
 *   a copy from a peer's place    that place; off where the shard comes from a slot, or the place is of
 *                                 the other kind of memory
 *   words and copy: correct       where the peer has taken something else for this rank's shard
 *                                 (SLR_CORRECTED): its place in the peer's receive buffer. Else the
 *                                 copy is off and the words wait for nothing
 *   a copy to an own slot,        the slot; off where no peer takes this rank's shard from there
 *   from a peer's slot            the slot; off where the shard lies elsewhere
 *   stamps                        events, where it is measured: timing_graph.h
 *
 * So a replay is a call like any other, and a peer may have made its own from a graph or not. What
 * is not in the graph are pushes to a buffer that was opened (SLR_BY_PUSH, SLR_ARRIVES): gathers are
 * recorded where shards are pulled.
 *
 * Slots are filled and read in turns of SLR_SLOTS pieces, from piece k + 1 on (ring_staged.c):
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
 * publish(k + 1) publish(k + 2) pull(k + 1) publish(k + 3) pull(k + 2) (ring.h). A turn's words before
 * it needs their pull(k), its copies their publish(k + 2), and these need the turns before. Their
 * publish(k + 3) needs this turn, pull(k + 1) its first words. So turns stand in ring.h's order, between
 * publish(k + 2) and pull(k + 1), and publish(k + 3).
 *
 * A change holds for launches behind it; those that run, or wait, keep what they had (CUDA). It
 * costs 0.1 to 0.3 us for a node, and nothing at the launch (docs/measurements.md). Of a copy's two
 * ends the context may not change (CUDA), nor the kind of memory. As seen with driver 580, any memory
 * of cuMemAlloc may become any other, also an import; memory of cuMemCreate may only become other
 * such memory of the same device, to which the same devices have access. So while it is recorded other
 * memory stands in for what is not known yet: the peer's slot, and virtual memory. There is a copy for
 * each kind, of which a replay turns one on.
 *
 * A reduce-scatter (ring_scatter.h) needs only its words: what it copies lies in the program's buffers and
 * in slots, which stay where they are, and nothing is agreed on. Each word was captured with a number of
 * pieces behind the call before; a replay gets as many behind its own.
 *
 * Why no order that the driver gives to nodes can make ranks wait for each other. It sees no order that
 * words make, and may put a graph's nodes into one queue. But the nodes with words stand in one chain of
 * edges, the same on all ranks: meet, turns, done, end; and each writes before it waits, for what the
 * peers' node at that place, or an earlier one, has written. The nodes between them wait for nobody.
 * One node stands beside the chain: where a GEMM runs in parts these wait early for a shard that was
 * read from an expected place to be right (SLR_RECORDED_EARLY). It is satisfied by the peers' meet, but
 * where the place was wrong; a driver that then had the rest of the graph wait behind it would hold up
 * the peers. Where no GEMM is in parts it waits for nothing.
 *
 * Not thread-safe: under the lock of the ring's owner. */
#ifndef SLR_KERNELS_RING_RECORD_H
#define SLR_KERNELS_RING_RECORD_H

#include "kernels/ring.h"

/* What an operation on a word is for. */
enum slr_recorded_role {
    SLR_RECORDED_OFFER,    /* ready(me, peer): `send` holds the shard, or slots hold the first `at` pieces */
    SLR_RECORDED_MEET,     /* until ready(peer, me), likewise */
    SLR_RECORDED_DONE,     /* done(peer, me), of the first `at` pieces */
    SLR_RECORDED_FREED,    /* until done(me, peer), of those, before slots are filled again */
    SLR_RECORDED_COPIED,   /* until done(me, peer), before a correction */
    SLR_RECORDED_CORRECT,  /* ready(me, peer), settled, behind a correction */
    SLR_RECORDED_SETTLED,  /* until ready(peer, me), settled */
    SLR_RECORDED_EARLY,    /* likewise, for parts of a GEMM that wait before the end */
    SLR_RECORDED_UNBROKEN, /* until broken(peer, me) is 0 */
    SLR_RECORDED_READ,     /* until done(me, peer), at the end */
    /* Of a reduce-scatter: whatever the word is for, the piece with the number `at` of the call. */
    SLR_RECORDED_SAYS,
    SLR_RECORDED_AWAITS,
    SLR_RECORDED_SAYS_READY,  /* of 64 bits */
    SLR_RECORDED_AWAITS_READY /* likewise */
};

struct slr_recorded_op {
    uint16_t role, peer;
    uint32_t at; /* pieces of the call; of a reduce-scatter 0 is the last one before it */
    CUdeviceptr word;
};

enum slr_recorded_way {
    SLR_NODE_PULLS,    /* from the peer's place */
    SLR_NODE_CORRECTS, /* to the peer's place */
    SLR_NODE_STAGES,   /* to an own slot, */
    SLR_NODE_TWINS,    /* and to its twin */
    SLR_NODE_UNSTAGES  /* from the peer's slot */
};

struct slr_recorded_node {
    CUgraphNode node;
    uint32_t first, ops; /* of a node with words; 0: it is a copy */
    enum slr_recorded_way way;
    int peer;
    enum slr_memory kind; /* of the peer's place */
    uint32_t piece;       /* of a slot */
    CUdeviceptr own;      /* this rank's end */
    size_t at, bytes;
    /* As last given to the executable graph. */
    CUdeviceptr other; /* the other end; 0: not given yet */
    enum { SLR_NODE_UNKNOWN, SLR_NODE_ON, SLR_NODE_OFF } state;
};

/* What the copies name until they are given the peers' places. */
struct slr_stand_ins {
    CUdeviceptr at[SLR_MEMORIES][SLR_MAX_RANKS]; /* by peer; 0: none of that kind */
    size_t bytes;                                /* of each, at least */
};

struct slr_recorded {
    struct slr_recorded_op *op;
    struct slr_recorded_node *node;
    uint32_t ops, nodes, op_room, node_room;
    const struct slr_stand_ins *stand_ins; /* while it is recorded */
    uint8_t kinds[SLR_MAX_RANKS];          /* of memory that each peer's place may be in: a bit for each */
    bool scatter;                          /* it is a reduce-scatter, */
    uint32_t before;                       /* and was captured behind this piece */
    uint32_t reach;                        /* pieces that words stand for while slots are used; 0: all */
    bool ends;                             /* the words of the end are recorded */
    bool parts;                            /* parts of a GEMM wait before the end */
    bool failed;                           /* something could not be remembered: not to be replayed */
};

/* ---- for ring.c and its like ---- */

/* `stream` has just been given the operations. */
void slr_record_words(struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op, unsigned count);

/* Puts copies on the stream, from or, where they correct, to what stands in for the peer's memory. */
enum slr_status slr_record_copy(struct slr_ring *ring, CUstream stream, int peer, enum slr_recorded_way way,
                                CUdeviceptr own, size_t at, size_t bytes);

/* Staging, before and behind the meeting of a gather. The latter leaves `published` behind what comes from slots. */
enum slr_status slr_record_staging(struct slr_ring *ring, const struct slr_gather *g);
enum slr_status slr_record_staged(struct slr_ring *ring, const struct slr_gather *g);

/* The end, behind the copies of the pull stream. Leaves `published` behind it, and the tail. */
enum slr_status slr_record_rest(struct slr_ring *ring, const struct slr_gather *g);

/* Puts a copy of a piece between `own` and a slot on the stream; on in replays that use that slot. */
enum slr_status slr_record_slot_copy(struct slr_ring *ring, CUstream stream, const struct slr_recorded_node *copy);

/* To this rank's end. */
static inline bool slr_recorded_takes(enum slr_recorded_way way)
{
    return way == SLR_NODE_PULLS || way == SLR_NODE_UNSTAGES;
}

/* ---- for the ring's owner ---- */

/* The routes to record a gather with: all nodes are there. */
void slr_record_routes(const struct slr_ring *ring, struct slr_route *route);

/* A copy, whose nodes are those of `graph`, which is a clone or a child that was made from what
 * `from` is of. NULL as `graph`: the same nodes. False: out of memory, or nodes are missing; *to is
 * empty. */
bool slr_recorded_copy(struct slr_recorded *to, const struct slr_recorded *from, CUgraph graph);
void slr_recorded_free(struct slr_recorded *recorded);

/* Whether the graph has copies for the kinds of memory of these routes. */
bool slr_recorded_fits(const struct slr_recorded *recorded, const struct slr_route *route, int rank, int nranks);

/* Whether a replay with these routes does what this span of the captured gather was around. */
bool slr_recorded_runs(const struct slr_timed_span *span, const struct slr_route *route, int rank, int nranks);

/* Gives `exec` what the gather whose last piece has the number `last` needs. `ring`: the
 * communicator's; its context is current. */
enum slr_status slr_recorded_give(CUgraphExec exec, struct slr_recorded *recorded, struct slr_ring *ring,
                                  const struct slr_gather *g, uint32_t last);

#endif
