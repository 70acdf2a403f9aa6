/* SPDX-License-Identifier: Apache-2.0 */
/* A gather of the ring inside of a CUDA graph, or a reduce-scatter (docs/protocol.md, "Captured
 * gathers").
 *
 * The ring is recorded as it is enqueued, on streams that capture, and what depends on the call is
 * remembered as nodes of the graph. Before each launch of the executable graph these are given what
 * this replay has agreed with the peers, so a replay is a call like any other:
 *
 *   words: meet, done, end      the number of the call's last piece, or of pieces in slots
 *   a copy from a peer's place  that place; off where the shard comes from a slot, the place is of the
 *                               other kind of memory, or nothing is expected
 *   words and copy: correct     where the peer has taken something else for this rank's shard: its
 *                               place in the peer's receive buffer. Else the copy is off, and the words
 *                               wait for nothing
 *   a copy to an own slot,      the slot; off where no peer takes this rank's shard from there
 *   from a peer's slot          the slot; off where the shard lies elsewhere
 *   stamps                      events, where it is measured (timing.h)
 *
 * Of a reduce-scatter only words are given: each was captured with a number of pieces behind the
 * call before, and a replay gets as many behind its own. A change holds for the launches behind it;
 * those that run, or wait, keep what they had (CUDA).
 *
 * Not thread-safe: under the lock of the ring's owner, with its context current. */
#ifndef SLR_KERNELS_RING_RECORD_H
#define SLR_KERNELS_RING_RECORD_H

#include "kernels/ring.h"

struct slr_timed_span;

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
    SLR_RECORDED_SAYS, /* from here on of a reduce-scatter: whatever the word is for, the call's piece number `at` */
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
    uint32_t piece;       /* of a slot, */
    unsigned slots;       /* of this class */
    CUdeviceptr own;      /* this rank's end */
    size_t at, bytes;
    CUdeviceptr other; /* the other end, as last given to the executable graph; 0: not given yet */
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

/* The routes to record a gather with: all nodes are there. */
void slr_record_routes(const struct slr_ring *ring, struct slr_route *route);

/* A copy, whose nodes are those of `graph`, a clone or child that was made from what `from` is of;
 * NULL: the same nodes. False: out of memory, or nodes are missing; *to is empty. */
bool slr_recorded_copy(struct slr_recorded *to, const struct slr_recorded *from, CUgraph graph);
void slr_recorded_free(struct slr_recorded *recorded);

/* Whether the graph has copies for the kinds of memory of these routes. */
bool slr_recorded_fits(const struct slr_recorded *recorded, const struct slr_route *route, int rank, int nranks);

/* Whether a replay with these routes does what this span of the captured gather was around. */
bool slr_recorded_runs(const struct slr_timed_span *span, const struct slr_route *route, int rank, int nranks);

/* Gives `exec` what the gather whose last piece has the number `last` needs. `ring`: the
 * communicator's. */
enum slr_status slr_recorded_give(CUgraphExec exec, struct slr_recorded *recorded, struct slr_ring *ring,
                                  const struct slr_gather *g, uint32_t last);

#endif
