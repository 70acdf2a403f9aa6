/* SPDX-License-Identifier: Apache-2.0 */
/* --api lt and lt-bias: cublasLtMatmul with the heuristic's algorithm and a workspace, as
 * frameworks call it. */
#include "ag_lt.h"
#include "ag_rank.h"

#include <cublasLt.h>
#include <stdlib.h>

#define WORKSPACE_BYTES ((size_t)32 << 20)

struct ag_lt {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t found;
    void *bias, *workspace;
    int wide; /* the scalars are doubles */
};

static int make_bias(struct ag_rank *r, struct ag_lt *lt)
{
    const struct ag_shape *s = &r->data.shape;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const size_t bytes = (size_t)s->m * s->element_bytes;
    void *host = malloc(bytes);
    if (!host)
        return ag_failed(r, "malloc", "host", "out of memory");
    ag_data_biases(&r->data, r->rank, host);
    cudaError_t copied = cudaMalloc(&lt->bias, bytes);
    if (copied == cudaSuccess)
        copied = cudaMemcpy(lt->bias, host, bytes, cudaMemcpyHostToDevice);
    free(host);
    AG_CUDA(r, copied);
    AG_BLAS(r, cublasLtMatmulDescSetAttribute(lt->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    AG_BLAS(r, cublasLtMatmulDescSetAttribute(lt->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &lt->bias, sizeof lt->bias));
    return 0;
}

static int choose(struct ag_rank *r, struct ag_lt *lt)
{
    const uint64_t most = WORKSPACE_BYTES;
    cublasLtMatmulPreference_t pref;
    int count = 0;
    AG_BLAS(r, cublasLtMatmulPreferenceCreate(&pref));
    AG_BLAS(r,
            cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    AG_BLAS(
        r, cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->op, lt->a, lt->b, lt->c, lt->c, pref, 1, &lt->found, &count));
    AG_BLAS(r, cublasLtMatmulPreferenceDestroy(pref));
    return count ? 0 : ag_failed(r, "cublasLtMatmulAlgoGetHeuristic", "cuBLASLt", "no algorithm");
}

int ag_lt_make(struct ag_rank *r, struct ag_lane *lane)
{
    static const cudaDataType_t types[] = {
        [AG_BF16] = CUDA_R_16BF, [AG_FP16] = CUDA_R_16F, [AG_FP32] = CUDA_R_32F, [AG_FP64] = CUDA_R_64F};
    const struct ag_shape *s = &r->data.shape;
    const cudaDataType_t type = types[r->options->dtype];
    const int bn = r->options->form == AG_BN;
    const int32_t trans = CUBLAS_OP_T;
    struct ag_lt *lt = lane->lt = calloc(1, sizeof *lt);
    if (!lt)
        return ag_failed(r, "calloc", "host", "out of memory");
    lt->wide = type == CUDA_R_64F;
    AG_BLAS(r, cublasLtCreate(&lt->handle));
    AG_BLAS(r, cublasLtMatmulDescCreate(&lt->op, lt->wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        lt->wide ? CUDA_R_64F : CUDA_R_32F));
    AG_BLAS(r, cublasLtMatmulDescSetAttribute(lt->op, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans));
    AG_BLAS(r, cublasLtMatrixLayoutCreate(&lt->a, type, (uint64_t)s->k, (uint64_t)s->m, bn ? s->k : s->ld));
    AG_BLAS(r, cublasLtMatrixLayoutCreate(&lt->b, type, (uint64_t)s->k, (uint64_t)s->n, bn ? s->ld : s->k));
    AG_BLAS(r, cublasLtMatrixLayoutCreate(&lt->c, type, (uint64_t)s->m, (uint64_t)s->n, s->m));
    if (r->options->api == AG_LT_BIAS)
        AG_TRY(make_bias(r, lt));
    AG_CUDA(r, cudaMalloc(&lt->workspace, WORKSPACE_BYTES));
    return choose(r, lt);
}

int ag_lt_gemm(struct ag_rank *r, struct ag_lane *lane, int slot)
{
    const struct ag_lt *lt = lane->lt;
    const int bn = r->options->form == AG_BN;
    const double one = 1, beta = r->options->beta;
    const float one_single = 1, beta_single = (float)beta;
    const void *a = bn ? lane->weight : lane->gathered, *b = bn ? lane->gathered : lane->weight;
    AG_BLAS(r, cublasLtMatmul(lt->handle, lt->op, lt->wide ? (const void *)&one : &one_single, a, lt->a, b, lt->b,
                              lt->wide ? (const void *)&beta : &beta_single, lane->c[slot], lt->c, lane->c[slot], lt->c,
                              &lt->found.algo, lt->workspace, WORKSPACE_BYTES, lane->stream));
    return 0;
}

int ag_lt_free(struct ag_rank *r, struct ag_lane *lane)
{
    struct ag_lt *lt = lane->lt;
    if (!lt)
        return 0;
    AG_BLAS(r, cublasLtMatrixLayoutDestroy(lt->a));
    AG_BLAS(r, cublasLtMatrixLayoutDestroy(lt->b));
    AG_BLAS(r, cublasLtMatrixLayoutDestroy(lt->c));
    AG_BLAS(r, cublasLtMatmulDescDestroy(lt->op));
    AG_BLAS(r, cublasLtDestroy(lt->handle));
    AG_CUDA(r, cudaFree(lt->bias));
    AG_CUDA(r, cudaFree(lt->workspace));
    free(lt);
    return 0;
}
