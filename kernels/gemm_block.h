/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM whose output is wanted in blocks of whole columns, one after the other: what a reduce-scatter
 * behind it sends (cuBLAS is column-major, so each rank's shard of an unpadded C is some columns of it).
 * A block has the columns [col, col + w) of C and the same of op(B); each element of C is computed by
 * one call, as in the whole. */
#ifndef SLR_KERNELS_GEMM_BLOCK_H
#define SLR_KERNELS_GEMM_BLOCK_H

#include "kernels/gemm.h"

/* Whether the described GEMM's C is `nranks` shards of `shard` bytes, each of whole columns that can be
 * computed apart, and may be computed twice: it does not read C (beta is 0, on the host). *quantum: blocks
 * begin at multiples of it, a power of two. Pure but for asking cuBLAS's handle for its pointer mode. */
bool slr_gemm_blocks(const struct slr_gemm *gemm, int nranks, size_t shard, int64_t *quantum);

/* The columns [col, col + cols) of C, through the real function that the program called. */
cublasStatus_t slr_gemm_block(const struct slr_gemm *gemm, int64_t col, int64_t cols);

/* False: cuBLASLt says that it has no algorithm for that block. Others can not be asked. */
bool slr_gemm_block_ready(const struct slr_gemm *gemm, int64_t col, int64_t cols);

#endif
