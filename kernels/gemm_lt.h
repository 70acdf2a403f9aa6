/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul as a GEMM that consumes a gathered buffer: D = epilogue(alpha op(A) op(B) + beta C
 * + bias).
 *
 * Split as gemm.h says. A part has layouts of its own, made anew: with n = w in form B/N (B, C, D),
 * with m = w in form A/T (A's columns, C's and D's rows), with k = w where parts are summands. Scale
 * factors, bias and auxiliary matrix run along D's rows or columns, so a part may need an operation
 * descriptor of its own, with these moved (lt_split.h). The application's descriptors are only read.
 *
 * What is split is told by the descriptors' attributes. Those in the tables of lt_desc.c are
 * understood; what the call reads and writes by them is described, whether it is split or not, so that
 * it may overtake gathers of other memory. Every other attribute that the library at hand knows must
 * have the value that a fresh descriptor has. So an attribute of a newer library is not ignored, but
 * keeps the GEMM whole.
 *
 * Where the application gives an algorithm, a part has one that sums as that does, if there is one
 * (lt_algo.h). NULL stays NULL: the library chooses.
 *
 * Parts follow one another on one stream, so they share the application's workspace. It is written
 * before the gather is complete and must not lie in the buffers of the gather.
 *
 * Thread-safe, for calls that do not share a struct slr_gemm. No lock is held over a call of the
 * library.
 */
#ifndef SLR_KERNELS_GEMM_LT_H
#define SLR_KERNELS_GEMM_LT_H

#include "kernels/gemm.h"
#include "kernels/lt_desc.h"

struct slr_lt {
    /* As the application gave it. A, B, D, alpha and beta are in struct slr_gemm. */
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc, ld;
    const void *c;
    const cublasLtMatmulAlgo_t *algo;
    void *workspace;
    size_t workspace_bytes;
    cudaStream_t stream;
    /* By slr_lt_describe(). */
    cudaDataType ctype; /* of C; slr_gemm.ctype and ldc are D's */
    int64_t ldc;
    struct slr_lt_op op;
};

/* Reads the descriptors into `gemm` and gemm->lt. SLR_R_FUSED, or why the call is not split. */
enum slr_reason slr_lt_describe(struct slr_gemm *gemm);

cublasStatus_t slr_lt_whole(const struct slr_gemm *gemm);

/* `part`: the described call with a, b, c, m, n or k of a part. Its D begins at row (`on_a`) or
 * column `col` of the whole's. Ready: the library has an algorithm for it, as far as it tells. */
bool slr_lt_ready(const struct slr_gemm *part, bool on_a, int64_t col);
cublasStatus_t slr_lt_part(const struct slr_gemm *part, bool on_a, int64_t col);

#endif
