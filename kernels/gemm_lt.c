/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_lt.h"

#include <string.h>

static bool plain_type(uint32_t type)
{
    return type == CUDA_R_16F || type == CUDA_R_16BF || type == CUDA_R_32F || type == CUDA_R_64F ||
           type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* -1: not set. */
static bool plain_or_unset(int32_t type)
{
    return type < 0 || plain_type((uint32_t)type);
}

static enum slr_reason read_op(const struct slr_lt *lt, struct slr_lt_op *op, const char **attribute)
{
    enum slr_reason r = slr_lt_read_op(lt->desc, op, attribute);
    /* First: it says more than that the attributes of such an epilogue are set. */
    if (!slr_lt_epilogue_known(op->epilogue)) {
        *attribute = "EPILOGUE";
        return SLR_R_JOIN_EPILOGUE;
    }
    if (r == SLR_R_FUSED && op->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
        op->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
        *attribute = "POINTER_MODE";
        return SLR_R_JOIN_ATTRIBUTE;
    }
    if (r == SLR_R_FUSED && (!plain_or_unset(op->bias_type) || !plain_or_unset(op->aux_type)))
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
static bool take_sizes(struct slr_gemm *gemm, const struct slr_lt_matrix *matrix)
{
    const struct slr_lt_matrix *a = &matrix[SLR_LT_A], *b = &matrix[SLR_LT_B], *c = &matrix[SLR_LT_C],
                               *d = &matrix[SLR_LT_D];
    bool ta = gemm->transa != CUBLAS_OP_N, tb = gemm->transb != CUBLAS_OP_N;
    uint64_t k = ta ? a->rows : a->cols;
    gemm->m = (int64_t)d->rows;
    gemm->n = (int64_t)d->cols;
    gemm->k = (int64_t)k;
    return (ta ? a->cols : a->rows) == d->rows && (tb ? b->cols : b->rows) == k &&
           (tb ? b->rows : b->cols) == d->cols && c->rows == d->rows && c->cols == d->cols;
}

enum slr_reason slr_lt_describe(struct slr_gemm *gemm)
{
    struct slr_lt *lt = gemm->lt;
    struct slr_lt_matrix matrix[SLR_LT_MATRICES];
    enum slr_reason r = read_op(lt, &lt->op, &gemm->attribute);
    if (r == SLR_R_FUSED)
        r = read_matrices(lt, matrix);
    if (r != SLR_R_FUSED)
        return r;
    gemm->transa = (cublasOperation_t)lt->op.transa;
    gemm->transb = (cublasOperation_t)lt->op.transb;
    gemm->atype = (cudaDataType)matrix[SLR_LT_A].type;
    gemm->btype = (cudaDataType)matrix[SLR_LT_B].type;
    gemm->ctype = (cudaDataType)matrix[SLR_LT_D].type;
    gemm->lda = matrix[SLR_LT_A].ld;
    gemm->ldb = matrix[SLR_LT_B].ld;
    gemm->ldc = matrix[SLR_LT_D].ld;
    gemm->batch = 1;
    lt->ctype = (cudaDataType)matrix[SLR_LT_C].type;
    lt->ldc = matrix[SLR_LT_C].ld;
    if (!take_sizes(gemm, matrix))
        return SLR_R_JOIN_SHAPE;
    if (lt->c)
        gemm->read[0] = slr_gemm_extent(lt->c, gemm->m, gemm->n, lt->ldc, slr_gemm_type_bytes(lt->ctype));
    gemm->written[0] = slr_gemm_extent(lt->workspace, (int64_t)lt->workspace_bytes, 1, (int64_t)lt->workspace_bytes, 1);
    gemm->attribute = slr_lt_extents(&lt->op, gemm);
    return gemm->attribute ? SLR_R_JOIN_ATTRIBUTE : SLR_R_FUSED;
}

cublasStatus_t slr_lt_whole(const struct slr_gemm *gemm)
{
    const struct slr_lt *lt = gemm->lt;
    return slr_real.cublasLtMatmul(lt->handle, lt->desc, gemm->alpha, gemm->a, lt->la, gemm->b, lt->lb, gemm->beta,
                                   lt->c, lt->lc, gemm->c, lt->ld, lt->algo, lt->workspace, lt->workspace_bytes,
                                   lt->stream);
}

static void take_matrices(const struct slr_gemm *part, bool on_a, int64_t col, struct slr_lt_problem *problem)
{
    const struct slr_lt *lt = part->lt;
    bool ta = part->transa != CUBLAS_OP_N, tb = part->transb != CUBLAS_OP_N;
    uint64_t m = (uint64_t)part->m, n = (uint64_t)part->n, k = (uint64_t)part->k;
    size_t c_moved = (size_t)(on_a ? col : col * lt->ldc) * slr_gemm_type_bytes(lt->ctype);
    problem->matrix[SLR_LT_A] = (struct slr_lt_matrix){part->atype, ta ? k : m, ta ? m : k, part->lda};
    problem->matrix[SLR_LT_B] = (struct slr_lt_matrix){part->btype, tb ? n : k, tb ? k : n, part->ldb};
    problem->matrix[SLR_LT_C] = (struct slr_lt_matrix){lt->ctype, m, n, lt->ldc};
    problem->matrix[SLR_LT_D] = (struct slr_lt_matrix){part->ctype, m, n, part->ldc};
    problem->at[SLR_LT_A] = part->a;
    problem->at[SLR_LT_B] = part->b;
    problem->at[SLR_LT_C] = lt->c ? (const char *)lt->c + c_moved : NULL;
    problem->at[SLR_LT_D] = part->c;
}

static cublasStatus_t state(const struct slr_gemm *part, bool on_a, int64_t col, struct slr_lt_problem *problem)
{
    const struct slr_lt *lt = part->lt;
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
    problem->handle = lt->handle;
    problem->op = lt->op;
    problem->algo = lt->algo;
    problem->workspace_bytes = lt->workspace_bytes;
    problem->desc = lt->desc;
    take_matrices(part, on_a, col, problem);
    /* A part has sizes of its own, and the application's descriptors are only read. */
    for (int i = 0; i < SLR_LT_MATRICES && r == CUBLAS_STATUS_SUCCESS; i++)
        r = slr_lt_make_matrix(&problem->matrix[i], &problem->layout[i]);
    /* What runs along D: this part has the rows or columns from `col` on. */
    if (r == CUBLAS_STATUS_SUCCESS && slr_lt_move(&problem->op, part, on_a, col)) {
        problem->desc = &problem->own;
        r = slr_lt_make_op(&problem->op, &problem->own);
    }
    return r;
}

bool slr_lt_ready(const struct slr_gemm *part, bool on_a, int64_t col)
{
    cublasLtMatmulAlgo_t algo;
    struct slr_lt_problem problem;
    return state(part, on_a, col, &problem) == CUBLAS_STATUS_SUCCESS && (!problem.algo || slr_lt_algo(&problem, &algo));
}

cublasStatus_t slr_lt_part(const struct slr_gemm *part, bool on_a, int64_t col)
{
    const struct slr_lt *lt = part->lt;
    cublasLtMatmulAlgo_t algo;
    struct slr_lt_problem problem;
    cublasStatus_t r = state(part, on_a, col, &problem);
    if (r == CUBLAS_STATUS_SUCCESS && problem.algo && !slr_lt_algo(&problem, &algo))
        r = CUBLAS_STATUS_NOT_SUPPORTED;
    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    return slr_real.cublasLtMatmul(problem.handle, problem.desc, part->alpha, problem.at[SLR_LT_A],
                                   &problem.layout[SLR_LT_A], problem.at[SLR_LT_B], &problem.layout[SLR_LT_B],
                                   part->beta, problem.at[SLR_LT_C], &problem.layout[SLR_LT_C], part->c,
                                   &problem.layout[SLR_LT_D], problem.algo ? &algo : NULL, lt->workspace,
                                   lt->workspace_bytes, lt->stream);
}
