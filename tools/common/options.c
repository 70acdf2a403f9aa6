/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/options.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/options_help.h"
#include "tools/common/vec.h"

enum { FIRST_LONG = 256 }; /* what getopt_long says for row 0: above all letters */

/* ---- values ---- */

static int choice_of(const char *choices, const char *text)
{
    const size_t length = strlen(text);
    for (int i = 0;; i++) {
        size_t n = strcspn(choices, "|");
        if (n == length && strncmp(choices, text, n) == 0)
            return i;
        if (!choices[n])
            return -1;
        choices += n + 1;
    }
}

static bool set_whole(const struct option_row *row, long *field, const char *text)
{
    char *end;
    errno = 0;
    *field = strtol(text, &end, 10);
    return strchr("-0123456789", *text) && *text && !*end && !errno && *field >= row->low && *field <= row->high;
}

static bool set_real(const struct option_row *row, double *field, const char *text)
{
    char *end;
    *field = strtod(text, &end);
    return *text && !*end && isfinite(*field) && *field >= (double)row->low && *field <= (double)row->high;
}

static void pass_on(const struct option_row *row, struct words *field, const char *text)
{
    char name[OPTION_ROOM];
    option_name(row, name, sizeof name);
    words_addf(field, "%s%s%s", name, text ? "=" : "", text ? text : "");
}

/* `text`: NULL when there is none. False: not what the option takes. */
static bool set(const struct option_row *row, void *into, const char *text)
{
    void *field = (char *)into + row->offset;
    switch (row->kind) {
    case OPTION_FLAG:
        return *(bool *)field = true;
    case OPTION_WHOLE:
        return set_whole(row, field, text);
    case OPTION_REAL:
        return set_real(row, field, text);
    case OPTION_CHOICE:
        return (*(int *)field = choice_of(row->value, text)) >= 0;
    case OPTION_LIST:
        words_add(field, text);
        return true;
    case OPTION_PASS:
        pass_on(row, field, text);
        return true;
    default:
        *(const char **)field = text;
        return true;
    }
}

static void set_defaults(const struct option_row *rows, void *into)
{
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (*row->fallback || row->kind == OPTION_TEXT)
            set(row, into, row->fallback);
}

/* ---- getopt_long, with messages of our own ---- */

struct parser {
    const struct option_row *rows;
    struct option *longs;
    char shorts[3 + 2 * 32];
};

static int argument_of(const struct option_row *row)
{
    return !*row->value ? no_argument : *row->value == '[' ? optional_argument : required_argument;
}

static void parser_begin(struct parser *p, const struct option_row *rows, enum options_order order)
{
    size_t n = 0, used = 0;
    while (rows[n].kind != OPTION_END)
        n++;
    *p = (struct parser){.rows = rows, .longs = tool_alloc(n + 2, sizeof *p->longs)};
    struct option *next = p->longs;
    used += (size_t)snprintf(p->shorts, sizeof p->shorts, "%s:h", order == OPTIONS_FIRST ? "+" : "");
    for (size_t i = 0; i < n; i++) {
        char name[OPTION_ROOM];
        option_name(&rows[i], name, sizeof name);
        if (!is_option(&rows[i]))
            continue;
        if (name[1] == '-')
            *next++ = (struct option){tool_copy(name + 2), argument_of(&rows[i]), NULL, FIRST_LONG + (int)i};
        else if (used + 3 < sizeof p->shorts)
            used += (size_t)snprintf(p->shorts + used, sizeof p->shorts - used, "%c%s", name[1],
                                     argument_of(&rows[i]) == no_argument ? "" : ":");
    }
    *next = (struct option){tool_copy("help"), no_argument, NULL, 'h'};
}

static void parser_end(struct parser *p)
{
    for (struct option *o = p->longs; o->name; o++)
        free((char *)o->name);
    free(p->longs);
}

static const struct option_row *row_of(const struct parser *p, int code)
{
    const struct option_row *row = p->rows;
    if (code >= FIRST_LONG)
        return row + code - FIRST_LONG;
    while (row->kind != OPTION_END && !(is_option(row) && row->name[0] == '_' && row->name[1] == code))
        row++;
    return row;
}

/* getopt_long takes the beginnings of names as well; a script that uses one breaks with the next
 * new option. */
static bool abbreviated(const struct option_row *row, char *const *argv)
{
    const char *word = argv[optind - 1];
    char name[OPTION_ROOM];
    if (optarg == word && argument_of(row) == required_argument)
        word = argv[optind - 2];
    option_name(row, name, sizeof name);
    return strncmp(word, "--", 2) == 0 && strcspn(word, "=") != strlen(name);
}

static int refuse(const struct parser *p, int code, char *const *argv)
{
    char spelled[OPTION_ROOM];
    const char *word = argv[optind - 1];
    if (code == ':')
        return options_wrong(p->rows, "this option needs a value: %s",
                             option_spelled(row_of(p, optopt), spelled, sizeof spelled));
    if (optopt >= FIRST_LONG || (optopt == 'h' && strncmp(word, "--", 2) == 0))
        return options_wrong(p->rows, "this option takes no value: %s", word);
    if (optopt) {
        snprintf(spelled, sizeof spelled, "-%c", optopt);
        word = spelled;
    }
    return options_no_such(p->rows, word);
}

/* One option. 0, or the exit status. */
static int take(const struct parser *p, int code, void *into, char *const *argv)
{
    char spelled[OPTION_ROOM], expected[OPTION_ROOM];
    if (code == '?' || code == ':')
        return refuse(p, code, argv);
    const struct option_row *row = row_of(p, code);
    if (code >= FIRST_LONG && abbreviated(row, argv))
        return options_no_such(p->rows, optarg == argv[optind - 1] ? argv[optind - 2] : argv[optind - 1]);
    if (optarg && !*optarg)
        return options_wrong(p->rows, "this option needs a value: %s", option_spelled(row, spelled, sizeof spelled));
    if (set(row, into, optarg))
        return 0;
    return options_wrong(p->rows, "%s takes %s, not %s", option_name(row, spelled, sizeof spelled),
                         option_expected(row, expected, sizeof expected), optarg);
}

int options_parse(const struct option_row *rows, enum options_order order, void *into, int argc, char **argv)
{
    struct parser p;
    int status = 0, code = 0;
    bool help = false;
    parser_begin(&p, rows, order);
    set_defaults(rows, into);
    optind = 0; /* begins anew */
    opterr = 0;
    while (!status && !help && (code = getopt_long(argc, argv, p.shorts, p.longs, NULL)) != -1)
        if (code == 'h')
            help = true;
        else
            status = take(&p, code, into, argv);
    parser_end(&p);
    if (help && options_help(rows, stdout) != 0)
        status = (int)rows->low;
    return status || help ? -status : optind;
}

void options_free(const struct option_row *rows, void *into)
{
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++)
        if (row->kind == OPTION_LIST || row->kind == OPTION_PASS)
            words_free((struct words *)((char *)into + row->offset));
}
