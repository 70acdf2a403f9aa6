/* SPDX-License-Identifier: Apache-2.0 */
/* The data: a counter-based hash of (seed, what, index), so that any rank can compute any element.
 *
 * With a GEMM the values are small integers, few enough of them non-zero that every partial sum is
 * exact in every type (also where a GEMM adds in fp16 or adds partial results in bf16). Without one
 * they are arbitrary bytes. */
#ifndef AG_DATA_H
#define AG_DATA_H

#include "ag_shape.h"

#include <stdint.h>

struct ag_data {
    struct ag_shape shape;
    int dtype;
    uint64_t seed;
};

/* The shard of `rank` in step `step` (every checked iteration is a step with its own data): `count`
 * elements from element `first`, encoded. */
void ag_data_shard(const struct ag_data *data, uint64_t step, int rank, size_t first, size_t count, void *out);

/* The k values of the gathered matrix of which line `line` of C is made: a column without its padding, or a row where
 * the GEMM sums over the columns. */
void ag_data_gathered_line(const struct ag_data *data, uint64_t step, long line, int8_t *out);
/* The k values of column `f` of the weight of `rank`, which is stored k x free_size. */
void ag_data_weight_column(const struct ag_data *data, int rank, long f, int8_t *out);
/* The weight, `count` elements from `first`, encoded. */
void ag_data_weights(const struct ag_data *data, int rank, size_t first, size_t count, void *out);

/* What C holds before the GEMM when beta is not 0. `index` is column * m + row. */
int ag_data_c(const struct ag_data *data, uint64_t step, size_t index);
void ag_data_cs(const struct ag_data *data, uint64_t step, size_t first, size_t count, void *out);

/* The bias of `rank`: m values, encoded. */
int ag_data_bias(const struct ag_data *data, int rank, long row);
void ag_data_biases(const struct ag_data *data, int rank, void *out);

/* One element, rounded to nearest even. */
void ag_encode(int dtype, double value, void *out);
double ag_decode(int dtype, const void *in);

#endif
