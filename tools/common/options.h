/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a program from one table, from which everything derives: the fields that hold
 * the values, the parser, --help, what is said about wrong use, and for the launcher's commands the
 * manual page.
 *
 * A table is a .def file of rows:
 *
 *     COMMAND("slipring name", exit status of wrong use, "synopsis behind the name", "what it does")
 *     OPTION(kind, name, "what the value is called", "default", "what it means")
 *     PARAGRAPH("what else there is to know")
 *
 * The first is the command. Names are those of C: in_place is --in-place, and _o is -o.
 * tools/common/options_table.h makes C of a table. The kinds, and the type of their fields:
 *
 *     FLAG              bool          no value
 *     WHOLE(low, high)  long          a whole number
 *     REAL(low, high)   double        a number
 *     CHOICE            int           one of those that the value's name lists, a|b|c: its place among them
 *     TEXT              const char *  anything but nothing; "" when it is not given and has no default
 *     LIST              struct words  each value that is given
 *     PASS              struct words  the option with its value, in one word, for another program
 *
 * A value that is called "[=N]" may be left out. Values stand behind `=` or in the next
 * argument. */
#ifndef SLR_TOOLS_OPTIONS_H
#define SLR_TOOLS_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "tools/common/words.h"

enum option_kind {
    OPTION_END,
    OPTION_COMMAND,
    OPTION_PARAGRAPH,
    OPTION_FLAG,
    OPTION_WHOLE,
    OPTION_REAL,
    OPTION_CHOICE,
    OPTION_TEXT,
    OPTION_LIST,
    OPTION_PASS
};

struct option_row {
    enum option_kind kind;
    long low, high;    /* COMMAND: low is the exit status of wrong use */
    const char *name;  /* as in the table */
    const char *value; /* COMMAND: synopsis */
    const char *fallback, *help;
    size_t offset; /* of the field */
};

/* A row of each kind; an OPTION_SPEC is its first three members. */
#define COMMAND_ROW(name, status, synopsis, what) {OPTION_COMMAND, status, 0, name, synopsis, "", what, 0},
#define PARAGRAPH_ROW(text) {OPTION_PARAGRAPH, 0, 0, "", "", "", text, 0},
#define OPTION_ROW(type, kind, name, value, fallback, help)                                                            \
    {OPTION_SPEC_##kind, #name, value, fallback, help, offsetof(type, name)},
/* Of a program that only shows the table. */
#define OPTION_ROW_SHOWN(kind, name, value, fallback, help) {OPTION_SPEC_##kind, #name, value, fallback, help, 0},
#define OPTION_SPEC_FLAG OPTION_FLAG, 0, 0
#define OPTION_SPEC_WHOLE(low, high) OPTION_WHOLE, low, high
#define OPTION_SPEC_REAL(low, high) OPTION_REAL, low, high
#define OPTION_SPEC_CHOICE OPTION_CHOICE, 0, 0
#define OPTION_SPEC_TEXT OPTION_TEXT, 0, 0
#define OPTION_SPEC_LIST OPTION_LIST, 0, 0
#define OPTION_SPEC_PASS OPTION_PASS, 0, 0

#define OPTION_FIELD(kind, name, ...) OPTION_TYPE_##kind name;
#define OPTION_TYPE_FLAG bool
#define OPTION_TYPE_WHOLE(low, high) long
#define OPTION_TYPE_REAL(low, high) double
#define OPTION_TYPE_CHOICE int
#define OPTION_TYPE_TEXT const char *
#define OPTION_TYPE_LIST struct words
#define OPTION_TYPE_PASS struct words

enum options_order {
    OPTIONS_FIRST,   /* what is no option ends them: it is a command with options of its own, as does -- */
    OPTIONS_ANYWHERE /* up to -- */
};

/* Fills the fields of `into`, whose lists are empty; an option that is not given and has no default
 * leaves its field. Above 0: the place in argv of the first argument that is no option; with
 * OPTIONS_ANYWHERE argv has been put in order. Else the program has to end, with the status
 * -result: --help was printed, or what is wrong has been told on stderr. */
int options_parse(const struct option_row *rows, enum options_order order, void *into, int argc, char **argv);

/* What lists hold. */
void options_free(const struct option_row *rows, void *into);

/* Tells, behind the command's name, what is wrong with the way it was called. Returns the exit
 * status. */
int options_wrong(const struct option_row *rows, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "--rounds N": an option as it is written. Returns `buf`. */
const char *option_spelled(const struct option_row *row, char *buf, size_t size);

/* The choice `index` of a CHOICE row. Returns `buf`. */
const char *option_choice(const struct option_row *row, int index, char *buf, size_t size);

#endif
