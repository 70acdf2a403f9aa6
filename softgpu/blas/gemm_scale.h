/* SPDX-License-Identifier: Apache-2.0 */
/* Scale factors of narrow operands: which combinations the cuBLAS manual lists ("Narrow Precision Data Types Usage"),
 * where each factor lies, and what it does to an operand. */
#ifndef SOFTGPU_GEMM_SCALE_H
#define SOFTGPU_GEMM_SCALE_H

#include "gemm.h"

int gemm_is_narrow(cudaDataType type);

/* Checks all scale factors, largest values and the restrictions of narrow GEMMs for the device that the library is for:
 * compute capability 9.0, or with SOFTGPU_LT_SM=100 10.0. Addresses, where there are any, are looked at, too. */
cublasStatus_t gemm_scales_check(const struct gemm_args *g);

/* Bytes that the factors of A (0) or B (1) take. */
size_t gemm_scale_bytes(const struct gemm_args *g, int operand);

/* The factor of element (outer, inner) of op(A) or op(B)'s blocks; 1 where the factors are those of rows or tensors. */
float gemm_block_scale(const struct gemm_args *g, int operand, int64_t outer, int64_t inner);

/* What a product of row i of op(A) and column j of op(B) is multiplied with besides. */
float gemm_outer_scale(const struct gemm_args *g, int64_t i, int64_t j);

/* The scalar factor of C, D or the auxiliary matrix; 1 if there is none. */
float gemm_scalar_scale(const struct gemm_args *g, int matrix);

#endif
