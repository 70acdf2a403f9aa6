/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of the tools that read logs: figures in words, tables that fit, escaping, lanes, percentiles. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/model/bars.h"
#include "tools/model/sites.h"
#include "tools/report/form.h"
#include "tools/report/out.h"

static void says(const char *got, const char *want)
{
    cr_assert_str_eq(got, want, "\"%s\", not \"%s\"", got, want);
}

Test(form, figures)
{
    char buf[FORM_ROOM];
    says(form_bytes(buf, 0), "0 B");
    says(form_bytes(buf, 1023), "1023 B");
    says(form_bytes(buf, 1536), "1.50 KiB");
    says(form_bytes(buf, 8 << 20), "8 MiB");
    says(form_bytes(buf, 1e24), "867362 EiB");
    says(form_time(buf, 0), "0 ns");
    says(form_time(buf, 999), "999 ns");
    says(form_time(buf, 1234), "1.23 µs");
    says(form_time(buf, 999949), "1.00 ms");
    says(form_time(buf, 45.6e6), "45.6 ms");
    says(form_time(buf, 12.3e9), "12.3 s");
    says(form_share(buf, -1), "-");
    says(form_share(buf, 0.874), "87%");
}

static char *written(void (*write)(FILE *, const char *), const char *text)
{
    char *buf = NULL;
    size_t size;
    FILE *to = open_memstream(&buf, &size);
    write(to, text);
    fclose(to);
    return buf;
}

Test(out, escapes)
{
    char *html = written(html_text, "<a href=\"x\">&'\x1b[31m \xc2\x85 µ \xff\xe2\x82");
    says(html, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;?[31m ?? µ ???");
    free(html);
}

static char *table_as_text(const char *cell)
{
    static const struct column columns[] = {{"one", false, false}, {"two", true, false}, {"three", false, true}};
    char *buf = NULL;
    size_t size;
    struct out o = {.to = open_memstream(&buf, &size)};
    struct table t = {.columns = columns, .n = 3};
    table_cell(&t, "a");
    table_cell(&t, "12");
    table_cell(&t, "%s", cell);
    out_table(&o, &t);
    cr_assert_eq(t.cells.n, 0);
    fclose(o.to);
    return buf;
}

Test(out, tables)
{
    char *small = table_as_text("words");
    says(small, "  one  two  three\n  a     12  words\n");
    free(small);
    char *text = table_as_text("many words that do not fit in a line of one hundred columns, so they are broken into "
                               "several lines of the cell");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        cr_assert_leq(utf8_count(line), OUT_WIDTH, "%s", line);
        cr_assert_neq(line[strlen(line) - 1], ' ');
    }
    free(text);
}

/* Two columns of figures do not fit side by side: then each cell has a line, behind its title. */
Test(out, what_does_not_fit_is_a_list)
{
    static const struct column columns[] = {
        {"call site", false, false}, {"how long", true, false}, {"none", true, false}, {"why", false, true}};
    char *buf = NULL;
    size_t size;
    struct out o = {.to = open_memstream(&buf, &size), .width = 40};
    struct table t = {.columns = columns, .n = 4};
    table_cell(&t, "#1: reduce-scatter, 16 MiB (b)");
    table_cell(&t, "123456789.0 us");
    table_cell(&t, "-");
    table_cell(&t, "words that go on in the next line, where they are indented as far");
    out_table(&o, &t);
    fclose(o.to);
    says(buf, "  #1: reduce-scatter, 16 MiB (b)\n    how long: 123456789.0 us\n    why: words that go on in the next\n"
              "    line, where they are indented as far\n");
    free(buf);
}

/* Titles are broken before figures are. */
Test(out, titles_are_broken)
{
    static const struct column columns[] = {{"a title of many words", true, false}, {"b", true, false}};
    char *buf = NULL;
    size_t size;
    struct out o = {.to = open_memstream(&buf, &size), .width = 16};
    struct table t = {.columns = columns, .n = 2};
    table_cell(&t, "12345678");
    table_cell(&t, "9");
    out_table(&o, &t);
    fclose(o.to);
    says(buf, "   a title of  b\n   many words\n     12345678  9\n");
    free(buf);
}

Test(out, a_word_without_end_is_broken)
{
    char word[400];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    char *text = table_as_text(word);
    size_t letters = 0;
    for (char *c = text; *c; c++)
        letters += *c == 'x';
    cr_assert_eq(letters, sizeof word - 1);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        cr_assert_leq(strlen(line), OUT_WIDTH);
    free(text);
}

Test(sites, percentiles)
{
    struct times t = {0};
    cr_assert_eq(percentile(&t, 50), 0);
    for (int64_t i = 10; i > 0; i--)
        vec_push(&t, i);
    cr_assert_eq(percentile(&t, 50), 5);
    cr_assert_eq(percentile(&t, 90), 9);
    cr_assert_eq(percentile(&t, 100), 10);
    vec_free(&t);
    cr_assert_eq(overlap_of(25, 100), 0.25);
    cr_assert_eq(overlap_of(0, 0), -1);
}

static void add_span(struct member *b, int64_t begin, int64_t end)
{
    vec_push(&b->spans, ((struct span){.begin = begin, .end = end, .lane = LANE_PULL, .kind = SPAN_PULL}));
}

Test(bars, rows_do_not_overlap)
{
    struct model m = {0};
    struct bars b;
    struct member *q = vec_add(&m.members);
    add_span(q, 0, 10);
    add_span(q, 5, 15);
    add_span(q, 10, 20);
    add_span(q, 12, 13);
    bars_find(&b, &m, 0, 0, 100, 0);
    cr_assert_eq(b.rows[BAR_PULL], 3);
    cr_assert_eq(b.list.at[2].row, 0);
    bars_free(&b);
    bars_find(&b, &m, 0, 14, 100, 5); /* only the second and third; they overlap by no more than 5 */
    cr_assert_eq(b.list.n, 2);
    cr_assert_eq(b.rows[BAR_PULL], 1);
    bars_free(&b);
    vec_free(&q->spans);
    vec_free(&m.members);
}
