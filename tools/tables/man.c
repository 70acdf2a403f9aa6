/* SPDX-License-Identifier: Apache-2.0 */
/* Manual pages, in the macros of man(7): hand-written templates with the tables put in. */
#include "tools/tables/tables.h"
#include "base/status.h"
#include "base/settings.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A hyphen that is none: in names, which people search for and copy, and at the start of a word, as
 * options have it. */
static const char *hyphen(char before, char after, bool name)
{
    bool starts = before == '\0' || strchr(" -[(|`\"", before);
    return name || (starts && (after != ' ' || before == '-')) ? "\\-" : "-";
}

/* What roff would take for its own or turn into a typographic sign. */
static const char *sign(char c)
{
    switch (c) {
    case '\\':
        return "\\e";
    case '`':
        return "\\(ga";
    case '\'':
        return "\\(aq";
    case '"':
        return "\\(dq";
    case '~':
        return "\\(ti";
    case '^':
        return "\\(ha";
    default:
        return NULL;
    }
}

static void put_text(FILE *out, const char *text, bool name)
{
    if (*text == '.') /* not a request */
        fputs("\\&", out);
    for (char before = '\0'; *text; before = *text++)
        if (*text == '-')
            fputs(hyphen(before, text[1], name), out);
        else if (sign(*text))
            fputs(sign(*text), out);
        else
            putc(*text, out);
}

#define WIDTH 78

/* One sentence, or what has to be on lines of its own, in lines of at most WIDTH characters where
 * it has spaces. */
static void put_lines(FILE *out, const char *sentence)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return;
    put_text(to, sentence, false);
    fclose(to);
    for (char *line = text, *rest; line; line = rest) {
        char *end = strlen(line) > WIDTH ? memrchr(line, ' ', WIDTH) : NULL;
        rest = end ? end + 1 : NULL;
        fprintf(out, "%s%.*s\n", *line == '.' && line > text ? "\\&" : "", end ? (int)(end - line) : (int)strlen(line),
                line);
    }
    free(text);
}

/* Each sentence begins a line, so that roff sees where one ends. */
static void put_sentences(FILE *out, const char *text)
{
    char *copy = strdup(text), *at = copy;
    if (!copy)
        return;
    for (char *end; (end = strstr(at, ". ")); at = end + 2) {
        end[1] = '\0';
        put_lines(out, at);
    }
    put_lines(out, at);
    free(copy);
}

static void put_bold(FILE *out, const char *before, const char *name)
{
    fputs("\\fB", out);
    put_text(out, before, true);
    put_text(out, name, true);
    fputs("\\fR", out);
}

static void put_tag(FILE *out, const char *before, const char *name)
{
    fputs(".TP\n", out);
    put_bold(out, before, name);
    putc('\n', out);
}

static void man_setting(FILE *out, const struct slr_setting_row *row)
{
    char line[256], form[160];
    put_tag(out, SLR_SETTING_PREFIX, row->name);
    put_sentences(out, row->doc);
    snprintf(line, sizeof line, "Default: %s; accepted: %s%s.", row->def[0] ? row->def : "empty",
             slr_setting_form(row, form, sizeof form),
             row->scope == SLR_SCOPE_UNIFORM ? "; has to be equal on all ranks" : "");
    fputs(".br\n", out);
    put_sentences(out, line);
}

static void man_settings(FILE *out)
{
    for (int group = 0; group < SLR_GROUPS; group++) {
        fprintf(out, ".SS %s\n", group_title((enum slr_setting_group)group));
        for (int i = 0; i < SLR_S_COUNT; i++)
            if (slr_setting_rows[i].group == (enum slr_setting_group)group)
                man_setting(out, &slr_setting_rows[i]);
    }
}

static void man_reasons(FILE *out)
{
    for (int r = 0; r < SLR_R_COUNT; r++) {
        put_tag(out, "", slr_reason_name(r));
        put_sentences(out, slr_reason_doc(r));
    }
}

static void man_counters(FILE *out)
{
#define X(name, value, doc)                                                                                            \
    put_tag(out, "", #name);                                                                                           \
    put_sentences(out, doc);
#include "base/counters.def"
#undef X
}

static void man_option(FILE *out, const struct option_row *row)
{
    char text[128];
    put_tag(out, "", option_spelled(row, text, sizeof text));
    put_sentences(out, row->help);
    snprintf(text, sizeof text, "Default: %s.", row->fallback);
    if (*row->fallback)
        put_sentences(out, text);
}

static void man_commands(FILE *out)
{
    for (const struct option_row *row = command_rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_COMMAND) {
            fprintf(out, ".SS %s\n", command_name(row));
            put_bold(out, "", row->name);
            putc(' ', out);
            put_text(out, row->value, true);
            fputs("\n.PP\n", out);
            put_sentences(out, row->help);
        } else if (row->kind == OPTION_PARAGRAPH) {
            fputs(".PP\n", out);
            put_sentences(out, row->help);
        } else {
            man_option(out, row);
        }
}

/* The vendors' functions that are hooked by hand; those of the driver are too many for a page. */
static void man_functions(FILE *out)
{
    static const char *const names[] = {
#define N(need, sym) #sym,
#define B(need, sym) #sym,
#define T(need, sym) #sym,
#include "base/hooks.def"
    };
    for (size_t i = 0, n = sizeof names / sizeof *names; i < n; i++)
        fprintf(out, "\\fB%s\\fR%s\n", names[i], i + 1 < n ? "," : ".");
}

static const struct {
    const char *line;
    void (*print)(FILE *out);
} parts[] = {
    {"@commands@\n", man_commands}, {"@settings@\n", man_settings},   {"@reasons@\n", man_reasons},
    {"@counters@\n", man_counters}, {"@functions@\n", man_functions},
};

/* `line` with @version@ and @date@ put in. */
static void put_line(FILE *out, const char *line, const char *date)
{
    for (const char *at; (at = strchr(line, '@')); line = at) {
        fprintf(out, "%.*s", (int)(at - line), line);
        if (strncmp(at, "@version@", 9) == 0) {
            fputs(SLIPRING_VERSION, out);
            at += 9;
        } else if (strncmp(at, "@date@", 6) == 0) {
            fputs(date, out);
            at += 6;
        } else {
            putc(*at++, out);
        }
    }
    fputs(line, out);
}

static bool put_part(FILE *out, const char *line)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(line, parts[i].line) == 0) {
            parts[i].print(out);
            return true;
        }
    return false;
}

int print_page(FILE *out, const char *template, const char *date)
{
    FILE *in = fopen(template, "r");
    if (!in) {
        fprintf(stderr, "slipring-tables: %s: %s\n", template, strerror(errno));
        return 1;
    }
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, in) >= 0)
        if (!put_part(out, line))
            put_line(out, line, date);
    free(line);
    fclose(in);
    return fflush(out) == 0 ? 0 : 1;
}
