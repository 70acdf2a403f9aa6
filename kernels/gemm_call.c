/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM, or a part of one, through the real function that the application called. */
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"

/* Sizes fit in int wherever the application's own call had them in int: parts are smaller than the
 * whole. */
#define CALL_EX(fn, num)                                                                                               \
    slr_real.fn(gemm->handle, gemm->transa, gemm->transb, (num)gemm->m, (num)gemm->n, (num)gemm->k, gemm->alpha,       \
                gemm->a, gemm->atype, (num)gemm->lda, gemm->b, gemm->btype, (num)gemm->ldb, gemm->beta, gemm->c,       \
                gemm->ctype, (num)gemm->ldc, gemm->compute, gemm->algo)

#define CALL_STRIDED(fn, num)                                                                                          \
    slr_real.fn(gemm->handle, gemm->transa, gemm->transb, (num)gemm->m, (num)gemm->n, (num)gemm->k, gemm->alpha,       \
                gemm->a, gemm->atype, (num)gemm->lda, gemm->stride_a, gemm->b, gemm->btype, (num)gemm->ldb,            \
                gemm->stride_b, gemm->beta, gemm->c, gemm->ctype, (num)gemm->ldc, gemm->stride_c, (num)gemm->batch,    \
                gemm->compute, gemm->algo)

#define CALL_TYPED(fn, num)                                                                                            \
    slr_real.fn(gemm->handle, gemm->transa, gemm->transb, (num)gemm->m, (num)gemm->n, (num)gemm->k, gemm->alpha,       \
                gemm->a, (num)gemm->lda, gemm->b, (num)gemm->ldb, gemm->beta, gemm->c, (num)gemm->ldc)

cublasStatus_t slr_gemm_whole(const struct slr_gemm *gemm)
{
    switch (gemm->api) {
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
        return CALL_STRIDED(cublasGemmStridedBatchedEx, int);
    case SLR_GEMM_STRIDED_EX_64:
        return CALL_STRIDED(cublasGemmStridedBatchedEx_64, int64_t);
    case SLR_GEMM_LT:
        return slr_lt_whole(gemm);
    case SLR_GEMM_EX:
        return CALL_EX(cublasGemmEx, int);
    case SLR_GEMM_EX_64:
        return CALL_EX(cublasGemmEx_64, int64_t);
    }
    /* No default above: so the compiler finds an api without a case (-Wswitch). */
    return CUBLAS_STATUS_INTERNAL_ERROR;
}

/* The columns from `col` on of the gathered operand are those rows or columns of the other. */
static void cut_sum(const struct slr_gemm *gemm, bool on_a, int64_t col, struct slr_gemm *part)
{
    const bool plain = (on_a ? gemm->transb : gemm->transa) == CUBLAS_OP_N;
    const int64_t ld = on_a ? gemm->ldb : gemm->lda;
    /* Of op(B) rows, of op(A) columns are wanted: one or the other is a stored column. */
    const size_t step = (plain == on_a ? 1 : (size_t)ld) * slr_gemm_type_bytes(on_a ? gemm->btype : gemm->atype);
    const void **other = on_a ? &part->b : &part->a;
    *other = (const char *)*other + (size_t)col * step;
}

static struct slr_gemm cut(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col, int64_t cols)
{
    struct slr_gemm part = *gemm;
    col += split->first;
    size_t operand = (size_t)col * split->col_bytes;
    size_t elem_c = slr_gemm_type_bytes(gemm->ctype);
    const void **gathered = split->on_a ? &part.a : &part.b;
    *gathered = (const char *)*gathered + operand;
    /* A column of op T's operand is a row of C, so C advances by one element instead of one
     * column. */
    if (split->sums) {
        cut_sum(gemm, split->on_a, col, &part);
        part.k = cols;
    } else if (split->on_a) {
        part.c = (char *)gemm->c + (size_t)col * elem_c;
        part.m = cols;
    } else {
        part.c = (char *)gemm->c + (size_t)col * (size_t)gemm->ldc * elem_c;
        part.n = cols;
    }
    return part;
}

/* By how many rows or columns of C a part lies behind its beginning. */
static int64_t moved(const struct slr_gemm_split *split, int64_t col)
{
    return split->sums ? 0 : split->first + col;
}

cublasStatus_t slr_gemm_part(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col, int64_t cols)
{
    struct slr_gemm part = cut(gemm, split, col, cols);
    return gemm->lt ? slr_lt_part(&part, split->on_a, moved(split, col)) : slr_gemm_whole(&part);
}

bool slr_gemm_part_ready(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col, int64_t cols)
{
    struct slr_gemm part = cut(gemm, split, col, cols);
    return !gemm->lt || slr_lt_ready(&part, split->on_a, moved(split, col));
}

/* An emulated product of fp64 writes how many bits it took: those of a part are not the whole's. */
static bool tells_bits(const struct slr_gemm *gemm)
{
    int *bits = NULL;
    return gemm->ctype == CUDA_R_64F && slr_real.cublasGetFixedPointEmulationMantissaBitCountPointer &&
           slr_real.cublasGetFixedPointEmulationMantissaBitCountPointer(gemm->handle, &bits) == CUBLAS_STATUS_SUCCESS &&
           bits;
}

enum slr_reason slr_gemm_describe(struct slr_gemm *gemm)
{
    if (gemm->lt)
        return slr_lt_describe(gemm);
    gemm->written[0] = slr_workspace_of(gemm->handle);
    if (!tells_bits(gemm))
        return SLR_R_FUSED;
    gemm->attribute = "FIXED_POINT_EMULATION_MANTISSA_BIT_COUNT_POINTER";
    return SLR_R_JOIN_ATTRIBUTE;
}

/* ---- blocks of its output ---- */

/* C is unpadded, so that shards are columns. */
static bool is_shards(const struct slr_gemm *gemm, int nranks, size_t shard)
{
    const size_t elem = slr_gemm_type_bytes(gemm->ctype);
    return elem && slr_gemm_type_bytes(gemm->btype) && gemm->batch == 1 && gemm->m > 0 && gemm->n > 0 &&
           gemm->ldc == gemm->m && gemm->n % nranks == 0 &&
           (size_t)gemm->m * (size_t)(gemm->n / nranks) * elem == shard;
}

bool slr_gemm_blocks(const struct slr_gemm *gemm, int nranks, size_t shard, int64_t *quantum)
{
    *quantum = 1;
    if (!is_shards(gemm, nranks, shard) || !slr_gemm_beta_is_zero(gemm))
        return false;
    if (!gemm->lt)
        return true;
    /* As if B were gathered along its columns, or rows. */
    struct slr_gemm_split split = {.shard_cols = gemm->n / nranks, .rows = gemm->k, .quantum = 1};
    if (slr_lt_may_split(&gemm->lt->op, gemm, &split) != SLR_R_FUSED)
        return false;
    *quantum = split.quantum;
    return split.shard_cols % split.quantum == 0;
}

/* A block is a part as if B were gathered: columns of op(B) are stored columns or rows. */
static struct slr_gemm_split along_b(const struct slr_gemm *gemm)
{
    const size_t step = gemm->transb == CUBLAS_OP_N ? (size_t)gemm->ldb : 1;
    return (struct slr_gemm_split){.col_bytes = step * slr_gemm_type_bytes(gemm->btype)};
}

cublasStatus_t slr_gemm_block(const struct slr_gemm *gemm, int64_t col, int64_t cols)
{
    const struct slr_gemm_split split = along_b(gemm);
    return slr_gemm_part(gemm, &split, col, cols);
}

bool slr_gemm_block_ready(const struct slr_gemm *gemm, int64_t col, int64_t cols)
{
    const struct slr_gemm_split split = along_b(gemm);
    return slr_gemm_part_ready(gemm, &split, col, cols);
}
