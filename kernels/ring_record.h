/* SPDX-License-Identifier: Apache-2.0 */
/* A gather of the ring inside of a CUDA graph, or a reduce-scatter.
 *
 * The ring is recorded as it is enqueued: ring.c runs on streams that capture, and what depends on
 * the call is remembered as nodes of the graph. All else (the own shard's copy, edges, the parts of
 * a GEMM) is the same in every replay. Before each launch of the executable graph the nodes are
 * given what this replay of the gather has agreed with the peers, as any other call has:
 *
 *   node                          what it is given
 *   words: meet, done, end        the number of the call's last piece
 *   a copy from a peer            the place of the peer's shard; off where nothing is known, and the
 *                                 owner will write it, or the place is of the other kind of memory
 *   words and copy: correct       where the peer has taken something else for this rank's shard
 *                                 (SLR_CORRECTED): its place in the peer's receive buffer. Else the
 *                                 copy is off and the words wait for nothing
 *   stamps                        events, where it is measured: timing_graph.h
 *
 * So a replay is a call like any other, and a peer may have made its own from a graph or not. What
 * is not in the graph, a replay can not do: staging through slots, and pushes to a buffer that was
 * opened (SLR_BY_SLOT, SLR_FROM_SLOT, SLR_BY_PUSH, SLR_ARRIVES). slr_recorded_fits() says no then.
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
 * Not thread-safe: under the lock of the ring's owner. */
#ifndef SLR_KERNELS_RING_RECORD_H
#define SLR_KERNELS_RING_RECORD_H

#include "kernels/ring.h"

/* What an operation on a word is for. */
enum slr_recorded_role {
    SLR_RECORDED_OFFER,    /* ready(me, peer): `send` holds the shard */
    SLR_RECORDED_MEET,     /* until ready(peer, me) */
    SLR_RECORDED_DONE,     /* done(peer, me) */
    SLR_RECORDED_COPIED,   /* until done(me, peer), before a correction */
    SLR_RECORDED_CORRECT,  /* ready(me, peer), settled, behind a correction */
    SLR_RECORDED_SETTLED,  /* until ready(peer, me), settled */
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
    uint32_t at; /* of a reduce-scatter; 0: the last piece before it */
    CUdeviceptr word;
};

struct slr_recorded_node {
    CUgraphNode node;
    uint32_t first, ops; /* of a node with words; 0: it is a copy */
    int peer;            /* of a copy: from this peer, or, where it corrects, to it */
    bool corrects;
    enum slr_memory kind; /* of the peer's end */
    CUdeviceptr own;      /* this rank's end */
    size_t at, bytes;
    /* As last given to the executable graph. */
    CUdeviceptr other; /* the peer's end; 0: not given yet */
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
    bool failed;                           /* something could not be remembered: not to be replayed */
};

/* ---- for ring.c and its like ---- */

/* `stream` has just been given the operations. */
void slr_record_words(struct slr_ring *ring, CUstream stream, const CUstreamBatchMemOpParams *op, unsigned count);

/* Puts copies on the stream, from or, where they correct, to what stands in for the peer's memory. */
enum slr_status slr_record_copy(struct slr_ring *ring, CUstream stream, int peer, bool corrects, CUdeviceptr own,
                                size_t at, size_t bytes);

/* ---- for the ring's owner ---- */

/* The routes to record a gather with: all nodes are there. */
void slr_record_routes(const struct slr_ring *ring, struct slr_route *route);

/* A copy, whose nodes are those of `graph`, which is a clone or a child that was made from what
 * `from` is of. NULL as `graph`: the same nodes. False: out of memory, or nodes are missing; *to is
 * empty. */
bool slr_recorded_copy(struct slr_recorded *to, const struct slr_recorded *from, CUgraph graph);
void slr_recorded_free(struct slr_recorded *recorded);

/* Whether the graph has what these routes need. */
bool slr_recorded_fits(const struct slr_recorded *recorded, const struct slr_route *route, int rank, int nranks);

/* Whether a replay with these routes does what this span of the captured gather was around. */
bool slr_recorded_runs(const struct slr_timed_span *span, const struct slr_route *route);

/* Gives `exec` what the gather whose last piece has the number `last` needs. `ring`: the
 * communicator's; its context is current. */
enum slr_status slr_recorded_give(CUgraphExec exec, struct slr_recorded *recorded, struct slr_ring *ring,
                                  const struct slr_gather *g, uint32_t last);

#endif
