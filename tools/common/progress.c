/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include "tools/common/utf8.h"

#define REDRAW_MS 100
#define LOG_MS 10000
#define LINE 512
#define NARROWEST 20 /* columns; a terminal that says less is not believed */

struct progress {
    char what[64], note[160];
    uint64_t total, done, begun, shown; /* times in ms */
    unsigned tenths;                    /* of `total`, that a line has told */
    bool terminal, drawn;
};

static uint64_t monotonic_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
uint64_t (*progress_clock_ms)(void) = monotonic_ms;

static bool on_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

static size_t columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= NARROWEST ? w.ws_col : 80;
}

/* Bytes from 0x80 on pass: parts of UTF-8 characters. */
static void copy_clean(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
    for (; *out; out++)
        if ((unsigned char)*out < ' ' || *out == 0x7f)
            *out = '?';
}

/* Seconds as m:ss or h:mm:ss. */
static const char *span(uint64_t ms, char *buf, size_t size)
{
    uint64_t s = ms / 1000;
    if (s >= 3600)
        snprintf(buf, size, "%llu:%02llu:%02llu", (unsigned long long)(s / 3600), (unsigned long long)(s / 60 % 60),
                 (unsigned long long)(s % 60));
    else
        snprintf(buf, size, "%llu:%02llu", (unsigned long long)(s / 60), (unsigned long long)(s % 60));
    return buf;
}

static unsigned percent(const struct progress *p)
{
    return p->total ? (unsigned)(100.0 * (double)p->done / (double)p->total) : 0;
}

/* "3 of 10 (30 %), 0:12, about 0:28 left", as far as each is known. */
static void measure(const struct progress *p, uint64_t now, char *out, size_t size)
{
    char took[32], left[32];
    uint64_t elapsed = now - p->begun;
    int n = 0;
    if (p->total)
        n = snprintf(out, size, "%llu of %llu (%u %%), ", (unsigned long long)p->done, (unsigned long long)p->total,
                     percent(p));
    else if (p->done)
        n = snprintf(out, size, "%llu, ", (unsigned long long)p->done);
    n += snprintf(out + n, size - (size_t)n, "%s", span(elapsed, took, sizeof took));
    if (p->total && p->done && p->done < p->total) {
        double rest = (double)elapsed / (double)p->done * (double)(p->total - p->done);
        snprintf(out + n, size - (size_t)n, ", about %s left", span((uint64_t)rest, left, sizeof left));
    }
}

/* One write, so that lines of several processes do not mix. */
static void put(const char *text)
{
    for (size_t left = strlen(text); left;) {
        ssize_t n = write(STDERR_FILENO, text, left);
        if (n <= 0)
            return; /* a log that can not be written is no reason to stop the work */
        text += n;
        left -= (size_t)n;
    }
}

static void draw(struct progress *p, uint64_t now)
{
    char how[128], line[LINE], out[LINE + 16];
    measure(p, now, how, sizeof how);
    snprintf(line, sizeof line, "%s: %s%s%s", p->what, how, *p->note ? ": " : "", p->note);
    line[utf8_prefix(line, columns() - 1)] = '\0'; /* the last column makes some terminals wrap */
    snprintf(out, sizeof out, "\r%s\033[K", line);
    put(out);
    p->drawn = true;
    p->shown = now;
}

static void tell(struct progress *p, uint64_t now)
{
    char how[128], out[LINE];
    measure(p, now, how, sizeof how);
    snprintf(out, sizeof out, "%s: %s%s%s\n", p->what, how, *p->note ? ": " : "", p->note);
    put(out);
    p->shown = now;
    p->tenths = percent(p) / 10;
}

struct progress *progress_begin(const char *what, uint64_t total)
{
    struct progress *p = calloc(1, sizeof *p);
    char out[LINE];
    if (!p)
        return NULL;
    copy_clean(p->what, sizeof p->what, what);
    p->total = total;
    p->begun = p->shown = progress_clock_ms();
    p->terminal = on_terminal();
    if (p->terminal) {
        draw(p, p->begun);
        return p;
    }
    if (total)
        snprintf(out, sizeof out, "%s: begins, %llu to do\n", p->what, (unsigned long long)total);
    else
        snprintf(out, sizeof out, "%s: begins\n", p->what);
    put(out);
    return p;
}

void progress_at(struct progress *p, uint64_t done, const char *note)
{
    if (!p)
        return;
    uint64_t now = progress_clock_ms();
    p->done = p->total && done > p->total ? p->total : done;
    if (note)
        copy_clean(p->note, sizeof p->note, note);
    if (p->terminal && (!p->drawn || now - p->shown >= REDRAW_MS))
        draw(p, now);
    /* The whole is told by progress_end. */
    if (!p->terminal && (now - p->shown >= LOG_MS || (percent(p) / 10 > p->tenths && p->done < p->total)))
        tell(p, now);
}

void progress_clear(struct progress *p)
{
    if (p && p->drawn)
        put("\r\033[K");
    if (p)
        p->drawn = false;
}

void progress_plain(struct progress *p)
{
    progress_clear(p);
    if (p)
        p->terminal = false;
}

void progress_end(struct progress *p, const char *result)
{
    char took[32], text[LINE / 2], out[LINE];
    if (!p)
        return;
    copy_clean(text, sizeof text, result ? result : "done");
    progress_clear(p);
    snprintf(out, sizeof out, "%s: %s (%s)\n", p->what, text, span(progress_clock_ms() - p->begun, took, sizeof took));
    put(out);
    free(p);
}
