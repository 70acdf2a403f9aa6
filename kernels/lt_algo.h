/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm computes a part of a cublasLtMatmul that was called with an algorithm.
 *
 * The first of these that there is; "fit" is by alignment, by the application's workspace, and in
 * the library's view:
 *
 *   1. the best that the library's heuristic knows for the part among those that sum as the
 *      application's algorithm does (the same implementation, number of splits and reduction), so
 *      that results are the same to the last bit
 *   2. the application's algorithm, if it fits the part
 *   3. the best of the heuristic. It may reduce partial sums as the application's algorithm does,
 *      or in the compute type, which is no less exact. What else the application asked of the
 *      heuristic is not known here.
 *
 * The application's algorithm is not the first choice because its tiles were chosen for the whole:
 * on an H200 parts took 1.1 to 2.5 times as long with it (docs/measurements.md).
 *
 * Programs call the same few shapes again and again: answers are kept in a small table.
 *
 * Thread-safe. The table's lock is held over copies of memory only; the library is asked without
 * it, so that a thread which waits in the library (lazy loading) holds nobody up. Two threads with
 * the same problem may both ask.
 */
#ifndef SLR_KERNELS_LT_ALGO_H
#define SLR_KERNELS_LT_ALGO_H

#include <stddef.h>
#include "kernels/lt_desc.h"

enum { SLR_LT_A, SLR_LT_B, SLR_LT_C, SLR_LT_D, SLR_LT_MATRICES };

struct slr_lt_problem {
    cublasLtHandle_t handle;
    struct slr_lt_op op;
    struct slr_lt_matrix matrix[SLR_LT_MATRICES];
    const void *at[SLR_LT_MATRICES];  /* device memory; C may be NULL */
    const cublasLtMatmulAlgo_t *algo; /* the application's, not NULL for slr_lt_algo */
    size_t workspace_bytes;
    /* Descriptors that say the same. `desc` is the application's or `own`. */
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulDescOpaque_t own;
    cublasLtMatrixLayoutOpaque_t layout[SLR_LT_MATRICES];
};

/* False when there is none. The device's context is current. */
bool slr_lt_algo(const struct slr_lt_problem *problem, cublasLtMatmulAlgo_t *out);

#endif
