/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/json.h"
#include <stdarg.h>
#include "tools/common/utf8.h"

static void put_string(FILE *to, const char *text)
{
    fputc('"', to);
    for (unsigned n; *text; text += n ? n : 1) {
        n = utf8_length(text);
        if (n == 0)
            fputs("\\ufffd", to);
        else if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else if ((unsigned char)*text < ' ' || *text == 0x7f)
            fprintf(to, "\\u%04x", (unsigned)*text);
        else
            fwrite(text, 1, n, to);
    }
    fputc('"', to);
}

static bool has_lines(const struct json_writer *w)
{
    return w->lines >> w->depth & 1;
}

static void new_line(struct json_writer *w)
{
    fprintf(w->to, "\n%*s", 2 * (int)w->indent, "");
}

/* What stands between the value before and this one, and the key. */
static void begin_value(struct json_writer *w, const char *key)
{
    if (w->more)
        fputc(',', w->to);
    if (has_lines(w))
        new_line(w);
    else if (w->more && !w->compact)
        fputc(' ', w->to);
    if (key) {
        put_string(w->to, key);
        fputs(w->compact ? ":" : ": ", w->to);
    }
    w->more = true;
}

void json_put_open(struct json_writer *w, const char *key, const char *how)
{
    begin_value(w, key);
    fputc(*how, w->to);
    uint64_t bit = 1ull << ++w->depth;
    w->array = *how == '[' ? w->array | bit : w->array & ~bit;
    w->lines = how[1] == '\n' ? w->lines | bit : w->lines & ~bit;
    w->indent += has_lines(w);
    w->more = false;
}

void json_put_close(struct json_writer *w)
{
    w->indent -= has_lines(w);
    if (has_lines(w))
        new_line(w);
    fputc(w->array >> w->depth & 1 ? ']' : '}', w->to);
    w->more = true;
    if (--w->depth == 0)
        fputc('\n', w->to);
}

void json_put_text(struct json_writer *w, const char *key, const char *text)
{
    begin_value(w, key);
    if (text)
        put_string(w->to, text);
    else
        fputs("null", w->to);
}

void json_put_bool(struct json_writer *w, const char *key, bool value)
{
    begin_value(w, key);
    fputs(value ? "true" : "false", w->to);
}

void json_put_number(struct json_writer *w, const char *key, const char *fmt, ...)
{
    va_list args;
    begin_value(w, key);
    va_start(args, fmt);
    vfprintf(w->to, fmt, args);
    va_end(args);
}
