/* SPDX-License-Identifier: Apache-2.0 */
/* What a cublasLtMatmul has besides its matrices: scale factors, a bias or its gradient, an auxiliary
 * matrix, largest values. Where they lie, and how a part of the GEMM (gemm.h) addresses them.
 *
 * Scale factors of A and B, by mode; `outer` is the operand's dimension along D, `inner` the one that
 * is summed over. From the cuBLAS manual, "Narrow Precision Data Types Usage":
 *
 *   mode             stored                                             of the operand that is cut
 *   SCALAR_32F       one float                                          the same for all parts
 *   OUTER_VEC_32F    a float for each of `outer`                        moved
 *   BLK128x128_32F   a column of ceil(inner / 128) floats, rounded up   moved by columns: parts
 *                    to 4, for each 128 of `outer`                      begin at multiples of 128
 *   VEC16_UE4M3,     bytes in tiles of 128 (outer) by 4 (blocks of 16   moved by rows of tiles:
 *   VEC32_UE8M0      or 32 of inner), the tiles of 128 of outer one     parts begin at multiples
 *                    behind the other                                   of 128
 *   VEC128_32F       `outer` floats for each 128 of inner, without a    can not be cut: a part would
 *                    stride that could be set                           need another stride
 *
 * Those of the other operand are the same for all parts. Where the parts are summands, blocks along
 * the inner dimension are not cut.
 *
 *   what                      a part that has columns of D         a part that has rows of D
 *   bias, DReLU/DGELU_BGRAD   the same; the gradient sums over     moved
 *                             the columns and can not be cut
 *   BGRADA (along rows)       each part writes all of it, the      moved
 *                             same sums over the inner dimension
 *   BGRADB (along columns)    moved                                each part writes all of it
 *   auxiliary matrix          moved by columns                     moved by rows: to multiples of 128,
 *                                                                  ReLU's bits, or of 16 elements
 *   amax                      the library overwrites it in every call, nothing that it offers takes
 *                             the largest of several, and what it makes of NaN is not documented:
 *                             not cut
 *
 * Pure; no function calls the library.
 */
#ifndef SLR_KERNELS_LT_SPLIT_H
#define SLR_KERNELS_LT_SPLIT_H

#include "kernels/gemm.h"
#include "kernels/lt_desc.h"

/* Whether the epilogue is one that this file knows. */
bool slr_lt_epilogue_known(uint32_t epilogue);

/* Fills in what the call reads and writes besides its matrices and the workspace: gemm->read and
 * gemm->written from index 1 on. `gemm` has its sizes and types. NULL, or the name of the attribute
 * for which the memory can not be told. */
const char *slr_lt_extents(const struct slr_lt_op *op, struct slr_gemm *gemm);

/* Whether parts along the split can be addressed. SLR_R_FUSED and split->quantum, or the reason and
 * split->attribute. */
enum slr_reason slr_lt_may_split(const struct slr_lt_op *op, const struct slr_gemm *gemm, struct slr_gemm_split *split);

/* Whether the call writes more than D. */
bool slr_lt_writes_more(const struct slr_lt_op *op);

/* Changes `op` to what the part needs that begins at row (`on_a`) or column `col` of D. `part` has
 * the types and the inner dimension of the whole. False: nothing had to be changed. */
bool slr_lt_move(struct slr_lt_op *op, const struct slr_gemm *part, bool on_a, int64_t col);

#endif
