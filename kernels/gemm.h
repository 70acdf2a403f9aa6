/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM that consumes a gathered buffer, and its parts.
 *
 * cuBLAS is column-major: C (m x n) = alpha op(A) (m x k) op(B) (k x n) + beta C. A part is made of
 * some of the gathered operand's stored columns. In two forms these are columns or rows of C, so
 * every element of C is computed by one call, as in the whole GEMM:
 *
 *   form      gathered operand   its stored columns are   part [c, c + w)
 *   B, op N   B, k x n           columns of C             B + c ldb, C + c ldc, n = w
 *   A, op T   A, k x m           rows of C                A + c lda, C + c, m = w
 *
 * In the two others C is a sum over them, and each part a summand; so it is with the gradient of a
 * weight. The first part has the caller's beta, the others add to C (gemm_sum.h says where that is
 * done):
 *
 *   B, op T   B, n x k           columns of op(A)         B + c ldb, columns c.. of op(A), k = w
 *   A, op N   A, m x k           rows of op(B)            A + c lda, rows c.. of op(B), k = w
 *
 * Op C on real types is op T. Of a batch all matrices share the gathered operand (stride 0); a part
 * is a part of each of them.
 *
 * The gathered operand must be the whole receive buffer without padding (ld = its stored rows), so
 * that the shards are column ranges.
 */
#ifndef SLR_KERNELS_GEMM_H
#define SLR_KERNELS_GEMM_H

#include <stdint.h>
#include "base/real.h"
#include "base/reason.h"
#include "kernels/ring.h"

/* Which real function computes the GEMM and its parts. */
enum slr_gemm_api {
    SLR_GEMM_EX,
    SLR_GEMM_EX_64,
    SLR_GEMM_S,
    SLR_GEMM_S_64,
    SLR_GEMM_D,
    SLR_GEMM_D_64,
    SLR_GEMM_H,
    SLR_GEMM_H_64,
    SLR_GEMM_STRIDED_EX,
    SLR_GEMM_STRIDED_EX_64,
    SLR_GEMM_LT
};

struct slr_lt; /* the rest of a cublasLtMatmul call: gemm_lt.h */

struct slr_extent {
    uintptr_t begin, end;
};

/* How many ranges a call reads besides a and b, and writes besides c, at most. */
enum { SLR_GEMM_READS = 8, SLR_GEMM_WRITES = 5 };

/* One call as its entry point got it; leading dimensions and strides in elements. Of cublasLtMatmul
 * the entry point gives lt, alpha, beta, a, b and c, which is its D; slr_gemm_describe() fills in
 * the rest from the descriptors. */
struct slr_gemm {
    enum slr_gemm_api api;
    cublasHandle_t handle;
    cublasOperation_t transa, transb;
    int64_t m, n, k;
    const void *alpha, *beta; /* host or device, as the handle's pointer mode says */
    const void *a, *b;
    void *c;
    cudaDataType atype, btype, ctype; /* set for every api (CUDA_R_32F for S, ...) */
    int64_t lda, ldb, ldc;
    int64_t stride_a, stride_b, stride_c; /* 0 for the unbatched entry points */
    int64_t batch;                        /* and 1 */
    cublasComputeType_t compute;          /* of the Ex entry points; otherwise unused */
    cublasGemmAlgo_t algo;
    struct slr_lt *lt; /* of cublasLtMatmul, else NULL */
    /* What the call reads besides a and b, and writes besides c; or empty: by slr_gemm_describe().
     * First the C of a cublasLtMatmul; and the workspace, of the call or of the handle. */
    struct slr_extent read[SLR_GEMM_READS], written[SLR_GEMM_WRITES];
    const char *attribute; /* by slr_gemm_describe: which one is not understood, or NULL */
};

/* How a GEMM splits along a gathered operand. Columns are stored columns of that operand. */
struct slr_gemm_split {
    bool on_a;          /* the gathered operand is A, else B */
    bool sums;          /* parts are summands of C: A has op N, or B op T */
    int64_t shard_cols; /* columns in one rank's shard */
    size_t col_bytes;
    int64_t other; /* C's size along the other operand; of a batch, of all its matrices */
    int64_t rows;  /* the gathered operand's, as stored: k, or of summands C's size along it */
    /* Parts begin at multiples of it, a power of two (lt_split.h). */
    int64_t quantum;
    const char *attribute; /* for which there is no split, or NULL */
    /* gemm_parts.h; the caller's: slr_gemm_split_find leaves them alone. */
    double pace;
    double head;    /* of summands */
    bool needs_all; /* there are none, as the sum is not split (gemm_sum.h) */
    uint32_t parts; /* of equal size, that are wanted; 0: by the pace */
};

static inline size_t slr_gemm_split_elem(const struct slr_gemm_split *split)
{
    return split->rows > 0 ? split->col_bytes / (size_t)split->rows : 0;
}

/* Bytes of one element; 0 for types that are not split (complex, sub-byte, unknown). */
size_t slr_gemm_type_bytes(cudaDataType type);

/* What a matrix takes in memory: rows x cols, column-major, ld >= rows; empty when it has no
 * element. */
struct slr_extent slr_gemm_extent(const void *p, int64_t rows, int64_t cols, int64_t ld, size_t elem);

/* Completes a call: of cublasLtMatmul from its descriptors, of others from the handle. SLR_R_FUSED, or
 * why it is not split. Thread-safe; holds no lock over a call of cuBLAS. */
enum slr_reason slr_gemm_describe(struct slr_gemm *gemm);

/* Whether the GEMM can be split along the buffer that `g` gathers; of one that sums over it,
 * slr_gemm_may_sum() has to be asked as well. SLR_R_FUSED and *out, or the reason why not and, if
 * that is an attribute's, out->attribute. */
enum slr_reason slr_gemm_split_find(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks,
                                    struct slr_gemm_split *out);

/* What a GEMM, described, reads of the buffer that `g` gathers, in a word: "elsewhere", nothing; "inside",
 * an operand begins within it; "part", an operand begins where it does and is smaller; "more", likewise
 * and is larger; "all"; "unknown". *bytes: of that operand, 0 elsewhere. For the log. Pure. */
const char *slr_gemm_reads(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks, size_t *bytes);

/* Whether the memory has nothing in common with the gather's buffers. Pure. */
bool slr_extent_apart(struct slr_extent x, const struct slr_gather *g, int nranks);

/* Whether the GEMM, described, reads nothing that `g` writes and writes nothing that `g` reads or
 * writes. False when it can not be told. Pure. */
bool slr_gemm_apart(const struct slr_gemm *gemm, const struct slr_gather *g, int nranks);

/* Whether two GEMMs, described, may run in any order, or at once, if the first has another workspace than its call's:
 * neither writes what the other one reads or writes. Pure. */
bool slr_gemms_apart(const struct slr_gemm *first, const struct slr_gemm *second);

/* The whole GEMM through the real function. */
cublasStatus_t slr_gemm_whole(const struct slr_gemm *gemm);

/* The part of C that the stored columns [col, col + cols) of the gathered operand determine; or
 * their summand, with the GEMM's beta. */
cublasStatus_t slr_gemm_part(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col,
                             int64_t cols);

/* False: cuBLASLt says that it has no algorithm for that part. Others can not be asked beforehand.
 */
bool slr_gemm_part_ready(const struct slr_gemm *gemm, const struct slr_gemm_split *split, int64_t col, int64_t cols);

/* Thread-safe, with one caller at a time for one ring (kernels/ring.h): threads with communicators
 * of their own may be here at once, and one that waits in cuBLAS holds no lock of this file's.
 *
 * Enqueues the GEMM on the application's stream in parts, in the order of gemm_parts.h, each behind
 * the events of the last chunks that it reads; last the stream is joined with the ring.
 *
 * It ends as the whole GEMM would. *parts, the calls that C is made of, is
 *
 *   0   when cuBLAS does not take the first part, or has no algorithm for one: nothing was computed
 *       and the stream is not joined. The caller joins it and runs the whole.
 *   1   SLR_GEMM_REDONE: when cuBLAS refused a later part. The stream was joined, the whole ran,
 *       and the status is what the application gets. gemm_redo.h has the rule, also for a C that is
 *       read (beta not 0) and has been overwritten in part.
 *   2.. otherwise
 *
 * A status other than success with *parts >= 2 is a failure of CUDA's: the ring could not be
 * joined. */
#define SLR_GEMM_REDONE 1
cublasStatus_t slr_gemm_fused(struct slr_ring *ring, const struct slr_gather *g, const struct slr_gemm *gemm,
                              const struct slr_gemm_split *split, unsigned *parts);

#endif
