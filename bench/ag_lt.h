/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM of a lane through cublasLtMatmul; each returns -1 when it has failed, as the functions
 * of ag_rank.h. */
#ifndef AG_LT_H
#define AG_LT_H

struct ag_rank;
struct ag_lane;

int ag_lt_make(struct ag_rank *r, struct ag_lane *lane);
int ag_lt_gemm(struct ag_rank *r, struct ag_lane *lane, int slot);
/* Does nothing for a lane that has none. */
int ag_lt_free(struct ag_rank *r, struct ag_lane *lane);

#endif
