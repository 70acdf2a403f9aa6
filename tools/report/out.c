/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/out.h"
#include <stdlib.h>
#include <string.h>

void out_begin(struct out *o, const char *title)
{
    (o->json ? json_begin : o->html ? html_begin : text_begin)(o, title);
}

static void close_list(struct out *o)
{
    if (o->items && o->html)
        fputs("</ul>\n", o->to);
    o->items = 0;
}

void out_end(struct out *o)
{
    close_list(o);
    if (o->html)
        html_end(o);
    if (o->json)
        json_end(o);
}

void out_section(struct out *o, const char *id, const char *title)
{
    close_list(o);
    if (o->json)
        json_section(o, id, title);
    else if (o->html)
        html_section(o, id, title);
    else
        text_section(o, title);
}

static void put_paragraph(struct out *o, const char *tag, const char *lead, const char *text)
{
    if (o->json) {
        json_put_open(o->json, NULL, "{");
        json_put_text(o->json, *lead ? "item" : "text", text);
        json_put_close(o->json);
    } else if (o->html) {
        fprintf(o->to, "<%s>", tag);
        html_prose(o->to, text);
        fprintf(o->to, "</%s>\n", tag);
    } else {
        text_wrapped(o, lead, text);
    }
}

void out_say(struct out *o, const char *fmt, ...)
{
    va_list args;
    close_list(o);
    va_start(args, fmt);
    char *text = tool_vtext(fmt, args);
    va_end(args);
    put_paragraph(o, "p", "", text);
    free(text);
}

void out_item(struct out *o, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = tool_vtext(fmt, args);
    va_end(args);
    if (o->items++ == 0 && o->html)
        fputs("<ul>\n", o->to);
    put_paragraph(o, "li", "- ", text);
    free(text);
}

void out_table(struct out *o, struct table *t)
{
    close_list(o);
    if (t->cells.n)
        (o->json ? json_table : o->html ? html_table : text_table)(o, t);
    for (size_t i = 0; i < t->cells.n; i++)
        free(t->cells.at[i]);
    vec_free(&t->cells);
}

void table_cell(struct table *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vec_push(&t->cells, tool_vtext(fmt, args));
    va_end(args);
}
