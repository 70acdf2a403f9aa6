/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of scatter.h once more, on the host: from the contributions, what the device has to have
 * written, bit by bit, and how far from it another way to add them may come. For SLIPRING_VERIFY.
 *
 * The bits follow from reduce.cu: fp32, from the left, an average by one product in fp64, rounded once
 * to nearest even. Of a NaN only that it is one.
 *
 * Another way may add in any order, in the type itself, each addition rounded; may multiply each
 * contribution by 1 / n, rounded to the type, for an average; and may leave the type's range on the
 * way. docs/numerics.md derives from that
 *
 *   |other - ours| <= 2 (n + 2) u S / divisor + (n + 2) s
 *
 * with S the sum of the contributions' magnitudes, u half a unit in the last place of 1, s the least
 * subnormal number. Where S stays below the type's range both are finite, or the same infinity, or
 * NaN; beyond that the other one may be an infinity or NaN where ours is not, and the reverse. */
#include "kernels/scatter.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* What the types are like; `top` is where rounding to nearest gives infinity. */
static const struct {
    size_t bytes;
    double half_ulp, least, top;
} types[SLR_REDUCE_TYPES] = {[SLR_REDUCE_BF16] = {2, 0x1p-8, 0x1p-133, 0x1.ffp127},
                             [SLR_REDUCE_F16] = {2, 0x1p-11, 0x1p-24, 0x1.ffep15},
                             [SLR_REDUCE_F32] = {4, 0x1p-24, 0x1p-149, 0x1.ffffffp127}};

/* ---- bits ---- */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static uint32_t load_element(enum slr_reduce_type type, const void *base, size_t i)
{
    return type == SLR_REDUCE_F32 ? ((const uint32_t *)base)[i] : ((const uint16_t *)base)[i];
}

static float from_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ffu;
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0)
        return sign ? -(float)fraction * 0x1p-24f : (float)fraction * 0x1p-24f;
    return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

static float value_of(enum slr_reduce_type type, uint32_t bits)
{
    return type == SLR_REDUCE_F32 ? float_of(bits) : type == SLR_REDUCE_BF16 ? float_of(bits << 16) : from_f16(bits);
}

/* To nearest even: what is cut off decides, and where it is half of the last place that place's bit. */
static uint32_t to_bf16(float f)
{
    const uint32_t u = bits_of(f);
    return isnan(f) ? 0x7fff : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}

static uint32_t to_f16(float f)
{
    const uint32_t u = bits_of(f), sign = u >> 16 & 0x8000u, size = u & 0x7fffffffu;
    if (isnan(f))
        return 0x7fff;
    if (size >= 0x477ff000u) /* 65520 */
        return sign | 0x7c00u;
    if (size < 0x38800000u) /* 2^-14: behind 0.5 the last place of a float is that of subnormal halves */
        return sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000u);
    return sign | (size + 0xfffu + (size >> 13 & 1) - 0x38000000u) >> 13;
}

static uint32_t rounded(enum slr_reduce_type type, float f)
{
    return type == SLR_REDUCE_F32 ? bits_of(f) : type == SLR_REDUCE_BF16 ? to_bf16(f) : to_f16(f);
}

/* ---- one element ---- */

static uint32_t sum_of(const struct slr_checked_sums *s, size_t i)
{
    const double factor = 1.0 / (double)s->divisor;
    float sum = value_of(s->type, load_element(s->type, s->in[0], i));
    for (int r = 1; r < s->n; r++)
        sum += value_of(s->type, load_element(s->type, s->in[r], i));
    return rounded(s->type, factor == 1.0 ? sum : (float)((double)sum * factor));
}

static bool same_bits(enum slr_reduce_type type, uint32_t a, uint32_t b)
{
    return a == b || (isnan(value_of(type, a)) && isnan(value_of(type, b)));
}

/* What any way to add them has in common. */
struct inputs {
    double size; /* sum of the finite ones' magnitudes */
    bool inf[2]; /* positive, negative */
    bool nan;
};

static struct inputs inputs_at(const struct slr_checked_sums *s, size_t i)
{
    struct inputs in = {0};
    for (int r = 0; r < s->n; r++) {
        const double v = (double)value_of(s->type, load_element(s->type, s->in[r], i));
        if (isnan(v))
            in.nan = true;
        else if (isinf(v))
            in.inf[v < 0] = true;
        else
            in.size += fabs(v);
    }
    in.nan = in.nan || (in.inf[0] && in.inf[1]);
    return in;
}

static bool near_enough(const struct slr_checked_sums *s, size_t i, uint32_t ours_bits, uint32_t other_bits)
{
    const struct inputs in = inputs_at(s, i);
    const double ours = (double)value_of(s->type, ours_bits), other = (double)value_of(s->type, other_bits);
    const double terms = s->n + 2, error = 2 * terms * types[s->type].half_ulp;
    const bool leaves = in.size * (1 + error) >= types[s->type].top;
    if (in.nan)
        return isnan(other);
    if (in.inf[0] || in.inf[1])
        return (isinf(other) && signbit(other) == (in.inf[1] ? 1 : 0)) || (leaves && isnan(other));
    if (!isfinite(other) || !isfinite(ours))
        return leaves;
    return fabs(other - ours) <= error * in.size / (double)s->divisor + terms * types[s->type].least;
}

static struct slr_sum_found check(const struct slr_checked_sums *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const uint32_t ours = load_element(s->type, s->ours, i), other = load_element(s->type, s->other, i),
                       want = sum_of(s, i);
        if (!same_bits(s->type, ours, want))
            return (struct slr_sum_found){SLR_SUM_BITS, i, ours, want};
        if (!same_bits(s->type, ours, other) && !near_enough(s, i, ours, other))
            return (struct slr_sum_found){SLR_SUM_FAR, i, ours, other};
    }
    return (struct slr_sum_found){0};
}

/* ---- the thread's own arithmetic ---- */

/* Programs make threads flush subnormal numbers, or round in another way. What is set here goes before
 * all loads of a sum and stands until its stores, as both are of memory. */
#if defined(__x86_64__)
static uint64_t plain_arithmetic(void)
{
    const uint32_t plain = 0x1f80; /* nearest, no exceptions, subnormals as they are */
    uint32_t was;
    __asm__ volatile("stmxcsr %0" : "=m"(was) : : "memory");
    __asm__ volatile("ldmxcsr %0" : : "m"(plain) : "memory");
    return was;
}

static void own_arithmetic(uint64_t was)
{
    uint32_t low = (uint32_t)was;
    __asm__ volatile("ldmxcsr %0" : : "m"(low) : "memory");
}
#elif defined(__aarch64__)
static uint64_t plain_arithmetic(void)
{
    uint64_t was;
    __asm__ volatile("mrs %0, fpcr\n\tmsr fpcr, xzr" : "=&r"(was) : : "memory");
    return was;
}

static void own_arithmetic(uint64_t was)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(was) : "memory");
}
#else
#error "written for x86-64 and aarch64"
#endif

struct slr_sum_found slr_reduce_check(const struct slr_checked_sums *s)
{
    const uint64_t was = plain_arithmetic();
    const struct slr_sum_found found = check(s);
    own_arithmetic(was);
    return found;
}
