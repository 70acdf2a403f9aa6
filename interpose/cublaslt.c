/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul as this library exports it. With nothing pending the real function is called at
 * once. cuBLAS calls it as well; while slipring has called cuBLAS, such calls are guarded, and else
 * they are GEMMs like any other. */
#include "interpose/hook.h"
#include "interpose/resolve.h"
#include "plugin/fuse/fuse.h"

SLR_API
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    if (!slr_find(SLR_LIB_CUBLASLT) || !slr_real.cublasLtMatmul) {
        slr_hook_missing("libcublasLt.so", "cublasLtMatmul");
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (!slr_hook_gemm() || !slr_resolve_cublaslt())
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

#define L(fn)
#define P(fn)
#define N(fn)
#define B(fn)
#define T(fn) SLR_HOOK_NAME(fn);
#include "interpose/hooks.def"
