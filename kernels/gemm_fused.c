#include "base/cu.h"
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"

/* Sizes fit in int wherever the application's own call had them in int: parts are smaller than the whole. */
static cublasStatus_t call_ex(const struct slr_gemm *g)
{
    if (g->api == SLR_GEMM_EX_64)
        return slr_real.cublasGemmEx_64(g->handle, g->transa, g->transb, g->m, g->n, g->k, g->alpha, g->a, g->atype,
                                        g->lda, g->b, g->btype, g->ldb, g->beta, g->c, g->ctype, g->ldc, g->compute,
                                        g->algo);
    return slr_real.cublasGemmEx(g->handle, g->transa, g->transb, (int)g->m, (int)g->n, (int)g->k, g->alpha, g->a,
                                 g->atype, (int)g->lda, g->b, g->btype, (int)g->ldb, g->beta, g->c, g->ctype,
                                 (int)g->ldc, g->compute, g->algo);
}

static cublasStatus_t call_strided(const struct slr_gemm *g)
{
    if (g->api == SLR_GEMM_STRIDED_EX_64)
        return slr_real.cublasGemmStridedBatchedEx_64(
            g->handle, g->transa, g->transb, g->m, g->n, g->k, g->alpha, g->a, g->atype, g->lda, g->stride_a, g->b,
            g->btype, g->ldb, g->stride_b, g->beta, g->c, g->ctype, g->ldc, g->stride_c, g->batch, g->compute, g->algo);
    return slr_real.cublasGemmStridedBatchedEx(g->handle, g->transa, g->transb, (int)g->m, (int)g->n, (int)g->k,
                                               g->alpha, g->a, g->atype, (int)g->lda, g->stride_a, g->b, g->btype,
                                               (int)g->ldb, g->stride_b, g->beta, g->c, g->ctype, (int)g->ldc,
                                               g->stride_c, (int)g->batch, g->compute, g->algo);
}

#define CALL_TYPED(fn, num)                                                                                            \
    slr_real.fn(g->handle, g->transa, g->transb, (num)g->m, (num)g->n, (num)g->k, g->alpha, g->a, (num)g->lda, g->b,   \
                (num)g->ldb, g->beta, g->c, (num)g->ldc)

cublasStatus_t slr_gemm_whole(const struct slr_gemm *g)
{
    switch (g->api) {
    case SLR_GEMM_S:
        return CALL_TYPED(cublasSgemm, int);
    case SLR_GEMM_S_64:
        return CALL_TYPED(cublasSgemm_64, int64_t);
    case SLR_GEMM_D:
        return CALL_TYPED(cublasDgemm, int);
    case SLR_GEMM_D_64:
        return CALL_TYPED(cublasDgemm_64, int64_t);
    case SLR_GEMM_H:
        return CALL_TYPED(cublasHgemm, int);
    case SLR_GEMM_H_64:
        return CALL_TYPED(cublasHgemm_64, int64_t);
    case SLR_GEMM_STRIDED_EX:
    case SLR_GEMM_STRIDED_EX_64:
        return call_strided(g);
    case SLR_GEMM_LT:
        return slr_lt_whole(g);
    case SLR_GEMM_EX:
    case SLR_GEMM_EX_64:
        break;
    }
    return call_ex(g);
}

static struct slr_gemm cut(const struct slr_gemm *gemm, const struct slr_gemm_split *s, int64_t col, int64_t cols)
{
    struct slr_gemm part = *gemm;
    size_t operand = (size_t)col * s->col_bytes;
    size_t elem_c = slr_gemm_type_bytes(gemm->ctype);
    if (s->on_a) {
        part.a = (const char *)gemm->a + operand;
        part.c = (char *)gemm->c + (size_t)col * elem_c;
        part.m = cols;
    } else {
        part.b = (const char *)gemm->b + operand;
        part.c = (char *)gemm->c + (size_t)col * (size_t)gemm->ldc * elem_c;
        part.n = cols;
    }
    return part;
}

cublasStatus_t slr_gemm_part(const struct slr_gemm *gemm, const struct slr_gemm_split *s, int64_t col, int64_t cols)
{
    struct slr_gemm part = cut(gemm, s, col, cols);
    return gemm->lt ? slr_lt_part(&part, s->on_a, col) : slr_gemm_whole(&part);
}

enum slr_reason slr_gemm_describe(struct slr_gemm *gemm)
{
    return gemm->lt ? slr_lt_describe(gemm) : SLR_R_FUSED;
}

/* First column of the shard that chunk q does not complete: a column across two chunks belongs to the later one. */
static int64_t chunk_cols_end(const struct slr_gather *g, const struct slr_gemm_split *s, uint32_t q)
{
    return (int64_t)(slr_plan_chunk_end(&g->plan, q) / s->col_bytes);
}

/* The columns of chunk q in a shard. */
static int64_t chunk_cols(const struct slr_gather *g, const struct slr_gemm_split *s, uint32_t q, int64_t *begin)
{
    *begin = q ? chunk_cols_end(g, s, q - 1) : 0;
    return chunk_cols_end(g, s, q) - *begin;
}

/* Whether cuBLASLt can compute each part: what it refuses half-way can not be made good. */
static bool ready(const struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                  const struct slr_gemm_split *s)
{
    bool all = true;
    for (int owner = 0; gemm->lt && all && owner < ring->nranks; owner++)
        for (uint32_t q = 0; all && q < (owner == ring->rank ? 1 : g->plan.chunks); q++) {
            int64_t begin = 0, cols = owner == ring->rank ? s->shard_cols : chunk_cols(g, s, q, &begin);
            int64_t col = owner * s->shard_cols + begin;
            struct slr_gemm part = cut(gemm, s, col, cols);
            all = cols == 0 || slr_lt_ready(&part, s->on_a, col);
        }
    return all;
}

static cublasStatus_t fused_chunk(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                                  const struct slr_gemm_split *s, uint32_t q, int step, unsigned *parts)
{
    int64_t begin, cols = chunk_cols(g, s, q, &begin);
    if (cols == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (slr_ring_wait_chunk(ring, g->stream, q, step) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    int owner = (ring->rank + step) % ring->nranks;
    ++*parts;
    return slr_gemm_part(gemm, s, owner * s->shard_cols + begin, cols);
}

cublasStatus_t slr_gemm_fused(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                              const struct slr_gemm_split *s, unsigned *parts)
{
    *parts = 0;
    if (!ready(ring, g, gemm, s))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cublasStatus_t r = slr_gemm_part(gemm, s, ring->rank * s->shard_cols, s->shard_cols);
    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    *parts = 1;
    for (uint32_t q = 0; q < g->plan.chunks && r == CUBLAS_STATUS_SUCCESS; q++)
        for (int step = 1; step < ring->nranks && r == CUBLAS_STATUS_SUCCESS; step++)
            r = fused_chunk(ring, g, gemm, s, q, step, parts);
    if (slr_ring_join(ring, g->stream) != SLR_OK && r == CUBLAS_STATUS_SUCCESS)
        r = CUBLAS_STATUS_EXECUTION_FAILED;
    return r;
}
