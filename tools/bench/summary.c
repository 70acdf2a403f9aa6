/* SPDX-License-Identifier: Apache-2.0 */
/* Medians, least and greatest of each figure, and the ratio of the sides. */
#include <stdlib.h>
#include <string.h>
#include "tools/bench/bench.h"

struct figure {
    const char *name, *unit;
    const char *path[3]; /* in ag_gemm's JSON */
    bool more_is_better;
};
static const struct figure figures[] = {
    {"GEMM alone", "ms", {"worst", "gemm", "gpu_ms"}, false},
    {"gather alone", "ms", {"worst", "gather", "gpu_ms"}, false},
    {"ceiling", "ms", {"ceiling_ms"}, false},
    {"sequence", "ms", {"worst", "sequence", "gpu_ms"}, false},
    {"whole", "ms", {"worst", "whole", "gpu_ms"}, false},
    {"whole, host", "ms", {"worst", "whole", "host_ms"}, false},
    {"TFLOP/s", "", {"worst", "tflops"}, true},
    {"gather GB/s", "", {"gather_gb_per_s"}, true},
};

static const char *const side_names[SIDES] = {"without", "with"};

static const json_t *at(const json_t *object, const char *const path[3])
{
    for (int i = 0; i < 3 && path[i]; i++)
        object = json_object_get(object, path[i]);
    return object;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* {median, min, max}, or NULL when a run has no such figure. */
static json_t *spread(const json_t *runs, const struct figure *f)
{
    size_t n = json_array_size(runs);
    double *values = calloc(n, sizeof *values);
    bool all = values != NULL && n > 0;
    for (size_t i = 0; i < n && all; i++) {
        const json_t *value = at(json_array_get(runs, i), f->path);
        all = json_is_number(value);
        if (all)
            values[i] = json_number_value(value);
    }
    json_t *result = NULL;
    if (all) {
        qsort(values, n, sizeof *values, ascending);
        double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
        result = json_pack("{s:f, s:f, s:f}", "median", median, "min", values[0], "max", values[n - 1]);
    }
    free(values);
    return result;
}

static double median_of(const json_t *spread_of_side)
{
    return json_number_value(json_object_get(spread_of_side, "median"));
}

static json_t *row(const struct figure *f, json_t *const runs[SIDES])
{
    json_t *side[SIDES] = {spread(runs[WITHOUT], f), spread(runs[WITH], f)};
    if (!side[WITHOUT] || !side[WITH]) {
        json_decref(side[WITHOUT]);
        json_decref(side[WITH]);
        return NULL;
    }
    double a = median_of(side[WITHOUT]), b = median_of(side[WITH]);
    double over = f->more_is_better ? b : a, under = f->more_is_better ? a : b;
    return json_pack("{s:s, s:f, s:f, s:o, s:{s:o, s:o}}", "unit", f->unit, "without", a, "with", b, "ratio",
                     under != 0 ? json_real(over / under) : json_null(), "spread", "without", side[WITHOUT], "with",
                     side[WITH]);
}

static json_t *rows(json_t *const runs[SIDES])
{
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        json_t *r = row(&figures[i], runs);
        if (r)
            json_object_set_new(all, figures[i].name, r);
    }
    return all;
}

/* What all checks say, or "mixed". */
static const char *checks(json_t *const runs[SIDES])
{
    const char *first = NULL;
    for (int side = 0; side < SIDES; side++)
        for (size_t i = 0; i < json_array_size(runs[side]); i++) {
            const json_t *check = json_object_get(json_array_get(runs[side], i), "check");
            const char *result = json_string_value(json_object_get(check, "result"));
            if (!result || (first && strcmp(first, result) != 0))
                return "mixed";
            first = result;
        }
    return first ? first : "mixed";
}

json_t *bench_summary(const struct bench *b, json_t *const runs[SIDES])
{
    const char *timing = getenv("SOFTGPU_TIMING");
    const json_t *first = json_array_get(runs[WITHOUT], 0);
    const json_t *label = json_object_get(json_object_get(first, "options"), "label");
    char *options = words_join(&b->options);
    json_t *s = json_pack("{s:O?, s:b, s:O?, s:I, s:s, s:s, s:O?, s:s, s:o, s:{s:O, s:O}}", "device",
                          json_object_get(first, "device"), "modelled", timing && !strcmp(timing, "1"), "ranks",
                          json_object_get(first, "world"), "rounds", (json_int_t)b->rounds, "prefix", b->with,
                          "options", options, "label", label, "check", checks(runs), "rows", rows(runs), "runs",
                          side_names[WITHOUT], runs[WITHOUT], side_names[WITH], runs[WITH]);
    free(options);
    return s;
}
