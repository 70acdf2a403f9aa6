/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse.h"

#include <string.h>

/* cublas_api.h declares it for C++ only. */
cublasStatus_t cublasHgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, int, const void *, int, const void *, void *, int);

size_t api_elem(enum api api)
{
    return api == API_D ? 8 : api_type(api) == CUDA_R_32F ? 4 : 2;
}

size_t api_elem_c(enum api api)
{
    return api == API_D ? 8 : api == API_H || api == API_EX_BF16_C ? 2 : 4;
}

cudaDataType api_type(enum api api)
{
    switch (api) {
    case API_D:
        return CUDA_R_64F;
    case API_S:
    case API_S64:
    case API_EX_TF32:
        return CUDA_R_32F;
    case API_EX_FP16:
    case API_H:
        return CUDA_R_16F;
    default:
        return CUDA_R_16BF;
    }
}

UNWATCHED int small(uint64_t seed, uint64_t i)
{
    return (int)(hash64(seed, i) % 5) - 2;
}

/* Small integers, so that the conversions are exact: bf16 is the upper half of fp32; fp16 of |v| < 2048 by shifting. */
static uint16_t half_of(int v)
{
    if (v == 0)
        return 0;
    unsigned a = (unsigned)(v < 0 ? -v : v), e = 31 - (unsigned)__builtin_clz(a);
    return (uint16_t)((v < 0 ? 0x8000u : 0) | (e + 15) << 10 | ((a << (10 - e)) & 0x3ff));
}

static double half_value(uint16_t h)
{
    unsigned e = h >> 10 & 31, f = h & 0x3ff;
    double v = e == 0    ? (double)f * 0x1p-24
               : e == 31 ? __builtin_nan("")
                         : (double)(f | 0x400) * __builtin_ldexp(1, (int)e - 25);
    return h & 0x8000 ? -v : v;
}

void put(enum api api, void *host, size_t i, int value, bool is_c)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (api == API_D)
        ((double *)host)[i] = value;
    else if (api_type(api) == CUDA_R_32F || (is_c && api != API_H))
        ((float *)host)[i] = f;
    else
        ((uint16_t *)host)[i] = api_type(api) == CUDA_R_16BF ? (uint16_t)(bits >> 16) : half_of(value);
}

double get(enum api api, const void *host, size_t i)
{
    if (api == API_D)
        return ((const double *)host)[i];
    if (api == API_H)
        return half_value(((const uint16_t *)host)[i]);
    return ((const float *)host)[i];
}

static float *device_scalars;

void gemm_prepare(enum api api, cublasHandle_t h, double beta)
{
    const float scalars[2] = {1, (float)beta};
    if (api != API_EX_DEVICE)
        return;
    CUDA(cudaMalloc((void **)&device_scalars, sizeof scalars));
    to_device(device_scalars, scalars, sizeof scalars);
    BLAS(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE));
}

/* W's columns are the outer dimension: a quarter of them is a quarter of C's rows, or of its columns. */
static cublasStatus_t gemm_shared(bool on_a, cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m,
                                  int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb,
                                  float beta, void *c, int64_t ldc)
{
    const int batch = 4;
    const float one = 1;
    const cudaDataType t = CUDA_R_16BF;
    const int64_t rows = on_a ? m : m / batch, cols = on_a ? n / batch : n;
    CHECK((on_a ? n : m) % batch == 0, "the batch does not divide the other operand");
    return cublasGemmStridedBatchedEx(h, ta, tb, (int)rows, (int)cols, (int)k, &one, a, t, (int)lda,
                                      on_a ? 0 : lda * rows, b, t, (int)ldb, on_a ? ldb * cols : 0, &beta, c,
                                      CUDA_R_32F, (int)ldc, on_a ? ldc * cols : rows, batch, CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT);
}

static cublasStatus_t gemm_ex(enum api api, cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int64_t m,
                              int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, float beta,
                              void *c, int64_t ldc)
{
    const float one = 1, *alpha = api == API_EX_DEVICE ? device_scalars : &one;
    const float *betas = api == API_EX_DEVICE ? device_scalars + 1 : &beta;
    cudaDataType t = api_type(api), of_c = api == API_EX_BF16_C ? CUDA_R_16BF : CUDA_R_32F;
    if (api == API_EX64_BF16)
        return cublasGemmEx_64(h, ta, tb, m, n, k, &one, a, t, lda, b, t, ldb, &beta, c, CUDA_R_32F, ldc,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (api == API_SB_BF16)
        return cublasGemmStridedBatchedEx(h, ta, tb, (int)m, (int)n, (int)k, &one, a, t, (int)lda, 0, b, t, (int)ldb, 0,
                                          &beta, c, CUDA_R_32F, (int)ldc, 0, 1, CUBLAS_COMPUTE_32F,
                                          CUBLAS_GEMM_DEFAULT);
    if (api == API_SB4_A_BF16 || api == API_SB4_B_BF16)
        return gemm_shared(api == API_SB4_A_BF16, h, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
    if (api == API_SB2_BF16)
        return cublasGemmStridedBatchedEx(h, ta, tb, (int)m, (int)n / 2, (int)k, &one, a, t, (int)lda, 0, b, t,
                                          (int)ldb, ldb * (n / 2), &beta, c, CUDA_R_32F, (int)ldc, ldc * (n / 2), 2,
                                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return cublasGemmEx(h, ta, tb, (int)m, (int)n, (int)k, alpha, a, t, (int)lda, b, t, (int)ldb, betas, c, of_c,
                        (int)ldc, api == API_EX_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t gemm_status(enum api api, cublasHandle_t h, bool transa, bool transb, int64_t m, int64_t n, int64_t k,
                           const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    cublasOperation_t ta = transa ? CUBLAS_OP_T : CUBLAS_OP_N, tb = transb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const float one = 1, betaf = (float)beta;
    const double oned = 1;
    uint16_t oneh = half_of(1), betah = half_of((int)beta);
    switch (api) {
    case API_S:
        return cublasSgemm(h, ta, tb, (int)m, (int)n, (int)k, &one, a, (int)lda, b, (int)ldb, &betaf, c, (int)ldc);
    case API_S64:
        return cublasSgemm_64(h, ta, tb, m, n, k, &one, a, lda, b, ldb, &betaf, c, ldc);
    case API_D:
        return cublasDgemm(h, ta, tb, (int)m, (int)n, (int)k, &oned, a, (int)lda, b, (int)ldb, &beta, c, (int)ldc);
    case API_H:
        return cublasHgemm(h, ta, tb, (int)m, (int)n, (int)k, &oneh, a, (int)lda, b, (int)ldb, &betah, c, (int)ldc);
    default:
        return gemm_ex(api, h, ta, tb, m, n, k, a, lda, b, ldb, betaf, c, ldc);
    }
}

void gemm(enum api api, cublasHandle_t h, bool transa, bool transb, int64_t m, int64_t n, int64_t k, const void *a,
          int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    BLAS(gemm_status(api, h, transa, transb, m, n, k, a, lda, b, ldb, beta, c, ldc));
}
