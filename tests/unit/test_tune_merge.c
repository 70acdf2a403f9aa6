/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/tuner/tune_impl.h: what becomes of a tune file's text. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/tuner/tune_impl.h"

/* Of a site that is known by its size; the GEMM has m rows, 0: none. */
static struct slr_tune_site rule(uint64_t bytes, int64_t m, bool nccl)
{
    struct slr_tune_site r = {
        .bytes = {bytes, bytes}, .ranks = {2, 2}, .gpu = "g", .ways = 1, .setup = 1, .nccl = nccl};
    if (m)
        r.consumer = (struct slr_consumer){m, 8, 8, 1, {0, 0}, {0, 0, 0}, SLR_CONSUMER_B};
    return r;
}

static char *line_of(struct slr_tune_site r)
{
    static char line[8][512];
    static int turn;
    char *to = line[turn++ % 8];
    size_t n = slr_tune_site_write(&r, to, sizeof line[0] - 1);
    snprintf(to + n, 2, "\n");
    return to;
}

/* The caller frees it. */
static char *merge(const char *text, const struct slr_tune_site *rules, size_t n)
{
    struct slr_tune_error error = {0};
    char *out;
    size_t len;
    cr_assert_eq(slr_tune_merge(text, strlen(text), rules, n, &out, &len, &error), 0, "%s", error.text);
    cr_assert_eq(strlen(out), len);
    return out;
}

static void expect_merge(const char *text, const struct slr_tune_site *rules, size_t n, const char *want)
{
    char *out = merge(text, rules, n);
    cr_expect_str_eq(out, want);
    free(out);
}

Test(tune_merge, what_is_there_by_hand_stays)
{
    const struct slr_tune_site r = rule(64, 0, true);
    const char *hand =
        "# mine\r\n\n  allgather bytes=1M : channels=4 # best\nsite bytes=64 ranks=2 gpu=g ways=1 setup=1 "
        "gemm=none : way=ring # tuned";
    char want[2048];
    snprintf(want, sizeof want, "%s\n%s", hand, line_of(r));
    expect_merge(hand, &r, 1, want);
}

Test(tune_merge, an_empty_text_gets_a_head)
{
    const struct slr_tune_site r = rule(64, 0, true);
    char *out = merge("", &r, 1);
    cr_assert(out[0] == '#' && strstr(out, "\nsite bytes=64 ") && out[strlen(out) - 1] == '\n');
    free(out);
}

Test(tune_merge, the_same_conditions_are_replaced_and_others_stay)
{
    const struct slr_tune_site old = rule(64, 5, false), other = rule(64, 6, false), size = rule(65, 5, false);
    struct slr_tune_site now = rule(64, 5, false);
    char text[2048], want[2048];
    strcpy(now.cut, "whole");
    snprintf(text, sizeof text, "# a\n%s%s%s# b\n", line_of(old), line_of(other), line_of(size));
    snprintf(want, sizeof want, "# a\n%s%s# b\n%s", line_of(other), line_of(size), line_of(now));
    expect_merge(text, &now, 1, want);
}

/* Ring or NCCL is chosen for all gathers of a site, so both can not be right. */
Test(tune_merge, the_other_choice_of_a_site_goes)
{
    const struct slr_tune_site old = rule(64, 5, false), size = rule(65, 5, false), now = rule(64, 6, true);
    char text[2048], want[2048];
    snprintf(text, sizeof text, "%s%s", line_of(old), line_of(size));
    snprintf(want, sizeof want, "%s%s", line_of(size), line_of(now));
    expect_merge(text, &now, 1, want);
}

Test(tune_merge, the_oldest_go_when_there_are_too_many)
{
    const struct slr_tune_site now[] = {rule(1, 0, true), rule(2, 0, true)};
    char *text = calloc(SLR_TUNE_MOST_KEPT + 1, 200), *at = text;
    at += sprintf(at, "# first\n");
    for (unsigned i = 0; i < SLR_TUNE_MOST_KEPT; i++)
        at += sprintf(at, "%s", line_of(rule(1000 + i, 0, true)));
    char *out = merge(text, now, 2);
    cr_assert(strncmp(out, "# first\n", 8) == 0 && strstr(out, "bytes=1 ") && strstr(out, "bytes=2 "));
    cr_assert(!strstr(out, "bytes=1000 ") && !strstr(out, "bytes=1001 ") && strstr(out, "bytes=1002 "));
    free(out);
    free(text);
}

/* Rules by hand are never taken out for want of room. */
Test(tune_merge, a_full_file_is_left_alone)
{
    const struct slr_tune_site now = rule(1, 0, true);
    char *text = calloc(SLR_TUNE_MAX_RULES + 1, 128), *at = text, *out;
    struct slr_tune_error error = {0};
    size_t len;
    for (unsigned i = 0; i < SLR_TUNE_MAX_RULES; i++)
        at += sprintf(at, "any : channels=1\n");
    cr_assert_lt(slr_tune_merge(text, strlen(text), &now, 1, &out, &len, &error), 0);
    cr_assert(!out && strstr(error.text, "no room"));
    memset(text, 0, 1);
    at = text;
    for (unsigned i = 0; i < SLR_TUNE_MAX_RULES - 1; i++)
        at += sprintf(at, "any : channels=1\n");
    sprintf(at, "%s", line_of(rule(7, 0, true)));
    out = merge(text, &now, 1);
    cr_assert(!strstr(out, "bytes=7 ") && strstr(out, "bytes=1 "));
    free(out);
    free(text);
}

Test(tune_merge, a_file_stays_short_enough_to_be_read)
{
    const struct slr_tune_site now = rule(1, 0, true);
    char *text = malloc(SLR_TUNE_MAX_BYTES + 1), *at = text, *out;
    struct slr_tune_error error = {0};
    size_t len;
    at += sprintf(at, "%s", line_of(rule(7, 0, true)));
    while (text + SLR_TUNE_MAX_BYTES - at > 1000)
        at += sprintf(at, "#%*s\n", 997, "");
    at += sprintf(at, "#%*s\n", (int)(text + SLR_TUNE_MAX_BYTES - at) - 2, "");
    cr_assert_eq(at - text, SLR_TUNE_MAX_BYTES);
    cr_assert_eq(slr_tune_merge(text, SLR_TUNE_MAX_BYTES, &now, 1, &out, &len, &error), 0, "%s", error.text);
    cr_assert(len <= SLR_TUNE_MAX_BYTES && !memmem(out, len, "bytes=7 ", 8) && memmem(out, len, "bytes=1 ", 8));
    free(out);
    memset(text, ' ', 90); /* now there is nothing that could go */
    text[0] = '#';
    cr_assert_lt(slr_tune_merge(text, SLR_TUNE_MAX_BYTES, &now, 1, &out, &len, &error), 0);
    cr_assert_null(out);
    free(text);
}

Test(tune_merge, a_broken_file_is_left_alone)
{
    const struct slr_tune_site now = rule(1, 0, true);
    struct slr_tune_error error;
    char *out = (char *)"";
    size_t len;
    cr_assert_lt(slr_tune_merge("# x\nfly\n", 8, &now, 1, &out, &len, &error), 0);
    cr_assert(!out && error.line == 2);
}
