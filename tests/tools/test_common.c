/* SPDX-License-Identifier: Apache-2.0 */
/* What the tools share: UTF-8, JSON, words, options. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/common/json.h"
#include "tools/common/utf8.h"
#include "tools/common/words.h"

#define OPTIONS_FILE "tests/tools/test_options.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

Test(utf8, lengths)
{
    cr_expect_eq(utf8_length("a"), 1);
    cr_expect_eq(utf8_length("µ"), 2);
    cr_expect_eq(utf8_length("\xe2\x82\xac"), 3);
    cr_expect_eq(utf8_length("\xf4\x8f\xbf\xbf"), 4);
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xe0\x9f\xbf",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(utf8_length(bad[i]), 0, "number %zu", i);
    cr_expect_eq(utf8_length("\x1b"), 1);
    static const char *const control[] = {"\x1b", "\n", "\x7f", "\xc2\x80", "\xc2\x9f", "\xc2", "\xff"};
    for (size_t i = 0; i < sizeof control / sizeof *control; i++)
        cr_expect_eq(utf8_printable(control[i]), 0, "number %zu", i);
    cr_expect_eq(utf8_printable("\xc2\xa0"), 2);
}

Test(utf8, characters)
{
    cr_expect_eq(utf8_count("µs"), 2);
    cr_expect_eq(utf8_prefix("µs", 1), 2);
    cr_expect_eq(utf8_prefix("µs", 2), 3);
    cr_expect_eq(utf8_prefix("µs", 9), 3);
    cr_expect_eq(utf8_prefix("", 1), 0);
    cr_expect_eq(utf8_step(""), 0);
    cr_expect_eq(utf8_step("\xff"), 1);
}

static void put_all(struct json_writer *w)
{
    json_put_open(w, NULL, "{\n");
    json_put_text(w, "text", "\"\\\n\x7f\xc3\xa4\xf5\xff");
    json_put_open(w, "list", "[\n");
    json_put_open(w, NULL, "{");
    json_put_number(w, "n", "%d.%03d", 12, 7);
    json_put_bool(w, "yes", true);
    json_put_close(w);
    json_put_text(w, NULL, NULL);
    json_put_close(w);
    json_put_open(w, "none", "[");
    json_put_close(w);
    json_put_close(w);
}

static char *written(bool compact)
{
    char *text = NULL;
    size_t size;
    struct json_writer w = {.to = open_memstream(&text, &size), .compact = compact};
    put_all(&w);
    fclose(w.to);
    return text;
}

Test(json, layout)
{
    char *text = written(false), *compact = written(true);
    cr_expect_str_eq(text, "{\n  \"text\": \"\\\"\\\\\\u000a\\u007f\xc3\xa4\\ufffd\\ufffd\",\n  \"list\": [\n    "
                           "{\"n\": 12.007, \"yes\": true},\n    null\n  ],\n  \"none\": []\n}\n");
    cr_expect_str_eq(compact, "{\n  \"text\":\"\\\"\\\\\\u000a\\u007f\xc3\xa4\\ufffd\\ufffd\",\n  \"list\":[\n    "
                              "{\"n\":12.007,\"yes\":true},\n    null\n  ],\n  \"none\":[]\n}\n");
    free(text);
    free(compact);
}

Test(json, is_read_by_others)
{
    char *text = written(false);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(json);
    cr_expect_str_eq(json_string_value(json_object_get(json, "text")), "\"\\\n\x7f\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd");
    cr_expect_eq(json_array_size(json_object_get(json, "list")), 2);
    json_decref(json);
    free(text);
}

Test(words, split_and_join)
{
    struct words w = {NULL, 0};
    cr_assert(words_split(&w, " env A='b c' \"d\\\"e\\f\"  g\\ h '' "));
    static const char *const wanted[] = {"env", "A=b c", "d\"e\\f", "g h", ""};
    cr_assert_eq(w.count, 5);
    for (size_t i = 0; i < w.count; i++)
        cr_expect_str_eq(w.word[i], wanted[i]);
    char *line = words_join(&w);
    cr_expect_str_eq(line, "env 'A=b c' 'd\"e\\f' 'g h' ''");
    words_free(&w);
    cr_expect_not(words_split(&w, "a 'b"));
    words_free(&w);
    free(line);
}

/* Calls options_parse with words as a shell parts them. What was said is left in `said`. */
static struct options got;
static struct words words;
static char said[8192];

static int parse(enum options_order order, const char *line)
{
    options_free(option_rows, &got);
    words_free(&words);
    got = (struct options){0};
    words_add(&words, "program");
    cr_assert(words_split(&words, line));
    FILE *file = tmpfile();
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    fflush(NULL);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    int rest = options_parse(option_rows, order, &got, (int)words.count, words.word);
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return rest;
}

Test(options, defaults)
{
    cr_assert_eq(parse(OPTIONS_FIRST, ""), 1);
    cr_expect_eq(got.count, 5);
    cr_expect_eq(got.any, 0);
    cr_expect(got.share == 2.5);
    cr_expect_eq(got.in_place, false);
    cr_expect_eq(got.form, 1);
    cr_expect_str_eq(got._o, "");
    cr_expect_eq(got.each.count, 0);
    cr_expect_str_eq(said, "");
}

Test(options, values)
{
    cr_assert_eq(parse(OPTIONS_FIRST, "--count 9 --any=-7 --share 1e1 --in-place --form=c -o x -- --count"), 11);
    cr_expect_eq(got.count, 9);
    cr_expect_eq(got.any, -7);
    cr_expect(got.share == 10);
    cr_expect_eq(got.in_place, true);
    cr_expect_eq(got.form, 2);
    cr_expect_str_eq(got._o, "x");
    cr_assert_eq(parse(OPTIONS_FIRST, "--each a --set=A=B --each=b --set C=D --devices --devices=3 -oy cmd --count 1"),
                 10);
    cr_expect_str_eq(got._o, "y");
    cr_assert_eq(got.each.count, 2);
    cr_expect_str_eq(got.each.word[1], "b");
    cr_assert_eq(got.set.count, 2);
    cr_expect_str_eq(got.set.word[0], "--set=A=B");
    cr_expect_str_eq(got.set.word[1], "--set=C=D");
    cr_assert_eq(got.devices.count, 2);
    cr_expect_str_eq(got.devices.word[0], "--devices");
    cr_expect_str_eq(got.devices.word[1], "--devices=3");
    cr_expect_eq(got.count, 5, "behind the command nothing is ours");
}

Test(options, anywhere)
{
    cr_assert_eq(parse(OPTIONS_ANYWHERE, "a --count 7 b -- --form"), 4);
    cr_expect_eq(got.count, 7);
    cr_expect_str_eq(words.word[4], "a");
    cr_expect_str_eq(words.word[5], "b");
    cr_expect_str_eq(words.word[6], "--form");
}

Test(options, wrong_use)
{
    static const struct {
        const char *line, *word;
    } cases[] = {
        {"--colour", "program: there is no option: --colour; expected --count N, --any N,"},
        {"--colour=blue", "no option: --colour=blue;"},
        {"--coun 6", "no option: --coun;"},
        {"--coun=6", "no option: --coun=6;"},
        {"-x", "no option: -x;"},
        {"--count", "needs a value: --count N"},
        {"--count=", "needs a value: --count N"},
        {"-o", "needs a value: -o FILE"},
        {"-o ''", "needs a value: -o FILE"},
        {"--in-place=1", "takes no value: --in-place=1"},
        {"--count 4", "--count takes a whole number from 5 to 9, not 4"},
        {"--count 10", "not 10"},
        {"--count 5x", "not 5x"},
        {"--count +5", "not +5"},
        {"--any 99999999999999999999", "--any takes a whole number, not 9999"},
        {"--share nan", "--share takes a number from 1 on, not nan"},
        {"--share 0.9", "not 0.9"},
        {"--form d", "--form takes one of a|b|c, not d"},
        {"--form a|b", "not a|b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(parse(OPTIONS_FIRST, cases[i].line), -4, "%s", cases[i].line);
        cr_expect(strstr(said, cases[i].word) && strstr(said, "(see --help)\n"), "%s: %s", cases[i].line, said);
    }
}

Test(options, help)
{
    cr_assert_eq(parse(OPTIONS_FIRST, "--count 6 --help --nonsense"), 0);
    cr_expect_str_eq(
        said, "usage: program [OPTION]...\n\nTests.\n\n"
              "  --count N            How many. Default: 5.\n"
              "  --any N              Any.\n"
              "  --share X            A share. Default: 2.5.\n"
              "  --in-place           In place.\n"
              "  --form a|b|c         A form. Default: b.\n"
              "  -o FILE              A file.\n"
              "  --each WORD          Words.\n"
              "  --set NAME=VALUE     A setting.\n"
              "  --devices[=DEVICES]  Devices.\n"
              "  --a-name-that-is-too-long FOR-THE-COLUMN\n"
              "                       A meaning on a line of its own, and so long that it does not fit into one\n"
              "                       line.\n"
              "\nAnd more.\n");
    cr_expect_eq(parse(OPTIONS_FIRST, "-h"), 0);
}
