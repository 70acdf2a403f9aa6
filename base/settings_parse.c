/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings_internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Variables with the prefix that are not settings of the library: the launcher reads or sets them. */
static const char *const launcher_names[] = {"LIB", "TABLES", "SOFTGPU", "LAUNCHER", "RUN"};

struct unit {
    const char *name;
    uint64_t factor;
};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};
#define SIZES(letter, shift)                                                                                           \
    {letter, 1ull << (shift)}, {letter "B", 1ull << (shift)},                                                          \
    {                                                                                                                  \
        letter "iB", 1ull << (shift)                                                                                   \
    }
static const struct unit byte_units[] = {
    {"", 1}, {"B", 1}, SIZES("K", 10), SIZES("M", 20), SIZES("G", 30), SIZES("T", 40), {NULL, 0},
};
static const struct unit time_units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {NULL, 0}};

/* strtoull is not used: it takes "-1" for a large number and depends on the locale. */
static int parse_number(const char *text, const struct unit *units, uint64_t *out)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number))
            return -EINVAL;
    if (at == text)
        return -EINVAL;
    for (; units->name; units++)
        if (strcasecmp(at, units->name) == 0)
            return __builtin_mul_overflow(number, units->factor, out) ? -EINVAL : 0;
    return -EINVAL;
}

/* The position of `text` in "a|b|c". */
static int parse_word(const char *text, const char *choices, uint64_t *out)
{
    size_t want = strlen(text), len;
    uint64_t i = 0;
    for (const char *at = choices; *at; at += len + (at[len] == '|'), i++) {
        len = strcspn(at, "|");
        if (len == want && strncasecmp(at, text, len) == 0) {
            *out = i;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_bool(const char *text, uint64_t *out)
{
    int rc = parse_word(text, "off|on|0|1|no|yes|false|true", out);
    *out &= 1;
    return rc;
}

static int parse_any(const struct slr_setting_row *row, const char *text, uint64_t *value)
{
    switch (row->kind) {
    case SLR_KIND_BOOL:
        return parse_bool(text, value);
    case SLR_KIND_UINT:
        return parse_number(text, no_units, value);
    case SLR_KIND_BYTES:
        return parse_number(text, byte_units, value);
    case SLR_KIND_MSEC:
        return parse_number(text, time_units, value);
    case SLR_KIND_CHOICE:
        return parse_word(text, row->choices, value);
    case SLR_KIND_TEXT:
        return strlen(text) <= SLR_SETTING_TEXT_MAX ? 0 : -EINVAL;
    }
    return -EINVAL;
}

int slr_setting_value(const struct slr_setting_row *row, const char *text, uint64_t *out)
{
    uint64_t value = 0;
    bool ranged = row->kind != SLR_KIND_CHOICE && row->kind != SLR_KIND_TEXT;
    if (parse_any(row, text, &value) || (ranged && (value < row->min || value > row->max)))
        return -EINVAL;
    *out = value;
    return 0;
}

static void set_defaults(struct slr_settings *s)
{
    for (int i = 0; i < SLR_S_COUNT; i++) {
        s->num[i] = 0;
        s->given[i] = false;
        s->text[i] = slr_setting_rows[i].kind == SLR_KIND_TEXT ? slr_setting_rows[i].def : "";
        /* A unit test sees to it that they all parse. */
        slr_setting_value(&slr_setting_rows[i], slr_setting_rows[i].def, &s->num[i]);
    }
}

static bool is_launchers(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof launcher_names / sizeof *launcher_names; i++)
        if (strlen(launcher_names[i]) == len && memcmp(launcher_names[i], name, len) == 0)
            return true;
    return false;
}

/* The environment may hold a name twice; as for getenv, the first counts. */
static bool told_before(char *const *envp, char *const *entry, size_t name_len)
{
    for (; envp < entry; envp++)
        if (strncmp(*envp, *entry, name_len) == 0 && (*envp)[name_len] == '=')
            return true;
    return false;
}

struct parse {
    struct slr_settings *s;
    slr_settings_complaint complain;
    void *ctx;
};

static void tell(const struct parse *p, const char *full, size_t full_len, const char *expected,
                 const struct slr_setting_row *nearest)
{
    char name[2 * SLR_SETTING_NAME_SIZE], near_name[SLR_SETTING_NAME_SIZE];
    if (!p->complain)
        return;
    snprintf(name, sizeof name, "%.*s", (int)full_len, full);
    if (nearest)
        snprintf(near_name, sizeof near_name, SLR_SETTING_PREFIX "%s", nearest->name);
    p->complain(p->ctx, name, full + full_len + 1, expected, nearest ? near_name : NULL);
}

static void take(const struct parse *p, const struct slr_setting_row *row, const char *full, size_t full_len)
{
    size_t i = (size_t)(row - slr_setting_rows);
    const char *value = full + full_len + 1;
    char form[160];
    if (*value == '\0')
        return; /* empty counts as unset */
    p->s->given[i] = slr_setting_value(row, value, &p->s->num[i]) == 0;
    if (!p->s->given[i])
        tell(p, full, full_len, slr_setting_form(row, form, sizeof form), NULL);
    else if (row->kind == SLR_KIND_TEXT)
        p->s->text[i] = value;
}

void slr_settings_parse(struct slr_settings *s, char *const *envp, slr_settings_complaint complain, void *ctx)
{
    const size_t prefix = sizeof SLR_SETTING_PREFIX - 1;
    struct parse p = {s, complain, ctx};
    set_defaults(s);
    for (char *const *entry = envp; entry && *entry; entry++) {
        const char *name = *entry + prefix, *equals;
        if (strncmp(*entry, SLR_SETTING_PREFIX, prefix) != 0 || !(equals = strchr(name, '=')))
            continue;
        size_t len = (size_t)(equals - name);
        if (is_launchers(name, len) || told_before(envp, entry, prefix + len))
            continue;
        const struct slr_setting_row *row = slr_setting_find(name, len);
        if (row)
            take(&p, row, *entry, prefix + len);
        else
            tell(&p, *entry, prefix + len, "a setting that exists (see: slipring env)", slr_setting_nearest(name, len));
    }
}
