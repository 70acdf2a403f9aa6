/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_redo.h"

#include "base/cu.h"
#include "kernels/gemm_lt.h"

/* ---- is C read? ---- */

static size_t compute_bytes(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return 2;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return 4;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        return 8;
    default:
        return 0;
    }
}

/* Of beta; 0: not known. */
static size_t scalar_bytes(const struct slr_gemm *gemm)
{
    switch (gemm->api) {
    case SLR_GEMM_LT:
        return slr_gemm_type_bytes((cudaDataType)gemm->lt->op.scale);
    case SLR_GEMM_EX:
    case SLR_GEMM_EX_64:
    case SLR_GEMM_STRIDED_EX:
    case SLR_GEMM_STRIDED_EX_64:
        return compute_bytes(gemm->compute);
    default:
        return slr_gemm_type_bytes(gemm->ctype);
    }
}

static bool scalars_on_host(const struct slr_gemm *gemm)
{
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
    /* cublasLtMatmul takes the mode from its descriptor, the others from the handle. */
    if (gemm->lt)
        return gemm->lt->op.pointer_mode == CUBLASLT_POINTER_MODE_HOST;
    return slr_real.cublasGetPointerMode &&
           slr_real.cublasGetPointerMode(gemm->handle, &mode) == CUBLAS_STATUS_SUCCESS &&
           mode == CUBLAS_POINTER_MODE_HOST;
}

/* -0 is taken for a number: to copy too much is right as well. */
static bool beta_is_zero(const struct slr_gemm *gemm)
{
    const size_t bytes = scalar_bytes(gemm);
    if (!bytes || !scalars_on_host(gemm))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)gemm->beta)[i] != 0)
            return false;
    return true;
}

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
    return !c_is_apart(gemm) && !beta_is_zero(gemm);
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

/* What a part has written, as rows of bytes: a column of C each. */
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
    return bytes;
}

/* The parts' results to `kept`, one behind the other, or from there back. */
static enum slr_status copy(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                            unsigned done, CUdeviceptr kept, bool back, CUstream stream)
{
    struct slr_part part;
    while (done-- > 0 && slr_parts_next(&walk, &part)) {
        const struct written w = written_by(gemm, split, &part);
        const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = back ? kept : w.at,
                                    .srcPitch = back ? w.bytes : w.pitch,
                                    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .dstDevice = back ? w.at : kept,
                                    .dstPitch = back ? w.pitch : w.bytes,
                                    .WidthInBytes = w.bytes,
                                    .Height = w.rows};
        SLR_TRY(SLR_CU(cuMemcpy2DAsync, &rows, stream));
        kept += w.bytes * w.rows;
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

cublasStatus_t slr_gemm_redo(const struct slr_gemm *gemm, const struct slr_gemm_split *split, struct slr_parts walk,
                             unsigned done, CUstream stream, cublasStatus_t refused)
{
    CUdeviceptr kept = 0;
    if (!slr_gemm_reads_output(gemm))
        return slr_gemm_whole(gemm);
    /* A part that failed while it ran may have written anything: then nothing is computed again. */
    if (!nothing_begun(refused) || !slr_real.cuMemAllocAsync || !slr_real.cuMemFreeAsync || !slr_real.cuMemcpy2DAsync ||
        SLR_CU(cuMemAllocAsync, &kept, bytes_of(gemm, split, walk, done), stream) != SLR_OK)
        return refused;
    cublasStatus_t r = around(gemm, split, walk, done, kept, stream, refused);
    /* In the stream's order, behind the copies that read it. */
    SLR_CU(cuMemFreeAsync, kept, stream);
    return r;
}
