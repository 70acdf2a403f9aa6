/* SPDX-License-Identifier: Apache-2.0 */
/* fp16 and bf16 to and from fp32; to the 16-bit types with round-to-nearest-even, as the hardware converts. */
#ifndef SOFTGPU_FLOAT16_H
#define SOFTGPU_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff; /* the canonical NaN */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = h & 0x7fffu;
    if (mag >= 0x7c00u) /* infinity and NaN */
        return f32_from_bits(sign | 0x7f800000u | (mag & 0x3ffu) << 13);
    if (mag < 0x400u) /* zero and subnormals: mag * 2^-24 is exact */
        return f32_from_bits(sign | f32_bits((float)mag * 0x1p-24f));
    return f32_from_bits(sign | ((mag << 13) + (112u << 23)));
}

static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = f32_bits(f), mag = u & 0x7fffffffu;
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    if (mag > 0x7f800000u)
        return 0x7fff;
    if (mag >= 0x47800000u) /* 65536 and more */
        return sign | 0x7c00u;
    if (mag < 0x38800000u) /* below 2^-14: adding 0.5 lets the FPU round at 2^-24 */
        return sign | (uint16_t)(f32_bits(f32_from_bits(mag) + 0.5f) - 0x3f000000u);
    mag += 0xfffu + (mag >> 13 & 1); /* may carry into the exponent: 65520 becomes infinity */
    return sign | (uint16_t)((mag >> 13) - (112u << 10));
}

#endif
