/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS's GEMM entry points. All of them end in cublasLtMatmul, called through the PLT as the real library calls its
 * companion: an interposer sees a nested call and needs its guard. */
#include "cublas_handle.h"

struct gemm_call {
    cublasOperation_t transa, transb;
    int64_t m, n, k, lda, ldb, ldc, batch;
    const void *alpha, *beta, *a, *b;
    void *c;
    cudaDataType atype, btype, ctype;
    long long stride_a, stride_b, stride_c;
    cublasComputeType_t compute;
};

static int op_ok(cublasOperation_t op)
{
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

static int64_t at_least_1(int64_t v)
{
    return v > 1 ? v : 1;
}

static cublasStatus_t check(const struct gemm_call *g)
{
    if (g->m < 0 || g->n < 0 || g->k < 0 || g->batch < 0 || !op_ok(g->transa) || !op_ok(g->transb))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (g->lda < at_least_1(g->transa == CUBLAS_OP_N ? g->m : g->k) ||
        g->ldb < at_least_1(g->transb == CUBLAS_OP_N ? g->k : g->n) || g->ldc < at_least_1(g->m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!g->alpha || !g->beta)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

static cudaDataType scale_type(cublasComputeType_t compute)
{
    switch ((int)compute) { /* CUDA 12 does not name all of them */
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return CUDA_R_16F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return CUDA_R_32I;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        return CUDA_R_64F;
    default:
        return CUDA_R_32F;
    }
}

static void set_layout(cublasLtMatrixLayoutOpaque_t *layout, cudaDataType type, int64_t rows, int64_t cols, int64_t ld,
                       int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    cublasLtMatrixLayoutInit(layout, type, (uint64_t)rows, (uint64_t)cols, ld);
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
}

static void set_desc(cublasLtMatmulDescOpaque_t *desc, cublasHandle_t handle, const struct gemm_call *g)
{
    int32_t mode = (int32_t)handle->pointer_mode, ta = (int32_t)g->transa, tb = (int32_t)g->transb;
    cublasLtMatmulDescInit(desc, g->compute, scale_type(g->compute));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &handle->sm_target,
                                   sizeof handle->sm_target);
}

/* As an emulated product of fp64 does, which all are taken for. */
static cublasStatus_t tell_bits(cublasHandle_t handle)
{
    const struct softdrv *drv = softdrv_get();
    if (!handle->bits)
        return CUBLAS_STATUS_SUCCESS;
    return drv->cuMemsetD32Async((CUdeviceptr)handle->bits, 53, 1, handle->stream) == CUDA_SUCCESS
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t gemm(cublasHandle_t handle, const struct gemm_call *g)
{
    if (!cublas_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t st = check(g);
    if (st)
        return st;
    if (g->batch > INT32_MAX)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int na = g->transa == CUBLAS_OP_N, nb = g->transb == CUBLAS_OP_N;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    set_desc(&desc, handle, g);
    set_layout(&a, g->atype, na ? g->m : g->k, na ? g->k : g->m, g->lda, g->batch, g->stride_a);
    set_layout(&b, g->btype, nb ? g->k : g->n, nb ? g->n : g->k, g->ldb, g->batch, g->stride_b);
    set_layout(&c, g->ctype, g->m, g->n, g->ldc, g->batch, g->stride_c);
    st = cublasLtMatmul((cublasLtHandle_t)handle, &desc, g->alpha, g->a, &a, g->b, &b, g->beta, g->c, &c, g->c, &c,
                        NULL, handle->workspace, handle->workspace_bytes, handle->stream);
    return st || g->ctype != CUDA_R_64F ? st : tell_bits(handle);
}

#define DIMS(type) cublasOperation_t transa, cublasOperation_t transb, type m, type n, type k
#define COMMON                                                                                                         \
    .transa = transa, .transb = transb, .m = m, .n = n, .k = k, .alpha = alpha, .a = A, .lda = lda, .b = B,            \
    .ldb = ldb, .beta = beta, .c = C, .ldc = ldc
#define TYPES(at, bt, ct) .atype = at, .btype = bt, .ctype = ct
#define STRIDES .stride_a = strideA, .stride_b = strideB, .stride_c = strideC

#define TYPED_GEMM(name, elem, index, type, comp)                                                                      \
    cublasStatus_t name(cublasHandle_t handle, DIMS(index), const elem *alpha, const elem *A, index lda,               \
                        const elem *B, index ldb, const elem *beta, elem *C, index ldc)                                \
    {                                                                                                                  \
        struct gemm_call g = {COMMON, TYPES(type, type, type), .batch = 1, .compute = comp};                           \
        return gemm(handle, &g);                                                                                       \
    }

#define TYPED_STRIDED(name, elem, index, type, comp)                                                                   \
    cublasStatus_t name(cublasHandle_t handle, DIMS(index), const elem *alpha, const elem *A, index lda,               \
                        long long strideA, const elem *B, index ldb, long long strideB, const elem *beta, elem *C,     \
                        index ldc, long long strideC, index batch)                                                     \
    {                                                                                                                  \
        struct gemm_call g = {COMMON, TYPES(type, type, type), STRIDES, .batch = batch, .compute = comp};              \
        return gemm(handle, &g);                                                                                       \
    }

#define TYPED_ALL(gemm_name, strided_name, elem, type, comp)                                                           \
    TYPED_GEMM(gemm_name, elem, int, type, comp)                                                                       \
    TYPED_GEMM(gemm_name##_64, elem, int64_t, type, comp)                                                              \
    TYPED_STRIDED(strided_name, elem, int, type, comp)                                                                 \
    TYPED_STRIDED(strided_name##_64, elem, int64_t, type, comp)

/* The v2 names are written out: cublas_v2.h defines the short ones as macros. */
TYPED_ALL(cublasSgemm_v2, cublasSgemmStridedBatched, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
TYPED_ALL(cublasDgemm_v2, cublasDgemmStridedBatched, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)

/* The vendor's headers declare these for C++ only; in the ABI the elements are only pointed to. */
typedef uint16_t half_bits;
#define DECLARE(name, args) __attribute__((visibility("default"))) cublasStatus_t name args;
#define HGEMM_ARGS(index)                                                                                              \
    (cublasHandle_t, cublasOperation_t, cublasOperation_t, index, index, index, const half_bits *, const half_bits *,  \
     index, const half_bits *, index, const half_bits *, half_bits *, index)
#define HGEMM_STRIDED_ARGS(index)                                                                                      \
    (cublasHandle_t, cublasOperation_t, cublasOperation_t, index, index, index, const half_bits *, const half_bits *,  \
     index, long long, const half_bits *, index, long long, const half_bits *, half_bits *, index, long long, index)
DECLARE(cublasHgemm, HGEMM_ARGS(int))
DECLARE(cublasHgemm_64, HGEMM_ARGS(int64_t))
DECLARE(cublasHgemmStridedBatched, HGEMM_STRIDED_ARGS(int))
DECLARE(cublasHgemmStridedBatched_64, HGEMM_STRIDED_ARGS(int64_t))
TYPED_ALL(cublasHgemm, cublasHgemmStridedBatched, half_bits, CUDA_R_16F, CUBLAS_COMPUTE_16F)

#define GEMM_EX(name, index)                                                                                           \
    cublasStatus_t name(cublasHandle_t handle, DIMS(index), const void *alpha, const void *A, cudaDataType Atype,      \
                        index lda, const void *B, cudaDataType Btype, index ldb, const void *beta, void *C,            \
                        cudaDataType Ctype, index ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)             \
    {                                                                                                                  \
        (void)algo; /* a hint only since the Ampere architecture */                                                    \
        struct gemm_call g = {COMMON, TYPES(Atype, Btype, Ctype), .batch = 1, .compute = compute};                     \
        return gemm(handle, &g);                                                                                       \
    }
GEMM_EX(cublasGemmEx, int)
GEMM_EX(cublasGemmEx_64, int64_t)

#define GEMM_STRIDED_EX(name, index)                                                                                   \
    cublasStatus_t name(cublasHandle_t handle, DIMS(index), const void *alpha, const void *A, cudaDataType Atype,      \
                        index lda, long long strideA, const void *B, cudaDataType Btype, index ldb, long long strideB, \
                        const void *beta, void *C, cudaDataType Ctype, index ldc, long long strideC, index batch,      \
                        cublasComputeType_t compute, cublasGemmAlgo_t algo)                                            \
    {                                                                                                                  \
        (void)algo;                                                                                                    \
        struct gemm_call g = {COMMON, TYPES(Atype, Btype, Ctype), STRIDES, .batch = batch, .compute = compute};        \
        return gemm(handle, &g);                                                                                       \
    }
GEMM_STRIDED_EX(cublasGemmStridedBatchedEx, int)
GEMM_STRIDED_EX(cublasGemmStridedBatchedEx_64, int64_t)

#define SGEMM_EX(name, index)                                                                                          \
    cublasStatus_t name(cublasHandle_t handle, DIMS(index), const float *alpha, const void *A, cudaDataType Atype,     \
                        index lda, const void *B, cudaDataType Btype, index ldb, const float *beta, void *C,           \
                        cudaDataType Ctype, index ldc)                                                                 \
    {                                                                                                                  \
        struct gemm_call g = {COMMON, TYPES(Atype, Btype, Ctype), .batch = 1, .compute = CUBLAS_COMPUTE_32F};          \
        return gemm(handle, &g);                                                                                       \
    }
SGEMM_EX(cublasSgemmEx, int)
SGEMM_EX(cublasSgemmEx_64, int64_t)
