#include "kernels/gemm_lt.h"

#include <string.h>
#include "kernels/lt_algo.h"

static bool element_wise(uint32_t epilogue)
{
    switch (epilogue & ~(uint32_t)CUBLASLT_EPILOGUE_BIAS) {
    case 0: /* only a bias */
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
        return true;
    default:
        return false;
    }
}

static bool has_bias(const struct slr_lt_op *op)
{
    return (op->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && op->bias;
}

static size_t bias_bytes(const struct slr_gemm *g)
{
    int32_t type = g->lt->op.bias_type;
    return slr_gemm_type_bytes(type < 0 ? g->ctype : (cudaDataType)type);
}

static bool plain_type(uint32_t type)
{
    return type == CUDA_R_16F || type == CUDA_R_16BF || type == CUDA_R_32F || type == CUDA_R_64F;
}

static enum slr_reason read_op(const struct slr_lt *lt, struct slr_lt_op *op)
{
    enum slr_reason r = slr_lt_read_op(lt->desc, op);
    if (!element_wise(op->epilogue))
        return SLR_R_JOIN_EPILOGUE; /* says more than that the attributes of such an epilogue are set */
    if (r == SLR_R_FUSED && op->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
        op->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        return SLR_R_JOIN_ATTRIBUTE;
    if (r == SLR_R_FUSED && has_bias(op) && op->bias_type >= 0 && !plain_type((uint32_t)op->bias_type))
        return SLR_R_JOIN_TYPE;
    return r;
}

static enum slr_reason read_matrices(const struct slr_lt *lt, struct slr_lt_matrix *matrix)
{
    const cublasLtMatrixLayout_t layout[] = {lt->la, lt->lb, lt->lc, lt->ld};
    for (int i = 0; i < SLR_LT_MATRICES; i++) {
        enum slr_reason r = slr_lt_read_matrix(layout[i], &matrix[i]);
        if (r != SLR_R_FUSED)
            return r;
        if (!plain_type(matrix[i].type))
            return SLR_R_JOIN_TYPE;
    }
    return SLR_R_FUSED;
}

/* False: sizes that do not go together. cuBLASLt will say so. */
static bool take_sizes(struct slr_gemm *g, const struct slr_lt_matrix *matrix)
{
    const struct slr_lt_matrix *a = &matrix[SLR_LT_A], *b = &matrix[SLR_LT_B], *c = &matrix[SLR_LT_C],
                               *d = &matrix[SLR_LT_D];
    bool ta = g->transa != CUBLAS_OP_N, tb = g->transb != CUBLAS_OP_N;
    uint64_t k = ta ? a->rows : a->cols;
    g->m = (int64_t)d->rows;
    g->n = (int64_t)d->cols;
    g->k = (int64_t)k;
    return (ta ? a->cols : a->rows) == d->rows && (tb ? b->cols : b->rows) == k &&
           (tb ? b->rows : b->cols) == d->cols && c->rows == d->rows && c->cols == d->cols;
}

enum slr_reason slr_lt_describe(struct slr_gemm *g)
{
    struct slr_lt *lt = g->lt;
    struct slr_lt_matrix matrix[SLR_LT_MATRICES];
    enum slr_reason r = read_op(lt, &lt->op);
    if (r == SLR_R_FUSED)
        r = read_matrices(lt, matrix);
    if (r != SLR_R_FUSED)
        return r;
    g->transa = (cublasOperation_t)lt->op.transa;
    g->transb = (cublasOperation_t)lt->op.transb;
    g->atype = (cudaDataType)matrix[SLR_LT_A].type;
    g->btype = (cudaDataType)matrix[SLR_LT_B].type;
    g->ctype = (cudaDataType)matrix[SLR_LT_D].type;
    g->lda = matrix[SLR_LT_A].ld;
    g->ldb = matrix[SLR_LT_B].ld;
    g->ldc = matrix[SLR_LT_D].ld;
    g->batch = 1;
    lt->ctype = (cudaDataType)matrix[SLR_LT_C].type;
    lt->ldc = matrix[SLR_LT_C].ld;
    if (!take_sizes(g, matrix))
        return SLR_R_JOIN_SHAPE;
    if (lt->c)
        g->read[0] = slr_gemm_span(lt->c, g->m, g->n, lt->ldc, slr_gemm_type_bytes(lt->ctype));
    if (has_bias(&lt->op))
        g->read[1] = slr_gemm_span(lt->op.bias, g->m, 1, g->m, bias_bytes(g));
    g->written = slr_gemm_span(lt->workspace, (int64_t)lt->workspace_bytes, 1, (int64_t)lt->workspace_bytes, 1);
    return SLR_R_FUSED;
}

cublasStatus_t slr_lt_whole(const struct slr_gemm *g)
{
    const struct slr_lt *lt = g->lt;
    return slr_real.cublasLtMatmul(lt->handle, lt->desc, g->alpha, g->a, lt->la, g->b, lt->lb, g->beta, lt->c, lt->lc,
                                   g->c, lt->ld, lt->algo, lt->workspace, lt->workspace_bytes, lt->stream);
}

static void take_matrices(const struct slr_gemm *part, bool on_a, int64_t col, struct slr_lt_problem *p)
{
    const struct slr_lt *lt = part->lt;
    bool ta = part->transa != CUBLAS_OP_N, tb = part->transb != CUBLAS_OP_N;
    uint64_t m = (uint64_t)part->m, n = (uint64_t)part->n, k = (uint64_t)part->k;
    size_t c_moved = (size_t)(on_a ? col : col * lt->ldc) * slr_gemm_type_bytes(lt->ctype);
    p->matrix[SLR_LT_A] = (struct slr_lt_matrix){part->atype, ta ? k : m, ta ? m : k, part->lda};
    p->matrix[SLR_LT_B] = (struct slr_lt_matrix){part->btype, tb ? n : k, tb ? k : n, part->ldb};
    p->matrix[SLR_LT_C] = (struct slr_lt_matrix){lt->ctype, m, n, lt->ldc};
    p->matrix[SLR_LT_D] = (struct slr_lt_matrix){part->ctype, m, n, part->ldc};
    p->at[SLR_LT_A] = part->a;
    p->at[SLR_LT_B] = part->b;
    p->at[SLR_LT_C] = lt->c ? (const char *)lt->c + c_moved : NULL;
    p->at[SLR_LT_D] = part->c;
}

static cublasStatus_t state(const struct slr_gemm *part, bool on_a, int64_t col, struct slr_lt_problem *p)
{
    const struct slr_lt *lt = part->lt;
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
    p->handle = lt->handle;
    p->op = lt->op;
    p->algo = lt->algo;
    p->workspace_bytes = lt->workspace_bytes;
    p->desc = lt->desc;
    take_matrices(part, on_a, col, p);
    for (int i = 0; i < SLR_LT_MATRICES && r == CUBLAS_STATUS_SUCCESS; i++)
        r = slr_lt_make_matrix(&p->matrix[i], &p->layout[i]);
    if (on_a && has_bias(&p->op) && r == CUBLAS_STATUS_SUCCESS) {
        p->op.bias = (const char *)p->op.bias + (size_t)col * bias_bytes(part);
        p->desc = &p->own;
        r = slr_lt_make_op(&p->op, &p->own);
    }
    return r;
}

bool slr_lt_ready(const struct slr_gemm *part, bool on_a, int64_t col)
{
    cublasLtMatmulAlgo_t algo;
    struct slr_lt_problem p;
    return state(part, on_a, col, &p) == CUBLAS_STATUS_SUCCESS && (!p.algo || slr_lt_algo(&p, &algo));
}

cublasStatus_t slr_lt_part(const struct slr_gemm *part, bool on_a, int64_t col)
{
    const struct slr_lt *lt = part->lt;
    cublasLtMatmulAlgo_t algo;
    struct slr_lt_problem p;
    cublasStatus_t r = state(part, on_a, col, &p);
    if (r == CUBLAS_STATUS_SUCCESS && p.algo && !slr_lt_algo(&p, &algo))
        r = CUBLAS_STATUS_NOT_SUPPORTED;
    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    return slr_real.cublasLtMatmul(p.handle, p.desc, part->alpha, p.at[SLR_LT_A], &p.layout[SLR_LT_A], p.at[SLR_LT_B],
                                   &p.layout[SLR_LT_B], part->beta, p.at[SLR_LT_C], &p.layout[SLR_LT_C], part->c,
                                   &p.layout[SLR_LT_D], p.algo ? &algo : NULL, lt->workspace, lt->workspace_bytes,
                                   lt->stream);
}
