/* SPDX-License-Identifier: Apache-2.0 */
/* The part of Criterion's interface that these tests use, for ThreadSanitizer only: Criterion's sandbox maps memory
 * where TSan has its shadow, and crashes. As there, each test is a process of its own; here by a plain fork from a
 * process that has no other thread. */
#ifndef SLR_FORKED_CRITERION_H
#define SLR_FORKED_CRITERION_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct forked_options {
    void (*init)(void), (*fini)(void);
    double timeout;
    bool disabled;
    int signal, exit_code;
};
struct forked_test {
    const char *suite, *name;
    void (*body)(void);
    struct forked_options options;
    struct forked_test *next;
};
struct forked_suite {
    const char *name;
    struct forked_options options;
    struct forked_suite *next;
};

void forked_register(struct forked_test *test);
void forked_register_suite(struct forked_suite *suite);
/* Prints and counts the failure; with `fatal` ends the test. */
__attribute__((format(printf, 5, 6))) void forked_fail(bool fatal, const char *file, int line, const char *what,
                                                       const char *fmt, ...);

#define Test(suite_, name_, ...)                                                                                       \
    static void suite_##_##name_##_impl(void);                                                                         \
    __attribute__((constructor)) static void suite_##_##name_##_register(void)                                         \
    {                                                                                                                  \
        static struct forked_test test = {#suite_, #name_, suite_##_##name_##_impl, {__VA_ARGS__}, NULL};              \
        forked_register(&test);                                                                                        \
    }                                                                                                                  \
    static void suite_##_##name_##_impl(void)

#define TestSuite(suite_, ...)                                                                                         \
    __attribute__((constructor)) static void suite_##_register(void)                                                   \
    {                                                                                                                  \
        static struct forked_suite suite = {#suite_, {__VA_ARGS__}, NULL};                                             \
        forked_register_suite(&suite);                                                                                 \
    }                                                                                                                  \
    _Static_assert(1, "takes the semicolon")

#define FORKED_CHECK(fatal, ok, what, ...)                                                                             \
    do {                                                                                                               \
        if (!(ok))                                                                                                     \
            forked_fail(fatal, __FILE__, __LINE__, what, " " __VA_ARGS__);                                             \
    } while (0)
#define FORKED_OP(fatal, a, op, b, ...) FORKED_CHECK(fatal, (a)op(b), #a " " #op " " #b, __VA_ARGS__)
#define FORKED_STR(fatal, a, op, b, ...) FORKED_CHECK(fatal, strcmp((a), (b)) op 0, #a " " #op " " #b, __VA_ARGS__)
#define FORKED_MEM(fatal, a, op, b, n, ...)                                                                            \
    FORKED_CHECK(fatal, memcmp((a), (b), (n)) op 0, #a " " #op " " #b, __VA_ARGS__)

#define cr_skip_test(...)                                                                                              \
    do {                                                                                                               \
        fprintf(stderr, "skipped: " __VA_ARGS__);                                                                      \
        exit(0);                                                                                                       \
    } while (0)
#define cr_fail(...) FORKED_CHECK(false, false, "fail", __VA_ARGS__)
#define cr_assert_fail(...) FORKED_CHECK(true, false, "fail", __VA_ARGS__)
#define cr_assert(a, ...) FORKED_CHECK(true, a, #a, __VA_ARGS__)
#define cr_expect(a, ...) FORKED_CHECK(false, a, #a, __VA_ARGS__)
#define cr_assert_not(a, ...) FORKED_CHECK(true, !(a), "!" #a, __VA_ARGS__)
#define cr_expect_not(a, ...) FORKED_CHECK(false, !(a), "!" #a, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) FORKED_OP(true, a, ==, b, __VA_ARGS__)
#define cr_expect_eq(a, b, ...) FORKED_OP(false, a, ==, b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) FORKED_OP(true, a, !=, b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) FORKED_OP(false, a, !=, b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) FORKED_OP(true, a, <, b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) FORKED_OP(false, a, <, b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) FORKED_OP(true, a, <=, b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) FORKED_OP(false, a, <=, b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) FORKED_OP(true, a, >, b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) FORKED_OP(false, a, >, b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) FORKED_OP(true, a, >=, b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) FORKED_OP(false, a, >=, b, __VA_ARGS__)
#define cr_assert_null(a, ...) FORKED_OP(true, (const void *)(a), ==, NULL, __VA_ARGS__)
#define cr_expect_null(a, ...) FORKED_OP(false, (const void *)(a), ==, NULL, __VA_ARGS__)
#define cr_assert_not_null(a, ...) FORKED_OP(true, (const void *)(a), !=, NULL, __VA_ARGS__)
#define cr_expect_not_null(a, ...) FORKED_OP(false, (const void *)(a), !=, NULL, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) FORKED_STR(true, a, ==, b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) FORKED_STR(false, a, ==, b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) FORKED_STR(true, a, !=, b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) FORKED_STR(false, a, !=, b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) FORKED_MEM(true, a, ==, b, n, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) FORKED_MEM(false, a, ==, b, n, __VA_ARGS__)
#define cr_assert_arr_neq(a, b, n, ...) FORKED_MEM(true, a, !=, b, n, __VA_ARGS__)
#define cr_expect_arr_neq(a, b, n, ...) FORKED_MEM(false, a, !=, b, n, __VA_ARGS__)

#endif
