/* What the tools share: UTF-8, JSON, words. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "tools/common/json.h"
#include "tools/common/utf8.h"
#include "tools/common/words.h"

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
