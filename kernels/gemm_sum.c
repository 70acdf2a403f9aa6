/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm_sum.h"

#include "kernels/gemm_scalars.h"

/* C keeps what is accumulated, in the type of the scalars. */
static bool accumulates(const struct slr_gemm *gemm)
{
    cudaDataType scalar;
    return slr_gemm_one(gemm->ctype) && slr_gemm_scalar_type(gemm, &scalar) && scalar == gemm->ctype;
}

enum slr_reason slr_gemm_may_sum(const struct slr_gemm *gemm, enum slr_sums which)
{
    if (which == SLR_SUMS_OFF)
        return SLR_R_JOIN_TRANS;
    if (!accumulates(gemm))
        return SLR_R_JOIN_SUM_TYPE;
    if (!slr_gemm_scalars_on_host(gemm))
        return SLR_R_JOIN_SUM_SCALARS;
    if (gemm->lt && gemm->lt->op.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return SLR_R_JOIN_EPILOGUE;
    return which == SLR_SUMS_ALL || slr_gemm_beta_is_one(gemm) ? SLR_R_FUSED : SLR_R_JOIN_TRANS;
}

bool slr_gemm_needs_all(const struct slr_gemm *gemm, bool on_a, enum slr_sums which)
{
    const bool sums = on_a ? gemm->transa == CUBLAS_OP_N : gemm->transb != CUBLAS_OP_N;
    return sums && slr_gemm_may_sum(gemm, which) != SLR_R_FUSED;
}

struct slr_gemm slr_gemm_adding(const struct slr_gemm *gemm, struct slr_lt *lt)
{
    struct slr_gemm adding = *gemm;
    adding.beta = slr_gemm_one(gemm->ctype);
    if (gemm->lt) {
        *lt = *gemm->lt;
        lt->c = gemm->c; /* it may have read C from another matrix than D */
        lt->ctype = gemm->ctype;
        lt->ldc = gemm->ldc;
        adding.lt = lt;
    }
    return adding;
}
