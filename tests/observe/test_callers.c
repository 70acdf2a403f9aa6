/* SPDX-License-Identifier: Apache-2.0 */
/* Names of calls as numbers, and those of shapes: bounds, and several threads. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/callers/callers.h"

enum { KEPT = 1024, SHAPES = 256 };

static void nvtx(void)
{
    setenv("SLIPRING_CALLERS", "nvtx", 1);
}

/* The number of a call within this range. */
static uint64_t within(const char *name, uint64_t shape)
{
    slr_ranges_push(0, name);
    const uint64_t caller = slr_caller_now(shape);
    slr_ranges_pop(0);
    return caller;
}

Test(callers, off)
{
    cr_expect_not(slr_callers_on());
    cr_expect_eq(within("x", 1), 0);
    char text[SLR_CALLER_TEXT];
    cr_expect_not(slr_caller_text(0, text));
    cr_expect_str_eq(text, "");
}

Test(callers, the_latest_texts_are_kept)
{
    static uint64_t caller[3000];
    char name[32], text[SLR_CALLER_TEXT];
    nvtx();
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "step %d", i);
        caller[i] = within(name, 1);
        cr_assert_neq(caller[i], 0);
        cr_assert_eq(within(name, 2), caller[i], "the same text, the same number");
    }
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "step %d", i);
        cr_assert_eq(slr_caller_text(caller[i], text), i >= 3000 - KEPT, "%d", i);
        cr_assert_str_eq(text, i >= 3000 - KEPT ? name : "");
    }
    cr_expect_not(slr_caller_text(caller[2999] + 1, text));
    cr_expect_not(slr_caller_text(UINT64_MAX, text));
    /* One that is forgotten comes again. */
    const uint64_t again = within("step 5", 1);
    cr_expect_neq(again, caller[5]);
    cr_expect(slr_caller_text(again, text));
    cr_expect_str_eq(text, "step 5");
    cr_expect(slr_caller_text(slr_caller_now(1), text));
    cr_expect_str_eq(text, "(no range)");
}

Test(callers, shapes_have_their_own_names)
{
    char text[SLR_CALLER_TEXT];
    nvtx();
    const uint64_t a = within("a", 1), b = within("b", 1);
    for (uint64_t shape = 1; shape <= SHAPES; shape++) {
        cr_assert(slr_caller_of_shape(shape, a, text));
        cr_assert_str_eq(text, "a");
        cr_assert_not(slr_caller_of_shape(shape, a, text));
    }
    cr_expect_not(slr_caller_of_shape(SHAPES + 1, a, text), "there is no room for it");
    cr_expect(slr_caller_of_shape(SHAPES, b, text));
    cr_expect_str_eq(text, "b");
    cr_expect_not(slr_caller_of_shape(1, 0, text));
    cr_expect_not(slr_caller_of_shape(1, b + 1, text));
}

Test(callers, what_is_told_of_a_shape_is_bounded)
{
    char name[64], text[SLR_CALLER_TEXT];
    unsigned told = 0, others = 0;
    nvtx();
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "%c%c", 'a' + i % 26, 'a' + i / 26);
        if (slr_caller_of_shape(1, within(name, 1), text)) {
            told++;
            others += strcmp(text, SLR_NAMES_MORE) == 0;
        }
    }
    cr_expect_eq(told, SLR_NAMES + 1);
    cr_expect_eq(others, 1);
    /* Always two more numbers that no other name has, and words in turn: whatever becomes one, there are new ones. */
    unsigned state = 3;
    told = 0;
    for (int i = 0; i < 20000; i++) {
        size_t len = 0;
        for (int k = 0; k < 8; k++) {
            state = state * 1103515245u + 12345u;
            len += (size_t)snprintf(name + len, sizeof name - len, "%u ", (state >> 16) % (k < i / 2000 ? 3u : 1u));
        }
        told += slr_caller_of_shape(2, within(name, 2), text);
    }
    cr_expect_geq(told, SLR_NAMES);
    cr_expect_leq(told, SLR_CALLER_LINES);
}

static void *on_thread(void *arg)
{
    char name[32], text[SLR_CALLER_TEXT];
    for (int i = 0; i < 1500; i++) {
        snprintf(name, sizeof name, "%s %d", (const char *)arg, i);
        const uint64_t caller = within(name, (uint64_t)i % 7);
        if (slr_caller_text(caller, text)) /* others may have made so many meanwhile */
            cr_assert_str_eq(text, name);
        slr_caller_of_shape((uint64_t)i % 7, caller, text);
    }
    return NULL;
}

Test(callers, threads)
{
    static char names[4][4] = {"a", "b", "c", "d"};
    pthread_t thread[4];
    nvtx();
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, on_thread, names[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

Test(callers, mode_stack)
{
    /* All frames of this program are taken for the library's: what is left is where it comes from. */
    char text[SLR_CALLER_TEXT] = "";
    setenv("SLIPRING_CALLERS", "stack", 1);
    const uint64_t caller = within("not looked at", 1);
    if (caller) {
        cr_expect(slr_caller_text(caller, text));
        cr_expect_neq(*text, '\0');
        cr_expect_null(strstr(text, "not looked at"));
    }
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(slr_caller_now(1), caller);
}
