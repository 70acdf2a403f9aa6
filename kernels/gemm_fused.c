#include "base/cu.h"
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"
#include "kernels/gemm_redo.h"

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

/* Whether cuBLASLt can compute each part, as far as it tells: a part that it refuses later costs the overlap, and
 * copies where C is read. */
static bool ready(struct slr_parts walk, const struct slr_gemm *gemm, const struct slr_gemm_split *s)
{
    struct slr_part p;
    bool all = true;
    while (gemm->lt && all && slr_parts_next(&walk, &p)) {
        struct slr_gemm part = cut(gemm, s, p.col, p.cols);
        all = slr_lt_ready(&part, s->on_a, p.col);
    }
    return all;
}

static cublasStatus_t compute(struct slr_ring *ring, CUstream stream, const struct slr_gemm *gemm,
                              const struct slr_gemm_split *s, const struct slr_part *p, unsigned index)
{
    if (p->step > 0 && slr_ring_wait_chunk(ring, stream, p->chunk, p->step) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (p->step > 0)
        slr_timing_did(ring->timing, SLR_LANE_APP, stream, SLR_SPAN_WAIT, (ring->rank + p->step) % ring->nranks,
                       (int)p->chunk, 0);
    cublasStatus_t r = slr_gemm_part(gemm, s, p->col, p->cols);
    if (r == CUBLAS_STATUS_SUCCESS)
        slr_timing_did(ring->timing, SLR_LANE_APP, stream, SLR_SPAN_GEMM, -1, (int)index, 0);
    return r;
}

/* The stream waits for the gather; `done` parts of the walk have been enqueued, and the next was refused. */
static cublasStatus_t redo(struct slr_ring *ring, CUstream stream, const struct slr_gemm *gemm,
                           const struct slr_gemm_split *s, struct slr_parts walk, unsigned done, cublasStatus_t refused)
{
    cublasStatus_t r = slr_gemm_redo(gemm, s, walk, done, stream, refused);
    slr_timing_did(ring->timing, SLR_LANE_APP, stream, SLR_SPAN_GEMM, -1, (int)done, 0);
    return r;
}

cublasStatus_t slr_gemm_fused(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                              const struct slr_gemm_split *s, unsigned *parts)
{
    const struct slr_parts begin = slr_parts_of(&g->plan, s, ring->rank, ring->nranks, s->pace);
    struct slr_parts walk = begin;
    struct slr_part p;
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
    *parts = 0;
    if (!ready(begin, gemm, s))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    slr_timing_mark(ring->timing, SLR_LANE_APP, g->stream);
    while (r == CUBLAS_STATUS_SUCCESS && slr_parts_next(&walk, &p)) {
        r = compute(ring, g->stream, gemm, s, &p, *parts);
        *parts += r == CUBLAS_STATUS_SUCCESS;
    }
    if (*parts == 0)
        return r; /* nothing has been enqueued */
    if (slr_ring_join_measured(ring, g->stream) != SLR_OK)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (r != CUBLAS_STATUS_SUCCESS) {
        r = redo(ring, g->stream, gemm, s, begin, *parts, r);
        *parts = SLR_GEMM_REDONE;
    }
    return r;
}
