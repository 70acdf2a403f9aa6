/* SPDX-License-Identifier: Apache-2.0 */
/* How a report is written: sections, paragraphs, tables and lists, as text, as HTML or as JSON. What is
 * said is the same in all; report_*.c say it. Words in `backquotes` are code. All texts are escaped here, so they may come from
 * logs. */
#ifndef SLR_TOOLS_OUT_H
#define SLR_TOOLS_OUT_H

#include <stdbool.h>
#include <stdio.h>
#include "tools/common/json.h"
#include "tools/common/vec.h"

struct column {
    const char *title;
    bool right; /* figures */
    bool wraps; /* may be broken into lines */
};

/* Cells row by row; they belong to the table. */
struct table {
    const struct column *columns;
    size_t n;
    VEC(char *) cells;
};

enum out_form { OUT_TEXT, OUT_HTML, OUT_JSON };

struct out {
    FILE *to;
    bool html;
    struct json_writer *json; /* or NULL */
    bool bold;                /* text: on a terminal */
    unsigned width;           /* text: columns; 0: OUT_WIDTH */
    unsigned items;           /* HTML: a list is open */
    const char *section;      /* HTML: id of its heading; NULL: the head */
};

enum { OUT_WIDTH = 100, OUT_WIDTH_LEAST = 40 }; /* columns of the text form */

void out_begin(struct out *o, const char *title);
void out_end(struct out *o);
/* `id`: anchor in HTML. */
void out_section(struct out *o, const char *id, const char *title);
void out_say(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void out_item(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the table and empties it. Nothing when it has no rows. */
void out_table(struct out *o, struct table *t);

void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text for HTML and SVG: escaped; control characters and bytes that are no UTF-8 become '?'. */
void html_text(FILE *to, const char *text);

/* out_text.c and out_html.c, for out.c. */
void text_begin(struct out *o, const char *title);
void text_section(struct out *o, const char *title);
/* Breaks lines; the first begins with `lead`, the others are indented as far. */
void text_wrapped(struct out *o, const char *lead, const char *text);
void text_table(struct out *o, const struct table *t);
/* out_json.c. out_end() leaves the object open, for the figures behind the sections. */
void json_begin(struct out *o, const char *title);
void json_end(struct out *o);
void json_section(struct out *o, const char *id, const char *title);
void json_table(struct out *o, const struct table *t);

/* As html_text(), `backquotes` as code. */
void html_prose(FILE *to, const char *text);

void html_begin(struct out *o, const char *title);
void html_end(struct out *o);
void html_section(struct out *o, const char *id, const char *title);
void html_table(struct out *o, const struct table *t);

#endif
