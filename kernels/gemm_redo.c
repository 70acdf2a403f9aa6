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
static size_t scalar_bytes(const struct slr_gemm *g)
{
    switch (g->api) {
    case SLR_GEMM_LT:
        return slr_gemm_type_bytes((cudaDataType)g->lt->op.scale);
    case SLR_GEMM_EX:
    case SLR_GEMM_EX_64:
    case SLR_GEMM_STRIDED_EX:
    case SLR_GEMM_STRIDED_EX_64:
        return compute_bytes(g->compute);
    default:
        return slr_gemm_type_bytes(g->ctype);
    }
}

static bool scalars_on_host(const struct slr_gemm *g)
{
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
    if (g->lt)
        return g->lt->op.pointer_mode == CUBLASLT_POINTER_MODE_HOST;
    return slr_real.cublasGetPointerMode && slr_real.cublasGetPointerMode(g->handle, &mode) == CUBLAS_STATUS_SUCCESS &&
           mode == CUBLAS_POINTER_MODE_HOST;
}

/* -0 is taken for a number: to copy too much is right as well. */
static bool beta_is_zero(const struct slr_gemm *g)
{
    const size_t bytes = scalar_bytes(g);
    if (!bytes || !scalars_on_host(g))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)g->beta)[i] != 0)
            return false;
    return true;
}

static bool c_is_apart(const struct slr_gemm *g)
{
    if (!g->lt)
        return false;
    struct slr_span read = g->read[0], written = slr_gemm_span(g->c, g->m, g->n, g->ldc, slr_gemm_type_bytes(g->ctype));
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

static struct written written_by(const struct slr_gemm *g, const struct slr_gemm_split *s, const struct slr_part *p)
{
    const size_t elem = slr_gemm_type_bytes(g->ctype), pitch = (size_t)g->ldc * elem;
    return (struct written){.at = (uintptr_t)g->c + (size_t)p->col * (s->on_a ? elem : pitch),
                            .bytes = (size_t)(s->on_a ? p->cols : g->m) * elem,
                            .rows = (size_t)(s->on_a ? g->n : p->cols),
                            .pitch = pitch};
}

static size_t bytes_of(const struct slr_gemm *g, const struct slr_gemm_split *s, struct slr_parts walk, unsigned done)
{
    struct slr_part p;
    size_t bytes = 0;
    while (done-- > 0 && slr_parts_next(&walk, &p)) {
        struct written w = written_by(g, s, &p);
        bytes += w.bytes * w.rows;
    }
    return bytes;
}

/* The parts' results to `kept`, one behind the other, or from there back. */
static enum slr_status copy(const struct slr_gemm *g, const struct slr_gemm_split *s, struct slr_parts walk,
                            unsigned done, CUdeviceptr kept, bool back, CUstream stream)
{
    struct slr_part p;
    while (done-- > 0 && slr_parts_next(&walk, &p)) {
        const struct written w = written_by(g, s, &p);
        const CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = back ? kept : w.at,
                                 .srcPitch = back ? w.bytes : w.pitch,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = back ? w.at : kept,
                                 .dstPitch = back ? w.pitch : w.bytes,
                                 .WidthInBytes = w.bytes,
                                 .Height = w.rows};
        SLR_TRY(SLR_CU(cuMemcpy2DAsync, &c, stream));
        kept += w.bytes * w.rows;
    }
    return SLR_OK;
}

static cublasStatus_t around(const struct slr_gemm *g, const struct slr_gemm_split *s, struct slr_parts walk,
                             unsigned done, CUdeviceptr kept, CUstream stream, cublasStatus_t refused)
{
    if (copy(g, s, walk, done, kept, false, stream) != SLR_OK)
        return refused;
    cublasStatus_t r = slr_gemm_whole(g);
    if (r == CUBLAS_STATUS_SUCCESS && copy(g, s, walk, done, kept, true, stream) != SLR_OK)
        r = CUBLAS_STATUS_EXECUTION_FAILED;
    return r;
}

cublasStatus_t slr_gemm_redo(const struct slr_gemm *gemm, const struct slr_gemm_split *s, struct slr_parts walk,
                             unsigned done, CUstream stream, cublasStatus_t refused)
{
    CUdeviceptr kept = 0;
    if (!slr_gemm_reads_output(gemm))
        return slr_gemm_whole(gemm);
    if (!nothing_begun(refused) || !slr_real.cuMemAllocAsync || !slr_real.cuMemFreeAsync || !slr_real.cuMemcpy2DAsync ||
        SLR_CU(cuMemAllocAsync, &kept, bytes_of(gemm, s, walk, done), stream) != SLR_OK)
        return refused;
    cublasStatus_t r = around(gemm, s, walk, done, kept, stream, refused);
    SLR_CU(cuMemFreeAsync, kept, stream);
    return r;
}
