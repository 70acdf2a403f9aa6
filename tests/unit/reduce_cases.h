/* SPDX-License-Identifier: Apache-2.0 */
/* What sums over ranks (kernels/scatter.h) have to give, and the cases that are tried: on the software GPU, with the
 * device code on the host, and on a GPU.
 *
 * A case lies in one arena: the contributions one after another, then places for the result, `span` bytes each, every
 * one with guards around its values. The whole arena is compared: the values bit by bit (a NaN with any other), what is
 * around them, and the contributions.
 *
 * The reference shares nothing with the code under test: sums in fp64, rounded to fp32 after each (which is what one
 * fp32 addition gives, as fp64 has more than twice its digits), and a search for the nearest 16-bit value. */
#ifndef TESTS_UNIT_REDUCE_CASES_H
#define TESTS_UNIT_REDUCE_CASES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASE_BF16, CASE_F16, CASE_F32, CASE_TYPES, CASE_BYTE = CASE_TYPES }; /* CASE_BYTE: copied, of one contribution */
static const char *const case_type_names[] = {"bf16", "f16", "f32", "byte"};
enum values { VALUES_SPREAD, VALUES_ANY_BITS, VALUES_SPECIAL, VALUES_KINDS };
enum { CASE_GUARD = 64, CASE_RANKS = 64 };

struct reduce_case {
    int type, n;
    size_t count;
    unsigned blocks;
    float divisor;
    enum values values;
    int in_place;                  /* the contribution that is the result's place; -1: none */
    bool also;                     /* it has a second place */
    int also_at;                   /* the contribution that is that; -1: none */
    size_t offset[CASE_RANKS + 2]; /* elements, from a multiple of 16 bytes; the last: of the result's two places */
    size_t span;
};

static inline size_t case_bytes(int type)
{
    return type == CASE_F32 ? 4 : type == CASE_BYTE ? 1 : 2;
}

/* Where in the arena a contribution is; n: the result; n + 1: its second place. */
static inline size_t case_at(const struct reduce_case *c, int r)
{
    if (r == c->n && c->in_place >= 0)
        r = c->in_place;
    if (r == c->n + 1 && c->also_at >= 0)
        r = c->also_at;
    return (size_t)r * c->span + CASE_GUARD + c->offset[r < c->n ? r : r - c->n + CASE_RANKS] * case_bytes(c->type);
}

/* Runs the sum on an image of the arena, which it changes as the device did. */
typedef void case_run(const struct reduce_case *c, unsigned char *arena, size_t bytes);

/* ---- numbers ---- */

static inline uint32_t case_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float case_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* 2 to the `e`, where that is a normal number. As ldexp(1, e), which is most of what millions of cases take. */
static inline double case_power(int e)
{
    uint64_t u = (uint64_t)(1023 + e) << 52;
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* The value of a 16-bit number with `digits` bits behind the point and the greatest exponent `top`, all ones. */
static inline double case_small(uint32_t h, int digits, int top)
{
    int exponent = (int)(h >> digits) & top, fraction = (int)h & ((1 << digits) - 1), bias = top / 2;
    double v = exponent == top && fraction ? (double)NAN
               : exponent == top           ? (double)INFINITY
               : exponent                  ? (1 + fraction * case_power(-digits)) * case_power(exponent - bias)
                                           : fraction * case_power(1 - bias - digits);
    return h & 0x8000u ? -v : v;
}

static inline double case_value(int type, uint32_t bits)
{
    return type == CASE_F32    ? (double)case_float(bits)
           : type == CASE_BF16 ? case_small(bits, 7, 255)
                               : case_small(bits, 10, 31);
}

/* The 16-bit number nearest to v, of two the even one. Numbers of one sign stand in their order, so a search finds it;
 * infinity stands where the next number would. */
static inline uint32_t case_nearest(int type, double v)
{
    uint32_t infinity = type == CASE_BF16 ? 0x7f80u : 0x7c00u, sign = signbit(v) ? 0x8000u : 0, low = 0,
             high = infinity;
    double top = type == CASE_BF16 ? 0x1p128 : 0x1p16, size = fabs(v);

    if (isnan(v))
        return 0x7fffu;
    if (size >= top)
        return sign | infinity;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (case_value(type, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - case_value(type, low), above = (high == infinity ? top : case_value(type, high)) - size;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

static inline uint32_t case_load(int type, const unsigned char *p, size_t i)
{
    uint32_t u = 0;
    memcpy(&u, p + i * case_bytes(type), case_bytes(type));
    return u;
}

static inline void case_store(int type, unsigned char *p, size_t i, uint32_t bits)
{
    memcpy(p + i * case_bytes(type), &bits, case_bytes(type));
}

static inline uint64_t case_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Magnitudes differ by up to 2^12, so that the order of a sum shows in its last digits. */
static inline uint32_t case_spread(int type, uint64_t x)
{
    float f = ldexpf((float)(int64_t)(x >> 32) - 0x1p31f, -31 + (int)(x % 13) - 6);
    return type == CASE_F32 ? case_bits(f) : case_nearest(type, (double)f);
}

static inline uint32_t case_special(int type, uint64_t x)
{
    static const uint32_t all[CASE_TYPES][16] = {{0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffff, 0x7f81, 1, 0x8001, 0x7f,
                                                  0x80, 0x7f7f, 0xff7f, 0x3f80, 0x3b80, 0xbf80},
                                                 {0, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0xffff, 0x7c01, 1, 0x8001, 0x3ff,
                                                  0x400, 0x7bff, 0xfbff, 0x3c00, 0x4c00, 0xbc00},
                                                 {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffffffff,
                                                  0x7f800001, 1, 0x80000001, 0x7fffff, 0x800000, 0x7f7fffff, 0xff7fffff,
                                                  0x3f800000, 0x33800000, 0xbf800000}};
    /* Finite ones mostly, so that sums do not all become NaN. */
    unsigned i = (unsigned)(x % 64);
    return all[type][i < 16 ? i : i % 8 < 2 ? i % 8 : 7 + i % 9];
}

static inline uint32_t case_any(const struct reduce_case *c, uint64_t x)
{
    return c->type == CASE_BYTE          ? (uint32_t)(x >> 32)
           : c->values == VALUES_SPREAD  ? case_spread(c->type, x)
           : c->values == VALUES_SPECIAL ? case_special(c->type, x)
                                         : (uint32_t)(x >> 32);
}

/* Of `n` contributions' i-th elements. */
static inline uint32_t case_sum(const struct reduce_case *c, const unsigned char *arena, size_t i)
{
    if (c->type == CASE_BYTE)
        return case_load(c->type, arena + case_at(c, 0), i);
    float total = (float)case_value(c->type, case_load(c->type, arena + case_at(c, 0), i));
    for (int r = 1; r < c->n; r++)
        total = (float)((double)total + case_value(c->type, case_load(c->type, arena + case_at(c, r), i)));
    if (c->divisor != 1)
        total = (float)((double)total / (double)c->divisor);
    return c->type == CASE_F32 ? case_bits(total) : case_nearest(c->type, (double)total);
}

/* ---- one case ---- */

static inline bool case_same(int type, uint32_t a, uint32_t b)
{
    return a == b || (type != CASE_BYTE && isnan(case_value(type, a)) && isnan(case_value(type, b)));
}

static inline const char *case_name(const struct reduce_case *c)
{
    static char text[160];
    snprintf(text, sizeof text, "%s n %d count %zu blocks %u divisor %g values %d in place %d, %zu and %zu off",
             case_type_names[c->type], c->n, c->count, c->blocks, (double)c->divisor, (int)c->values, c->in_place,
             c->offset[0], c->offset[CASE_RANKS]);
    return text;
}

/* Returns NULL, or what is wrong. */
static inline const char *case_try(struct reduce_case *c, case_run *run)
{
    static char text[320];
    uint64_t seed = c->count * 977 + (uint64_t)c->n * 31 + (uint64_t)c->type;
    size_t most = 0, bytes, at, wrong = 0;

    for (int r = 0; r <= CASE_RANKS + 1; r++)
        most = c->offset[r] > most ? c->offset[r] : most;
    c->span = ((c->count + most) * case_bytes(c->type) + 2 * CASE_GUARD + 63) / 64 * 64;
    bytes = (size_t)(c->n + 2) * c->span;
    unsigned char *arena = malloc(bytes), *expected = malloc(bytes);
    if (!arena || !expected)
        abort();
    memset(arena, 0xa5, bytes);
    for (int r = 0; r < c->n; r++)
        for (size_t i = 0; i < c->count; i++)
            case_store(c->type, arena + case_at(c, r), i, case_any(c, case_random(&seed)));
    memcpy(expected, arena, bytes);
    for (size_t i = 0; i < c->count; i++)
        case_store(c->type, expected + case_at(c, c->n), i, case_sum(c, arena, i));
    run(c, arena, bytes);
    *text = 0;
    if (c->also && memcmp(arena + case_at(c, c->n), arena + case_at(c, c->n + 1), c->count * case_bytes(c->type)) != 0)
        snprintf(text, sizeof text, "%s: the second place has something else", case_name(c));
    if (c->also)
        memcpy(expected + case_at(c, c->n + 1), arena + case_at(c, c->n + 1), c->count * case_bytes(c->type));
    for (size_t i = 0; i < c->count; i++) {
        uint32_t got = case_load(c->type, arena + case_at(c, c->n), i);
        uint32_t want = case_load(c->type, expected + case_at(c, c->n), i);
        if (!case_same(c->type, got, want) && wrong++ == 0)
            snprintf(text, sizeof text, "%s: element %zu is %#x, not %#x", case_name(c), i, got, want);
        case_store(c->type, expected + case_at(c, c->n), i, got);
    }
    for (at = 0; at < bytes && arena[at] == expected[at]; at++)
        ;
    if (!*text && at < bytes)
        snprintf(text, sizeof text, "%s: byte %zu of the arena was changed", case_name(c), at);
    free(arena);
    free(expected);
    return *text ? text : NULL;
}

/* ---- all of them ---- */

enum alignment { ALIKE_16, ALIKE, OUT_APART, IN_APART, ALSO_APART, ALIGNMENTS };

static inline void case_align(struct reduce_case *c, enum alignment how)
{
    for (int r = 0; r <= CASE_RANKS + 1; r++)
        c->offset[r] = how == ALIKE_16                            ? 0
                       : how == OUT_APART && r == CASE_RANKS      ? 1
                       : how == ALSO_APART && r == CASE_RANKS + 1 ? 1
                       : how == IN_APART && r && r == c->n - 1    ? 2
                                                                  : 3;
}

/* Of one type, with n contributions: all values, alignments and places; of long sums some. */
static inline const char *case_try_shapes(int type, int n, size_t count, case_run *run)
{
    const int places[] = {-1, 0, n - 1};
    const char *wrong = NULL;
    for (int i = 0; i < VALUES_KINDS * ALIGNMENTS * 3 && !wrong; i += count > 4000 && type != CASE_BYTE ? 5 : 1) {
        struct reduce_case c = {.type = type, .n = n, .count = count, .values = (enum values)(i / 3 / ALIGNMENTS)};
        c.in_place = places[i % 3];
        c.blocks = ((unsigned)count + (unsigned)i) % 5;
        c.divisor = i % 2 ? (float)n : 1.0f;
        c.also = type != CASE_BYTE && ((unsigned)i / 2 + count) % 2;
        c.also_at = i % 4 && n > 1 ? (c.in_place + 1) % n : -1;
        case_align(&c, (enum alignment)(i / 3 % ALIGNMENTS));
        wrong = case_try(&c, run);
    }
    return wrong;
}

/* 2051 fp32 values are a tile of 512 threads times four vectors, or of elements, and more; the last one is several. */
static const size_t case_counts[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 130, 1000, 4099, 20011};

static inline const char *case_try_all(int type, case_run *run)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof case_counts / sizeof *case_counts; i++)
        for (int n = 1; n <= (type == CASE_BYTE ? 1 : 8) && !wrong; n += case_counts[i] > 4000 ? 3 : 1)
            wrong = case_try_shapes(type, n, case_counts[i], run);
    if (!wrong)
        wrong = type == CASE_BYTE ? case_try_shapes(type, 1, 140003, run) : case_try_shapes(type, CASE_RANKS, 45, run);
    return wrong;
}

#endif
