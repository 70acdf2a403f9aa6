/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings.h"
#include "base/wait.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct slr_settings settings;
static struct slr_once parsed;
/* Copies of TEXT values: a program may rewrite its environment (shells do) and free the strings. */
static char text_copy[4 * (SLR_SETTING_TEXT_MAX + 1)];

static void keep_texts(struct slr_settings *s)
{
    size_t used = 0;
    for (int i = 0; i < SLR_S_COUNT; i++) {
        size_t size = strlen(s->text[i]) + 1;
        if (slr_setting_rows[i].kind != SLR_KIND_TEXT)
            continue;
        /* Not before there are five TEXT settings, all of the greatest length. */
        if (size > sizeof text_copy - used) {
            s->text[i] = "";
            continue;
        }
        s->text[i] = memcpy(text_copy + used, s->text[i], size);
        used += size;
    }
}

/* The log needs the settings, so they can not tell their problems themselves. */
static struct slr_setting_problem problems[SLR_SETTING_PROBLEMS];
static int problem_count;

static void note(void *ctx, const char *name, const char *value, const char *expected, const char *nearest)
{
    (void)ctx;
    if (problem_count == SLR_SETTING_PROBLEMS)
        return;
    struct slr_setting_problem *p = &problems[problem_count++];
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->value, sizeof p->value, "%s", value);
    snprintf(p->expected, sizeof p->expected, "%s", expected);
    snprintf(p->nearest, sizeof p->nearest, "%s", nearest ? nearest : "");
}

static void parse_own(void)
{
    int saved = errno;
    if (slr_once_begin(&parsed)) {
        problem_count = 0; /* a child may take over from a parent's thread */
        slr_settings_parse(&settings, environ, note, NULL);
        keep_texts(&settings);
        slr_once_end(&parsed);
    }
    errno = saved;
}

const struct slr_settings *slr_settings(void)
{
    if (__builtin_expect(!slr_once_done(&parsed), 0))
        parse_own();
    return &settings;
}

void slr_settings_off(void)
{
    slr_settings();
    settings.num[SLR_S_ENABLE] = false;
}

const struct slr_setting_problem *slr_settings_problem(int i)
{
    slr_settings();
    return i < problem_count ? &problems[i] : NULL;
}
