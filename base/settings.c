/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings: rows, the forms of their values in words, and the values that an environment or a file has. */
#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- rows, by name and by a name that is nearly one ---- */

const struct slr_setting_row slr_setting_rows[SLR_S_COUNT] = {
#define X(id, name, kind, def, min, max, choices, scope, group, doc)                                                   \
    [SLR_S_##id] = {name, SLR_KIND_##kind, def, min, max, choices, SLR_SCOPE_##scope, SLR_GROUP_##group, doc},
#include "base/settings.def"
#undef X
};

const struct slr_setting_row *slr_setting_find(const char *name, size_t len)
{
    for (int i = 0; i < SLR_S_COUNT; i++)
        if (strncmp(slr_setting_rows[i].name, name, len) == 0 && slr_setting_rows[i].name[len] == '\0')
            return &slr_setting_rows[i];
    return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* The usual table of prefixes, of which only the last three rows are kept; the third is for swapped
 * neighbours. */
unsigned slr_edit_distance(const char *a, size_t alen, const char *b, size_t blen, unsigned limit)
{
    /* On the stack: this may run inside an allocation hook. */
    unsigned rows[3][SLR_SETTING_NAME_SIZE + 1];
    if (alen > SLR_SETTING_NAME_SIZE || blen > SLR_SETTING_NAME_SIZE)
        return limit + 1;
    for (size_t j = 0; j <= blen; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= alen; i++) {
        unsigned *now = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= blen; j++) {
            now[j] = least(least(before[j], now[j - 1]) + 1, before[j - 1] + !same_letter(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
                now[j] = least(now[j], two_before[j - 2] + 1);
        }
    }
    return least(rows[alen % 3][blen], limit + 1);
}

/* Names that people bring along from NCCL and other libraries, and what they mean here. */
static const struct {
    const char *name;
    enum slr_setting_id id;
} elsewhere[] = {
    {"DEBUG", SLR_S_LOG},
    {"DEBUG_LEVEL", SLR_S_LOG},
    {"LOG_LEVEL", SLR_S_LOG},
    {"LOGLEVEL", SLR_S_LOG},
    {"VERBOSE", SLR_S_LOG},
    {"VERBOSITY", SLR_S_LOG},
    {"QUIET", SLR_S_LOG},
    {"DEBUG_FILE", SLR_S_LOG_FILE},
    {"LOG_PATH", SLR_S_LOG_FILE},
    {"OUTPUT", SLR_S_LOG_FILE},
    {"LOG_JSON", SLR_S_LOG_FORMAT},
    {"DISABLE", SLR_S_ENABLE},
    {"DETERMINISTIC", SLR_S_STRICT},
    {"CHECK", SLR_S_VERIFY},
    {"THRESHOLD", SLR_S_MIN_BYTES},
    {"MIN_SIZE", SLR_S_MIN_BYTES},
    {"TUNER", SLR_S_TUNE_FILE},
    {"CUDA_GRAPHS", SLR_S_GRAPHS},
    {"TRACE_FILE", SLR_S_LOG_FILE},
};

static const struct slr_setting_row *known_elsewhere(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strlen(elsewhere[i].name) == len && slr_edit_distance(name, len, elsewhere[i].name, len, 0) == 0)
            return &slr_setting_rows[elsewhere[i].id];
    return NULL;
}

/* "Close" is one mistake in four letters, and at least one: a longer list of guesses would be
 * noise. */
const struct slr_setting_row *slr_setting_nearest(const char *name, size_t len)
{
    const struct slr_setting_row *named = known_elsewhere(name, len);
    if (named)
        return named;
    const struct slr_setting_row *best = NULL;
    unsigned limit = len < 8 ? 1 : (unsigned)least((unsigned)len / 4, 4);
    for (int i = 0; i < SLR_S_COUNT; i++) {
        const struct slr_setting_row *row = &slr_setting_rows[i];
        unsigned steps = slr_edit_distance(name, len, row->name, strlen(row->name), limit);
        if (steps > limit)
            continue;
        best = row;
        if (steps == 0)
            break;
        limit = steps - 1; /* only a closer one replaces it */
    }
    return best;
}

/* ---- forms in words ---- */

/* With what stands before it. `buf` has room for any number. */
static const char *bytes_text(char buf[48], const char *before, uint64_t bytes)
{
    static const char suffix[] = {0, 'K', 'M', 'G', 'T'};
    unsigned i = 0;
    bool large = bytes >= 64 * 1024; /* 4096 reads better than 4K */
    while (large && i + 1 < sizeof suffix && bytes % 1024 == 0) {
        bytes /= 1024;
        i++;
    }
    snprintf(buf, 48, "%s%" PRIu64 "%.1s", before, bytes, i ? &suffix[i] : "");
    return buf;
}

static void bytes_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    char least[48], most[48];
    snprintf(buf, size, "a size such as 64M%s%s", row->min > 0 ? bytes_text(least, ", at least ", row->min) : "",
             row->max < UINT64_MAX ? bytes_text(most, ", at most ", row->max) : "");
}

static void choice_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "one of ");
    for (const char *at = row->choices; *at && used < size; at++)
        used += (size_t)snprintf(buf + used, size - used, *at == '|' ? ", " : "%c", *at);
}

const char *slr_setting_form(const struct slr_setting_row *row, char *buf, size_t size)
{
    switch (row->kind) {
    case SLR_KIND_BOOL:
        snprintf(buf, size, "on or off");
        break;
    case SLR_KIND_UINT:
        snprintf(buf, size, "a whole number from %" PRIu64 " to %" PRIu64, row->min, row->max);
        break;
    case SLR_KIND_BYTES:
        bytes_form(row, buf, size);
        break;
    case SLR_KIND_MSEC:
        snprintf(buf, size, "a time such as 500ms, 20s or 2min, from %" PRIu64 "ms to %" PRIu64 "min", row->min,
                 row->max / 60000);
        break;
    case SLR_KIND_CHOICE:
        choice_form(row, buf, size);
        break;
    case SLR_KIND_TEXT:
        snprintf(buf, size, "a text of at most 4095 bytes");
        break;
    }
    return buf;
}
_Static_assert(SLR_SETTING_TEXT_MAX == 4095, "the form of TEXT settings says so");

/* ---- values ---- */

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
    *s = (struct slr_settings){.num = {0}};
    for (int i = 0; i < SLR_S_COUNT; i++) {
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
    struct slr_setting_place place;
};

/* `name`: without the prefix. */
static void tell(const struct parse *p, const char *name, size_t len, const char *value, const char *expected,
                 const struct slr_setting_row *nearest)
{
    char full[2 * SLR_SETTING_NAME_SIZE], near_name[SLR_SETTING_NAME_SIZE];
    if (!p->complain)
        return;
    snprintf(full, sizeof full, SLR_SETTING_PREFIX "%.*s", (int)len, name);
    if (nearest)
        snprintf(near_name, sizeof near_name, SLR_SETTING_PREFIX "%s", nearest->name);
    p->complain(p->ctx, &p->place, full, value, expected, nearest ? near_name : NULL);
}

static void take(const struct parse *p, const char *name, size_t len, const char *value)
{
    const struct slr_setting_row *row = slr_setting_find(name, len);
    char form[160];
    if (!row) {
        tell(p, name, len, value, "a setting that exists (see: slipring env)", slr_setting_nearest(name, len));
        return;
    }
    const size_t i = (size_t)(row - slr_setting_rows);
    if (p->s->settled[i])
        return;
    if (*value && slr_setting_value(row, value, &p->s->num[i]) != 0) {
        tell(p, name, len, value, slr_setting_form(row, form, sizeof form), NULL);
        return;
    }
    p->s->settled[i] = true; /* by an empty value as well: the default, whatever a file says */
    p->s->given[i] = *value != '\0';
    p->s->text[i] = value;
    p->s->place[i] = p->place;
}

void slr_settings_parse(struct slr_settings *s, char *const *envp, slr_settings_complaint complain, void *ctx)
{
    const size_t prefix = sizeof SLR_SETTING_PREFIX - 1;
    struct parse p = {s, complain, ctx, {NULL, 0}};
    set_defaults(s);
    for (char *const *entry = envp; entry && *entry; entry++) {
        const char *name = *entry + prefix, *equals;
        if (strncmp(*entry, SLR_SETTING_PREFIX, prefix) != 0 || !(equals = strchr(name, '=')))
            continue;
        size_t len = (size_t)(equals - name);
        if (!is_launchers(name, len) && !told_before(envp, entry, prefix + len))
            take(&p, name, len, equals + 1);
    }
}

/* ---- what a file holds ---- */

const char *slr_setting_place_text(const struct slr_setting_place *place, char *buf, size_t size)
{
    snprintf(buf, size, place->line ? "%s:%u" : "%s", place->file ? place->file : "environment", place->line);
    return buf;
}

static char *without_blanks(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

static void take_line(const struct parse *p, char *line)
{
    const size_t prefix = sizeof SLR_SETTING_PREFIX - 1;
    char *equals = strchr(line, '='), *name = without_blanks(line);
    if (*name == '\0' || *name == '#')
        return;
    if (equals)
        *equals = '\0';
    name = without_blanks(name);
    name += strncmp(name, SLR_SETTING_PREFIX, prefix) == 0 ? prefix : 0;
    if (!equals)
        tell(p, name, strlen(name), "", "a line NAME=VALUE", NULL);
    else if (strcmp(name, slr_setting_rows[SLR_S_CONF_FILE].name) == 0)
        tell(p, name, strlen(name), equals + 1, "this one only in the environment", NULL);
    else
        take(p, name, strlen(name), without_blanks(equals + 1));
}

void slr_settings_file(struct slr_settings *s, const char *path, char *text, slr_settings_complaint complain, void *ctx)
{
    struct parse p = {s, complain, ctx, {path, 0}};
    for (char *line; (line = strsep(&text, "\n"));) {
        p.place.line++;
        take_line(&p, line);
    }
}
