/* SPDX-License-Identifier: Apache-2.0 */
/* Which types a GEMM takes, and reading one scalar of each. */
#include "gemm.h"
#include "float16.h"
#include "float8.h"
#include "gemm_scale.h"

size_t gemm_type_bytes(cudaDataType type)
{
    switch (type) {
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
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
    case CUDA_R_8F_E4M3:
        return e4m3_to_f32(*(const uint8_t *)p);
    case CUDA_R_8F_E5M2:
        return e5m2_to_f32(*(const uint8_t *)p);
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
    switch ((int)compute) { /* CUDA 12 does not name all of them */
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

/* The table for FP8 kernels under cublasLtMatmul(). */
int gemm_narrow_types_supported(cublasComputeType_t compute, cudaDataType scale, cudaDataType a, cudaDataType b,
                                cudaDataType c, cudaDataType d)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F || !gemm_is_narrow(a) || !gemm_is_narrow(b) ||
        (a == CUDA_R_8F_E5M2 && b == CUDA_R_8F_E5M2))
        return 0;
    if (c == CUDA_R_32F)
        return d == CUDA_R_32F;
    if (c != CUDA_R_16BF && c != CUDA_R_16F)
        return 0;
    return d == c || d == CUDA_R_8F_E4M3 || (d == CUDA_R_8F_E5M2 && a != b);
}

/* Of a narrow GEMM: bf16 where D is fp32, else C's. */
cudaDataType gemm_narrow_bias_type(cudaDataType c)
{
    return c == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
}
