/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges of a thread as NVTX tells them, through the injection: what the text says, levels, bounds, threads. Each test
 * is a process of its own, so settings are read anew. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/settings.h"
#include "named_nvtx_own.h"
#include "plugin/callers/callers.h"
#include "plugin/abi/nvtx.h"

enum { ROOM = 512 };

static const char *text(void)
{
    static _Thread_local char buf[ROOM];
    slr_ranges_text(buf, sizeof buf);
    return buf;
}

static int attach(const char *setting)
{
    if (setting)
        setenv("SLIPRING_CALLERS", setting, 1);
    return InitializeInjectionNvtx2(own_get);
}

/* The functions as the instance then calls them. */
#define PUSH(t) ((int (*)(const char *))own_core[SLR_NVTX_RANGE_PUSH_A])(t)
#define PUSH_W(t) ((int (*)(const wchar_t *))own_core[SLR_NVTX_RANGE_PUSH_W])(t)
#define PUSH_EX(e) ((int (*)(const struct slr_nvtx_event *))own_core[SLR_NVTX_RANGE_PUSH_EX])(e)
#define POP() ((int (*)(void))own_core[SLR_NVTX_RANGE_POP])()
#define D_PUSH(d, e)                                                                                                   \
    ((int (*)(const void *, const struct slr_nvtx_event *))own_core2[SLR_NVTX_DOMAIN_RANGE_PUSH_EX])(d, e)
#define D_POP(d) ((int (*)(const void *))own_core2[SLR_NVTX_DOMAIN_RANGE_POP])(d)
#define CREATE(name) ((const void *(*)(const char *))own_core2[SLR_NVTX_DOMAIN_CREATE_A])(name)
#define CREATE_W(name) ((const void *(*)(const wchar_t *))own_core2[SLR_NVTX_DOMAIN_CREATE_W])(name)
#define REGISTER(t) ((const void *(*)(const void *, const char *))own_core2[SLR_NVTX_REGISTER_STRING_A])(NULL, t)
#define REGISTER_W(t) ((const void *(*)(const void *, const wchar_t *))own_core2[SLR_NVTX_REGISTER_STRING_W])(NULL, t)

static struct slr_nvtx_event ascii(const char *message)
{
    return (struct slr_nvtx_event){
        .version = 3, .size = sizeof(struct slr_nvtx_event), .message_type = SLR_NVTX_ASCII, .message.ascii = message};
}

static struct slr_nvtx_event registered(const void *handle)
{
    struct slr_nvtx_event e = ascii(NULL);
    e.message_type = SLR_NVTX_REGISTERED;
    e.message.registered = handle;
    return e;
}

Test(ranges, off)
{
    cr_expect_eq(attach("off"), 0);
    cr_expect_null(own_core[SLR_NVTX_RANGE_PUSH_A]);
}

Test(ranges, no_by_default)
{
    unsetenv("SLIPRING_CALLERS");
    cr_expect_eq(attach(NULL), 0);
}

Test(ranges, not_in_mode_stack)
{
    cr_expect_eq(attach("stack"), 0);
    cr_expect_null(own_core2[SLR_NVTX_DOMAIN_RANGE_POP]);
}

Test(ranges, a_bad_value_is_off)
{
    cr_expect_eq(attach("nvtx3"), 0);
    cr_expect_str_eq(slr_settings_problem(0)->name, "SLIPRING_CALLERS");
    cr_expect_str_eq(slr_settings_problem(0)->expected, "one of off, nvtx, stack");
}

Test(ranges, switched_off)
{
    setenv("SLIPRING_ENABLE", "off", 1);
    cr_expect_eq(attach("nvtx"), 0);
}

static unsigned table_size;
static int short_module(enum slr_nvtx_module module, slr_nvtx_table *table, unsigned *n)
{
    int there = own_module(module, table, n);
    *n = table_size;
    return there;
}
static int no_module(enum slr_nvtx_module module, slr_nvtx_table *table, unsigned *n)
{
    (void)module, (void)table, (void)n;
    return 0;
}
static struct slr_nvtx_callbacks callbacks;
static const void *get(uint32_t which)
{
    return which == SLR_NVTX_TABLE_CALLBACKS && callbacks.size ? &callbacks : NULL;
}

Test(ranges, tables_that_lack_something)
{
    setenv("SLIPRING_CALLERS", "nvtx", 1);
    cr_expect_eq(InitializeInjectionNvtx2(NULL), 0);
    cr_expect_eq(InitializeInjectionNvtx2(get), 0);
    callbacks = (struct slr_nvtx_callbacks){sizeof callbacks, no_module};
    cr_expect_eq(InitializeInjectionNvtx2(get), 0);
    callbacks = (struct slr_nvtx_callbacks){sizeof callbacks - 1, own_module};
    cr_expect_eq(InitializeInjectionNvtx2(get), 0);
    callbacks = (struct slr_nvtx_callbacks){sizeof callbacks, NULL};
    cr_expect_eq(InitializeInjectionNvtx2(get), 0);
    /* Push without pop is not taken. */
    callbacks = (struct slr_nvtx_callbacks){sizeof callbacks, short_module};
    table_size = SLR_NVTX_DOMAIN_RANGE_POP;
    cr_expect_eq(InitializeInjectionNvtx2(get), 0);
    cr_expect_null(own_core[SLR_NVTX_RANGE_PUSH_A]);
    cr_expect_null(own_core2[SLR_NVTX_DOMAIN_RANGE_PUSH_EX]);
    /* A version that has the default domain's functions only. */
    table_size = SLR_NVTX_RANGE_POP + 1;
    cr_expect_eq(InitializeInjectionNvtx2(get), 1);
    cr_expect_not_null(own_core[SLR_NVTX_RANGE_POP]);
    cr_expect_null(own_core2[SLR_NVTX_DOMAIN_CREATE_A]);
    callbacks.get_module = own_module;
    cr_expect_eq(InitializeInjectionNvtx2(get), 1);
    cr_expect_not_null(own_core2[SLR_NVTX_DOMAIN_CREATE_A]);
}

Test(ranges, nesting_and_levels)
{
    cr_assert_eq(attach("NVTX"), 1);
    cr_expect_str_eq(text(), "");
    cr_expect_eq(PUSH("step 1"), 0);
    cr_expect_eq(PUSH("layer 3"), 1);
    cr_expect_str_eq(text(), "step 1 > layer 3");
    cr_expect_eq(POP(), 1);
    cr_expect_str_eq(text(), "step 1");
    cr_expect_eq(POP(), 0);
    cr_expect_str_eq(text(), "");
    cr_expect_eq(POP(), SLR_NVTX_NO_LEVEL); /* one too many */
    cr_expect_eq(POP(), SLR_NVTX_NO_LEVEL);
    cr_expect_eq(PUSH("again"), 0);
    cr_expect_str_eq(text(), "again");
}

Test(ranges, a_name_is_copied)
{
    char name[] = "before";
    cr_assert_eq(attach("nvtx"), 1);
    PUSH(name);
    memset(name, 'x', sizeof name - 1);
    cr_expect_str_eq(text(), "before");
}

Test(ranges, domains_pop_their_own)
{
    cr_assert_eq(attach("nvtx"), 1);
    const void *a = CREATE("a"), *b = CREATE_W(L"b\u00df"), *again = CREATE("a");
    struct slr_nvtx_event one = ascii("one"), two = ascii("two");
    cr_expect_eq(a, again);
    cr_expect_neq(a, b);
    PUSH("outer");
    cr_expect_eq(D_PUSH(a, &one), 0);
    cr_expect_eq(D_PUSH(b, &two), 0);
    cr_expect_eq(D_PUSH(a, &two), 1);
    cr_expect_str_eq(text(), "outer > a:one > b\u00df:two > a:two");
    cr_expect_eq(D_POP(b), 0);
    cr_expect_str_eq(text(), "outer > a:one > a:two");
    cr_expect_eq(D_POP(b), SLR_NVTX_NO_LEVEL);
    cr_expect_eq(D_POP(NULL), 0); /* the default domain */
    cr_expect_str_eq(text(), "a:one > a:two");
    cr_expect_eq(D_POP(a), 1);
    cr_expect_str_eq(text(), "a:one");
}

Test(ranges, all_kinds_of_messages)
{
    cr_assert_eq(attach("nvtx"), 1);
    const void *known = REGISTER("registered"), *wide = REGISTER_W(L"gr\u00f6\u00dfer \U0001f600");
    struct slr_nvtx_event e = registered(known);
    cr_expect_eq(PUSH_EX(&e), 0);
    e = registered(wide);
    PUSH_EX(&e);
    cr_expect_str_eq(text(), "registered > gr\u00f6\u00dfer \U0001f600");
    POP();
    POP();
    PUSH_W(L"\u20ac");
    wchar_t lone[] = {0xd800, 0x110000, 'z', 0}; /* no characters */
    PUSH_W(lone);
    cr_expect_str_eq(text(), "\u20ac > \ufffd\ufffdz");
    POP();
    POP();
    /* Nothing to show; none of these may be followed. */
    struct slr_nvtx_event none[] = {registered(NULL), registered(&none), ascii(NULL),
                                    ascii("v1"),      ascii("t"),        ascii("")};
    none[3].size = sizeof(struct slr_nvtx_event) - 8;
    none[4].message_type = 9;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        PUSH_EX(&none[i]);
        cr_expect_str_eq(text(), "(no name)", "%zu", i);
        POP();
    }
    PUSH_EX(NULL);
    PUSH(NULL);
    PUSH_W(NULL);
    cr_expect_str_eq(text(), "(no name) > (no name) > (no name)");
}

Test(ranges, long_names_are_cut_between_characters)
{
    char name[400];
    cr_assert_eq(attach("nvtx"), 1);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    PUSH(name);
    cr_expect_eq(strlen(text()), SLR_RANGE_NAME - 1);
    POP();
    memset(name, 'y', 126);
    strcpy(name + 126, "\u20ac");
    PUSH(name);
    cr_expect_eq(strlen(text()), 126);
    cr_expect_eq(text()[125], 'y');
    POP();
    wchar_t wide[200];
    for (int i = 0; i < 199; i++)
        wide[i] = 0x20ac;
    wide[199] = 0;
    PUSH_W(wide);
    cr_expect_eq(strlen(text()) % 3, 0);
    cr_expect_geq(strlen(text()), 120);
    POP();
    const void *long_domain = CREATE(name);
    struct slr_nvtx_event e = ascii("in");
    D_PUSH(long_domain, &e);
    cr_expect_eq(strlen(text()), 47 + 3);
}

Test(ranges, deep_stacks)
{
    char name[160];
    cr_assert_eq(attach("nvtx"), 1);
    const void *d = CREATE("d");
    struct slr_nvtx_event e = ascii("in d");
    for (int i = 0; i < SLR_RANGES; i++) {
        snprintf(name, sizeof name, "%0100d", i);
        cr_expect_eq(PUSH(name), i);
    }
    /* The innermost that fit are shown. */
    cr_expect_eq(strncmp(text(), "... > 000", 9), 0, "%s", text());
    cr_expect_str_eq(text() + strlen(text()) - 2, "63");
    cr_expect_lt(strlen(text()), ROOM);
    /* Above the bound they are counted, by domain. */
    cr_expect_eq(PUSH("one more"), SLR_RANGES);
    cr_expect_eq(D_PUSH(d, &e), 0);
    cr_expect_str_eq(text() + strlen(text()) - 8, "63 > ...");
    cr_expect_eq(D_PUSH(d, &e), 1);
    cr_expect_eq(D_POP(d), 1);
    cr_expect_eq(POP(), SLR_RANGES);
    cr_expect_eq(POP(), SLR_RANGES - 1);
    cr_expect_eq(D_PUSH(d, &e), 1); /* there is room, but the one below is only counted */
    cr_expect_null(strstr(text(), "d:in d"));
    cr_expect_eq(D_POP(d), 1);
    cr_expect_eq(D_POP(d), 0);
    cr_expect_eq(D_POP(d), SLR_NVTX_NO_LEVEL);
    for (int i = SLR_RANGES - 2; i >= 0; i--)
        cr_expect_eq(POP(), i);
    cr_expect_str_eq(text(), "");
    cr_expect_eq(D_PUSH(d, &e), 0);
    cr_expect_str_eq(text(), "d:in d");
}

Test(ranges, many_domains_and_strings)
{
    char name[32];
    const void *last = NULL, *handle = NULL;
    cr_assert_eq(attach("nvtx"), 1);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "domain %d", i);
        last = CREATE(name);
    }
    struct slr_nvtx_event e = ascii("in");
    D_PUSH(last, &e);
    cr_expect_str_eq(text(), "?:in");
    cr_expect_eq(D_POP(last), 0);
    D_PUSH(&e, &e); /* no handle of this tool's */
    cr_expect_str_eq(text(), "?:in");
    D_POP(&e);
    D_PUSH(CREATE("domain 7"), &e);
    cr_expect_str_eq(text(), "domain 7:in");
    D_POP(CREATE("domain 7"));
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "string %d", i);
        const void *h = REGISTER(name);
        handle = i == 4095 ? h : handle;
        last = h;
    }
    e = registered(handle);
    PUSH_EX(&e);
    e = registered(last);
    PUSH_EX(&e);
    cr_expect_str_eq(text(), "string 4095 > (registered string)");
}

/* Random pushes and pops of four domains against a plain stack. */
Test(ranges, as_a_plain_stack)
{
    enum { DOMAINS = 4, DEEP = 200 };
    unsigned state = 7, n = 0, stack[DEEP], above = 0;
    cr_assert_eq(attach("nvtx"), 1);
    const void *domain[DOMAINS] = {NULL, CREATE("1"), CREATE("2"), CREATE("3")};
    struct slr_nvtx_event e = ascii("r");
    for (int i = 0; i < 200000; i++) {
        state = state * 1103515245u + 12345u;
        const unsigned d = (state >> 16) % DOMAINS, level_now = n;
        int level = 0;
        for (unsigned k = 0; k < level_now; k++)
            level += stack[k] == d;
        const bool push = n < DEEP && (state >> 20) % 100 < (i / 2000 % 2 ? 53u : 47u);
        if (push) {
            cr_assert_eq(D_PUSH(domain[d], &e), level);
            stack[n++] = d;
        } else {
            cr_assert_eq(D_POP(domain[d]), level ? level - 1 : SLR_NVTX_NO_LEVEL);
            unsigned at = n;
            while (at > 0 && stack[at - 1] != d)
                at--;
            if (at > 0)
                memmove(&stack[at - 1], &stack[at], (--n - (at - 1)) * sizeof *stack);
        }
        above += n > SLR_RANGES;
        if (n == 0)
            cr_assert_str_eq(text(), "");
    }
    cr_expect_gt(above, 100, "it was never deep");
}

/* ---- threads ---- */

static void *on_thread(void *name)
{
    for (int i = 0; i < 2000; i++) {
        cr_assert_eq(PUSH(name), 0);
        cr_assert_str_eq(text(), name);
        CREATE(i % 2 ? "same" : name);
        cr_assert_eq(POP(), 0);
    }
    PUSH("left open"); /* its memory goes with the thread */
    return NULL;
}

Test(ranges, each_thread_has_its_own)
{
    enum { THREADS = 6 };
    pthread_t thread[THREADS];
    static char names[THREADS][32];
    cr_assert_eq(attach("nvtx"), 1);
    PUSH("main");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < THREADS; i++) {
            snprintf(names[i], sizeof names[i], "thread %d", i);
            cr_assert_eq(pthread_create(&thread[i], NULL, on_thread, names[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
    }
    cr_expect_str_eq(text(), "main");
}

static pthread_key_t late;
static void push_late(void *unused)
{
    (void)unused;
    PUSH("in a destructor");
    cr_assert_str_eq(text(), "in a destructor");
}

static void *ends_late(void *unused)
{
    pthread_setspecific(late, "x");
    PUSH("before");
    return unused;
}

Test(ranges, a_push_while_the_thread_ends)
{
    pthread_t thread;
    cr_assert_eq(attach("nvtx"), 1);
    PUSH("makes the key first: its destructor comes before the program's");
    cr_assert_eq(pthread_key_create(&late, push_late), 0);
    cr_assert_eq(pthread_create(&thread, NULL, ends_late, NULL), 0);
    pthread_join(thread, NULL);
}
