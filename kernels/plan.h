/* SPDX-License-Identifier: Apache-2.0 */
/* How one gather is cut: pieces (units of the ring, one staging slot each) and chunks (units of
 * readiness, one event each).
 *
 * Depends only on facts that are equal on all ranks, so that all ranks cut alike. All sizes in
 * bytes of one shard.
 *
 *   piece p of owner o   bytes [p * piece, min(shard, (p + 1) * piece)) of o's shard
 *   chunk q              the pieces [q * group, min(pieces, (q + 1) * group))
 */
#ifndef SLR_KERNELS_PLAN_H
#define SLR_KERNELS_PLAN_H

#include <stddef.h>
#include <stdint.h>

#define SLR_SLOTS 2 /* staging slots per rank: one is filled while the other is read */
#define SLR_MAX_CHUNK_EVENTS 1024

struct slr_plan {
    size_t shard;    /* bytes of one rank's shard, > 0 */
    size_t piece;    /* bytes of every piece but the last */
    uint32_t pieces; /* per shard, >= 1 */
    uint32_t group;  /* pieces per chunk, >= 1 */
    uint32_t chunks; /* per shard: ceil(pieces / group) */
};

/* `slot`: bytes of a staging slot (> 0). `wanted`: pieces per shard that the user asks for, 0 to
 * choose. */
struct slr_plan slr_plan_make(size_t shard, int nranks, size_t slot, uint32_t wanted);

static inline size_t slr_plan_piece_begin(const struct slr_plan *plan, uint32_t piece)
{
    return (size_t)piece * plan->piece;
}

static inline size_t slr_plan_piece_bytes(const struct slr_plan *plan, uint32_t piece)
{
    size_t begin = slr_plan_piece_begin(plan, piece);
    return plan->shard - begin < plan->piece ? plan->shard - begin : plan->piece;
}

/* End of chunk q in the shard, in bytes. */
static inline size_t slr_plan_chunk_end(const struct slr_plan *plan, uint32_t q)
{
    size_t end = (size_t)(q + 1) * plan->group * plan->piece;
    return q + 1 >= plan->chunks || end > plan->shard ? plan->shard : end;
}

#endif
