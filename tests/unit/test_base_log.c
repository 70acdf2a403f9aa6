/* SPDX-License-Identifier: Apache-2.0 */
/* What a line looks like, in both forms. */
#include "base/hash.h"
#include "base/log.h"
#include "log_helpers.h"
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <locale.h>
#include <math.h>

static char *folder, path[64];

static void begin(const char *format)
{
    folder = make_folder();
    snprintf(path, sizeof path, "%s/log", folder);
    use_file(path, "info", format);
}

/* All that was logged; the folder is gone afterwards. */
static char *end(void)
{
    char *text = slurp(path);
    cr_assert_not_null(text, "nothing was logged");
    remove_folder(folder);
    return text;
}

static json_t *end_json(void)
{
    json_error_t error;
    char *text = end();
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(line, "%s in %s", error.text, text);
    free(text);
    return line;
}

static const char *string_of(json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    cr_assert_not_null(text, "no string %s", key);
    return text;
}

/* The text line behind "level event ". */
static char *fields_of(char *text)
{
    char *at = strstr(text, "] info event ");
    cr_assert_not_null(at, "%s", text);
    return at + strlen("] info event ");
}

Test(log, text_header)
{
    char host[100], want[400];
    begin("text");
    slr_log(SLR_LOG_INFO, "event", "a=%d", 1);
    slr_log_set_rank(5);
    slr_log_set_rank(6);
    slr_log(SLR_LOG_ERROR, "other", "a=%d", 2);
    char *text = end();
    gethostname(host, sizeof host);
    snprintf(want, sizeof want, "slipring[%s:%d] info event a=1\nslipring[%s:%d rank 5] error other a=2\n", host,
             getpid(), host, getpid());
    cr_expect_str_eq(text, want);
    free(text);
}

Test(log, conversions)
{
    begin("text");
    slr_log(SLR_LOG_INFO, "event",
            "a=%d b=%u c=%ld d=%lu e=%zu f=%lld g=%llu h=%x i=%p j=%s k=%.3f l=%c m=%lx n=%.2s o=%.*s p=%5d q=%%",
            INT_MIN, UINT_MAX, LONG_MIN, ULONG_MAX, (size_t)7, LLONG_MAX, ULLONG_MAX, 0xbeefu, (void *)0x10, "text",
            2.0625, 'z', 0xffffffffffUL, "abc", 1, "xyz", 3);
    char *text = end();
    cr_expect_str_eq(
        fields_of(text),
        "a=-2147483648 b=4294967295 c=-9223372036854775808 d=18446744073709551615 e=7 f=9223372036854775807 "
        "g=18446744073709551615 h=beef i=0x10 j=text k=2.063 l=z m=ffffffffff n=ab o=x p=3 q=%\n");
    free(text);
}

Test(log, doubles)
{
    begin("text");
    slr_log(SLR_LOG_INFO, "event", "a=%.3f b=%.0f c=%f d=%.2f e=%.1f f=%.1f g=%.1f h=%.2f i=%.9f", -0.0004, 2.6, 0.5,
            1e15, 1e300, (double)NAN, -(double)INFINITY, 9.999, 1e-9);
    char *text = end();
    cr_expect_str_eq(fields_of(text),
                     "a=-0.000 b=3 c=0.500000 d=1000000000000000.00 e=1.0e300 f=nan g=-inf h=10.00 i=0.000000001\n");
    free(text);
}

Test(log, text_quotes_what_would_be_misread)
{
    begin("text");
    slr_log(SLR_LOG_INFO, "event", "a=%s b=%s c=%s d=%s e=%s f=%s msg=%s", "two words", "", "k=v", "q\"\\",
            "nl\ntab\t\x1b", "/plain/path:1.2-x", "last, in prose");
    char *text = end();
    cr_expect_str_eq(fields_of(text),
                     "a=\"two words\" b=\"\" c=\"k=v\" d=\"q\\\"\\\\\" e=\"nl\\ntab\\t\\x1b\" f=/plain/path:1.2-x "
                     "msg=\"last, in prose\"\n");
    free(text);
}

Test(log, prose_may_be_written_in_the_format)
{
    const char *volatile nothing = NULL; /* the compiler would refuse to print what it knows to be NULL */
    begin("text");
    slr_log(SLR_LOG_INFO, "event", "a=%dx%d b=word msg=rank %d is gone: %s", 2, 3, 4, "why");
    slr_log(SLR_LOG_INFO, "event", "just %s", "prose");
    slr_log(SLR_LOG_INFO, "event", "a=%s", nothing);
    char *text = end(), *line = fields_of(text);
    static const char first[] = "a=2x3 b=word msg=\"rank 4 is gone: why\"\n";
    cr_expect_eq(strncmp(line, first, strlen(first)), 0, "%s", line);
    cr_expect_not_null(strstr(line, "event msg=\"just prose\"\n"));
    cr_expect_not_null(strstr(line, "event a=(null)\n"));
    free(text);
}

Test(log, json_header_and_types)
{
    begin("json");
    slr_log_set_rank(3);
    slr_log(SLR_LOG_WARN, "event", "n=%lld f=%.3f s=%s x=%x digits=%s msg=%s", -5ll, 1.5, "a b", 255u, "12", "prose");
    json_t *line = end_json();
    cr_expect_gt(json_integer_value(json_object_get(line, "ts")), 0);
    cr_expect(json_is_real(json_object_get(line, "wall")));
    cr_expect_eq(json_integer_value(json_object_get(line, "pid")), getpid());
    cr_expect_eq(json_integer_value(json_object_get(line, "rank")), 3);
    cr_expect_str_eq(string_of(line, "level"), "warn");
    cr_expect_str_eq(string_of(line, "event"), "event");
    cr_expect_eq(json_integer_value(json_object_get(line, "n")), -5);
    cr_expect_eq(json_real_value(json_object_get(line, "f")), 1.5);
    cr_expect_str_eq(string_of(line, "s"), "a b");
    cr_expect_str_eq(string_of(line, "x"), "ff");
    cr_expect_str_eq(string_of(line, "digits"), "12", "a string stays a string");
    cr_expect_str_eq(string_of(line, "msg"), "prose");
    json_decref(line);
}

Test(log, json_without_a_communicator_has_rank_minus_one)
{
    begin("json");
    slr_log(SLR_LOG_WARN, "event", "rank=%d pid=%d nan=%.1f", 7, 8, (double)NAN);
    json_t *line = end_json();
    cr_expect_eq(json_integer_value(json_object_get(line, "rank")), -1);
    cr_expect_eq(json_integer_value(json_object_get(line, "event_rank")), 7, "a field does not hide the header's key");
    cr_expect_eq(json_integer_value(json_object_get(line, "event_pid")), 8);
    cr_expect_str_eq(string_of(line, "nan"), "nan");
    json_decref(line);
}

Test(log, json_escapes_every_byte)
{
    char all[256];
    for (int i = 0; i < 255; i++)
        all[i] = (char)(i + 1);
    all[255] = '\0';
    begin("json");
    slr_log(SLR_LOG_INFO, "event", "s=%s", all);
    json_t *line = end_json();
    const char *s = string_of(line, "s");
    cr_expect_eq(strncmp(s, all, 0x7f), 0, "ASCII, with its controls, comes back");
    const char *rest = s + 0x7f;
    cr_expect_eq(strlen(rest), 128 * 3, "a byte that is not UTF-8 becomes U+FFFD");
    for (; *rest; rest += 3)
        cr_assert_eq(strncmp(rest, "\xef\xbf\xbd", 3), 0);
    json_decref(line);
}

Test(log, json_keeps_utf8_and_only_that)
{
    begin("json");
    slr_log(SLR_LOG_INFO, "event", "a=%s b=%s c=%s d=%s e=%s f=%s g=%s", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
            "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xe0\x80\xaf", "\xf0\x80\x80\xaf");
    json_t *line = end_json();
    cr_expect_str_eq(string_of(line, "a"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    cr_expect_str_eq(string_of(line, "b"), "\xef\xbf\xbd\xef\xbf\xbd", "overlong");
    cr_expect_eq(strlen(string_of(line, "c")), 9, "surrogate");
    cr_expect_eq(strlen(string_of(line, "d")), 12, "above U+10FFFF");
    cr_expect_eq(strlen(string_of(line, "e")), 6, "cut short");
    cr_expect_eq(strlen(string_of(line, "f")), 9, "overlong, three bytes");
    cr_expect_eq(strlen(string_of(line, "g")), 12, "overlong, four bytes");
    json_decref(line);
}

/* Lengths around the end of the line, with characters of all widths, so that each place of the cut is met. */
static void long_values(const char *filler)
{
    static char value[8000];
    size_t unit = strlen(filler);
    for (int i = 0; i < 60; i++) {
        size_t n = 0, want = 1700 / (unit > 1 ? 2 : 1) + (size_t)i * 13;
        while (n + unit < want)
            memcpy(value + n, filler, unit), n += unit;
        value[n] = '\0';
        slr_log(SLR_LOG_INFO, "event", "first=%d s=%s last=%d", i, value, i);
    }
}

static void check_json_lines(char *text)
{
    int truncated = 0, whole = 0;
    for (char *at = text, *newline; *at; at = newline + 1) {
        json_error_t error;
        newline = strchr(at, '\n');
        cr_assert_not_null(newline);
        cr_assert_leq(newline + 1 - at, SLR_LOG_LINE);
        json_t *line = json_loadb(at, (size_t)(newline - at), JSON_REJECT_DUPLICATES, &error);
        cr_assert_not_null(line, "%s: %.*s", error.text, (int)(newline - at), at);
        bool cut = json_is_true(json_object_get(line, "truncated"));
        cr_assert_eq(cut, json_object_get(line, "last") == NULL, "cut exactly when the last field is missing");
        cut ? truncated++ : whole++;
        json_decref(line);
    }
    cr_expect_gt(truncated, 5);
    cr_expect_gt(whole, 5);
}

Test(log, json_that_is_too_long_is_cut_and_stays_json)
{
    static const char *const fillers[] = {"x", "\"", "\xc3\xa9", "\xf0\x9f\x98\x80"};
    begin("json");
    for (size_t i = 0; i < sizeof fillers / sizeof *fillers; i++)
        long_values(fillers[i]);
    char *text = end();
    check_json_lines(text);
    free(text);
}

Test(log, text_that_is_too_long_is_cut_and_says_so)
{
    int cut = 0;
    begin("text");
    long_values("x");
    long_values(" ");
    char *text = end();
    for (char *at = text, *newline; *at; at = newline + 1) {
        newline = strchr(at, '\n');
        cr_assert_leq(newline + 1 - at, SLR_LOG_LINE);
        bool dots = strncmp(newline - 3, "...", 3) == 0;
        *newline = '\0';
        cr_assert_eq(dots, strstr(at, " last=") == NULL, "%s", at);
        cut += dots;
    }
    cr_expect_gt(cut, 5);
    free(text);
}

Test(log, a_value_longer_than_a_line_is_cut)
{
    static char value[3 * SLR_LOG_LINE];
    memset(value, 'y', sizeof value - 1);
    begin("json");
    slr_log(SLR_LOG_INFO, "event", "s=%s", value);
    json_t *line = end_json();
    cr_expect(json_is_true(json_object_get(line, "truncated")));
    cr_expect_gt(strlen(string_of(line, "s")), SLR_LOG_LINE - 300);
    json_decref(line);
}

Test(log, levels)
{
    begin("text");
    setenv("SLIPRING_LOG", "warn", 1);
    cr_expect(slr_log_enabled(SLR_LOG_ERROR));
    cr_expect(slr_log_enabled(SLR_LOG_WARN));
    cr_expect_not(slr_log_enabled(SLR_LOG_INFO));
    cr_expect_not(slr_log_enabled(SLR_LOG_OFF), "off is not a level to log at");
    slr_log(SLR_LOG_INFO, "hidden", "a=%d", 1);
    slr_log(SLR_LOG_WARN, "shown", "a=%d", 1);
    char *text = end();
    cr_expect_null(strstr(text, "hidden"));
    cr_expect_not_null(strstr(text, "warn shown a=1\n"));
    free(text);
}

Test(log, a_line_that_was_asked_for_by_another_setting)
{
    begin("text");
    setenv("SLIPRING_LOG", "error", 1);
    slr_log(SLR_LOG_INFO, "hidden", "a=%d", 1);
    errno = EDOM;
    slr_log_asked("shown", "a=%d b=%s", 1, "two words");
    cr_expect_eq(errno, EDOM);
    char *text = end();
    cr_expect_null(strstr(text, "hidden"));
    cr_expect_not_null(strstr(text, "] info shown a=1 b=\"two words\"\n"));
    free(text);
}

Test(log, off_is_off_also_for_lines_that_were_asked_for)
{
    begin("text");
    setenv("SLIPRING_LOG", "off", 1);
    slr_log_asked("hidden", "a=%d", 1);
    cr_expect_null(slurp(path));
    remove_folder(folder);
}

Test(log, errno_survives)
{
    begin("text");
    errno = EDOM;
    slr_log(SLR_LOG_INFO, "event", "a=%d", 1);
    cr_expect_eq(errno, EDOM);
    free(end());
}

/* A locale with a decimal comma, where one is installed, must not break JSON. */
Test(log, the_locale_does_not_matter)
{
    setlocale(LC_ALL, "de_DE.UTF-8");
    begin("json");
    slr_log(SLR_LOG_INFO, "event", "f=%.1f", 1.5);
    setlocale(LC_ALL, "C");
    json_t *line = end_json();
    cr_expect_eq(json_real_value(json_object_get(line, "f")), 1.5);
    json_decref(line);
}

Test(log, first_is_true_once_for_each_key)
{
    cr_expect(slr_log_first(0));
    cr_expect_not(slr_log_first(0));
    for (uint64_t key = 1; key < 4000; key++)
        cr_assert(slr_log_first(key * 4096), "%llu", (unsigned long long)key);
    for (uint64_t key = 1; key < 4000; key++)
        cr_assert_not(slr_log_first(key * 4096));
}

Test(log, first_is_false_when_the_table_is_full)
{
    int first = 0;
    for (uint64_t key = 1; key <= 10000; key++)
        first += slr_log_first(slr_mix(key, key));
    cr_expect_eq(first, 4096);
    cr_expect_not(slr_log_first(12345));
}

Test(log, mix_has_no_collision_among_small_shapes)
{
    static uint64_t seen[1 << 16];
    for (uint64_t a = 0; a < 100; a++)
        for (uint64_t b = 0; b < 100; b++) {
            uint64_t h = slr_mix(a, b), *slot = &seen[h >> 48];
            cr_assert_neq(*slot, h + 1);
            *slot = h + 1;
        }
    cr_expect_neq(slr_mix(1, 2), slr_mix(2, 1));
}
