/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON form: sections with what they say, in order; docs/report.md has the layout. */
#include "tools/report/out.h"

void json_begin(struct out *o, const char *title)
{
    json_put_open(o->json, NULL, "{\n");
    json_put_number(o->json, "slipring_report", "2");
    json_put_text(o->json, "title", title);
    json_put_open(o->json, "sections", "[\n");
    json_put_open(o->json, NULL, "{");
    json_put_text(o->json, "id", "glance");
    json_put_text(o->json, "title", "At a glance");
    json_put_open(o->json, "content", "[\n");
}

static void close_section(struct out *o)
{
    json_put_close(o->json);
    json_put_close(o->json);
}

void json_section(struct out *o, const char *id, const char *title)
{
    close_section(o);
    json_put_open(o->json, NULL, "{");
    json_put_text(o->json, "id", id);
    json_put_text(o->json, "title", title);
    json_put_open(o->json, "content", "[\n");
}

void json_end(struct out *o)
{
    close_section(o);
    json_put_close(o->json);
}

void json_table(struct out *o, const struct table *t)
{
    struct json_writer *w = o->json;
    json_put_open(w, NULL, "{");
    json_put_open(w, "columns", "[");
    for (size_t i = 0; i < t->n; i++)
        json_put_text(w, NULL, t->columns[i].title);
    json_put_close(w);
    json_put_open(w, "rows", "[\n");
    for (size_t i = 0; i < t->cells.n; i++) {
        if (i % t->n == 0)
            json_put_open(w, NULL, "[");
        json_put_text(w, NULL, t->cells.at[i]);
        if (i % t->n == t->n - 1)
            json_put_close(w);
    }
    json_put_close(w);
    json_put_close(w);
}
