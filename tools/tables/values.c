/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tables/tables.h"
#include "base/settings.h"
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static void put_scaled(FILE *out, uint64_t value, const uint64_t *factors, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (value >= factors[i] && value % factors[i] == 0) {
            fprintf(out, "%" PRIu64 "%s", value / factors[i], names[i]);
            return;
        }
    fprintf(out, "%" PRIu64, value);
}

static void put_bytes(FILE *out, uint64_t value)
{
    static const uint64_t factors[] = {1ull << 40, 1ull << 30, 1ull << 20, 1ull << 10};
    static const char *const names[] = {"T", "G", "M", "K"};
    put_scaled(out, value, factors, names, 4);
}

static void put_time(FILE *out, uint64_t value)
{
    static const uint64_t factors[] = {60000, 1000, 1};
    static const char *const names[] = {"min", "s", "ms"};
    put_scaled(out, value, factors, names, 3);
}

static void put_choice(FILE *out, const char *choices, uint64_t index)
{
    for (; index > 0; index--)
        choices += strcspn(choices, "|") + 1;
    fprintf(out, "%.*s", (int)strcspn(choices, "|"), choices);
}

void put_value(FILE *out, const struct slr_settings *s, int i)
{
    const struct slr_setting_row *row = &slr_setting_rows[i];
    switch (row->kind) {
    case SLR_KIND_BOOL:
        fputs(s->num[i] ? "on" : "off", out);
        break;
    case SLR_KIND_UINT:
        fprintf(out, "%" PRIu64, s->num[i]);
        break;
    case SLR_KIND_BYTES:
        put_bytes(out, s->num[i]);
        break;
    case SLR_KIND_MSEC:
        put_time(out, s->num[i]);
        break;
    case SLR_KIND_CHOICE:
        put_choice(out, row->choices, s->num[i]);
        break;
    case SLR_KIND_TEXT:
        fputs(s->text[i], out);
        break;
    }
}

static void complain(void *ctx, const struct slr_setting_place *place, const char *name, const char *value,
                     const char *expected, const char *nearest)
{
    struct values *v = ctx;
    const char *bare = name + sizeof SLR_SETTING_PREFIX - 1;
    const struct slr_setting_row *row = slr_setting_find(bare, strlen(bare));
    char where[PATH_MAX + 16];
    if (row && !v->refused[row - slr_setting_rows])
        v->refused[row - slr_setting_rows] = value;
    fputs("slipring: ", stderr);
    if (place->file)
        fprintf(stderr, "%s: ", slr_setting_place_text(place, where, sizeof where));
    fprintf(stderr, "%s%s%s is ignored; expected: %s", name, *value ? "=" : "", value, expected);
    fprintf(stderr, nearest ? "; did you mean %s?\n" : "%s\n", nearest ? nearest : "");
}

void values_read(struct values *v)
{
    *v = (struct values){.refused = {NULL}};
    slr_settings_parse(&v->now, environ, complain, v);
    slr_settings_files(&v->now, environ, complain, v);
}

void print_from_files(FILE *out)
{
    static struct slr_settings s;
    slr_settings_parse(&s, environ, NULL, NULL);
    slr_settings_files(&s, environ, NULL, NULL);
    for (int i = 0; i < SLR_S_COUNT; i++)
        if (s.given[i] && s.place[i].file)
            fprintf(out, SLR_SETTING_PREFIX "%s=%s\n", slr_setting_rows[i].name, s.text[i]);
}

/* The name as the table has it: with or without the prefix, any letter case, '-' for '_'. */
static size_t canonical_name(char *name, size_t size, const char *text, size_t len)
{
    const size_t prefix = sizeof SLR_SETTING_PREFIX - 1;
    if (len > prefix && strncasecmp(text, SLR_SETTING_PREFIX, prefix) == 0) {
        text += prefix;
        len -= prefix;
    }
    if (len >= size)
        len = size - 1;
    for (size_t i = 0; i < len; i++)
        name[i] = text[i] == '-' ? '_' : (char)toupper((unsigned char)text[i]);
    name[len] = '\0';
    return len;
}

static int unknown_name(const char *name, size_t len)
{
    const struct slr_setting_row *nearest = slr_setting_nearest(name, len);
    fprintf(stderr, "slipring: there is no setting %s", name);
    if (nearest)
        fprintf(stderr, "; did you mean %s?\n", nearest->name);
    else
        fputs("; `slipring env` lists all\n", stderr);
    return 2;
}

int check_assignment(const char *assignment)
{
    char name[SLR_SETTING_NAME_SIZE], form[160];
    const char *equals = strchr(assignment, '=');
    uint64_t value;
    if (!equals || equals == assignment) {
        fprintf(stderr, "slipring: --set takes NAME=VALUE, not \"%s\"\n", assignment);
        return 2;
    }
    size_t len = canonical_name(name, sizeof name, assignment, (size_t)(equals - assignment));
    const struct slr_setting_row *row = slr_setting_find(name, len);
    if (!row)
        return unknown_name(name, len);
    if (equals[1] && slr_setting_value(row, equals + 1, &value)) {
        fprintf(stderr, "slipring: %s=%s: expected %s\n", name, equals + 1, slr_setting_form(row, form, sizeof form));
        return 2;
    }
    printf(SLR_SETTING_PREFIX "%s=%s\n", name, equals + 1);
    return 0;
}
