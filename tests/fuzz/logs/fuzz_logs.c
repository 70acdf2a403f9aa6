/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a log: read, put in order, and written as text, page, JSON and trace. With libFuzzer's main
 * (fuzz_logs.sh), or with the one below, which changes sound logs by a seed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "tools/report/report.h"
#include "tools/trace/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_all(const struct model *m, uint32_t run, FILE *to)
{
    struct report r = {.m = m, .index = run, .run = &m->runs.at[run]};
    static const struct report_form forms[] = {{.form = OUT_TEXT, .bold = true, .details = true, .width = 60},
                                               {.form = OUT_TEXT},
                                               {.form = OUT_HTML, .details = true},
                                               {.form = OUT_JSON}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        report_write(&r, &forms[i], to);
    trace_write(m, r.run, to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    struct model m;
    struct log_reader reader = {.problems.to = nowhere, .fn = model_add, .ctx = &m};
    FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (!in)
        return 0;
    model_init(&m, &reader);
    log_read_stream(&reader, in, "input");
    log_read_end(&reader);
    fclose(in);
    model_finish(&m);
    for (uint32_t run = 0; run < m.runs.n && run < 4; run++)
        write_all(&m, run, nowhere);
    model_free(&m);
    return 0;
}

#ifndef FUZZ_LOGS_LIBFUZZER
static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Numbers that are at the edge of something, and what JSON is made of. */
static const char *const pieces[] = {"0",
                                     "-1",
                                     "1",
                                     "2",
                                     "9223372036854775807",
                                     "4611686018427387904",
                                     "1e300",
                                     "0.5",
                                     "\"\"",
                                     "null",
                                     "true",
                                     "[]",
                                     "{}",
                                     "\"?\"",
                                     "\n",
                                     "\"<b>\"",
                                     "65535",
                                     "65536",
                                     "1152921504606846976",
                                     "\"ring\"",
                                     "\"pass\"",
                                     "\"gather\"",
                                     "\"span\"",
                                     "\"wait\""};

/* What stands behind a colon is replaced by another value. */
static size_t change_value(char *text, size_t size, size_t room)
{
    const char *piece = pieces[next_random() % (sizeof pieces / sizeof *pieces)];
    char *at = memchr(text + next_random() % size, ':', size);
    size_t left = at ? size - (size_t)(at + 1 - text) : 0, old = 0, len = strlen(piece);
    if (!at || at + 1 >= text + size)
        return size;
    for (at++; old < left && at[old] != ',' && at[old] != '}' && at[old] != '\n';)
        old++;
    if (size - old + len > room)
        return size;
    memmove(at + len, at + old, left - old);
    memcpy(at, piece, len);
    return size - old + len;
}

static size_t change(char *text, size_t size, size_t room)
{
    size_t at = next_random() % size, n;
    switch (next_random() % 8) {
    case 0:
        text[at] = (char)next_random();
        return size;
    case 1: /* a part is left out */
        n = next_random() % (size - at);
        memmove(text + at, text + at + n, size - at - n);
        return size - n;
    case 2: /* a part is moved */
        n = next_random() % (size - at);
        memmove(text + next_random() % (size - n), text + at, n);
        return size;
    default:
        return change_value(text, size, room);
    }
}

/* fuzz_logs LOG COUNT [SEED]: changed logs; or fuzz_logs FILE: as it is. */
int main(int argc, char **argv)
{
    static char sound[1 << 20], text[sizeof sound + 4096];
    FILE *in = argc > 1 ? fopen(argv[1], "r") : NULL;
    size_t size = in ? fread(sound, 1, sizeof sound, in) : 0;
    unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (!in || size < 2) {
        fputs("usage: fuzz_logs LOG [COUNT [SEED]]\n", stderr);
        return 2;
    }
    fclose(in);
    state = argc > 3 ? strtoul(argv[3], NULL, 10) * 2 + 1 : 88172645463325252;
    if (count == 0)
        LLVMFuzzerTestOneInput((const uint8_t *)sound, size);
    for (unsigned long i = 0; i < count; i++) {
        size_t len = size;
        memcpy(text, sound, size);
        for (uint64_t changes = 1 + next_random() % 12; changes > 0 && len > 2; changes--)
            len = change(text, len, sizeof text);
        LLVMFuzzerTestOneInput((const uint8_t *)text, len);
    }
    printf("%lu changed logs\n", count);
    return 0;
}
#endif
