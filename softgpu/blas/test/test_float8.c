/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats: every value, every midpoint (to even), the fp32 values beside it, and both ends of the range. */
#include "../float8.h"

#include <criterion/criterion.h>

static void check_all(float (*widen)(uint8_t), uint8_t (*narrow)(float), uint8_t top)
{
    for (unsigned sign = 0; sign <= 0x80; sign += 0x80)
        for (unsigned mag = 0; mag < top; mag++) {
            const uint8_t low = (uint8_t)(sign | mag), high = (uint8_t)(low + 1);
            const float a = widen(low), b = widen(high), middle = (a + b) / 2; /* exact */
            cr_assert(fabsf(b) > fabsf(a), "%#x", low);
            cr_assert_eq(narrow(a), low, "%#x gives %#x", low, narrow(a));
            cr_assert_eq(narrow(middle), low & 1 ? high : low, "%#x: midpoint", low);
            cr_assert_eq(narrow(nextafterf(middle, a)), low, "%#x: below the midpoint", low);
            cr_assert_eq(narrow(nextafterf(middle, b)), high, "%#x: above the midpoint", low);
        }
}

Test(float8, e4m3_rounds_to_nearest_even_and_saturates)
{
    check_all(e4m3_to_f32, f32_to_e4m3, 0x7e);
    cr_expect_eq(e4m3_to_f32(0x7e), 448);
    cr_expect_eq(e4m3_to_f32(0x01), 0x1p-9f);
    cr_expect_eq(e4m3_to_f32(0x38), 1);
    cr_expect(f32_to_e4m3(449) == 0x7e && f32_to_e4m3(-1e9f) == 0xfe && f32_to_e4m3(INFINITY) == 0x7e);
    cr_expect(isnan(e4m3_to_f32(0x7f)) && isnan(e4m3_to_f32(0xff)) && f32_to_e4m3(NAN) == 0x7f);
}

Test(float8, e5m2_rounds_to_nearest_even_and_saturates)
{
    check_all(e5m2_to_f32, f32_to_e5m2, 0x7b);
    cr_expect_eq(e5m2_to_f32(0x7b), 57344);
    cr_expect_eq(e5m2_to_f32(0x01), 0x1p-16f);
    cr_expect_eq(e5m2_to_f32(0x3c), 1);
    cr_expect(isinf(e5m2_to_f32(0x7c)) && isnan(e5m2_to_f32(0x7d)));
    cr_expect(f32_to_e5m2(1e9f) == 0x7b && f32_to_e5m2(-INFINITY) == 0xfb && f32_to_e5m2(NAN) == 0x7f);
}

Test(float8, scale_factors)
{
    cr_expect(ue8m0_to_f32(127) == 1 && ue8m0_to_f32(0) == 0x1p-127f && ue8m0_to_f32(254) == 0x1p127f);
    cr_expect(isnan(ue8m0_to_f32(255)));
    cr_expect_eq(ue4m3_to_f32(0xb8), 1);
}
