/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms of the stand-in cuBLASLt. All compute the same; they differ in what they take, as the real ones do, so
 * that an algorithm that was chosen for one problem may be refused for another:
 *
 *   id  rows and columns  alignment  workspace
 *   0   any               any        none
 *   1   multiples of 8    32 bytes   none
 *   2   any, k >= 32      any        m * n floats for each batch entry: partial sums, added in the compute type
 */
#ifndef SOFTGPU_LT_ALGO_H
#define SOFTGPU_LT_ALGO_H

#include "gemm.h"

enum { LT_ALGOS = 3 };

cublasLtMatmulAlgo_t lt_algo_of(int id);
/* -1: not an algorithm of this library. */
int lt_algo_id(const cublasLtMatmulAlgo_t *algo);

int lt_algo_takes(int id, const struct gemm_args *g);
int lt_algo_aligned(int id, const uint32_t align[4]);
size_t lt_algo_workspace(int id, const struct gemm_args *g);

/* At most `max` ids, best first; there is always one. */
int lt_algo_best(const struct gemm_args *g, const uint32_t align[4], size_t workspace, uint32_t schemes, int *ids,
                 int max);

#endif
