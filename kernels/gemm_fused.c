/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM in parts, each behind the part of the gather that it reads; and the whole in their place,
 * when cuBLAS refuses one after others have been enqueued.
 *
 * cuBLAS can not be asked beforehand whether it takes a part (cublasLtMatmul with an algorithm can:
 * lt_algo.c). It may refuse a later one, because the part lies at an address of another alignment
 * or memory has run out meanwhile. The program called for the whole GEMM and gets that, on a stream
 * that has been joined with the ring:
 *
 *   C is not read   The whole is computed; what parts have written is overwritten. So it is when
 *                   beta is 0 and known to be, on the host, or when the C that is read is another
 *                   matrix than the one that is written.
 *   C may be read   Parts have replaced their columns (rows) of C by results, from which the whole
 *                   would be wrong there. These are copied to memory that is allocated in the
 *                   stream's order, the whole is computed, and they are copied back: each element
 *                   has been computed once, from the C that the program gave.
 *
 * The result is the status of that call: what it refuses, too, the program sees as without
 * slipring. Where C may be read the refusal of the part goes to the program instead when it may
 * have begun to write (an execution, mapping or internal error: then CUDA fails, and the whole
 * would fail likewise), or when there is no memory for the copies. */
#include "base/status.h"
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"
#include "kernels/timing.h"

/* ---- the whole in place of the parts ---- */

static bool nothing_begun(cublasStatus_t refused)
{
    switch (refused) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ALLOC_FAILED:
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return true;
    default:
        return false;
    }
}

/* What a part has written to the first matrix of a batch, as rows of bytes: a column of C each. */
struct written {
    CUdeviceptr at;
    size_t bytes, rows, pitch;
};

static struct written written_by(const struct slr_gemm *gemm, const struct slr_gemm_split *split,
                                 const struct slr_part *part)
{
    const size_t elem = slr_gemm_type_bytes(gemm->ctype), pitch = (size_t)gemm->ldc * elem;
    return (struct written){.at = (uintptr_t)gemm->c + (size_t)part->col * (split->on_a ? elem : pitch),
                            .bytes = (size_t)(split->on_a ? part->cols : gemm->m) * elem,
                            .rows = (size_t)(split->on_a ? gemm->n : part->cols),
                            .pitch = pitch};
}

static size_t bytes_written(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                            unsigned done)
{
    struct slr_part part;
    size_t bytes = 0;
    while (done-- > 0 && slr_parts_next(&walk, &part)) {
        struct written w = written_by(gemm, split, &part);
        bytes += w.bytes * w.rows;
    }
    return bytes * (size_t)gemm->batch;
}

static enum slr_status copy_one(const struct written *w, CUdeviceptr kept, bool back, CUstream stream)
{
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = back ? kept : w->at,
                                .srcPitch = back ? w->bytes : w->pitch,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = back ? w->at : kept,
                                .dstPitch = back ? w->pitch : w->bytes,
                                .WidthInBytes = w->bytes,
                                .Height = w->rows};
    return SLR_CU(cuMemcpy2DAsync, &rows, stream);
}

/* The parts' results to `kept`, one behind the other, or from there back. */
static enum slr_status copy_all(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                                unsigned done, CUdeviceptr kept, bool back, CUstream stream)
{
    struct slr_part part;
    while (done-- > 0 && slr_parts_next(&walk, &part)) {
        struct written w = written_by(gemm, split, &part);
        for (int64_t i = 0; i < gemm->batch; i++) {
            SLR_TRY(copy_one(&w, kept, back, stream));
            kept += w.bytes * w.rows;
            w.at += (size_t)gemm->stride_c * slr_gemm_type_bytes(gemm->ctype);
        }
    }
    return SLR_OK;
}

static cublasStatus_t whole_between_copies(const struct slr_gemm *gemm, const struct slr_gemm_split *split,
                                           struct slr_parts walk, unsigned done, CUdeviceptr kept, CUstream stream,
                                           cublasStatus_t refused)
{
    if (copy_all(gemm, split, walk, done, kept, false, stream) != SLR_OK)
        return refused;
    cublasStatus_t r = slr_gemm_whole(gemm);
    if (r == CUBLAS_STATUS_SUCCESS && copy_all(gemm, split, walk, done, kept, true, stream) != SLR_OK)
        r = CUBLAS_STATUS_EXECUTION_FAILED;
    return r;
}

/* What parts have written is parts of each element's sum: C's first value is gone. The rest of the
 * sum is one range of columns, because summands follow one another. */
static cublasStatus_t add_rest(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                               unsigned done)
{
    struct slr_part part = {.cols = 0};
    struct slr_lt lt;
    while (done-- > 0 && slr_parts_next(&walk, &part))
        ;
    const int64_t at = part.col + part.cols;
    const struct slr_gemm more = slr_gemm_adding(gemm, &lt);
    return slr_gemm_part(&more, split, at, gemm->k - at);
}

/* The whole GEMM in place of its parts: the first `done` of `walk`, at its beginning, have been enqueued on `stream`,
 * which waits for the whole gather; the next was refused with `refused`. What the application gets: the whole's
 * result; or the refusal, where C may be read and the part may have begun to write, or there is no memory for
 * copies. */
static cublasStatus_t whole_instead(const struct slr_gemm *gemm, const struct slr_gemm_split *split,
                                    struct slr_parts walk, unsigned done, CUstream stream, cublasStatus_t refused)
{
    CUdeviceptr kept = 0;
    if (!slr_gemm_reads_output(gemm))
        return slr_gemm_whole(gemm);
    /* A part that failed while it ran may have written anything: then nothing is computed again. */
    if (!nothing_begun(refused))
        return refused;
    if (split->sums)
        return add_rest(gemm, split, walk, done);
    if (!slr_real.cuMemAllocAsync || !slr_real.cuMemFreeAsync || !slr_real.cuMemcpy2DAsync ||
        SLR_CU(cuMemAllocAsync, &kept, bytes_written(gemm, split, walk, done), stream) != SLR_OK)
        return refused;
    cublasStatus_t r = whole_between_copies(gemm, split, walk, done, kept, stream, refused);
    /* In the stream's order, behind the copies that read it. */
    SLR_CU(cuMemFreeAsync, kept, stream);
    return r;
}

/* ---- parts ---- */

#define ALIGNED 256 /* bytes; more than any kernel asks for */

/* The GEMM of which part number `index` is one: behind the first, summands are added to C. */
static struct slr_gemm gemm_of(const struct slr_gemm *gemm, const struct slr_gemm_split *split, unsigned index,
                               struct slr_lt *lt)
{
    return split->sums && index > 0 ? slr_gemm_adding(gemm, lt) : *gemm;
}

/* Whether all parts can be computed, as far as that can be asked: one that is refused later costs
 * the overlap, and copies where C is read. */
static bool all_ready(struct slr_parts walk, const struct slr_gemm *whole, const struct slr_gemm_split *split)
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

/* Makes the stream wait for what the part reads of the own shard, where it has to. `alone`: it
 * reads nothing else. */
static enum slr_status await_own(struct slr_ring *ring, const struct slr_gather *g, uint32_t chunk, bool alone,
                                 bool on_a, struct slr_gemm *gemm)
{
    if (g->arrives)
        return SLR_CU(cuStreamWaitEvent, g->stream, g->arrives[(slr_plan_chunk_end(&g->plan, chunk) - 1) / g->arrival],
                      0);
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
    return slr_part_reads(walk, part, 0, &own) ? await_own(ring, g, own, *peer < 0, walk->split.on_a, gemm) : SLR_OK;
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
        slr_timing_did(ring->now.timing, SLR_TRACK_APP, g->stream, SLR_SPAN_WAIT, peer, (int)chunk, 0);
    cublasStatus_t r = slr_gemm_part(&gemm, &walk->split, part->col, part->cols);
    if (r == CUBLAS_STATUS_SUCCESS)
        slr_timing_did(ring->now.timing, SLR_TRACK_APP, g->stream, SLR_SPAN_GEMM, -1, (int)index, 0);
    return r;
}

/* The stream waits for the gather; `done` parts of the walk have been enqueued, and the next was
 * refused. */
static cublasStatus_t redo(struct slr_ring *ring, CUstream stream, const struct slr_gemm *gemm,
                           const struct slr_gemm_split *split, struct slr_parts walk, unsigned done,
                           cublasStatus_t refused)
{
    cublasStatus_t r = whole_instead(gemm, split, walk, done, stream, refused);
    slr_timing_did(ring->now.timing, SLR_TRACK_APP, stream, SLR_SPAN_GEMM, -1, (int)done, 0);
    return r;
}

int slr_gemm_leave_room(const struct slr_gemm *gemm, unsigned blocks)
{
    CUdevice device;
    int all = 0, target = 0;
    if (gemm->lt || !slr_real.cublasGetSmCountTarget || !slr_real.cublasSetSmCountTarget ||
        slr_real.cublasGetSmCountTarget(gemm->handle, &target) != CUBLAS_STATUS_SUCCESS ||
        slr_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        slr_real.cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS)
        return -1;
    const int most = all - (int)blocks;
    if (most <= 0 || (target > 0 && target <= most))
        return -1;
    return slr_real.cublasSetSmCountTarget(gemm->handle, most) == CUBLAS_STATUS_SUCCESS ? target : -1;
}

void slr_gemm_take_room(const struct slr_gemm *gemm, int target)
{
    slr_real.cublasSetSmCountTarget(gemm->handle, target);
}

/* What the parts write may be what the shard has moved out of. Staging is done by the driver's kernels,
 * which come behind a GEMM that has begun; then all ranks would wait for that. */
static enum slr_status await_before_parts(struct slr_ring *ring, const struct slr_gather *g)
{
    if (!g->vacated && !ring->now.stages)
        return SLR_OK;
    if (g->vacated)
        SLR_TRY(slr_ring_wait_own(ring, g->stream));
    if (ring->now.stages)
        SLR_TRY(slr_ring_wait_staged(ring, g->stream));
    slr_timing_did(ring->now.timing, SLR_TRACK_APP, g->stream, SLR_SPAN_WAIT, ring->rank, 0, 0);
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
    if (!all_ready(begin, gemm, split))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    slr_timing_mark(ring->now.timing, SLR_TRACK_APP, g->stream);
    if (await_before_parts(ring, g) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const int room = g->beside ? slr_gemm_leave_room(gemm, g->beside) : -1;
    while (r == CUBLAS_STATUS_SUCCESS && slr_parts_next(&walk, &part)) {
        r = compute(ring, g, gemm, &walk, &part, *parts);
        *parts += r == CUBLAS_STATUS_SUCCESS;
    }
    if (room >= 0)
        slr_gemm_take_room(gemm, room);
    if (*parts == 0)
        return r; /* nothing has been enqueued */
    /* The parts have waited for their chunks only; behind the join `send` is free as well, and the
     * carrier's events have been waited for. */
    if (slr_ring_join_measured(ring, g->stream) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    /* The join stands before it, so the whole GEMM finds the whole gather. */
    if (r != CUBLAS_STATUS_SUCCESS) {
        if (!split->some)
            r = redo(ring, g->stream, gemm, split, begin, *parts, r);
        *parts = SLR_GEMM_REDONE;
    }
    return r;
}
