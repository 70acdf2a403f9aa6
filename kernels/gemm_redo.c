/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_redo.h"

#include "base/cu.h"
#include "kernels/gemm_lt.h"
#include "kernels/gemm_scalars.h"
#include "kernels/gemm_sum.h"

/* ---- is C read? ---- */

static bool c_is_apart(const struct slr_gemm *gemm)
{
    if (!gemm->lt)
        return false;
    struct slr_extent read = gemm->read[0],
                      written = slr_gemm_extent(gemm->c, gemm->m, gemm->n, gemm->ldc, slr_gemm_type_bytes(gemm->ctype));
    return read.end <= written.begin || written.end <= read.begin;
}

bool slr_gemm_reads_output(const struct slr_gemm *gemm)
{
    return !c_is_apart(gemm) && !slr_gemm_beta_is_zero(gemm);
}

/* ---- results that are kept ---- */

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

static size_t bytes_of(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
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
static enum slr_status copy(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
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

static cublasStatus_t around(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                             unsigned done, CUdeviceptr kept, CUstream stream, cublasStatus_t refused)
{
    if (copy(gemm, split, walk, done, kept, false, stream) != SLR_OK)
        return refused;
    cublasStatus_t r = slr_gemm_whole(gemm);
    if (r == CUBLAS_STATUS_SUCCESS && copy(gemm, split, walk, done, kept, true, stream) != SLR_OK)
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

cublasStatus_t slr_gemm_redo(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                             unsigned done, CUstream stream, cublasStatus_t refused)
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
        SLR_CU(cuMemAllocAsync, &kept, bytes_of(gemm, split, walk, done), stream) != SLR_OK)
        return refused;
    cublasStatus_t r = around(gemm, split, walk, done, kept, stream, refused);
    /* In the stream's order, behind the copies that read it. */
    SLR_CU(cuMemFreeAsync, kept, stream);
    return r;
}
