/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_block.h"

#include "kernels/gemm_lt.h"
#include "kernels/gemm_scalars.h"
#include "kernels/lt_split.h"

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

static struct slr_gemm block(const struct slr_gemm *gemm, int64_t col, int64_t cols)
{
    struct slr_gemm part = *gemm;
    /* Columns of op(B) are stored columns or rows. */
    const size_t step = gemm->transb == CUBLAS_OP_N ? (size_t)gemm->ldb : 1;
    part.n = cols;
    part.b = (const char *)gemm->b + (size_t)col * step * slr_gemm_type_bytes(gemm->btype);
    part.c = (char *)gemm->c + (size_t)col * (size_t)gemm->ldc * slr_gemm_type_bytes(gemm->ctype);
    return part;
}

cublasStatus_t slr_gemm_block(const struct slr_gemm *gemm, int64_t col, int64_t cols)
{
    struct slr_gemm part = block(gemm, col, cols);
    return gemm->lt ? slr_lt_part(&part, false, col) : slr_gemm_whole(&part);
}

bool slr_gemm_block_ready(const struct slr_gemm *gemm, int64_t col, int64_t cols)
{
    struct slr_gemm part = block(gemm, col, cols);
    return !gemm->lt || slr_lt_ready(&part, false, col);
}
