/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/plan.h"

#define PIECE_ALIGN 512u            /* whole sectors; a multiple of every element size */
#define PIECE_MIN ((size_t)8 << 20) /* smaller pieces are not worth a step of their own */
#define STEPS_WANTED 8              /* ranks x pieces that give a GEMM enough to overlap with */

static size_t ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* With many ranks the shards themselves are fine enough; with few, each shard is cut further
 * (nvFuser #3606). */
static size_t pieces_chosen(size_t shard, int nranks)
{
    size_t by_steps = ceil_div(STEPS_WANTED, (size_t)nranks);
    size_t by_size = shard / PIECE_MIN;
    size_t pieces = by_steps < by_size ? by_steps : by_size;
    return pieces ? pieces : 1;
}

struct slr_plan slr_plan_make(size_t shard, int nranks, size_t slot, uint32_t wanted)
{
    struct slr_plan plan = {.shard = shard};
    size_t pieces = wanted ? wanted : pieces_chosen(shard, nranks);
    size_t piece = ceil_div(shard, pieces);
    piece = ceil_div(piece, PIECE_ALIGN) * PIECE_ALIGN;
    /* A piece passes through a slot whole. */
    if (piece > slot)
        piece = slot;
    plan.piece = piece < shard ? piece : shard;
    plan.pieces = (uint32_t)ceil_div(shard, plan.piece);
    /* More pieces than events: several pieces share one, and are one chunk. */
    uint32_t events = plan.pieces * (uint32_t)(nranks > 1 ? nranks - 1 : 1);
    plan.group = (uint32_t)ceil_div(events, SLR_MAX_CHUNK_EVENTS);
    plan.chunks = (uint32_t)ceil_div(plan.pieces, plan.group);
    return plan;
}
