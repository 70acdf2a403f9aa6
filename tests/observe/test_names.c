/* SPDX-License-Identifier: Apache-2.0 */
/* The list of who calls a site: what it says, and that its bounds hold. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plugin/callers/callers.h"

static struct slr_names list;

static const char *add(const char *name)
{
    return slr_names_add(&list, name);
}

/* The list is these, in this order. */
static void is(unsigned n, const char *const *names, bool more)
{
    cr_expect_eq(list.count, n, "%u names", list.count);
    for (unsigned i = 0; i < n && i < list.count; i++)
        cr_expect_str_eq(list.name[i], names[i]);
    cr_expect_eq(list.more, more);
}
#define IS(more, ...) is(sizeof(const char *[]){__VA_ARGS__} / sizeof(char *), (const char *[]){__VA_ARGS__}, more)

Test(names, a_name_is_new_once)
{
    cr_expect_str_eq(add("a"), "a");
    cr_expect_null(add("a"));
    cr_expect_str_eq(add("b 1"), "b 1");
    cr_expect_str_eq(add("b 2"), "b 2");
    cr_expect_null(add("b 1"));
    IS(false, "a", "b 1", "b 2");
    slr_names_close(&list);
    cr_expect_eq(list.count, 0);
}

Test(names, layers_become_one_when_there_is_no_room)
{
    char name[64];
    for (int layer = 0; layer < SLR_NAMES; layer++) {
        snprintf(name, sizeof name, "step 1 > layer.%d.attn", layer);
        cr_expect_str_eq(add(name), name);
    }
    cr_expect_str_eq(add("step 1 > layer.8.attn"), "step 1 > layer.*.attn");
    IS(false, "step 1 > layer.*.attn");
    for (int layer = 0; layer < 100; layer++) {
        snprintf(name, sizeof name, "step 1 > layer.%d.attn", layer);
        cr_expect_null(add(name));
    }
    slr_names_close(&list);
}

Test(names, the_number_that_unites_most_goes)
{
    char name[64];
    for (int step = 1; step <= 40; step++)
        for (int layer = 3; layer <= 4; layer++) {
            snprintf(name, sizeof name, "step %d > layer %d", step, layer);
            const char *fresh = add(name);
            if (step <= 4)
                cr_expect_str_eq(fresh, name);
            else if (step == 5 && layer == 3)
                cr_expect_str_eq(fresh, "step * > layer 3");
            else
                cr_expect_null(fresh, "%s", fresh);
        }
    IS(false, "step * > layer 3", "step * > layer 4");
    slr_names_close(&list);
}

Test(names, several_numbers_of_a_name)
{
    /* All differ in both numbers. */
    char name[64];
    for (int i = 0; i <= SLR_NAMES; i++) {
        snprintf(name, sizeof name, "%d of %d", i, 100 + i);
        add(name);
    }
    IS(false, "* of *");
    slr_names_close(&list);
}

Test(names, an_address_is_no_number)
{
    char name[64];
    for (int i = 0; i < SLR_NAMES; i++) {
        snprintf(name, sizeof name, "prog+0x%x1a < 0x", i);
        cr_expect_str_eq(add(name), name);
    }
    cr_expect_str_eq(add("prog+0x91a < 0x"), SLR_NAMES_MORE);
    cr_expect_null(add("prog+0xa1a < 0x"));
    cr_expect_eq(list.count, SLR_NAMES);
    cr_expect(list.more);
    slr_names_close(&list);
}

Test(names, others_are_told_once_and_room_is_found_beside_them)
{
    static const char *const words[] = {"a", "b", "c", "d", "e", "f"};
    for (int i = 0; i < 6; i++)
        add(words[i]);
    add("x 1");
    add("x 2");
    cr_expect_str_eq(add("g"), "g"); /* x 1 and x 2 have become one */
    IS(false, "a", "b", "c", "d", "e", "f", "x *", "g");
    cr_expect_null(add("x 3"));
    cr_expect_str_eq(add("h"), SLR_NAMES_MORE);
    cr_expect_null(add("i"));
    cr_expect_null(add(SLR_NAMES_MORE));
    slr_names_close(&list);
}

Test(names, a_list_of_lists_says_the_same)
{
    /* What one list has said is what another one, of another rank or the report's, is given. */
    struct slr_names other = {0};
    char name[64];
    unsigned lines = 0;
    for (int step = 0; step < 30; step++)
        for (int layer = 0; layer < 12; layer++) {
            snprintf(name, sizeof name, "step%d/layer%d", step, layer);
            const char *fresh = add(name);
            lines += fresh != NULL;
            if (fresh)
                slr_names_add(&other, fresh);
        }
    IS(false, "step*/layer*");
    cr_expect_eq(other.count, 1);
    cr_expect_str_eq(other.name[0], "step*/layer*");
    cr_expect_leq(lines, 64, "%u lines", lines);
    slr_names_close(&list);
    slr_names_close(&other);
}

static unsigned state = 1;

static unsigned below(unsigned n)
{
    state = state * 1103515245u + 12345u;
    return (state >> 16) % n;
}

/* Whether the pattern stands for the text: an independent way, by backtracking. */
static bool stands_for(const char *pattern, const char *text)
{
    if (*pattern == '\0')
        return *text == '\0';
    if (*pattern == '*') {
        const size_t n = strspn(text, "0123456789*");
        for (size_t i = 1; i <= n; i++)
            if (stands_for(pattern + 1, text + i))
                return true;
        return false;
    }
    return *pattern == *text && stands_for(pattern + 1, text + 1);
}

Test(names, whatever_comes_is_covered_or_others)
{
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < 60; i++) {
            char name[48];
            size_t len = 0;
            for (unsigned k = 1 + below(4); k > 0; k--)
                len += (size_t)snprintf(name + len, sizeof name - len, "%c%u", "ab*x"[below(round % 4 + 1)], below(12));
            add(name);
            bool found = list.more;
            for (unsigned k = 0; k < list.count && !found; k++)
                found = stands_for(list.name[k], name);
            cr_assert(found, "%s", name);
            cr_assert_leq(list.count, SLR_NAMES);
        }
        slr_names_close(&list);
    }
}

Test(names, empty_and_long_ones)
{
    char *longest = malloc(5000);
    memset(longest, '7', 4999);
    longest[4999] = '\0';
    cr_expect_str_eq(add(""), "");
    cr_expect_null(add(""));
    cr_expect_str_eq(add(longest), longest);
    cr_expect_null(add(longest));
    slr_names_close(&list);
    free(longest);
}
