/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs that sum over the gathered dimension, as the gradient of a weight does: C = alpha op(A)
 * op(B) + beta C in parts that are summands (gemm.h), the first with the caller's beta, the others
 * with 1.
 *
 * Splitting a sum changes where it is rounded: after each part, to C's type. So it is done
 *
 *   by default     where C is fp32 (fp64) and the caller's beta is 1: the program accumulates into C
 *                  anyway, as Megatron's gradient accumulation does, and a part more is rounded like
 *                  a call more;
 *   SLR_SUMS_ALL   with any beta, when the program asks for it;
 *   never          into C of 16 bits, which would lose what fp32 accumulation is for; where alpha
 *                  and beta are on the device, because the 1 of the later parts would have to be
 *                  there as well; and with an epilogue, which takes the whole sum.
 *
 * The summands are added in the same order on all ranks, so that replicas stay equal
 * (gemm_parts.h).
 */
#ifndef SLR_KERNELS_GEMM_SUM_H
#define SLR_KERNELS_GEMM_SUM_H

#include "kernels/gemm_lt.h"

/* The choices of SLIPRING_SPLIT_K, in its order. */
enum slr_sums { SLR_SUMS_OFF, SLR_SUMS_ACCUMULATE, SLR_SUMS_ALL };

/* For a described GEMM with slr_gemm_split.sums. SLR_R_FUSED, or why its sum is not split. */
enum slr_reason slr_gemm_may_sum(const struct slr_gemm *gemm, enum slr_sums which);

/* Whether the described GEMM, one of whose operands (`on_a`: A) is a gathered buffer, needs all of it at once: it sums over
 * the gathered dimension, and that is not split. */
bool slr_gemm_needs_all(const struct slr_gemm *gemm, bool on_a, enum slr_sums which);

/* The GEMM as a later part of its sum needs it: it adds to what it writes. `lt` is written if it is
 * a cublasLtMatmul, and has to live as long as the result. */
struct slr_gemm slr_gemm_adding(const struct slr_gemm *gemm, struct slr_lt *lt);

#endif
