/* SPDX-License-Identifier: Apache-2.0 */
/* e4m3 and e5m2 to and from fp32; to 8 bits with round-to-nearest-even, saturated to the largest finite value, as the
 * hardware converts (cvt.satfinite). e4m3 has no infinity, and one NaN for each sign. e8m0 and e4m3's unsigned form are
 * those of scale factors. */
#ifndef SOFTGPU_FLOAT8_H
#define SOFTGPU_FLOAT8_H

#include <math.h>
#include <stdint.h>

static inline float e4m3_to_f32(uint8_t b)
{
    const int exp = b >> 3 & 15, man = b & 7;
    const float mag = exp == 15 && man == 7 ? NAN
                      : exp == 0            ? ldexpf((float)man, -9)
                                            : ldexpf((float)(8 + man), exp - 10);
    return b & 0x80 ? -mag : mag;
}

static inline float e5m2_to_f32(uint8_t b)
{
    const int exp = b >> 2 & 31, man = b & 3;
    const float mag = exp == 31  ? (man ? NAN : INFINITY)
                      : exp == 0 ? ldexpf((float)man, -16)
                                 : ldexpf((float)(4 + man), exp - 17);
    return b & 0x80 ? -mag : mag;
}

/* `bits` of mantissa, the least normal number 2^`least`, the largest finite one with the code `top`. */
static inline uint8_t f32_to_f8(float f, int bits, int least, float largest, uint8_t top, uint8_t nan)
{
    const uint8_t sign = signbit(f) ? 0x80 : 0;
    const float mag = fabsf(f);
    int exp;
    if (isnan(f))
        return nan;
    if (mag >= largest || mag == 0)
        return sign | (mag == 0 ? 0 : top);
    frexpf(mag, &exp); /* mag = x 2^exp, x in [0.5, 1) */
    const int unit = (exp - 1 < least ? least : exp - 1) - bits;
    const int n = (int)nearbyintf(ldexpf(mag, -unit)); /* to even; may carry into the exponent */
    const int code = n + ((unit - (least - bits)) << bits);
    return sign | (uint8_t)(code > top ? top : code);
}

static inline uint8_t f32_to_e4m3(float f)
{
    return f32_to_f8(f, 3, -6, 448, 0x7e, 0x7f);
}

static inline uint8_t f32_to_e5m2(float f)
{
    return f32_to_f8(f, 2, -14, 57344, 0x7b, 0x7f);
}

static inline float ue8m0_to_f32(uint8_t b)
{
    return b == 255 ? NAN : ldexpf(1, b - 127);
}

static inline float ue4m3_to_f32(uint8_t b)
{
    return e4m3_to_f32(b & 0x7f);
}

#endif
