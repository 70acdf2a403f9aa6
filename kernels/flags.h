/* SPDX-License-Identifier: Apache-2.0 */
/* The ring's flag words: shared host memory, written and waited for by the ranks' devices with
 * stream memory operations. One word for each ordered pair of ranks and direction, each in its own
 * cache line. Words count pieces, start at 0, only grow and wrap: waits are GEQ, which the driver
 * evaluates as a cyclic comparison. Who waits when: docs/protocol.md, 3.
 *
 *   word           by         for   meaning
 *   ready(o, r)    o          r     o has put piece number `ready` (from 1) into its slot, or its `send`
 *                                   holds it
 *   settled(o, r)  o          r     1: of the gather that ends with piece `ready`, r has o's shard where r
 *                                   was first: its copy from an expected place is right, or o has written
 *                                   it. The lower half of ready's word
 *   done(o, r)     r          o     r has copied piece number `done` of o, or expects it nowhere
 *   open(o, r)     r          o     the reduce-scatter whose first piece has this number may write into
 *                                   r's slots; its last piece's number: r's stream has come to the call
 *   summed(o, r)   o          r     of the all-reduce that ends with piece `summed`, or a later one, o has put
 *                                   the sums of its shard into its slots up to there
 *   broken(o, r)   o's host   r     0 as long as what r copies from o is what o has published
 *
 * A failed rank sets `broken` before it releases its own waits, because then it may write over a
 * slot that a peer reads. After a failure a host may raise a word that its own device waits for
 * (clear it, in the case of broken).
 *
 * Behind them each rank has SLR_TURNS pairs of words for calls that NCCL has
 * (plugin/passed/nccl_call.h), which only the rank itself reads. */
#ifndef SLR_KERNELS_FLAGS_H
#define SLR_KERNELS_FLAGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLR_MAX_RANKS 64   /* of one communicator that has a ring */
#define SLR_SLOT_CLASSES 4 /* sizes of slots that it may have, from the smallest on: plugin/connect/slots.c */

#define SLR_FLAG_LINE 128 /* two 64-byte lines: adjacent-line prefetch pairs them */

enum slr_flag_kind { SLR_FLAG_READY, SLR_FLAG_DONE, SLR_FLAG_OPEN, SLR_FLAG_SUMMED, SLR_FLAG_BROKEN, SLR_FLAG_KINDS };

static inline size_t slr_flag_offset(int nranks, enum slr_flag_kind kind, int owner, int reader)
{
    return (((size_t)kind * (size_t)nranks + (size_t)owner) * (size_t)nranks + (size_t)reader) * SLR_FLAG_LINE;
}

#define SLR_TURNS 64

/* A call that NCCL has. It is over when the words are equal. */
struct slr_turn {
    _Atomic uint32_t made; /* by the rank's host, before the call */
    _Atomic uint32_t done; /* by its device, behind the call */
};

static inline size_t slr_turn_offset(int nranks, int rank, unsigned i)
{
    return slr_flag_offset(nranks, SLR_FLAG_KINDS, 0, 0) + ((size_t)rank * SLR_TURNS + i) * sizeof(struct slr_turn);
}

static inline struct slr_turn *slr_turn(void *base, int nranks, int rank, unsigned i)
{
    return (struct slr_turn *)(void *)((char *)base + slr_turn_offset(nranks, rank, i));
}

static inline size_t slr_flags_bytes(int nranks)
{
    return slr_turn_offset(nranks, nranks, 0);
}

/* Whether NCCL has a call of this rank. *done: changes when one ends. */
static inline bool slr_turns_open(void *base, int nranks, int rank, uint32_t *done)
{
    bool open = false;
    *done = 0;
    for (unsigned i = 0; i < SLR_TURNS; i++) {
        struct slr_turn *t = slr_turn(base, nranks, rank, i);
        uint32_t over = atomic_load(&t->done);
        *done += over;
        open |= over != atomic_load(&t->made);
    }
    return open;
}

/* Words of 32 bits; not ready. */
static inline _Atomic uint32_t *slr_flag(void *base, int nranks, enum slr_flag_kind kind, int owner, int reader)
{
    return (_Atomic uint32_t *)((char *)base + slr_flag_offset(nranks, kind, owner, reader));
}

static inline _Atomic uint64_t *slr_flag_ready(void *base, int nranks, int owner, int reader)
{
    return (_Atomic uint64_t *)((char *)base + slr_flag_offset(nranks, SLR_FLAG_READY, owner, reader));
}

static inline uint64_t slr_ready_value(uint32_t piece, uint32_t settled)
{
    return (uint64_t)piece << 32 | settled;
}

/* How far the word has counted pieces. */
static inline uint32_t slr_flag_piece(void *base, int nranks, enum slr_flag_kind kind, int owner, int reader)
{
    if (kind == SLR_FLAG_READY)
        return (uint32_t)(atomic_load(slr_flag_ready(base, nranks, owner, reader)) >> 32);
    return atomic_load(slr_flag(base, nranks, kind, owner, reader));
}

/* Whether a counter has reached `want`, as the device's GEQ sees it. */
static inline int slr_flag_reached(uint32_t have, uint32_t want)
{
    return (int32_t)(have - want) >= 0;
}

#endif
