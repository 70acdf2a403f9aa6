/* SPDX-License-Identifier: Apache-2.0 */
/* The reference must itself be right: rounding, ranges, and that every way to compute an element
 * agrees. */
#include "ag_data.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct ag_data data_of(int dtype, long k)
{
    const struct ag_options o = {.m = 6, .n = 10, .k = k, .ld_pad = 3, .form = AG_BN, .dtype = dtype};
    return (struct ag_data){ag_shape_of(&o, 4), dtype, 7};
}

Test(ag_data, every_narrow_code_survives_decoding_and_encoding)
{
    const int dtypes[] = {AG_FP16, AG_BF16};
    for (int i = 0; i < 2; i++)
        for (unsigned code = 0; code < 65536; code++) {
            const uint16_t in = (uint16_t)code;
            uint16_t out;
            const double value = ag_decode(dtypes[i], &in);
            ag_encode(dtypes[i], value, &out);
            cr_assert(isnan(value) || in == out, "%s %04x became %04x", i ? "bf16" : "fp16", in, out);
        }
}

static double rounded(int dtype, double value)
{
    unsigned char code[8];
    ag_encode(dtype, value, code);
    return ag_decode(dtype, code);
}

Test(ag_data, rounds_to_nearest_even)
{
    cr_assert_eq(rounded(AG_BF16, 257), 256);
    cr_assert_eq(rounded(AG_BF16, 259), 260);
    cr_assert_eq(rounded(AG_BF16, -513), -512);
    cr_assert_eq(rounded(AG_FP16, 2049), 2048);
    cr_assert_eq(rounded(AG_FP16, 2051), 2052);
    cr_assert_eq(rounded(AG_FP16, 4095), 4096, "a carry out of the mantissa");
    cr_assert_eq(rounded(AG_FP16, 65519), 65504);
    cr_assert(isinf(rounded(AG_FP16, 65520)));
    cr_assert_eq(rounded(AG_FP16, ldexp(3, -25)), ldexp(2, -24), "a subnormal tie");
}

Test(ag_data, columns_agree_with_what_is_gathered)
{
    const struct ag_data data = data_of(AG_FP32, 50);
    const struct ag_shape *s = &data.shape;
    float *shard = malloc(s->shard * sizeof(float));
    int8_t column[50];
    for (long outer = 0; outer < s->outer; outer++) {
        ag_data_shard(&data, 5, (int)(outer / s->per_rank), 0, s->shard, shard);
        ag_data_gathered_line(&data, 5, outer, column);
        for (long l = 0; l < s->k; l++)
            cr_assert_eq(column[l], shard[outer % s->per_rank * s->ld + l]);
    }
    free(shard);
}

Test(ag_data, weights_agree_in_every_type_and_piece)
{
    const struct ag_data data = data_of(AG_FP64, 50);
    double weights[50 * 6];
    int8_t column[50];
    ag_data_weights(&data, 2, 0, 100, weights);
    ag_data_weights(&data, 2, 100, 200, weights + 100);
    for (long f = 0; f < 6; f++) {
        ag_data_weight_column(&data, 2, f, column);
        for (long l = 0; l < 50; l++)
            cr_assert_eq(column[l], weights[f * 50 + l]);
    }
}

Test(ag_data, bytes_do_not_depend_on_where_one_starts)
{
    struct ag_data data = data_of(AG_INT8, 50);
    unsigned char all[1000], part[100];
    data.shape.gemm = 0;
    ag_data_shard(&data, 1, 3, 0, sizeof(all), all);
    for (size_t first = 0; first < 900; first += 37) {
        ag_data_shard(&data, 1, 3, first, sizeof(part), part);
        cr_assert_eq(memcmp(all + first, part, sizeof(part)), 0);
    }
}

Test(ag_data, steps_ranks_and_seeds_differ)
{
    struct ag_data data = data_of(AG_INT8, 50);
    unsigned char base[64], other[64];
    ag_data_shard(&data, 1, 0, 0, 64, base);
    ag_data_shard(&data, 2, 0, 0, 64, other);
    cr_assert_neq(memcmp(base, other, 64), 0, "step");
    ag_data_shard(&data, 1, 1, 0, 64, other);
    cr_assert_neq(memcmp(base, other, 64), 0, "rank");
    data.seed++;
    ag_data_shard(&data, 1, 0, 0, 64, other);
    cr_assert_neq(memcmp(base, other, 64), 0, "seed");
}

Test(ag_data, sums_stay_where_every_type_is_exact)
{
    const struct ag_data data = data_of(AG_BF16, 16384);
    static int8_t g[16384], w[16384];
    long worst = 0;
    for (long column = 0; column < 10; column++)
        for (long f = 0; f < 6; f++) {
            long sum = 0;
            ag_data_gathered_line(&data, 1, column, g);
            ag_data_weight_column(&data, 0, f, w);
            for (long l = 0; l < 16384; l++) {
                sum += g[l] * w[l];
                worst = labs(sum) > worst ? labs(sum) : worst;
            }
        }
    cr_assert_lt(worst, 256);
    cr_assert_gt(worst, 10, "sums that are all small would not notice a missing shard");
}
