/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks as SLIPRING_VERIFY computes them again (kernels/scatter.h): bit by bit against the reference of
 * reduce_cases.h, with all kinds of values; and what it takes for the result of another order. */
#include <criterion/criterion.h>
#include "kernels/scatter.h"
#include "tests/unit/reduce_cases.h"

TestSuite(reduce_check, .timeout = 100);

static const enum slr_reduce_type types[CASE_TYPES] = {SLR_REDUCE_BF16, SLR_REDUCE_F16, SLR_REDUCE_F32};

/* All of a case's sums: the reference's are right, and one bit more is found where it is. */
static void run(const struct reduce_case *c, unsigned char *arena, size_t bytes)
{
    (void)bytes;
    const size_t size = c->count * case_bytes(c->type), at = c->count / 2;
    unsigned char *ours = malloc(size);
    struct slr_checked_sums s = {
        .type = types[c->type], .n = c->n, .divisor = c->divisor, .ours = ours, .other = ours, .count = c->count};
    for (int r = 0; r < c->n; r++)
        s.in[r] = arena + case_at(c, r);
    for (size_t i = 0; i < c->count; i++)
        case_store(c->type, ours, i, case_sum(c, arena, i));
    struct slr_sum_found found = slr_reduce_check(&s);
    cr_assert(found.fault == SLR_SUM_RIGHT, "%s: fault %d, element %zu: %#x, should be %#x", case_name(c),
              (int)found.fault, found.at, found.have, found.want);
    const uint32_t right = case_load(c->type, ours, at);
    case_store(c->type, ours, at, right ^ 1);
    if (!case_same(c->type, right, right ^ 1)) {
        found = slr_reduce_check(&s);
        cr_assert(found.fault == SLR_SUM_BITS && found.at == at && found.have == (right ^ 1), "%s", case_name(c));
        cr_assert(case_same(c->type, found.want, right), "%s", case_name(c));
    }
    case_store(c->type, ours, at, right);
    memcpy(arena + case_at(c, c->n), ours, size);
    if (c->also)
        memcpy(arena + case_at(c, c->n + 1), ours, size);
    free(ours);
}

static void all_cases(int type)
{
    const char *wrong = case_try_all(type, run);
    cr_assert(!wrong, "%s", wrong);
}

Test(reduce_check, bf16)
{
    all_cases(CASE_BF16);
}

Test(reduce_check, f16)
{
    all_cases(CASE_F16);
}

Test(reduce_check, f32)
{
    all_cases(CASE_F32);
}

/* Every number of 16 bits, and every middle of two, is rounded as the reference rounds it: -0 + x is x, and the half of
 * 2x is, too. */
Test(reduce_check, all_of_16_bits)
{
    for (int type = CASE_BF16; type <= CASE_F16; type++)
        for (uint32_t i = 0; i < 0x10000; i++) {
            const uint16_t in[2] = {(uint16_t)i, (uint16_t)case_random(&(uint64_t){i})};
            const double sum = (double)(float)(case_value(type, in[0]) + case_value(type, in[1]));
            const uint16_t want = (uint16_t)case_nearest(type, sum),
                           half = (uint16_t)case_nearest(type, (double)(float)(sum / 2));
            struct slr_checked_sums s = {.type = types[type],
                                         .n = 2,
                                         .divisor = 1,
                                         .in = {&in[0], &in[1]},
                                         .ours = &want,
                                         .other = &want,
                                         .count = 1};
            struct slr_sum_found found = slr_reduce_check(&s);
            cr_assert(found.fault == SLR_SUM_RIGHT, "%#x + %#x: %#x, want %#x", in[0], in[1], want, found.want);
            s.divisor = 2;
            s.ours = s.other = &half;
            found = slr_reduce_check(&s);
            cr_assert(found.fault == SLR_SUM_RIGHT, "(%#x + %#x) / 2: %#x, want %#x", in[0], in[1], half, found.want);
        }
}

/* ---- another order ---- */

static enum slr_sum_fault judge(int type, float divisor, const uint32_t *in, int n, uint32_t other)
{
    uint32_t values[8];
    unsigned char bytes[8][4] = {{0}}, ours[4] = {0}, others[4] = {0};
    struct slr_checked_sums s = {
        .type = types[type], .n = n, .divisor = divisor, .ours = ours, .other = others, .count = 1};
    for (int r = 0; r < n; r++) {
        values[r] = in[r];
        memcpy(bytes[r], &values[r], 4);
        s.in[r] = bytes[r];
    }
    memcpy(others, &other, 4);
    memset(ours, 0, sizeof ours);
    struct slr_sum_found found = slr_reduce_check(&s);
    if (found.fault == SLR_SUM_BITS) { /* which says what ours has to be */
        memcpy(ours, &found.want, 4);
        found = slr_reduce_check(&s);
    }
    return found.fault;
}

static uint32_t in_type(int type, double value)
{
    return type == CASE_F32 ? case_bits((float)value) : case_nearest(type, value);
}

static double rounded(int type, double value)
{
    return case_value(type, in_type(type, value));
}

/* In any order, rounded to the type after each addition; an average multiplies by 1 / n first, or divides at last. */
Test(reduce_check, other_orders)
{
    uint64_t seed = 7;
    for (int i = 0; i < 60000; i++) {
        const int type = i % CASE_TYPES, n = 2 + i / 3 % 7, way = i / 21 % 3;
        uint32_t in[8];
        double v[8];
        for (int r = 0; r < n; r++) {
            in[r] = case_spread(type, case_random(&seed));
            if (i % 5 == 0) /* small ones, which an average makes smaller */
                in[r] = (uint32_t)case_random(&seed) % 200;
            v[r] = case_value(type, in[r]);
            if (way == 1)
                v[r] = rounded(type, v[r] * rounded(type, 1.0 / n));
        }
        for (int left = n; left > 1; left--) { /* any two become one */
            const int a = (int)(case_random(&seed) % (uint64_t)left);
            const double x = v[a];
            v[a] = v[left - 1];
            const int b = (int)(case_random(&seed) % (uint64_t)(left - 1));
            v[b] = rounded(type, v[b] + x);
        }
        const uint32_t other = in_type(type, way == 2 ? v[0] / n : v[0]);
        cr_assert_eq(judge(type, way ? (float)n : 1, in, n, other), SLR_SUM_RIGHT, "%s n %d way %d: %#x",
                     case_type_names[type], n, way, other);
    }
}

/* What no order gives: a contribution that is missing, or there twice, where it is a good part of the sum. */
Test(reduce_check, a_contribution_too_few)
{
    for (int type = 0; type < CASE_TYPES; type++)
        for (int n = 2; n <= 8; n++) {
            uint32_t in[8];
            for (int r = 0; r < n; r++)
                in[r] = in_type(type, 1 + r / 8.0);
            double sum = 0;
            for (int r = 0; r < n; r++)
                sum += case_value(type, in[r]);
            const double last = case_value(type, in[n - 1]);
            cr_assert_eq(judge(type, 1, in, n, in_type(type, sum)), SLR_SUM_RIGHT);
            cr_assert_eq(judge(type, 1, in, n, in_type(type, sum - last)), SLR_SUM_FAR, "%s %d", case_type_names[type],
                         n);
            cr_assert_eq(judge(type, 1, in, n, in_type(type, sum + last)), SLR_SUM_FAR, "%s %d", case_type_names[type],
                         n);
            cr_assert_eq(judge(type, (float)n, in, n, in_type(type, sum / n)), SLR_SUM_RIGHT);
            cr_assert_eq(judge(type, (float)n, in, n, in_type(type, (sum - last) / n)), SLR_SUM_FAR);
        }
}

/* The bound itself: 2 (n + 2) u S / divisor, and not much more. */
Test(reduce_check, the_bound)
{
    const double half_ulp[CASE_TYPES] = {0x1p-8, 0x1p-11, 0x1p-24};
    for (int type = 0; type < CASE_TYPES; type++) {
        const uint32_t in[2] = {in_type(type, 1), in_type(type, -1)};
        const double most = 2 * 4 * half_ulp[type] * 2;
        cr_assert_eq(judge(type, 1, in, 2, in_type(type, most)), SLR_SUM_RIGHT);
        cr_assert_eq(judge(type, 1, in, 2, in_type(type, -most * 1.02)), SLR_SUM_FAR);
        cr_assert_eq(judge(type, 2, in, 2, in_type(type, most / 2)), SLR_SUM_RIGHT);
        cr_assert_eq(judge(type, 2, in, 2, in_type(type, most / 2 * 1.02)), SLR_SUM_FAR);
    }
}

Test(reduce_check, infinities_and_nan)
{
    const double inf = INFINITY, big[CASE_TYPES] = {0x1.8p127, 0x1.8p15, 0x1.8p127};
    for (int type = 0; type < CASE_TYPES; type++) {
        const uint32_t one = in_type(type, 1), up = in_type(type, inf), down = in_type(type, -inf),
                       nan = in_type(type, NAN), large = in_type(type, big[type]), minus = in_type(type, -big[type]);
        const struct {
            uint32_t in[3], other;
            enum slr_sum_fault fault;
        } of[] = {
            {{one, one, one}, nan, SLR_SUM_FAR},        {{one, one, one}, up, SLR_SUM_FAR},
            {{one, nan, one}, nan, SLR_SUM_RIGHT},      {{one, nan, one}, one, SLR_SUM_FAR},
            {{one, nan, up}, up, SLR_SUM_FAR},          {{up, one, down}, nan, SLR_SUM_RIGHT},
            {{up, one, down}, up, SLR_SUM_FAR},         {{up, one, one}, up, SLR_SUM_RIGHT},
            {{up, one, one}, down, SLR_SUM_FAR},        {{down, one, one}, down, SLR_SUM_RIGHT},
            {{down, one, one}, up, SLR_SUM_FAR},        {{up, one, one}, nan, SLR_SUM_FAR},
            {{up, one, one}, large, SLR_SUM_FAR},       {{large, large, minus}, large, SLR_SUM_RIGHT},
            {{large, large, minus}, up, SLR_SUM_RIGHT}, {{large, minus, one}, nan, SLR_SUM_RIGHT},
            {{up, minus, minus}, nan, SLR_SUM_RIGHT},   {{large, large, large}, up, SLR_SUM_RIGHT},
            {{large, minus, one}, large, SLR_SUM_FAR},
        };
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            cr_assert_eq(judge(type, 1, of[i].in, 3, of[i].other), of[i].fault, "%s %zu", case_type_names[type], i);
    }
}

/* The first of several, counted in elements. */
Test(reduce_check, the_first)
{
    float a[100], b[100], ours[100], other[100];
    for (int i = 0; i < 100; i++) {
        a[i] = (float)i;
        b[i] = 1;
        ours[i] = other[i] = (float)(i + 1);
    }
    const struct slr_checked_sums s = {
        .type = SLR_REDUCE_F32, .n = 2, .divisor = 1, .in = {a, b}, .ours = ours, .other = other, .count = 100};
    other[41] = 3;
    ours[42] = 7;
    struct slr_sum_found found = slr_reduce_check(&s);
    cr_assert(found.fault == SLR_SUM_FAR && found.at == 41 && found.have == case_bits(42) &&
              found.want == case_bits(3));
    other[41] = 42;
    found = slr_reduce_check(&s);
    cr_assert(found.fault == SLR_SUM_BITS && found.at == 42 && found.have == case_bits(7) &&
              found.want == case_bits(43));
}

/* A thread of the program's may flush subnormal numbers and round as it likes. */
#if defined(__x86_64__)
static unsigned mode(unsigned set)
{
    unsigned was;
    __asm__ volatile("stmxcsr %0" : "=m"(was) : : "memory");
    __asm__ volatile("ldmxcsr %0" : : "m"(set) : "memory");
    return was;
}

Test(reduce_check, whatever_the_thread_does)
{
    const uint32_t in[2] = {1, 0x3f800000}, third[2] = {3, 0x3f800001}; /* 2^-149 + 2^-149 * 3; 1 + 1 + 2^-23 */
    const uint32_t sum[2] = {4, 0x40000000};                            /* which is 2, rounded to even */
    for (unsigned bits = 0; bits < 8; bits++) {
        const unsigned set = 0x1f80 | (bits & 1 ? 0x8040 : 0) | (bits >> 1) << 13;
        const struct slr_checked_sums s = {
            .type = SLR_REDUCE_F32, .n = 2, .divisor = 1, .in = {in, third}, .ours = sum, .other = sum, .count = 2};
        const unsigned was = mode(set);
        const struct slr_sum_found found = slr_reduce_check(&s);
        const unsigned left = mode(was);
        cr_assert_eq(found.fault, SLR_SUM_RIGHT, "mode %#x: element %zu", set, found.at);
        cr_assert_eq(left & 0xffc0, set, "the mode was left as %#x", left);
    }
}
#endif
