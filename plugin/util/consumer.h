/* SPDX-License-Identifier: Apache-2.0 */
/* What consumes a gather, as call sites tell it apart: a GEMM, or none. In log lines, and in rules of a
 * tune file (plugin/tuner/tune_table.h). */
#ifndef SLR_PLUGIN_UTIL_CONSUMER_H
#define SLR_PLUGIN_UTIL_CONSUMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLR_CONSUMER_A, SLR_CONSUMER_B, SLR_CONSUMER_C };

/* Sizes as cuBLAS counts them. m 0: no GEMM, and then all are 0. Of a rule -1 is any. */
struct slr_consumer {
    int64_t m, n, k, batch;
    int32_t op[2];    /* cublasOperation_t of A and B */
    int32_t type[3];  /* cudaDataType of A, B and C */
    int32_t gathered; /* which is gathered, or C: what a reduce-scatter sends */
};

/* Of a rule: any GEMM, or none. */
#define SLR_CONSUMER_ANY ((struct slr_consumer){-1, -1, -1, -1, {-1, -1}, {-1, -1, -1}, -1})

#define SLR_CONSUMER_TEXT 48 /* of each of these texts */

/* "tn", "bf16" or "bf16,bf16,fp32", "a" or "b". "-": no GEMM. */
const char *slr_consumer_trans_text(const struct slr_consumer *gemm, char *buf);
const char *slr_consumer_type_text(const struct slr_consumer *gemm, char *buf);
const char *slr_consumer_gathered_text(const struct slr_consumer *gemm);

/* The other way round, in any letter case. False: it is no such text. */
bool slr_consumer_trans_read(struct slr_consumer *gemm, const char *at, size_t len);
bool slr_consumer_type_read(struct slr_consumer *gemm, const char *at, size_t len);
bool slr_consumer_gathered_read(struct slr_consumer *gemm, const char *at, size_t len);

/* Not 0; 0 stands for no GEMM. */
uint64_t slr_consumer_hash(const struct slr_consumer *gemm);

/* Whether the rule's is this one. */
bool slr_consumer_fits(const struct slr_consumer *rule, const struct slr_consumer *gemm);

#endif
