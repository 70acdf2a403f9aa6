/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to 16 bits: every pair of neighbours, their midpoint (to even) and the fp32 values beside the midpoint. */
#include "../float16.h"

#include <criterion/criterion.h>
#include <math.h>

static void check_neighbours(uint16_t low, float (*widen)(uint16_t), uint16_t (*narrow)(float))
{
    float a = widen(low), b = widen((uint16_t)(low + 1));
    float middle = (float)(((double)a + (double)b) / 2); /* exact: one more bit than 16-bit types have */
    uint16_t even = low & 1 ? (uint16_t)(low + 1) : low;
    cr_assert_eq(narrow(a), low);
    cr_assert_eq(narrow(middle), even, "%#x: midpoint %a gives %#x", low, (double)middle, narrow(middle));
    cr_assert_eq(narrow(nextafterf(middle, a)), low, "%#x: below the midpoint", low);
    cr_assert_eq(narrow(nextafterf(middle, b)), low + 1, "%#x: above the midpoint", low);
}

Test(float16, fp16_rounds_to_nearest_even)
{
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000)
        for (unsigned mag = 0; mag < 0x7bff; mag++)
            check_neighbours((uint16_t)(sign | mag), f16_to_f32, f32_to_f16);
}

Test(float16, bf16_rounds_to_nearest_even)
{
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000)
        for (unsigned mag = 0; mag < 0x7f7f; mag++)
            check_neighbours((uint16_t)(sign | mag), bf16_to_f32, f32_to_bf16);
}

Test(float16, known_values_and_the_ends_of_the_range)
{
    cr_expect_eq(f32_to_f16(1.0f), 0x3c00);
    cr_expect_eq(f32_to_f16(-2.0f), 0xc000);
    cr_expect_eq(f32_to_f16(65504.0f), 0x7bff);
    cr_expect_eq(f32_to_f16(65519.99f), 0x7bff);
    cr_expect_eq(f32_to_f16(65520.0f), 0x7c00);
    cr_expect_eq(f32_to_f16(INFINITY), 0x7c00);
    cr_expect_eq(f32_to_f16(0x1p-24f), 0x0001);
    cr_expect_eq(f32_to_bf16(1.0f), 0x3f80);
    cr_expect_eq(f32_to_bf16(-INFINITY), 0xff80);
    cr_expect(isnan(f16_to_f32(f32_to_f16(NAN))));
    cr_expect(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    cr_expect(isinf(f16_to_f32(0x7c00)));
}
