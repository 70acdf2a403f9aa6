/* SPDX-License-Identifier: Apache-2.0 */
/* A GEMM as call sites tell them apart: what consumes a gather, in log lines and in rules of a tune
 * file (tune_site.h). */
#ifndef SLR_PLUGIN_TUNER_TUNE_GEMM_H
#define SLR_PLUGIN_TUNER_TUNE_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLR_TUNE_OF_A, SLR_TUNE_OF_B, SLR_TUNE_OF_C };

/* Sizes as cuBLAS counts them. Of a rule -1 is any. All 0: no GEMM. */
struct slr_tune_gemm {
    int64_t m, n, k, batch;
    int32_t op[2];    /* cublasOperation_t of A and B */
    int32_t type[3];  /* cudaDataType of A, B and C */
    int32_t gathered; /* SLR_TUNE_OF_A or SLR_TUNE_OF_B */
};

#define SLR_TUNE_GEMM_TEXT 48 /* of each of these texts */

/* "tn", "bf16" or "bf16,bf16,fp32", "a" or "b". "-": no GEMM. */
const char *slr_tune_trans_text(const struct slr_tune_gemm *gemm, char *buf);
const char *slr_tune_type_text(const struct slr_tune_gemm *gemm, char *buf);
const char *slr_tune_gathered_text(const struct slr_tune_gemm *gemm);

/* The other way round, in any letter case. False: it is no such text. */
bool slr_tune_trans_read(struct slr_tune_gemm *gemm, const char *at, size_t len);
bool slr_tune_type_read(struct slr_tune_gemm *gemm, const char *at, size_t len);
bool slr_tune_gathered_read(struct slr_tune_gemm *gemm, const char *at, size_t len);

/* Not 0; 0 stands for no GEMM. */
uint64_t slr_tune_gemm_hash(const struct slr_tune_gemm *gemm);

/* Whether the rule's is this one. */
bool slr_tune_gemm_fits(const struct slr_tune_gemm *rule, const struct slr_tune_gemm *gemm);

#endif
