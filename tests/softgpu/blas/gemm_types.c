/* SPDX-License-Identifier: Apache-2.0 */
/* Which types a GEMM takes, and reading one scalar of each. */
#include "gemm.h"
#include "float16.h"

size_t gemm_type_bytes(cudaDataType type)
{
    switch (type) {
    case CUDA_R_8I:
        return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
        return 4;
    case CUDA_R_64F:
        return 8;
    default:
        return 0;
    }
}

double gemm_read_scalar(cudaDataType type, const void *p)
{
    switch (type) {
    case CUDA_R_8I:
        return *(const int8_t *)p;
    case CUDA_R_16F:
        return f16_to_f32(*(const uint16_t *)p);
    case CUDA_R_16BF:
        return bf16_to_f32(*(const uint16_t *)p);
    case CUDA_R_32F:
        return *(const float *)p;
    case CUDA_R_32I:
        return *(const int32_t *)p;
    default:
        return *(const double *)p;
    }
}

/* The real-valued rows of the tables under cublasGemmEx() and cublasLtMatmul() in the cuBLAS manual. */
static const struct {
    cudaDataType scale, ab, c;
} compute_16f[] = {{CUDA_R_16F, CUDA_R_16F, CUDA_R_16F}}, compute_32i[] = {{CUDA_R_32I, CUDA_R_8I, CUDA_R_32I}},
  compute_32f[] = {{CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
                   {CUDA_R_32F, CUDA_R_8I, CUDA_R_32F},    {CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
                   {CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},   {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F}},
  compute_32f_fast[] = {{CUDA_R_32F, CUDA_R_32F, CUDA_R_32F}}, compute_64f[] = {{CUDA_R_64F, CUDA_R_64F, CUDA_R_64F}};

#define SEARCH(table)                                                                                                  \
    for (size_t i = 0; i < sizeof(table) / sizeof *(table); i++)                                                       \
        if ((table)[i].scale == scale && (table)[i].ab == a && (table)[i].c == c)                                      \
            return 1;                                                                                                  \
    return 0

int gemm_types_supported(cublasComputeType_t compute, cudaDataType scale, cudaDataType a, cudaDataType b,
                         cudaDataType c)
{
    if (a != b)
        return 0;
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        SEARCH(compute_16f);
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        SEARCH(compute_32i);
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        SEARCH(compute_32f);
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        SEARCH(compute_32f_fast);
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        SEARCH(compute_64f);
    }
    return 0;
}
