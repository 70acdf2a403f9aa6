/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul as a GEMM that consumes a gathered buffer: D = epilogue(alpha op(A) op(B) + beta C
 * + bias), split as gemm.h says. A part has layouts of its own, made anew; scale factors, bias and
 * auxiliary matrix run along D's rows or columns, so it may need an operation descriptor of its
 * own, with these moved. The application's descriptors are only read.
 *
 * Attributes in the tables of lt_desc.c are understood; what the call reads and writes by them is
 * described, whether it is split or not, so that it may overtake gathers of other memory. Every
 * other attribute that the library at hand knows must have the value that a fresh descriptor has,
 * so one of a newer library is not ignored, but keeps the GEMM whole.
 *
 * Parts follow one another on one stream, so they share the application's workspace. It is written
 * before the gather is complete and must not lie in the buffers of the gather.
 *
 * Thread-safe, for calls that do not share a struct slr_gemm. No lock is held over a call of the
 * library. */
#ifndef SLR_KERNELS_GEMM_LT_H
#define SLR_KERNELS_GEMM_LT_H

#include "kernels/gemm.h"

/* ---- descriptors, read attribute by attribute and made anew: lt_desc.c ---- */

/* A matrix as stored, in column order, one matrix. */
struct slr_lt_matrix {
    uint32_t type; /* cudaDataType */
    uint64_t rows, cols;
    int64_t ld; /* elements */
};

/* The matrices that have scale factors. */
enum { SLR_LT_SCALE_A, SLR_LT_SCALE_B, SLR_LT_SCALE_C, SLR_LT_SCALE_D, SLR_LT_SCALE_AUX, SLR_LT_SCALES };

/* An operation, as far as it is understood. */
struct slr_lt_op {
    int32_t compute, scale, pointer_mode, transa, transb;
    uint32_t epilogue;
    const void *bias;  /* or where its gradient goes */
    int32_t bias_type; /* -1: that of D */
    int32_t sm_count;
    int8_t fast_accum;
    const void *scale_at[SLR_LT_SCALES];
    int32_t scale_mode[SLR_LT_SCALES]; /* cublasLtMatmulMatrixScale_t */
    const void *aux;                   /* the epilogue's matrix, read or written */
    int64_t aux_ld;                    /* elements; bits of ReLU's */
    int32_t aux_type;                  /* -1: that of D */
    const void *amax_d, *amax_aux;
    int64_t bias_stride, aux_stride; /* say nothing of one matrix */
};

/* SLR_R_FUSED, or why the matrix or operation is not one that is split; *attribute, of an
 * operation: the name of the first attribute that is not understood, or NULL. */
enum slr_reason slr_lt_read_matrix(cublasLtMatrixLayout_t layout, struct slr_lt_matrix *out);
enum slr_reason slr_lt_read_op(cublasLtMatmulDesc_t desc, struct slr_lt_op *out, const char **attribute);

/* Makes descriptors in the caller's memory; they need no destruction. An operation only after one
 * was read. */
cublasStatus_t slr_lt_make_matrix(const struct slr_lt_matrix *matrix, cublasLtMatrixLayoutOpaque_t *out);
cublasStatus_t slr_lt_make_op(const struct slr_lt_op *op, cublasLtMatmulDescOpaque_t *out);

/* ---- a call: gemm_lt.c ---- */

struct slr_lt {
    cublasLtHandle_t handle; /* as the application gave it; A, B, D, alpha and beta are in struct slr_gemm */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc, ld;
    const void *c;
    const cublasLtMatmulAlgo_t *algo;
    void *workspace;
    size_t workspace_bytes;
    cudaStream_t stream;
    cudaDataType ctype; /* of C, as what follows by slr_lt_describe(); slr_gemm.ctype and ldc are D's */
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

/* ---- what it has besides its matrices: lt_split.c. Pure; no call of the library ---- */

bool slr_lt_epilogue_known(uint32_t epilogue); /* whether the epilogue is one that this file knows */

/* Fills in what the call reads and writes besides its matrices and the workspace: gemm->read and
 * gemm->written from index 1 on. `gemm` has its sizes and types. NULL, or the name of the attribute
 * for which the memory can not be told. */
const char *slr_lt_extents(const struct slr_lt_op *op, struct slr_gemm *gemm);

/* Whether parts along the split can be addressed. SLR_R_FUSED and split->quantum, or the reason and
 * split->attribute. */
enum slr_reason slr_lt_may_split(const struct slr_lt_op *op, const struct slr_gemm *gemm, struct slr_gemm_split *split);

bool slr_lt_writes_more(const struct slr_lt_op *op); /* whether the call writes more than D */

/* Changes `op` to what the part needs that begins at row (`on_a`) or column `col` of D. `part` has
 * the types and the inner dimension of the whole. False: nothing had to be changed. */
bool slr_lt_move(struct slr_lt_op *op, const struct slr_gemm *part, bool on_a, int64_t col);

/* ---- algorithms: lt_algo.c ---- */

enum { SLR_LT_A, SLR_LT_B, SLR_LT_C, SLR_LT_D, SLR_LT_MATRICES };

struct slr_lt_problem {
    cublasLtHandle_t handle;
    struct slr_lt_op op;
    struct slr_lt_matrix matrix[SLR_LT_MATRICES];
    const void *at[SLR_LT_MATRICES];  /* device memory; C may be NULL */
    const cublasLtMatmulAlgo_t *algo; /* the application's, not NULL for slr_lt_algo */
    size_t workspace_bytes;
    cublasLtMatmulDesc_t desc; /* descriptors that say the same; the application's or `own` */
    cublasLtMatmulDescOpaque_t own;
    cublasLtMatrixLayoutOpaque_t layout[SLR_LT_MATRICES];
};

/* The algorithm for a part of a call that has one: lt_algo.c has the choice. False when there is
 * none. The context is current. */
bool slr_lt_algo(const struct slr_lt_problem *problem, cublasLtMatmulAlgo_t *out);

#endif
