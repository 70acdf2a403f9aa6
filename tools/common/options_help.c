/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/options_help.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/common/vec.h"

enum {
    WIDTH = 100,
    COLUMN_MOST = 28, /* where meanings begin; an option that is longer has a line of its own */
};

const char *option_name(const struct option_row *row, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s", *row->name == '_' ? "" : "--", row->name);
    for (char *at = buf; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return buf;
}

const char *option_spelled(const struct option_row *row, char *buf, size_t size)
{
    char name[OPTION_ROOM / 2]; /* gcc -O3 wants to see that the rest has room */
    snprintf(buf, size, "%s%s%s", option_name(row, name, sizeof name), *row->value && *row->value != '[' ? " " : "",
             row->value);
    return buf;
}

const char *option_choice(const struct option_row *row, int index, char *buf, size_t size)
{
    const char *at = row->value;
    while (index-- > 0 && strchr(at, '|'))
        at = strchr(at, '|') + 1;
    snprintf(buf, size, "%.*s", (int)strcspn(at, "|"), at);
    return buf;
}

const char *option_expected(const struct option_row *row, char *buf, size_t size)
{
    const char *what = row->kind == OPTION_WHOLE ? "a whole number" : "a number";
    if (row->kind == OPTION_CHOICE)
        snprintf(buf, size, "one of %s", row->value);
    else if (row->low == LONG_MIN)
        snprintf(buf, size, "%s", what);
    else if (row->high == LONG_MAX)
        snprintf(buf, size, "%s from %ld on", what, row->low);
    else
        snprintf(buf, size, "%s from %ld to %ld", what, row->low, row->high);
    return buf;
}

int options_wrong(const struct option_row *rows, const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "%s: ", rows->name);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputs(" (see --help)\n", stderr);
    return (int)rows->low;
}

int options_no_such(const struct option_row *rows, const char *word)
{
    char spelled[OPTION_ROOM];
    const char *comma = "";
    fprintf(stderr, "%s: there is no option: %s; expected", rows->name, word);
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (is_option(row)) {
            fprintf(stderr, "%s %s", comma, option_spelled(row, spelled, sizeof spelled));
            comma = ",";
        }
    fputs(" (see --help)\n", stderr);
    return (int)rows->low;
}

/* A text of the manual, which begins with a small letter behind the command's name there. */
static void put_sentence(FILE *to, const char *text)
{
    char *copy = tool_copy(text);
    copy[0] = (char)toupper((unsigned char)copy[0]);
    fputc('\n', to);
    utf8_wrap(to, copy, 0, 0, WIDTH);
    free(copy);
}

static size_t column_of(const struct option_row *rows)
{
    size_t column = 0;
    char spelled[OPTION_ROOM];
    for (; rows->kind != OPTION_END; rows++) {
        size_t end = is_option(rows) ? strlen(option_spelled(rows, spelled, sizeof spelled)) + 4 : 0;
        column = end > column && end <= COLUMN_MOST ? end : column;
    }
    return column;
}

static void put_option(FILE *to, const struct option_row *row, size_t column)
{
    char spelled[OPTION_ROOM];
    size_t at = (size_t)fprintf(to, "  %s", option_spelled(row, spelled, sizeof spelled));
    char *text = *row->fallback ? tool_text("%s Default: %s.", row->help, row->fallback) : tool_copy(row->help);
    if (at + 2 > column) {
        fputc('\n', to);
        at = 0;
    }
    fprintf(to, "%*s", (int)(column - at), "");
    utf8_wrap(to, text, (unsigned)column, (unsigned)column, WIDTH);
    free(text);
}

int options_help(const struct option_row *rows, FILE *to)
{
    size_t column = column_of(rows);
    fprintf(to, "usage: %s %s\n", rows->name, rows->value);
    put_sentence(to, rows->help);
    fputc('\n', to);
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (is_option(row))
            put_option(to, row, column);
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_PARAGRAPH)
            put_sentence(to, row->help);
    return fflush(to) == 0 ? 0 : -1;
}
