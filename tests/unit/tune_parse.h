/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the tune file's parser. */
#ifndef SLR_TESTS_UNIT_TUNE_PARSE_H
#define SLR_TESTS_UNIT_TUNE_PARSE_H

#include <criterion/criterion.h>
#include <string.h>
#include "plugin/tuner/tune_table.h"

static inline struct slr_tune_table parse(const char *text)
{
    struct slr_tune_table t;
    struct slr_tune_error e;
    cr_assert_eq(slr_tune_parse(&t, text, strlen(text), &e), 0, "line %d: %s", e.line, e.text);
    return t;
}

/* Refused, by a message that names the line and what is wrong in it. */
static inline void expect_error(const char *text, int line, const char *part)
{
    struct slr_tune_table t;
    struct slr_tune_error e;
    cr_assert_lt(slr_tune_parse(&t, text, strlen(text), &e), 0, "%s: accepted", text);
    cr_assert_eq(e.line, line, "%s: line %d, not %d", text, e.line, line);
    cr_assert(strstr(e.text, part) && strstr(e.text, "expected"), "%s: no \"%s\" in: %s", text, part, e.text);
    cr_assert(t.count == 0 && !t.rule && t.sites == 0 && !t.site);
}

#endif
