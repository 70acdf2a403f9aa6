/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM cases of fuse.c: one row each; see the table there. */
#ifndef TESTS_E2E_FUSE_H
#define TESTS_E2E_FUSE_H

#include "ranks.h"

enum api {
    API_EX_BF16,
    API_EX64_BF16,
    API_EX_FP16,
    API_EX_BF16_C, /* C is bf16, too */
    API_EX_TF32,   /* fp32 with a TF32 compute type */
    API_EX_DEVICE, /* bf16, alpha and beta on the device */
    API_S,
    API_S64,
    API_D,
    API_H,
    API_SB_BF16,
    API_SB2_BF16, /* a batch of 2: half of the columns of B and C each */
    /* A batch of 4 that shares B or A: a quarter of the other operand each. */
    API_SB4_B_BF16,
    API_SB4_A_BF16
};
enum form { FORM_BN, FORM_AT, FORM_BT, FORM_AN };
enum between {
    BETWEEN_NOTHING,
    BETWEEN_MEMSET_C,
    BETWEEN_COPY_RECV,
    BETWEEN_EVENT,
    BETWEEN_SYNC,
    BETWEEN_OTHER_GEMM,
    BETWEEN_LARGE_GEMM, /* of other memory, too */
    BETWEEN_READING_GEMM,
    BETWEEN_SENDING_GEMM, /* writes to `send`, behind the first gather */
    BETWEEN_QUESTION      /* what the next operation would come behind, of a stream that captures nothing */
};

struct gemm_case {
    const char *name;
    enum api api;
    enum form form;
    int64_t cols; /* gathered columns on each rank; 0: an uneven total (one column less than divides) */
    int64_t other, k;
    int64_t pad; /* added to the gathered operand's leading dimension */
    double beta;
    enum between between;
    bool default_stream, in_place;
    bool c_in_send;    /* C overlaps the send buffer */
    int streams_cross; /* the GEMM runs on another stream, ordered by an event */
    bool w_across;     /* the weight's columns are the inner dimension, not its rows */
};

size_t api_elem(enum api api);
size_t api_elem_c(enum api api);
cudaDataType api_type(enum api api);

/* Small integers in [-2, 2], as host values of the case's type. */
int small(uint64_t seed, uint64_t i);
void put(enum api api, void *host, size_t i, int value, bool is_c);
double get(enum api api, const void *host, size_t i);

/* Before the first gemm() of a process: puts 1 and beta on the device where the api wants them there. */
void gemm_prepare(enum api api, cublasHandle_t h, double beta);

/* The cuBLAS call: C (m x n) with leading dimension ldc. */
cublasStatus_t gemm_status(enum api api, cublasHandle_t h, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                           const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
/* The same; anything but success ends the process. */
void gemm(enum api api, cublasHandle_t h, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
          const void *b, int64_t ldb, double beta, void *c, int64_t ldc);

#endif
