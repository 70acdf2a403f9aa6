/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with logs, as text. */
#include <string.h>
#include "tools/log/log_record.h"

enum { TOLD_EACH = 5 }; /* messages for one file */

const char *log_printable(char *buf, size_t size, const char *text, size_t len)
{
    size_t n = 0;
    for (; n < len && n + 1 < size; n++)
        buf[n] = text[n] >= ' ' && text[n] < 127 ? text[n] : '.';
    buf[n] = '\0';
    if (n < len && n > 3)
        memcpy(buf + n - 3, "...", 3);
    return buf;
}

void log_problem(struct log_reader *r, size_t line, const char *fmt, ...)
{
    struct log_problems *p = &r->problems;
    p->lines++;
    if (++p->in_file > TOLD_EACH || !p->to)
        return;
    va_list args;
    fprintf(p->to, "%s:%zu: ", p->file, line);
    va_start(args, fmt);
    vfprintf(p->to, fmt, args);
    va_end(args);
    fputc('\n', p->to);
}

void log_file_end(struct log_problems *p)
{
    if (p->in_file > TOLD_EACH && p->to)
        fprintf(p->to, "%s: %zu more like these\n", p->file, p->in_file - TOLD_EACH);
    p->in_file = 0;
}

void log_file_problem(struct log_reader *r, const char *path, const char *what)
{
    r->problems.files++;
    if (r->problems.to)
        fprintf(r->problems.to, "%s: %s\n", path, what);
}
