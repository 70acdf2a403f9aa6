/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cu.h"
#include "kernels/gemm.h"
#include "kernels/gemm_parts.h"
#include "kernels/gemm_redo.h"
#include "kernels/gemm_sum.h"

#define ALIGNED 256 /* bytes; more than any kernel asks for */

/* The GEMM of which part number `index` is one: behind the first, summands are added to C. */
static struct slr_gemm gemm_of(const struct slr_gemm *gemm, const struct slr_gemm_split *split, unsigned index,
                               struct slr_lt *lt)
{
    return split->sums && index > 0 ? slr_gemm_adding(gemm, lt) : *gemm;
}

/* Whether all parts can be computed, as far as that can be asked: one that is refused later costs
 * the overlap, and copies where C is read. */
static bool ready(struct slr_parts walk, const struct slr_gemm *whole, const struct slr_gemm_split *split)
{
    struct slr_part part;
    struct slr_lt lt;
    bool all = true;
    for (unsigned index = 0; whole->lt && all && slr_parts_next(&walk, &part); index++) {
        const struct slr_gemm gemm = gemm_of(whole, split, index, &lt);
        all = slr_gemm_part_ready(&gemm, split, part.col, part.cols);
    }
    return all;
}

/* Parts of the own shard read it where the gather sends it from, if they may: its place in the
 * receive buffer is filled meanwhile. But only if it is aligned there as here, because cuBLAS may
 * choose another kernel by that, and ranks have to compute alike (gemm_parts.h). False: the operand
 * stays. */
static bool read_from_send(const struct slr_ring *ring, const struct slr_gather *g, bool on_a, struct slr_gemm *gemm)
{
    const CUdeviceptr own = slr_gather_own(g, ring->rank);
    const void **operand = on_a ? &gemm->a : &gemm->b;
    if (!g->send_stays || (own - g->send) % ALIGNED != 0)
        return false;
    *operand = (const void *)((uintptr_t)*operand + (uintptr_t)(g->send - own));
    return true;
}

/* Makes the stream wait for what the part reads of the own shard, where it has to. `alone`: it reads
 * nothing else. */
static enum slr_status await_own(struct slr_ring *ring, const struct slr_gather *g, bool alone, bool on_a,
                                 struct slr_gemm *gemm)
{
    if (slr_ring_in_place(ring, g) || (alone && read_from_send(ring, g, on_a, gemm)))
        return SLR_OK;
    return slr_ring_wait_own(ring, g->stream);
}

/* The same of all shards. *peer, *chunk: the last of what it waits for; -1: the own shard alone. */
static enum slr_status await(struct slr_ring *ring, const struct slr_gather *g, const struct slr_parts *walk,
                             const struct slr_part *part, struct slr_gemm *gemm, int *peer, uint32_t *chunk)
{
    uint32_t own;
    *peer = -1;
    for (int step = 1; step < ring->nranks; step++) {
        if (!slr_part_reads(walk, part, step, chunk))
            continue;
        SLR_TRY(slr_ring_wait_chunk(ring, g->stream, *chunk, step));
        *peer = (ring->rank + step) % ring->nranks;
    }
    return slr_part_reads(walk, part, 0, &own) ? await_own(ring, g, *peer < 0, walk->split.on_a, gemm) : SLR_OK;
}

static cublasStatus_t compute(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *whole,
                              const struct slr_parts *walk, const struct slr_part *part, unsigned index)
{
    struct slr_lt lt;
    struct slr_gemm gemm = gemm_of(whole, &walk->split, index, &lt);
    uint32_t chunk = 0;
    int peer;
    if (await(ring, g, walk, part, &gemm, &peer, &chunk) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (peer >= 0)
        slr_timing_did(ring->timing, SLR_LANE_APP, g->stream, SLR_SPAN_WAIT, peer, (int)chunk, 0);
    cublasStatus_t r = slr_gemm_part(&gemm, &walk->split, part->col, part->cols);
    if (r == CUBLAS_STATUS_SUCCESS)
        slr_timing_did(ring->timing, SLR_LANE_APP, g->stream, SLR_SPAN_GEMM, -1, (int)index, 0);
    return r;
}

/* The stream waits for the gather; `done` parts of the walk have been enqueued, and the next was
 * refused. */
static cublasStatus_t redo(struct slr_ring *ring, CUstream stream, const struct slr_gemm *gemm,
                           const struct slr_gemm_split *split, struct slr_parts walk, unsigned done,
                           cublasStatus_t refused)
{
    cublasStatus_t r = slr_gemm_redo(gemm, split, walk, done, stream, refused);
    slr_timing_did(ring->timing, SLR_LANE_APP, stream, SLR_SPAN_GEMM, -1, (int)done, 0);
    return r;
}

static enum slr_status await_vacated(struct slr_ring *ring, CUstream stream)
{
    SLR_TRY(slr_ring_wait_own(ring, stream));
    slr_timing_did(ring->timing, SLR_LANE_APP, stream, SLR_SPAN_WAIT, ring->rank, 0, 0);
    return SLR_OK;
}

cublasStatus_t slr_gemm_fused(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                              const struct slr_gemm_split *split, unsigned *parts)
{
    const struct slr_parts begin = slr_parts_of(&g->plan, split, ring->rank, ring->nranks, split->pace);
    struct slr_parts walk = begin;
    struct slr_part part;
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
    *parts = 0;
    /* Asked before anything is enqueued: until then the whole GEMM costs nothing extra. */
    if (!ready(begin, gemm, split))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    slr_timing_mark(ring->timing, SLR_LANE_APP, g->stream);
    /* What the parts write may be what the shard has moved out of. */
    if (g->vacated && await_vacated(ring, g->stream) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    while (r == CUBLAS_STATUS_SUCCESS && slr_parts_next(&walk, &part)) {
        r = compute(ring, g, gemm, &walk, &part, *parts);
        *parts += r == CUBLAS_STATUS_SUCCESS;
    }
    if (*parts == 0)
        return r; /* nothing has been enqueued */
    /* The parts have waited for their chunks only; behind the join `send` is free as well, and the
     * carrier's events have been waited for. */
    if (slr_ring_join_measured(ring, g->stream) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    /* The join stands before it, so the whole GEMM finds the whole gather. */
    if (r != CUBLAS_STATUS_SUCCESS) {
        r = redo(ring, g->stream, gemm, split, begin, *parts, r);
        *parts = SLR_GEMM_REDONE;
    }
    return r;
}
