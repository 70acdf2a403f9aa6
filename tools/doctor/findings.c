/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tools/doctor/doctor.h"

const struct doctor_row doctor_rows[DOCTOR_CHECKS] = {
#define X(id, name, group, meaning, advice) [DOCTOR_##id] = {name, group, meaning, advice},
#include "tools/doctor/checks.def"
#undef X
};

static const char *const result_names[DOCTOR_RESULTS] = {"ok", "warn", "fail", "unknown"};

const char *doctor_result_name(enum doctor_result r)
{
    return result_names[r];
}

void doctor_add(struct doctor *d, enum doctor_id id, enum doctor_result r, const char *fmt, ...)
{
    struct doctor_finding f = {.id = id, .result = r, .advice = doctor_rows[id].advice};
    va_list args;
    if (d->findings == d->room) {
        d->room = d->room ? 2 * d->room : 64;
        d->finding = realloc(d->finding, d->room * sizeof *d->finding);
    }
    va_start(args, fmt);
    int n = d->finding ? vasprintf(&f.text, fmt, args) : -1;
    va_end(args);
    if (n < 0) {
        fputs("slipring doctor: no memory\n", stderr);
        exit(DOCTOR_EXIT_ERROR);
    }
    d->finding[d->findings++] = f;
}

void doctor_advise(struct doctor *d, const char *advice)
{
    d->finding[d->findings - 1].advice = advice;
}

FILE *doctor_open(const char *root, const char *path)
{
    char name[PATH_MAX];
    return snprintf(name, sizeof name, "%s%s", root, path) < (int)sizeof name ? fopen(name, "re") : NULL;
}

void doctor_name_in(char *list, size_t size, const char *name)
{
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? " " : "", name);
}

bool doctor_has(const struct doctor *d, enum doctor_id id)
{
    for (size_t i = 0; i < d->findings; i++)
        if (d->finding[i].id == id)
            return true;
    return false;
}

void doctor_free(struct doctor *d)
{
    for (size_t i = 0; i < d->findings; i++) {
        free(d->finding[i].text);
        free(d->finding[i].own);
    }
    free(d->finding);
    d->finding = NULL;
    d->findings = d->room = 0;
}

enum doctor_exit doctor_exit_status(const struct doctor *d)
{
    enum doctor_exit worst = DOCTOR_EXIT_OK;
    for (size_t i = 0; i < d->findings; i++) {
        if (d->finding[i].result == DOCTOR_FAIL)
            return DOCTOR_EXIT_FAIL;
        if (d->finding[i].result == DOCTOR_WARN)
            worst = DOCTOR_EXIT_WARN;
    }
    return worst;
}
