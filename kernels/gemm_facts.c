/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a GEMM without calling cuBLAS for it. */
#include <string.h>
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"

/* ---- elements and matrices in memory ---- */

struct slr_extent slr_gemm_extent(const void *p, int64_t rows, int64_t cols, int64_t ld, size_t elem)
{
    const size_t bytes = rows && cols ? ((size_t)ld * (size_t)(cols - 1) + (size_t)rows) * elem : 0;
    return (struct slr_extent){(uintptr_t)p, (uintptr_t)p + bytes};
}

size_t slr_gemm_type_bytes(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F:
        return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
        return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return 1;
    default:
        return 0;
    }
}

/* ---- alpha and beta ---- */

static bool of_compute(cublasComputeType_t compute, cudaDataType *type)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        *type = CUDA_R_16F;
        return true;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        *type = CUDA_R_32F;
        return true;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        *type = CUDA_R_32I;
        return true;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        *type = CUDA_R_64F;
        return true;
    default:
        return false;
    }
}

bool slr_gemm_scalar_type(const struct slr_gemm *gemm, cudaDataType *type)
{
    switch (gemm->api) {
    case SLR_GEMM_LT:
        *type = (cudaDataType)gemm->lt->op.scale;
        return true;
    case SLR_GEMM_EX:
    case SLR_GEMM_EX_64:
    case SLR_GEMM_STRIDED_EX:
    case SLR_GEMM_STRIDED_EX_64:
        return of_compute(gemm->compute, type);
    default:
        *type = gemm->ctype;
        return true;
    }
}

/* False also when it can not be told. */
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

static bool beta_is(const struct slr_gemm *gemm, const void *number, size_t bytes)
{
    return number && bytes && scalars_on_host(gemm) && memcmp(gemm->beta, number, bytes) == 0;
}

bool slr_gemm_beta_is_zero(const struct slr_gemm *gemm)
{
    static const double zero; /* no type of scalar is longer, and all bits of every one's 0 are 0 */
    cudaDataType type;
    return slr_gemm_scalar_type(gemm, &type) && beta_is(gemm, &zero, slr_gemm_type_bytes(type));
}

/* 1 as a scalar of the type, on the host; NULL for types other than fp32 and fp64. */
static const void *one_of(cudaDataType type)
{
    static const float one = 1;
    static const double wide = 1;
    return type == CUDA_R_32F ? (const void *)&one : type == CUDA_R_64F ? &wide : NULL;
}

/* Of fp32 and fp64 only. */
static bool beta_is_one(const struct slr_gemm *gemm)
{
    cudaDataType type;
    return slr_gemm_scalar_type(gemm, &type) && beta_is(gemm, one_of(type), slr_gemm_type_bytes(type));
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
    return !c_is_apart(gemm) && !slr_gemm_beta_is_zero(gemm);
}

/* ---- sums ---- */

/* C keeps what is accumulated, in the type of the scalars. */
static bool accumulates(const struct slr_gemm *gemm)
{
    cudaDataType scalar;
    return one_of(gemm->ctype) && slr_gemm_scalar_type(gemm, &scalar) && scalar == gemm->ctype;
}

/* By default where C is fp32 (fp64) and the caller's beta is 1: the program accumulates into C anyway, and a
 * part more is rounded like a call more. SLR_SUMS_ALL: with any beta. Never into C of 16 bits, which would
 * lose what fp32 accumulation is for; with alpha and beta on the device, where the 1 of the later parts would
 * have to be as well; or with an epilogue, which takes the whole sum. */
enum slr_reason slr_gemm_may_sum(const struct slr_gemm *gemm, enum slr_sums which)
{
    if (which == SLR_SUMS_OFF)
        return SLR_R_JOIN_TRANS;
    if (!accumulates(gemm))
        return SLR_R_JOIN_SUM_TYPE;
    if (!scalars_on_host(gemm))
        return SLR_R_JOIN_SUM_SCALARS;
    if (gemm->lt && gemm->lt->op.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return SLR_R_JOIN_EPILOGUE;
    return which == SLR_SUMS_ALL || beta_is_one(gemm) ? SLR_R_FUSED : SLR_R_JOIN_TRANS;
}

bool slr_gemm_needs_all(const struct slr_gemm *gemm, bool on_a, enum slr_sums which)
{
    const bool sums = on_a ? gemm->transa == CUBLAS_OP_N : gemm->transb != CUBLAS_OP_N;
    return sums && slr_gemm_may_sum(gemm, which) != SLR_R_FUSED;
}

struct slr_gemm slr_gemm_adding(const struct slr_gemm *gemm, struct slr_lt *lt)
{
    struct slr_gemm adding = *gemm;
    adding.beta = one_of(gemm->ctype);
    if (gemm->lt) {
        *lt = *gemm->lt;
        lt->c = gemm->c; /* it may have read C from another matrix than D */
        lt->ctype = gemm->ctype;
        lt->ldc = gemm->ldc;
        adding.lt = lt;
    }
    return adding;
}
