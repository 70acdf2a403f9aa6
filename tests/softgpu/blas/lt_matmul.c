/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul and the algorithm queries: checks, and one launch of the GEMM kernel. */
#include "gemm.h"
#include "lt_algo.h"

#include <limits.h>
#include <string.h>

static cublasStatus_t load_layout(cublasLtMatrixLayout_t layout, const void *ptr, struct gemm_mat *mat, int *batch)
{
    struct lt_layout l;
    if (!layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&l, layout, sizeof l);
    if (l.order != CUBLASLT_ORDER_COL || l.plane || l.batch_mode != CUBLASLT_BATCH_MODE_STRIDED)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l.batch < 0 || l.ld < (int64_t)(l.rows ? l.rows : 1))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (l.rows > INT_MAX || l.cols > INT_MAX || l.ld > INT_MAX)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *batch = l.batch;
    *mat = (struct gemm_mat){(void *)ptr, (cudaDataType)l.type, (int64_t)l.rows, (int64_t)l.cols, l.ld, l.stride};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t load_layouts(struct gemm_args *g, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    int batch[4];
    cublasStatus_t st;
    if ((st = load_layout(a, g->a.ptr, &g->a, &batch[0])) || (st = load_layout(b, g->b.ptr, &g->b, &batch[1])) ||
        (st = load_layout(c, g->c.ptr, &g->c, &batch[2])) || (st = load_layout(d, g->d.ptr, &g->d, &batch[3])))
        return st;
    if (batch[0] != batch[3] || batch[1] != batch[3] || batch[2] != batch[3])
        return CUBLAS_STATUS_INVALID_VALUE;
    g->batch = batch[3];
    return CUBLAS_STATUS_SUCCESS;
}

static int op_ok(int op)
{
    return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

static void load_bias(struct gemm_args *g, const struct lt_desc *d)
{
    g->bias = d->bias;
    g->bias_stride = d->bias_stride;
    g->bias_type = d->bias_type < 0 ? g->d.type : (cudaDataType)d->bias_type;
}

/* The input of GELU as a matrix of its own; its leading dimension is in elements and a multiple of 8. */
static cublasStatus_t load_aux(struct gemm_args *g, const struct lt_desc *d)
{
    cudaDataType type = d->aux_type < 0 ? g->d.type : (cudaDataType)d->aux_type;
    if (!d->aux || d->aux_ld % 8 || d->aux_ld < g->d.rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    g->aux = (struct gemm_mat){(void *)d->aux, type, g->d.rows, g->d.cols, d->aux_ld, d->aux_stride};
    return gemm_type_bytes(type) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t load_epilogue(struct gemm_args *g, const struct lt_desc *d)
{
    g->epilogue = d->epilogue;
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
        break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
        load_bias(g, d);
        break;
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        load_bias(g, d);
        return load_aux(g, d);
    case CUBLASLT_EPILOGUE_GELU_AUX:
        return load_aux(g, d);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* What the stand-in does not do is refused, never ignored. */
static cublasStatus_t load_desc(struct gemm_args *g, cublasLtMatmulDesc_t desc)
{
    struct lt_desc d;
    if (!desc)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&d, desc, sizeof d);
    if (!op_ok(d.transa) || !op_ok(d.transb))
        return CUBLAS_STATUS_INVALID_VALUE;
    int unsupported = d.transc != CUBLAS_OP_N || d.fill != CUBLAS_FILL_MODE_FULL || d.amax_d || d.amax_aux ||
                      (d.pointer_mode != CUBLASLT_POINTER_MODE_HOST && d.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE);
    for (int i = 0; i < 6; i++)
        unsupported |= d.scale_ptr[i] != NULL || d.scale_mode[i] != 0;
    if (unsupported)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    g->transa = d.transa != CUBLAS_OP_N;
    g->transb = d.transb != CUBLAS_OP_N;
    g->compute = (cublasComputeType_t)d.compute;
    g->scale_type = (cudaDataType)d.scale;
    return load_epilogue(g, &d);
}

static cublasStatus_t check_shapes(struct gemm_args *g)
{
    g->m = g->d.rows;
    g->n = g->d.cols;
    g->k = g->transa ? g->a.rows : g->a.cols;
    if ((g->transa ? g->a.cols : g->a.rows) != g->m || (g->transb ? g->b.cols : g->b.rows) != g->k ||
        (g->transb ? g->b.rows : g->b.cols) != g->n || g->c.rows != g->m || g->c.cols != g->n)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (g->c.type != g->d.type || !gemm_types_supported(g->compute, g->scale_type, g->a.type, g->b.type, g->d.type) ||
        (g->bias && !gemm_type_bytes(g->bias_type)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t load_problem(struct gemm_args *g, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    cublasStatus_t st = load_layouts(g, a, b, c, d);
    if (!st)
        st = load_desc(g, desc);
    return st ? st : check_shapes(g);
}

static void load_scalars(struct gemm_args *g, cublasLtMatmulDesc_t desc, const void *alpha, const void *beta)
{
    struct lt_desc d;
    memcpy(&d, desc, sizeof d);
    if (d.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        g->alpha_dev = alpha;
        g->beta_dev = beta;
    } else {
        g->alpha = gemm_read_scalar(g->scale_type, alpha);
        g->beta = gemm_read_scalar(g->scale_type, beta);
    }
}

static void load_alignments(const struct gemm_args *g, uint32_t align[4])
{
    const void *const at[] = {g->a.ptr, g->b.ptr, g->c.ptr, g->d.ptr};
    for (int i = 0; i < 4; i++)
        align[i] = (uint32_t)(((uintptr_t)at[i] | 256) & -((uintptr_t)at[i] | 256));
}

/* The caller's algorithm, or the best one for what the caller gave. */
static cublasStatus_t load_algo(struct gemm_args *g, const cublasLtMatmulAlgo_t *algo, size_t workspace_bytes)
{
    uint32_t align[4];
    int id;
    load_alignments(g, align);
    if (!algo)
        lt_algo_best(g, align, workspace_bytes, CUBLASLT_REDUCTION_SCHEME_MASK, &id, 1);
    else if ((id = lt_algo_id(algo)) < 0 || !lt_algo_aligned(id, align))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!lt_algo_takes(id, g))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    g->workspace_bytes = lt_algo_workspace(id, g);
    return g->workspace_bytes <= workspace_bytes ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc,
                              const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    if (!lt_handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || (workspace_bytes && !workspace) || (algo && lt_algo_id(algo) < 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    struct gemm_args g = {.a.ptr = (void *)A, .b.ptr = (void *)B, .c.ptr = (void *)C, .d.ptr = D};
    g.workspace = workspace;
    cublasStatus_t st = load_problem(&g, desc, Adesc, Bdesc, Cdesc, Ddesc);
    if (st)
        return st;
    if (!g.m || !g.n || !g.batch)
        return CUBLAS_STATUS_SUCCESS;
    if (!D || (g.k && (!A || !B)))
        return CUBLAS_STATUS_INVALID_VALUE;
    load_scalars(&g, desc, alpha, beta);
    if (!C && (g.beta_dev || g.beta != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((st = load_algo(&g, algo, workspace_bytes)))
        return st;
    const struct softdrv *drv = softdrv_get();
    if (!drv)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((st = gemm_refused()))
        return st;
    return gemm_launch(drv, &g, stream) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *returned)
{
    int ids[LT_ALGOS];
    struct lt_pref p;
    if (!lt_handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !results || !returned || !pref)
        return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    struct gemm_args g = {0};
    cublasStatus_t st = load_problem(&g, desc, a, b, c, d);
    if (st)
        return st;
    memcpy(&p, pref, sizeof p);
    *returned =
        lt_algo_best(&g, p.align, p.max_workspace, p.reduction_mask, ids, requested < LT_ALGOS ? requested : LT_ALGOS);
    for (int i = 0; i < *returned; i++)
        results[i] = (cublasLtMatmulHeuristicResult_t){.algo = lt_algo_of(ids[i]),
                                                       .workspaceSize = lt_algo_workspace(ids[i], &g),
                                                       .state = CUBLAS_STATUS_SUCCESS,
                                                       .wavesCount = 1.0f};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    int id = algo ? lt_algo_id(algo) : -1;
    if (!lt_handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (id < 0 || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct gemm_args g = {0};
    cublasStatus_t st = load_problem(&g, desc, a, b, c, d);
    if (!st && !lt_algo_takes(id, &g))
        st = CUBLAS_STATUS_NOT_SUPPORTED;
    result->state = st;
    result->workspaceSize = st ? 0 : lt_algo_workspace(id, &g);
    result->wavesCount = 1.0f;
    return st;
}
