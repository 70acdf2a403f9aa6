/* SPDX-License-Identifier: Apache-2.0 */
#include <cublasLt.h>
#include <string.h>

#include "softgpu/blas/float16.h"
#include "scatter.h"

#define WORKSPACE ((size_t)1 << 20)

/* cublas_api.h declares it for C++ only. */
cublasStatus_t cublasHgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, int, const void *, int, const void *, void *, int);

void gemm_open(struct world *w)
{
    cublasLtHandle_t lt;
    BLAS(cublasCreate(&w->blas));
    BLAS(cublasLtCreate(&lt));
    w->lt = lt;
    CUDA(cudaMalloc(&w->workspace, WORKSPACE));
}

void gemm_close(struct world *w)
{
    BLAS(cublasDestroy(w->blas));
    BLAS(cublasLtDestroy(w->lt));
    CUDA(cudaFree(w->workspace));
}

static cudaDataType cuda_type(enum elem type)
{
    return type == FP32 ? CUDA_R_32F : type == FP16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* One GEMM; leading dimensions are those of whole matrices. */
struct call {
    int m, n, k, lda, ldb, ldc;
    const uint8_t *a, *b;
    uint8_t *c;
    float alpha, beta;
    const void *alphas, *betas;
};

static void lt_layout(cublasLtMatrixLayout_t *l, cudaDataType type, int rows, int cols, int ld)
{
    BLAS(cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, ld));
}

#define SET(desc, id, value)                                                                                           \
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_##id, &(value), sizeof(value)))

static void lt_matmul(const struct site *t, const struct call *g, cudaStream_t stream)
{
    const struct shape *s = &t->shape;
    const cudaDataType type = cuda_type(s->type), in = s->api == LT_FP8 ? CUDA_R_8F_E4M3 : type;
    const int32_t trans = CUBLAS_OP_T, mode = CUBLASLT_POINTER_MODE_DEVICE;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t la, lb, lc;
    BLAS(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    if (s->ta)
        SET(op, TRANSA, trans);
    if (s->tb)
        SET(op, TRANSB, trans);
    if (s->device_scalars)
        SET(op, POINTER_MODE, mode);
    if (s->api == LT_BIAS) {
        SET(op, EPILOGUE, epilogue);
        SET(op, BIAS_POINTER, t->bias);
    }
    lt_layout(&la, in, s->ta ? g->k : g->m, s->ta ? g->m : g->k, g->lda);
    lt_layout(&lb, in, s->tb ? g->n : g->k, s->tb ? g->k : g->n, g->ldb);
    lt_layout(&lc, type, g->m, g->n, g->m);
    BLAS(cublasLtMatmul(t->w->lt, op, g->alphas, g->a, la, g->b, lb, g->betas, g->c, lc, g->c, lc, NULL,
                        t->w->workspace, WORKSPACE, stream));
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatmulDescDestroy(op));
}

static void multiply(const struct site *t, const struct call *g)
{
    const struct shape *s = &t->shape;
    const cublasOperation_t ta = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType type = cuda_type(s->type);
    const uint16_t alpha = f32_to_f16(g->alpha), beta = f32_to_f16(g->beta);
    cublasHandle_t h = t->w->blas;
    switch (s->api) {
    case SGEMM:
        BLAS(cublasSgemm(h, ta, tb, g->m, g->n, g->k, g->alphas, (const float *)(const void *)g->a, g->lda,
                         (const float *)(const void *)g->b, g->ldb, g->betas, (float *)(void *)g->c, g->ldc));
        return;
    case HGEMM:
        BLAS(cublasHgemm(h, ta, tb, g->m, g->n, g->k, &alpha, g->a, g->lda, g->b, g->ldb, &beta, g->c, g->ldc));
        return;
    case EX64:
        BLAS(cublasGemmEx_64(h, ta, tb, g->m, g->n, g->k, g->alphas, g->a, type, g->lda, g->b, type, g->ldb, g->betas,
                             g->c, type, g->ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        return;
    case BATCH_1:
        BLAS(cublasGemmStridedBatchedEx(h, ta, tb, g->m, g->n, g->k, g->alphas, g->a, type, g->lda, 0, g->b, type,
                                        g->ldb, 0, g->betas, g->c, type, g->ldc, 0, 1, CUBLAS_COMPUTE_32F,
                                        CUBLAS_GEMM_DEFAULT));
        return;
    default:
        BLAS(cublasGemmEx(h, ta, tb, g->m, g->n, g->k, g->alphas, g->a, type, g->lda, g->b, type, g->ldb, g->betas,
                          g->c, type, g->ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
}

void site_gemm_part(struct site *t, int from, int first, int n, int beta, cudaStream_t stream)
{
    const struct shape *s = &t->shape;
    const bool own = beta < 0;
    struct call g = {.m = s->m - s->pad, .n = n, .k = s->k, .a = t->a, .alpha = (float)s->alpha};
    g.beta = (float)(own ? s->beta : beta);
    g.ldc = s->m;
    g.lda = s->ta ? s->k : s->m;
    g.ldb = s->tb ? t->n : s->k;
    g.b = t->b + (size_t)(s->tb ? from : from * s->k) * (s->api == LT_FP8 ? 1 : t->elem);
    g.c = t->c + (size_t)first * (size_t)s->m * t->elem;
    const bool on_device = s->device_scalars && own;
    g.alphas = on_device ? t->scalars : &g.alpha;
    g.betas = on_device ? t->scalars + 1 : &g.beta;
    if (s->api == LT || s->api == LT_BIAS || s->api == LT_FP8) {
        lt_matmul(t, &g, stream);
        return;
    }
    BLAS(cublasSetStream(t->w->blas, stream)); /* which takes the workspace away */
    if (s->recv == RECV_IN_WORKSPACE)
        BLAS(cublasSetWorkspace(t->w->blas, t->w->workspace, WORKSPACE));
    BLAS(cublasSetPointerMode(t->w->blas, on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST));
    multiply(t, &g);
}

void site_gemm(struct site *t, cudaStream_t stream)
{
    site_gemm_part(t, 0, 0, t->n, -1, stream);
}

void other_gemm(struct site *t, const void *from, void *to, int rows, cudaStream_t stream)
{
    const cudaDataType type = cuda_type(t->shape.type);
    const float alpha = 1, beta = 0;
    cublasHandle_t h = t->w->blas;
    BLAS(cublasSetStream(h, stream));
    BLAS(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_HOST));
    BLAS(cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, rows, 1, 1, &alpha, from, type, rows, from, type, 1, &beta, to, type,
                      rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}
