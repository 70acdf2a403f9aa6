/* cublasLtMatmul and the algorithm queries: checks, and one launch of the GEMM kernel. There is one algorithm. */
#include "gemm.h"

#include <limits.h>
#include <string.h>

#define LT_ALGO_ID 0
#define LT_ALGO_MAGIC 0x736f6674676d6d31u

static int handle_ok(cublasLtHandle_t handle)
{
    return handle && atomic_load(&((struct lt_handle *)handle)->magic) == LT_HANDLE_MAGIC;
}

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

static cublasStatus_t load_epilogue(struct gemm_args *g, const struct lt_desc *d)
{
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
        break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
        g->bias = d->bias;
        g->bias_stride = d->bias_stride;
        g->bias_type = d->bias_type < 0 ? g->d.type : (cudaDataType)d->bias_type;
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    g->epilogue = d->epilogue;
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

static int algo_ok(const cublasLtMatmulAlgo_t *algo)
{
    return algo->data[0] == LT_ALGO_MAGIC && algo->data[1] == LT_ALGO_ID;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc,
                              const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    if (!handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta || (workspace_bytes && !workspace) || (algo && !algo_ok(algo)))
        return CUBLAS_STATUS_INVALID_VALUE;
    struct gemm_args g = {.a.ptr = (void *)A, .b.ptr = (void *)B, .c.ptr = (void *)C, .d.ptr = D};
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
    const struct softdrv *drv = softdrv_get();
    if (!drv)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    return gemm_launch(drv, &g, stream) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

static void fill_algo(cublasLtMatmulAlgo_t *algo)
{
    *algo = (cublasLtMatmulAlgo_t){.data = {LT_ALGO_MAGIC, LT_ALGO_ID}};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *returned)
{
    if (!handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !results || !returned || !pref)
        return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    struct gemm_args g = {0};
    cublasStatus_t st = load_problem(&g, desc, a, b, c, d);
    if (st)
        return st;
    results[0] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1.0f};
    fill_algo(&results[0].algo);
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                        cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d,
                                        int requested, int ids[], int *returned)
{
    if (!handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested <= 0 || !ids || !returned)
        return CUBLAS_STATUS_INVALID_VALUE;
    *returned = c == d && gemm_types_supported(compute, scale, a, b, c);
    if (*returned)
        ids[0] = LT_ALGO_ID;
    return *returned ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t *algo)
{
    if (!handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || id != LT_ALGO_ID)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (c != d || !gemm_types_supported(compute, scale, a, b, c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    fill_algo(algo);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    if (!handle_ok(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || !algo_ok(algo) || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    struct gemm_args g = {0};
    cublasStatus_t st = load_problem(&g, desc, a, b, c, d);
    result->state = st;
    result->workspaceSize = 0;
    result->wavesCount = 1.0f;
    return st;
}
