/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul and the algorithm queries: checks, and one launch of the GEMM kernel. */
#include "gemm.h"
#include "gemm_scale.h"
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

/* D's, or beside narrow operands one of 16 bits (the table under cublasLtMatmul). */
static cudaDataType bias_type(const struct gemm_args *g, const struct lt_desc *d)
{
    if (d->bias_type >= 0)
        return (cudaDataType)d->bias_type;
    return gemm_is_narrow(g->a.type) ? gemm_narrow_bias_type(g->c.type) : g->d.type;
}

static cublasStatus_t load_vector(struct gemm_args *g, const struct lt_desc *d)
{
    g->bias_type = bias_type(g, d);
    g->bias_stride = d->bias_stride;
    if (d->epilogue & CUBLASLT_EPILOGUE_BIAS) {
        g->bias = d->bias;
        return CUBLAS_STATUS_SUCCESS;
    }
    g->gradient = d->epilogue & CUBLASLT_EPILOGUE_BGRADA   ? GEMM_GRADIENT_A
                  : d->epilogue & CUBLASLT_EPILOGUE_BGRADB ? GEMM_GRADIENT_B
                                                           : GEMM_GRADIENT_D;
    g->vector = (void *)d->bias;
    if (!d->bias)
        return CUBLAS_STATUS_INVALID_VALUE;
    return g->batch > 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

/* A matrix of its own, read by the gradients' epilogues. Its leading dimension is a multiple of 8 elements, or of 128
 * bits. */
static cublasStatus_t load_aux(struct gemm_args *g, const struct lt_desc *d)
{
    const cudaDataType type = d->aux_type < 0 ? g->d.type : (cudaDataType)d->aux_type;
    g->aux_in = d->epilogue == CUBLASLT_EPILOGUE_DRELU || d->epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD ||
                d->epilogue == CUBLASLT_EPILOGUE_DGELU || d->epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
    g->aux_bits = (d->epilogue & (CUBLASLT_EPILOGUE_RELU | 8)) != 0;
    if (!d->aux || d->aux_ld % (g->aux_bits ? 128 : 8) || d->aux_ld < g->d.rows || (uintptr_t)d->aux % 16)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (g->aux_bits && g->batch > 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    g->aux = (struct gemm_mat){(void *)d->aux, type, g->d.rows, g->d.cols, d->aux_ld, d->aux_stride};
    return gemm_type_bytes(type) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static int epilogue_known(uint32_t epilogue)
{
    static const uint32_t known[] = {
        CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_RELU,        CUBLASLT_EPILOGUE_RELU_AUX,
        CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DRELU,    CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (epilogue == known[i])
            return 1;
    return 0;
}

static cublasStatus_t load_epilogue(struct gemm_args *g, const struct lt_desc *d)
{
    const uint32_t vectors = CUBLASLT_EPILOGUE_BIAS | 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB;
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;
    g->epilogue = d->epilogue;
    if (!epilogue_known(d->epilogue))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d->epilogue & vectors)
        st = load_vector(g, d);
    return !st && (d->epilogue & 128) ? load_aux(g, d) : st;
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
    int unsupported = d.transc != CUBLAS_OP_N || d.fill != CUBLAS_FILL_MODE_FULL || d.scale_ptr[5] || d.scale_mode[5] ||
                      (d.pointer_mode != CUBLASLT_POINTER_MODE_HOST && d.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE);
    if (unsupported)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < GEMM_SCALES; i++)
        g->scale[i] = (struct gemm_scale){d.scale_ptr[i], d.scale_mode[i]};
    g->amax_d = (float *)d.amax_d;
    g->amax_aux = (float *)d.amax_aux;
    g->transa = d.transa != CUBLAS_OP_N;
    g->transb = d.transb != CUBLAS_OP_N;
    g->compute = (cublasComputeType_t)d.compute;
    g->scale_type = (cudaDataType)d.scale;
    g->sm_target = d.sm_target;
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
    const int narrow = gemm_is_narrow(g->a.type) || gemm_is_narrow(g->b.type);
    if (!narrow &&
        (g->c.type != g->d.type || !gemm_types_supported(g->compute, g->scale_type, g->a.type, g->b.type, g->d.type)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (narrow && !gemm_narrow_types_supported(g->compute, g->scale_type, g->a.type, g->b.type, g->c.type, g->d.type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((g->bias || g->vector) &&
        (!gemm_type_bytes(g->bias_type) || (narrow && g->bias_type != gemm_narrow_bias_type(g->c.type))))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm_scales_check(g);
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
    /* What it does with the rest of the workspace is its own affair: all of it is overwritten. */
    g->workspace_bytes = workspace_bytes;
    return lt_algo_workspace(id, g) <= workspace_bytes ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
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
