/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's descriptors: read attribute by attribute, and made anew. The structs of the library
 * stay opaque.
 *
 * Thread-safe. What a library knows is learnt once in a process and published under a lock of its
 * own, which is held over a copy of memory and never over a call of the library.
 */
#ifndef SLR_KERNELS_LT_DESC_H
#define SLR_KERNELS_LT_DESC_H

#include <stdint.h>
#include "base/real.h"
#include "base/reason.h"

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

/* SLR_R_FUSED, or why the matrix or operation is not one that is split; *attribute, of an operation:
 * the name of the first attribute that is not understood, or NULL. */
enum slr_reason slr_lt_read_matrix(cublasLtMatrixLayout_t layout, struct slr_lt_matrix *out);
enum slr_reason slr_lt_read_op(cublasLtMatmulDesc_t desc, struct slr_lt_op *out, const char **attribute);

/* Makes descriptors in the caller's memory; they need no destruction. An operation only after one
 * was read. */
cublasStatus_t slr_lt_make_matrix(const struct slr_lt_matrix *matrix, cublasLtMatrixLayoutOpaque_t *out);
cublasStatus_t slr_lt_make_op(const struct slr_lt_op *op, cublasLtMatmulDescOpaque_t *out);

#endif
