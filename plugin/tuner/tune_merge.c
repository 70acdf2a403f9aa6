/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/tuner/tune_merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "# Rules for SLIPRING_TUNE_FILE (docs/tuning.md, docs/trials.md). The first that fits decides.\n"
    "# Lines that end with \"kept by slipring\" may be replaced; without that comment they stay.\n";

static bool is_replaced(const struct slr_tune_site *old, const struct slr_tune_site *rules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slr_tune_site_same(old, &rules[i], true) ||
            (slr_tune_site_same(old, &rules[i], false) && old->nccl != rules[i].nccl))
            return true;
    return false;
}

/* Marks the first kept rule that is not marked yet, by its line: 0. False: there is none. */
static bool drop_oldest(struct slr_tune_table *t)
{
    for (size_t i = 0; i < t->sites; i++)
        if (t->site[i].kept) {
            t->site[i].kept = false;
            t->site[i].line = -t->site[i].line;
            return true;
        }
    return false;
}

/* Which lines go: their rules get a negative number. Returns how many kept rules stay. */
static size_t drop(struct slr_tune_table *t, const struct slr_tune_site *rules, size_t count)
{
    size_t kept = 0, stay = t->count;
    for (size_t i = 0; i < t->sites; i++) {
        struct slr_tune_site *s = &t->site[i];
        if (s->kept && is_replaced(s, rules, count)) {
            s->line = -s->line;
            s->kept = false;
        }
        kept += s->kept;
        stay += s->line > 0;
    }
    while ((kept + count > SLR_TUNE_MOST_KEPT || stay + count > SLR_TUNE_MAX_RULES) && drop_oldest(t))
        kept--, stay--;
    return stay;
}

static bool is_dropped(const struct slr_tune_table *t, int line, size_t *at)
{
    while (*at < t->sites && abs(t->site[*at].line) < line)
        ++*at;
    return *at < t->sites && t->site[*at].line == -line;
}

/* The text without the lines that go, and the rules. */
static void join(FILE *out, const struct slr_tune_table *t, const char *text, size_t len,
                 const struct slr_tune_site *rules, size_t count)
{
    char line[SLR_TUNE_MAX_LINE + 1];
    const char *end = text + len;
    size_t at = 0;
    if (len == 0)
        fputs(head, out);
    for (int n = 1; text < end; n++) {
        const char *feed = memchr(text, '\n', (size_t)(end - text)), *next = feed ? feed + 1 : end;
        if (!is_dropped(t, n, &at)) {
            fwrite(text, 1, (size_t)(next - text), out);
            if (!feed)
                fputc('\n', out);
        }
        text = next;
    }
    for (size_t i = 0; i < count; i++)
        if (slr_tune_site_write(&rules[i], line, sizeof line))
            fprintf(out, "%s\n", line);
}

/* Until it is short enough. */
static int fit(struct slr_tune_table *t, const char *text, size_t len, const struct slr_tune_site *rules, size_t count,
               char **out, size_t *out_len)
{
    do {
        free(*out);
        *out = NULL;
        FILE *stream = open_memstream(out, out_len);
        if (!stream)
            return -ENOMEM;
        join(stream, t, text, len, rules, count);
        bool bad = ferror(stream) != 0;
        if (fclose(stream) != 0 || bad)
            return -ENOMEM;
    } while (*out_len > SLR_TUNE_MAX_BYTES && drop_oldest(t));
    return *out_len > SLR_TUNE_MAX_BYTES ? -EFBIG : 0;
}

int slr_tune_merge(const char *text, size_t len, const struct slr_tune_site *rules, size_t count, char **out,
                   size_t *out_len, struct slr_tune_error *error)
{
    struct slr_tune_table t;
    *out = NULL;
    int rc = slr_tune_parse(&t, text, len, error);
    if (rc)
        return rc;
    rc = drop(&t, rules, count) + count > SLR_TUNE_MAX_RULES ? -EFBIG : fit(&t, text, len, rules, count, out, out_len);
    if (rc) {
        free(*out);
        *out = NULL;
        snprintf(error->text, sizeof error->text, "%s",
                 rc == -EFBIG ? "no room for more rules: a file has at most 4096, and 1 MiB" : "no memory");
    }
    slr_tune_free(&t);
    return rc;
}
