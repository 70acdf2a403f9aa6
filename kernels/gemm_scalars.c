/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_scalars.h"

#include <string.h>
#include "kernels/gemm_lt.h"

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

bool slr_gemm_scalars_on_host(const struct slr_gemm *gemm)
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
    return number && bytes && slr_gemm_scalars_on_host(gemm) && memcmp(gemm->beta, number, bytes) == 0;
}

bool slr_gemm_beta_is_zero(const struct slr_gemm *gemm)
{
    static const double zero; /* no type of scalar is longer, and all bits of every one's 0 are 0 */
    cudaDataType type;
    return slr_gemm_scalar_type(gemm, &type) && beta_is(gemm, &zero, slr_gemm_type_bytes(type));
}

const void *slr_gemm_one(cudaDataType type)
{
    static const float one = 1;
    static const double wide = 1;
    return type == CUDA_R_32F ? (const void *)&one : type == CUDA_R_64F ? &wide : NULL;
}

bool slr_gemm_beta_is_one(const struct slr_gemm *gemm)
{
    cudaDataType type;
    return slr_gemm_scalar_type(gemm, &type) && beta_is(gemm, slr_gemm_one(type), slr_gemm_type_bytes(type));
}
