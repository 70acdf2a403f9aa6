/* SPDX-License-Identifier: Apache-2.0 */
#include "base/settings.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct told {
    int count;
    char name[80], value[80], expected[200], nearest[80], from[80];
};

static void note(void *ctx, const struct slr_setting_place *place, const char *name, const char *value,
                 const char *expected, const char *nearest)
{
    struct told *told = ctx;
    told->count++;
    slr_setting_place_text(place, told->from, sizeof told->from);
    snprintf(told->name, sizeof told->name, "%s", name);
    snprintf(told->value, sizeof told->value, "%s", value);
    snprintf(told->expected, sizeof told->expected, "%s", expected);
    snprintf(told->nearest, sizeof told->nearest, "%s", nearest ? nearest : "(none)");
}

static struct told parse(struct slr_settings *s, char *a, char *b)
{
    char *envp[] = {"PATH=/bin", a, b, NULL};
    struct told told = {0};
    slr_settings_parse(s, envp, note, &told);
    return told;
}

#define ROW(id) (&slr_setting_rows[SLR_S_##id])

static void accepts(const struct slr_setting_row *row, const char *text, uint64_t want)
{
    uint64_t got = 12345;
    cr_expect_eq(slr_setting_value(row, text, &got), 0, "%s=%s", row->name, text);
    cr_expect_eq(got, want, "%s=%s gave %llu", row->name, text, (unsigned long long)got);
}

static void refuses(const struct slr_setting_row *row, const char *text)
{
    uint64_t got = 12345;
    cr_expect_eq(slr_setting_value(row, text, &got), -EINVAL, "%s=%s", row->name, text);
    cr_expect_eq(got, 12345, "a refused value is not stored: %s=%s", row->name, text);
}

Test(settings, every_default_parses)
{
    for (int i = 0; i < SLR_S_COUNT; i++) {
        uint64_t value;
        cr_expect_eq(slr_setting_value(&slr_setting_rows[i], slr_setting_rows[i].def, &value), 0, "%s",
                     slr_setting_rows[i].name);
    }
}

Test(settings, defaults_are_the_documented_ones)
{
    struct slr_settings s;
    struct told told = parse(&s, "HOME=/", "SLIPRING=1");
    cr_expect_eq(told.count, 0);
    cr_expect_eq(s.num[SLR_S_ENABLE], 1);
    cr_expect_eq(s.num[SLR_S_STRICT], 0);
    cr_expect_eq(s.num[SLR_S_MIN_BYTES], 4u << 20);
    cr_expect_eq(s.num[SLR_S_CACHE_BYTES], 1u << 30);
    cr_expect_eq(s.num[SLR_S_AGREE_TIMEOUT], 20000);
    cr_expect_eq(s.num[SLR_S_LOG], 2, "warn");
    cr_expect_str_eq(s.text[SLR_S_LOG_FILE], "");
    for (int i = 0; i < SLR_S_COUNT; i++)
        cr_expect_not_null(s.text[i]);
}

Test(settings, switches)
{
    static const char *const on[] = {"on", "1", "yes", "true", "ON", "True"};
    static const char *const off[] = {"off", "0", "no", "false", "Off", "FALSE"};
    static const char *const bad[] = {"", "2", "o", "onn", "on ", " on", "on|off", "-1", "tru"};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        accepts(ROW(STRICT), on[i], 1);
        accepts(ROW(STRICT), off[i], 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(ROW(STRICT), bad[i]);
}

Test(settings, numbers)
{
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "65",
                                      "1x",
                                      "1 ",
                                      " 1",
                                      "0x10",
                                      "1.5",
                                      "1e1",
                                      "K",
                                      "18446744073709551616",
                                      "99999999999999999999999"};
    accepts(ROW(CHUNKS), "0", 0);
    accepts(ROW(CHUNKS), "64", 64);
    accepts(ROW(CHUNKS), "007", 7);
    accepts(ROW(VERIFY), "4294967295", UINT32_MAX);
    refuses(ROW(VERIFY), "4294967296");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(ROW(CHUNKS), bad[i]);
}

Test(settings, sizes)
{
    static const char *const bad[] = {"",
                                      "M",
                                      "-4M",
                                      "4X",
                                      "4MM",
                                      "4 M",
                                      "4M ",
                                      "4.5M",
                                      "4Ki",
                                      "16777216T",
                                      "30000000000000000000",
                                      "18446744073709551616"};
    accepts(ROW(MIN_BYTES), "0", 0);
    accepts(ROW(MIN_BYTES), "1", 1);
    accepts(ROW(MIN_BYTES), "5B", 5);
    accepts(ROW(MIN_BYTES), "3k", 3 << 10);
    accepts(ROW(MIN_BYTES), "3KB", 3 << 10);
    accepts(ROW(MIN_BYTES), "64M", 64 << 20);
    accepts(ROW(MIN_BYTES), "64mib", 64 << 20);
    accepts(ROW(MIN_BYTES), "2GiB", 2ull << 30);
    accepts(ROW(MIN_BYTES), "1t", 1ull << 40);
    accepts(ROW(MIN_BYTES), "16777215T", 16777215ull << 40);
    accepts(ROW(MIN_BYTES), "18446744073709551615", UINT64_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(ROW(MIN_BYTES), bad[i]);
    refuses(ROW(SLOT_BYTES), "4095");
    accepts(ROW(SLOT_BYTES), "4K", 4096);
    accepts(ROW(SLOT_BYTES), "1T", 1ull << 40);
    refuses(ROW(SLOT_BYTES), "1025G");
}

Test(settings, times)
{
    static const char *const bad[] = {
        "", "s", "1h", "1m", "-1s", "1 s", "1.5s", "5000000000s", "18446744073709551615min"};
    accepts(ROW(STALL_WARN), "0", 0);
    accepts(ROW(STALL_WARN), "7", 7000);
    accepts(ROW(STALL_WARN), "7s", 7000);
    accepts(ROW(STALL_WARN), "250MS", 250);
    accepts(ROW(STALL_WARN), "2min", 120000);
    refuses(ROW(AGREE_TIMEOUT), "0");
    accepts(ROW(AGREE_TIMEOUT), "60min", 3600000);
    refuses(ROW(AGREE_TIMEOUT), "61min");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(ROW(STALL_WARN), bad[i]);
}

Test(settings, choices)
{
    accepts(ROW(LOG), "off", 0);
    accepts(ROW(LOG), "Debug", 4);
    accepts(ROW(PROTOCOL), "pull", 1);
    refuses(ROW(LOG), "");
    refuses(ROW(LOG), "inf");
    refuses(ROW(LOG), "infoo");
    refuses(ROW(LOG), "warn|info");
    refuses(ROW(LOG), "3");
}

Test(settings, a_text_is_taken_as_it_is)
{
    struct slr_settings s;
    cr_expect_eq(parse(&s, "SLIPRING_LOG_FILE=/tmp/a=b %r", "x=y").count, 0);
    cr_expect_str_eq(s.text[SLR_S_LOG_FILE], "/tmp/a=b %r");
}

Test(settings, a_text_that_is_too_long_is_refused)
{
    static char entry[SLR_SETTING_TEXT_MAX + 64];
    struct slr_settings s;
    size_t name = (size_t)sprintf(entry, "SLIPRING_LOG_FILE=");
    memset(entry + name, 'x', SLR_SETTING_TEXT_MAX);
    cr_expect_eq(parse(&s, entry, "x=y").count, 0);
    cr_expect_eq(strlen(s.text[SLR_S_LOG_FILE]), SLR_SETTING_TEXT_MAX);
    entry[name + SLR_SETTING_TEXT_MAX] = 'x';
    cr_expect_eq(parse(&s, entry, "x=y").count, 1);
    cr_expect_str_eq(s.text[SLR_S_LOG_FILE], "");
}

Test(settings, a_bad_value_is_told_and_the_default_stays)
{
    struct slr_settings s;
    struct told told = parse(&s, "SLIPRING_SLOT_BYTES=12", "SLIPRING_CHUNKS=3");
    cr_expect_eq(told.count, 1);
    cr_expect_str_eq(told.name, "SLIPRING_SLOT_BYTES");
    cr_expect_str_eq(told.value, "12");
    cr_expect_str_eq(told.expected, "a size such as 64M, at least 4096, at most 1T");
    cr_expect_str_eq(told.nearest, "(none)");
    cr_expect_eq(s.num[SLR_S_SLOT_BYTES], 64u << 20);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3);
}

Test(settings, an_empty_value_is_the_default_and_not_told)
{
    struct slr_settings s;
    cr_expect_eq(parse(&s, "SLIPRING_CHUNKS=", "SLIPRING_ENABLE=").count, 0);
    cr_expect_eq(s.num[SLR_S_ENABLE], 1);
}

Test(settings, the_first_of_two_entries_counts)
{
    struct slr_settings s;
    cr_expect_eq(parse(&s, "SLIPRING_CHUNKS=3", "SLIPRING_CHUNKS=4").count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3);
    cr_expect_eq(parse(&s, "SLIPRING_CHUNKS=x", "SLIPRING_CHUNKS=4").count, 1);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 0);
    cr_expect_eq(parse(&s, "SLIPRING_NOPE=3", "SLIPRING_NOPE=4").count, 1);
}

Test(settings, unknown_names_are_told_with_the_nearest_one)
{
    static const char *const cases[][2] = {
        {"STRICKT", "STRICT"},
        {"STRCIT", "STRICT"},
        {"strict", "STRICT"},
        {"LOGFILE", "LOG_FILE"},
        {"LOG_FILES", "LOG_FILE"},
        {"CHUNK", "CHUNKS"},
        {"MINBYTES", "MIN_BYTES"},
        {"LGO", "LOG"},
        {"ENABLED", "ENABLE"},
        {"FUES", "FUSE"},
        {"CACHEBYTES", "CACHE_BYTES"},
        {"STALL_TIMEOTU", "STALL_TIMEOUT"},
        {"AGREEMENT_TIMEOUT", "AGREE_TIMEOUT"},
        {"DEBUG", "LOG"}, /* names of NCCL's and of others */
        {"debug", "LOG"},
        {"VERBOSE", "LOG"},
        {"DEBUG_FILE", "LOG_FILE"},
        {"DISABLE", "ENABLE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slr_settings s;
        char entry[80], want[80];
        snprintf(entry, sizeof entry, "SLIPRING_%s=1", cases[i][0]);
        snprintf(want, sizeof want, "SLIPRING_%s", cases[i][1]);
        struct told told = parse(&s, entry, "x=y");
        cr_expect_eq(told.count, 1, "%s", entry);
        cr_expect_str_eq(told.nearest, want, "%s: %s", entry, told.nearest);
        cr_expect_str_eq(told.value, "1");
    }
}

Test(settings, a_name_far_from_all_has_no_nearest_one)
{
    static const char *const names[] = {
        "",
        "X",
        "COLOUR",
        "TIMEOUT",
        "DEBUGGER",
        "BYTES",
        "AVERYLONGNAMETHATISLONGERTHANANYSETTINGANDTHANTHEBUFFEROFTHENAMESSOITISCUTSOMEWHERE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct slr_settings s;
        char entry[160];
        snprintf(entry, sizeof entry, "SLIPRING_%s=1", names[i]);
        struct told told = parse(&s, entry, "x=y");
        cr_expect_eq(told.count, 1, "%s", entry);
        cr_expect_str_eq(told.nearest, "(none)", "%s: %s", entry, told.nearest);
    }
}

Test(settings, the_launchers_variables_are_not_unknown)
{
    struct slr_settings s;
    cr_expect_eq(parse(&s, "SLIPRING_LIB=/x/libslipring.so", "SLIPRING_SOFTGPU=/x").count, 0);
}

Test(settings, distance)
{
    cr_expect_eq(slr_edit_distance("", 0, "", 0, 3), 0);
    cr_expect_eq(slr_edit_distance("abc", 3, "", 0, 3), 3);
    cr_expect_eq(slr_edit_distance("kitten", 6, "sitting", 7, 9), 3);
    cr_expect_eq(slr_edit_distance("ab", 2, "BA", 2, 9), 1);
    cr_expect_eq(slr_edit_distance("abcd", 4, "wxyz", 4, 2), 3, "bounded");
}

/* The agreement exchanges the values of UNIFORM settings as numbers. */
Test(settings, what_ranks_compare_is_numbers)
{
    int uniform = 0;
    for (int i = 0; i < SLR_S_COUNT; i++) {
        if (slr_setting_rows[i].scope != SLR_SCOPE_UNIFORM)
            continue;
        uniform++;
        cr_expect_neq(slr_setting_rows[i].kind, SLR_KIND_TEXT, "%s", slr_setting_rows[i].name);
    }
    cr_expect_gt(uniform, 0);
    cr_expect_eq(ROW(MIN_BYTES)->scope, SLR_SCOPE_UNIFORM);
    cr_expect_eq(ROW(LOG)->scope, SLR_SCOPE_LOCAL);
}

Test(settings, forms_fit_any_buffer)
{
    for (int i = 0; i < SLR_S_COUNT; i++)
        for (size_t size = 1; size < 100; size++) {
            char buf[101];
            memset(buf, '#', sizeof buf);
            cr_assert_eq(slr_setting_form(&slr_setting_rows[i], buf, size), buf);
            cr_assert_lt(strlen(buf), size);
            cr_assert_eq(buf[size], '#');
        }
}

/* Shells and launchers rewrite their environment and free what was there. */
Test(settings, the_process_settings_outlive_the_environment)
{
    char entry[] = "SLIPRING_LOG_FILE=/tmp/here";
    putenv(entry);
    cr_assert_str_eq(slr_settings()->text[SLR_S_LOG_FILE], "/tmp/here");
    memset(strchr(entry, '=') + 1, 'x', 5);
    cr_assert_str_eq(slr_settings()->text[SLR_S_LOG_FILE], "/tmp/here");
}

/* ---- files ---- */

/* As after an environment that holds `entry` and nothing else. */
static struct told parse_text(struct slr_settings *s, char *entry, const char *path, char *text)
{
    char *envp[] = {entry, NULL};
    struct told told = {0};
    slr_settings_parse(s, envp, note, &told);
    slr_settings_file(s, path, text, note, &told);
    return told;
}

Test(settings_file, lines)
{
    static struct slr_settings s;
    char text[] = "# CHUNKS=9\n\n  \t# more\nSLIPRING_CHUNKS=3\n  PARTS = 5 \r\nLOG_FILE=/a #b=c d\nLOG=info";
    cr_expect_eq(parse_text(&s, "x=y", "/f", text).count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3);
    cr_expect_eq(s.num[SLR_S_PARTS], 5);
    cr_expect_eq(s.num[SLR_S_LOG], 3);
    cr_expect_str_eq(s.text[SLR_S_LOG_FILE], "/a #b=c d");
    cr_expect(s.given[SLR_S_CHUNKS] && s.given[SLR_S_LOG]);
    cr_expect_str_eq(s.place[SLR_S_PARTS].file, "/f");
    cr_expect_eq(s.place[SLR_S_PARTS].line, 5);
    cr_expect_not(s.given[SLR_S_SLOT_BYTES]);
}

Test(settings_file, the_environment_counts_before_it_and_the_first_line_before_others)
{
    static struct slr_settings s;
    char text[] = "CHUNKS=3\nPARTS=2\nPARTS=4\n", again[] = "CHUNKS=3\n", third[] = "CHUNKS=3\n";
    cr_expect_eq(parse_text(&s, "SLIPRING_CHUNKS=7", "/f", text).count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 7);
    cr_expect_null(s.place[SLR_S_CHUNKS].file);
    cr_expect_eq(s.num[SLR_S_PARTS], 2);
    cr_expect_eq(parse_text(&s, "SLIPRING_CHUNKS=", "/f", again).count, 0);
    cr_expect(s.num[SLR_S_CHUNKS] == 0 && !s.given[SLR_S_CHUNKS], "an empty value is the default, not the file's");
    cr_expect_eq(parse_text(&s, "SLIPRING_CHUNKS=many", "/f", third).count, 1);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3, "what is refused is as if it were not there");
}

Test(settings_file, what_is_wrong_is_told_with_its_line)
{
    static const char *const cases[][4] = {
        {"STRICKT=1", "SLIPRING_STRICKT", "a setting that exists (see: slipring env)", "SLIPRING_STRICT"},
        {"log=info", "SLIPRING_log", "a setting that exists (see: slipring env)", "SLIPRING_LOG"},
        {"SLIPRING_LIB=/x", "SLIPRING_LIB", "a setting that exists (see: slipring env)", "(none)"},
        {"CHUNKS=many", "SLIPRING_CHUNKS", "a whole number from 0 to 64", "(none)"},
        {"strict on", "SLIPRING_strict on", "a line NAME=VALUE", "(none)"},
        {"CONF_FILE=/x", "SLIPRING_CONF_FILE", "this one only in the environment", "(none)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct slr_settings s;
        char text[80];
        snprintf(text, sizeof text, "PARTS=2\n%s\nFUSE=off\n", cases[i][0]);
        struct told told = parse_text(&s, "x=y", "/etc/f", text);
        cr_expect_eq(told.count, 1, "%s", cases[i][0]);
        cr_expect_str_eq(told.name, cases[i][1]);
        cr_expect_str_eq(told.expected, cases[i][2]);
        cr_expect_str_eq(told.nearest, cases[i][3]);
        cr_expect_str_eq(told.from, "/etc/f:2");
        cr_expect(s.num[SLR_S_PARTS] == 2 && s.num[SLR_S_FUSE] == 0, "the other lines count");
        cr_expect_eq(s.num[SLR_S_CHUNKS], 0);
        cr_expect_str_eq(s.text[SLR_S_CONF_FILE], "");
    }
}

static char folder[] = "/tmp/test_base_settings.XXXXXX";

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static const char *write_file(const char *name, const char *text, size_t size)
{
    static char path[80];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(text, 1, size, f), size);
    cr_assert_eq(fclose(f), 0);
    return path;
}

/* With the folder as home, and CONF_FILE, unless it is NULL. */
static struct told read_files(struct slr_settings *s, const char *conf_file)
{
    char home[80], conf[160];
    char *envp[] = {home, conf, NULL};
    struct told told = {0};
    snprintf(home, sizeof home, "HOME=%s", folder);
    snprintf(conf, sizeof conf, "%s%s", conf_file ? "SLIPRING_CONF_FILE=" : "x=y", conf_file ? conf_file : "");
    slr_settings_parse(s, envp, note, &told);
    slr_settings_files(s, envp, note, &told);
    return told;
}

Test(settings_file, the_home_folders_or_the_named_one, .init = make_folder, .fini = remove_folder)
{
    static struct slr_settings s;
    cr_expect_eq(read_files(&s, NULL).count, 0, "none is there");
    write_file(SLR_SETTINGS_HOME, "CHUNKS=3", 8);
    cr_expect_eq(read_files(&s, NULL).count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3);
    cr_expect_eq(read_files(&s, "").count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3, "an empty name is none");
    cr_expect_eq(read_files(&s, write_file("named", "PARTS=4", 7)).count, 0);
    cr_expect_eq(s.num[SLR_S_PARTS], 4);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 0, "in its place");
    cr_expect_eq(read_files(&s, "/dev/null").count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 0, "none");
    struct told told = read_files(&s, "/nonexistent/conf");
    cr_expect_eq(told.count, 1, "a named one has to be there");
    cr_expect_str_eq(told.name, "SLIPRING_CONF_FILE");
    cr_expect_str_eq(told.value, "/nonexistent/conf");
    cr_expect_str_eq(told.expected, "a file that can be read");
}

Test(settings_file, what_is_no_text_file_is_told_and_nothing_waits, .init = make_folder, .fini = remove_folder,
     .timeout = 20)
{
    static struct slr_settings s;
    static char large[16384 + 1];
    char pipe[80];
    memset(large, '#', sizeof large);
    cr_expect_eq(read_files(&s, write_file("fits", large, sizeof large - 1)).count, 0);
    cr_expect_str_eq(read_files(&s, write_file("large", large, sizeof large)).expected,
                     "a text of at most 16384 bytes");
    cr_expect_str_eq(read_files(&s, write_file("binary", "CHUNKS=3\n\0\n", 11)).expected,
                     "a text of at most 16384 bytes");
    cr_expect_eq(s.num[SLR_S_CHUNKS], 0);
    cr_expect_str_eq(read_files(&s, folder).expected, "a file");
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    cr_expect_str_eq(read_files(&s, pipe).expected, "a file");
}

Test(settings_file, a_home_of_somebody_else_is_not_obeyed, .init = make_folder, .fini = remove_folder)
{
    static struct slr_settings s;
    const char *path = write_file(SLR_SETTINGS_HOME, "CHUNKS=3", 8);
    if (chown(path, 12345, (gid_t)-1) != 0) {
        cr_skip_test("only root can give a file away");
        return;
    }
    struct told told = read_files(&s, NULL);
    cr_expect_eq(told.count, 1);
    cr_expect_str_eq(told.expected, "a file of this user");
    cr_expect_eq(s.num[SLR_S_CHUNKS], 0);
    cr_expect_eq(read_files(&s, path).count, 0);
    cr_expect_eq(s.num[SLR_S_CHUNKS], 3, "by its name it is");
}
