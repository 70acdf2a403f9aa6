/* SPDX-License-Identifier: Apache-2.0 */
/* One reduce-scatter among the ranks of one host, over the words, slots and streams of the ring
 * (ring.h), between gathers of the same communicator.
 *
 * Every rank has nranks shards in `send`, and gets the sum of all ranks' shard number `rank`. A
 * shard travels by copy engines into the receiver's staging slots, where each sender has an area of
 * its own; the receiver adds the contributions in the order of the ranks, its own from `send`, in
 * fp32, and rounds once (reduce.h).
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
 *
 * A call is a meeting, as NCCL's: `recv` is written, and the call over, when the streams of all ranks have come
 * to it. So what stands before it on one rank may still use a peer's `recv`, and what comes behind it may look at
 * what stood before it on a peer. Only slots are written before, where a GEMM's parts are there early. A call
 * without such parts begins at its entry, says `open` once, and pushes behind that. Each shard has two pieces or
 * more.
 *
 * Pieces only count: a shard has as many on all ranks, whatever parts it is computed and sent in, so
 * a sender whose GEMM was cut and one whose GEMM was not, or that had none, serve each other. Where
 * the bounds of parts are not those of pieces, a receiver waits for a little more.
 *
 * Why it can not deadlock: it adds to ring.h's argument the sequence
 *
 *   entered open push(1) .. push(n) meet sum(1) .. sum(m) done conclude
 *
 * which every rank enqueues in one piece, in the communicator's order. entered needs the peers' done of
 * earlier operations, push the peers' open, meet theirs (it writes before it waits), sum the peers' pushes,
 * conclude this rank's own. Events behind parts, and the entry, stand on the program's streams, before the call.
 *
 * In a graph (ring_record.h) nothing says in which order the driver puts nodes into its queues that no
 * edge orders. So there that sequence is made of edges, on each rank: the pushes stand behind `open`, and
 * meet and the sums behind the pushes. Then whatever order the driver
 * takes is the one above. Parts of a GEMM stand in it where they like, as they wait for nobody.
 *
 * Failure: the words are ring.h's, and so is what a dead, failed or slow peer does to them. A failed
 * rank, whose pushes have been released, may write over what a receiver is adding: it says `broken`
 * before, and the receiver's stream stays at conclude.
 *
 * Not thread-safe, like the ring. */
#ifndef SLR_KERNELS_RING_SCATTER_H
#define SLR_KERNELS_RING_SCATTER_H

#include "kernels/reduce.h"
#include "kernels/ring.h"

/* Some bytes of one shard of `send`. */
struct slr_scatter_part {
    int shard;
    size_t at, bytes; /* in the shard */
    CUevent done;     /* recorded behind what computes it; NULL: it is there at the entry */
};

struct slr_scatter {
    CUdeviceptr send, recv; /* recv may be the own shard of send; else it has nothing in common with send */
    size_t stride;          /* from shard to shard of send, bytes; plan.shard, or more: of each shard only a piece */
    struct slr_plan plan;   /* slr_scatter_plan() */
    enum slr_reduce_type type;
    size_t elem;   /* bytes */
    float divisor; /* of the sum */
    const struct slr_reduce *reduce;
    /* All of `send`, each byte once, in the order in which they complete. */
    const struct slr_scatter_part *part;
    unsigned parts;
    int earlier;   /* parts of a shard that were in pieces before this one: for the timing alone */
    CUevent entry; /* of the call's stream, where parts may be sent before; NULL: the ring begins behind it */
    /* Where rank r writes its shards: the own slots, in the mapping that r has. */
    CUdeviceptr arrives[SLR_MAX_RANKS];
};

/* How a shard counts: nearly equal pieces, far more than a GEMM has parts. shard > 0. */
struct slr_plan slr_scatter_plan(size_t shard);

/* Of a shard, so many bytes of the other ranks' contributions fit into the slots: a multiple of every element. Uniform.
 * What is larger is scattered piece by piece, each an operation of its own. */
size_t slr_scatter_most(const struct slr_ring *ring);

/* Enqueues all of it. Behind slr_ring_entry; with s->entry behind slr_ring_enter_behind, or, outside of
 * captures, nothing. Afterwards
 * slr_ring_join() makes a stream wait for the sums and for `send`. Anything but SLR_OK leaves the ring
 * unusable. Where the ring has a timing, it gets its spans: `wait` and
 * `push` of the publish stream, with the receiver and the number of the part in its shard, `wait` and `sum`
 * of the pull stream, with the number of the part; the first of these waits is for the slots. */
enum slr_status slr_ring_scatter(struct slr_ring *ring, const struct slr_scatter *s);

/* Of one that is in a graph, what slr_ring_scatter does besides enqueueing: numbers its pieces. */
void slr_ring_scatter_number(struct slr_ring *ring, const struct slr_plan *plan);

#endif
