/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS's and cuBLASLt's functions as this library exports them. With nothing pending the real function is
 * called at once. */
#include "base/settings.h"
#include "interpose/hook.h"
#include "interpose/resolve.h"
#include "kernels/gemm.h"
#include "plugin/fuse/fuse.h"

#define CUBLAS_REAL(lib, name, fn)                                                                                     \
    do {                                                                                                               \
        if (!slr_find(lib) || !slr_real.fn) {                                                                          \
            slr_hook_missing(name, #fn);                                                                               \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        }                                                                                                              \
    } while (0)

#define CUBLAS_HOOK(fn, real_args, ...)                                                                                \
    do {                                                                                                               \
        CUBLAS_REAL(SLR_LIB_CUBLAS, "libcublas.so", fn);                                                               \
        if (!slr_hook_gemm() || !slr_resolve(SLR_LIB_CUBLAS))                                                          \
            return slr_real.fn real_args;                                                                              \
        return slr_gemm_call(&(struct slr_gemm){.handle = handle,                                                      \
                                                .transa = transa,                                                      \
                                                .transb = transb,                                                      \
                                                .m = m,                                                                \
                                                .n = n,                                                                \
                                                .k = k,                                                                \
                                                .alpha = alpha,                                                        \
                                                .beta = beta,                                                          \
                                                .a = a,                                                                \
                                                .b = b,                                                                \
                                                .c = c,                                                                \
                                                .lda = lda,                                                            \
                                                .ldb = ldb,                                                            \
                                                .ldc = ldc,                                                            \
                                                __VA_ARGS__});                                                         \
    } while (0)

/* The entry points differ in the width of their integers, the type of the scalars and what else
 * they take. */
#define PLAIN(fn, id, num, scalar, elem, type_)                                                                        \
    SLR_API                                                                                                            \
    cublasStatus_t fn(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, num m, num n, num k,  \
                      const scalar *alpha, const elem *a, num lda, const elem *b, num ldb, const scalar *beta,         \
                      elem *c, num ldc)                                                                                \
    {                                                                                                                  \
        CUBLAS_HOOK(fn, (handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), .api = id,             \
                    .atype = type_, .btype = type_, .ctype = type_, .batch = 1);                                       \
    }

PLAIN(cublasSgemm_v2, SLR_GEMM_S, int, float, float, CUDA_R_32F)
PLAIN(cublasSgemm_v2_64, SLR_GEMM_S_64, int64_t, float, float, CUDA_R_32F)
PLAIN(cublasDgemm_v2, SLR_GEMM_D, int, double, double, CUDA_R_64F)
PLAIN(cublasDgemm_v2_64, SLR_GEMM_D_64, int64_t, double, double, CUDA_R_64F)
PLAIN(cublasHgemm, SLR_GEMM_H, int, void, void, CUDA_R_16F)
PLAIN(cublasHgemm_64, SLR_GEMM_H_64, int64_t, void, void, CUDA_R_16F)

#define EX(fn, id, num)                                                                                                \
    SLR_API                                                                                                            \
    cublasStatus_t fn(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, num m, num n, num k,  \
                      const void *alpha, const void *a, cudaDataType atype, num lda, const void *b,                    \
                      cudaDataType btype, num ldb, const void *beta, void *c, cudaDataType ctype, num ldc,             \
                      cublasComputeType_t compute, cublasGemmAlgo_t algo)                                              \
    {                                                                                                                  \
        CUBLAS_HOOK(fn,                                                                                                \
                    (handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc,        \
                     compute, algo),                                                                                   \
                    .api = id, .atype = atype, .btype = btype, .ctype = ctype, .batch = 1, .compute = compute,         \
                    .algo = algo);                                                                                     \
    }

EX(cublasGemmEx, SLR_GEMM_EX, int)
EX(cublasGemmEx_64, SLR_GEMM_EX_64, int64_t)

#define STRIDED(fn, id, num)                                                                                           \
    SLR_API                                                                                                            \
    cublasStatus_t fn(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, num m, num n, num k,  \
                      const void *alpha, const void *a, cudaDataType atype, num lda, long long stride_a,               \
                      const void *b, cudaDataType btype, num ldb, long long stride_b, const void *beta, void *c,       \
                      cudaDataType ctype, num ldc, long long stride_c, num batch, cublasComputeType_t compute,         \
                      cublasGemmAlgo_t algo)                                                                           \
    {                                                                                                                  \
        CUBLAS_HOOK(fn,                                                                                                \
                    (handle, transa, transb, m, n, k, alpha, a, atype, lda, stride_a, b, btype, ldb, stride_b, beta,   \
                     c, ctype, ldc, stride_c, batch, compute, algo),                                                   \
                    .api = id, .atype = atype, .btype = btype, .ctype = ctype, .stride_a = stride_a,                   \
                    .stride_b = stride_b, .stride_c = stride_c, .batch = batch, .compute = compute, .algo = algo);     \
    }

STRIDED(cublasGemmStridedBatchedEx, SLR_GEMM_STRIDED_EX, int)
STRIDED(cublasGemmStridedBatchedEx_64, SLR_GEMM_STRIDED_EX_64, int64_t)

/* ---- what a handle's calls write besides their results ---- */

SLR_API
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    CUBLAS_REAL(SLR_LIB_CUBLAS, "libcublas.so", cublasSetWorkspace_v2);
    const cublasStatus_t r = slr_real.cublasSetWorkspace_v2(handle, workspace, bytes);
    if (r == CUBLAS_STATUS_SUCCESS && slr_get(SLR_S_ENABLE))
        slr_workspace_set(handle, workspace, bytes);
    return r;
}

SLR_API
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    CUBLAS_REAL(SLR_LIB_CUBLAS, "libcublas.so", cublasSetStream_v2);
    const cublasStatus_t r = slr_real.cublasSetStream_v2(handle, stream);
    if (r == CUBLAS_STATUS_SUCCESS && slr_get(SLR_S_ENABLE))
        slr_workspace_reset(handle);
    return r;
}

SLR_API
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    CUBLAS_REAL(SLR_LIB_CUBLAS, "libcublas.so", cublasDestroy_v2);
    if (slr_get(SLR_S_ENABLE))
        slr_workspace_forget(handle);
    return slr_real.cublasDestroy_v2(handle);
}

/* cuBLAS calls it as well; while slipring has called cuBLAS, such calls are guarded, and else they are
 * GEMMs like any other. */
SLR_API
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    CUBLAS_REAL(SLR_LIB_CUBLASLT, "libcublasLt.so", cublasLtMatmul);
    if (!slr_hook_gemm() || !slr_resolve(SLR_LIB_CUBLASLT))
        return slr_real.cublasLtMatmul(handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algo, workspace,
                                       workspace_bytes, stream);
    struct slr_lt lt = {.handle = handle,
                        .desc = desc,
                        .la = la,
                        .lb = lb,
                        .lc = lc,
                        .ld = ld,
                        .c = c,
                        .algo = algo,
                        .workspace = workspace,
                        .workspace_bytes = workspace_bytes,
                        .stream = stream};
    struct slr_gemm gemm = {.api = SLR_GEMM_LT, .lt = &lt, .alpha = alpha, .beta = beta, .a = a, .b = b, .c = d};
    return slr_gemm_call(&gemm);
}

#define B(need, fn) SLR_HOOK_NAME(fn);
#define T B
#include "base/hooks.def"
