/* SPDX-License-Identifier: Apache-2.0 */
/* The text form: tables with their widest breakable columns narrowed until they fit; one that does not even so is a
 * list of its rows, a line for each cell. */
#include <stdlib.h>
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/report/out.h"

enum { MARGIN = 2, GAP = 2, WORD = 24 }; /* WORD: a longer one may be broken */

/* A copy in which control characters and broken UTF-8 are '?': nothing from a log may steer a
 * terminal. */
static char *clean(const char *text)
{
    char *copy = tool_copy(text);
    for (unsigned n, i = 0; copy[i]; i += n ? n : 1)
        if ((n = utf8_printable(copy + i)) == 0)
            copy[i] = '?';
    return copy;
}

static void heading(struct out *o, const char *title, char line)
{
    char *text = clean(title);
    fprintf(o->to, o->bold ? "\033[1m%s\033[0m\n" : "%s\n", text);
    for (size_t i = utf8_count(text); i > 0; i--)
        fputc(line, o->to);
    fputc('\n', o->to);
    free(text);
}

void text_begin(struct out *o, const char *title)
{
    heading(o, title, '=');
}

void text_section(struct out *o, const char *title)
{
    fputc('\n', o->to);
    heading(o, title, '-');
}

/* Bytes of as much of `text` as fits `width` characters: up to a space if there is one, never
 * nothing. */
static size_t fitting(const char *text, size_t width)
{
    size_t n = 0, chars = 0, space = 0;
    while (text[n]) {
        if (++chars > width)
            return space ? space : n;
        if (text[n] == ' ')
            space = n;
        n += utf8_step(text + n);
    }
    return n;
}

static void spaces(FILE *to, size_t n)
{
    fprintf(to, "%*s", (int)n, "");
}

static size_t columns_of(const struct out *o)
{
    return o->width ? o->width : OUT_WIDTH;
}

void text_wrapped(struct out *o, const char *lead, const char *text)
{
    size_t indent = strlen(lead);
    char *copy = clean(text), *at = copy;
    do {
        size_t n = fitting(at, columns_of(o) - indent);
        if (at == copy)
            fputs(lead, o->to);
        else
            spaces(o->to, indent);
        fprintf(o->to, "%.*s\n", (int)n, at);
        at += n;
        at += strspn(at, " ");
    } while (*at);
    free(copy);
}

static size_t total(const size_t *width, size_t n)
{
    size_t sum = MARGIN;
    for (size_t c = 0; c < n; c++)
        sum += width[c] + (c ? GAP : 0);
    return sum;
}

/* Characters of the longest word. */
static size_t longest_word(const char *text)
{
    size_t most = 0, n = 0;
    for (; *text; text += utf8_step(text)) {
        n = *text == ' ' ? 0 : n + 1;
        most = n > most ? n : most;
    }
    return most;
}

/* `least`: to what a column may be narrowed. Titles may always be broken. */
static void widen(const struct column *c, bool title, size_t *width, size_t *least, const char *text)
{
    const size_t all = utf8_count(text), word = longest_word(text);
    const size_t need = !title && !c->wraps ? all : word < WORD ? word : WORD;
    *width = all > *width ? all : *width;
    *least = need > *least ? need : *least;
}

/* Takes from the widest column that may be narrowed until all fit. False: they do not. */
static bool narrow(const struct table *t, size_t columns, size_t *width, const size_t *least)
{
    while (total(width, t->n) > columns) {
        size_t widest = t->n;
        for (size_t c = 0; c < t->n; c++)
            if (width[c] > least[c] && (widest == t->n || width[c] > width[widest]))
                widest = c;
        if (widest == t->n)
            return false;
        width[widest]--;
    }
    return true;
}

static bool find_widths(const struct out *o, const struct table *t, char *const *cells, size_t n, size_t *width)
{
    size_t *least = tool_alloc(t->n, sizeof *least);
    for (size_t i = 0; i < n; i++)
        widen(&t->columns[i % t->n], i < t->n, &width[i % t->n], &least[i % t->n], cells[i]);
    const bool fits = narrow(t, columns_of(o), width, least);
    free(least);
    return fits;
}

/* Padding on the right is owed to what follows, so that no line ends in spaces. */
static void put_cell(FILE *to, const char *text, size_t n, size_t width, bool right, size_t *owed)
{
    char part[512];
    snprintf(part, sizeof part, "%.*s", (int)n, text);
    size_t pad = width - (utf8_count(part) < width ? utf8_count(part) : width);
    *owed += right ? pad : 0;
    if (*part) {
        spaces(to, *owed);
        fputs(part, to);
        *owed = 0;
    } else {
        *owed += right ? 0 : width - pad;
    }
    *owed += right ? 0 : pad;
}

/* One row, in as many lines as its longest cell needs. `cells` are moved along. */
static void put_row(struct out *o, const struct table *t, const size_t *width, char **cells)
{
    bool more = true;
    while (more) {
        more = false;
        size_t owed = MARGIN;
        for (size_t c = 0; c < t->n; c++) {
            size_t n = fitting(cells[c], width[c]);
            owed += c ? GAP : 0;
            put_cell(o->to, cells[c], n, width[c], t->columns[c].right, &owed);
            cells[c] += n;
            cells[c] += strspn(cells[c], " ");
            more |= *cells[c] != '\0';
        }
        fputc('\n', o->to);
    }
}

/* All cells cleaned, the titles in front. */
static char **clean_cells(const struct table *t)
{
    char **cells = tool_alloc(t->n + t->cells.n, sizeof *cells);
    for (size_t i = 0; i < t->n + t->cells.n; i++)
        cells[i] = clean(i < t->n ? t->columns[i].title : t->cells.at[i - t->n]);
    return cells;
}

/* The first cell, and the others below it, each with its title. */
static void put_list(struct out *o, const struct table *t, char *const *row, char *const *titles)
{
    text_wrapped(o, "  ", row[0]);
    for (size_t c = 1; c < t->n; c++) {
        char *cell = tool_text("%s%s%s", titles[c], *titles[c] ? ": " : "", row[c]);
        if (strcmp(row[c], "-") != 0)
            text_wrapped(o, "    ", cell);
        free(cell);
    }
}

void text_table(struct out *o, const struct table *t)
{
    size_t *width = tool_alloc(t->n, sizeof *width), all = t->n + t->cells.n;
    char **cells = clean_cells(t), **row = tool_alloc(t->n, sizeof *row);
    const bool facts = !t->columns[0].title[0]; /* no titles */
    const bool fits = find_widths(o, t, cells, all, width);
    for (size_t i = facts || !fits ? t->n : 0; i < all; i += t->n) {
        memcpy(row, cells + i, t->n * sizeof *row);
        if (fits)
            put_row(o, t, width, row);
        else
            put_list(o, t, row, cells);
    }
    for (size_t i = 0; i < all; i++)
        free(cells[i]);
    free(cells);
    free(width);
    free(row);
}
