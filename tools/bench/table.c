/* SPDX-License-Identifier: Apache-2.0 */
/* The summary as a table, for a terminal and for documents. */
#include <string.h>
#include "tools/bench/bench.h"

static const char *text_of(const json_t *summary, const char *name)
{
    const char *text = json_string_value(json_object_get(summary, name));
    return text ? text : "";
}

static const char *number(const json_t *value, char *buf, size_t size)
{
    double v = json_number_value(value);
    if (!json_is_number(value))
        snprintf(buf, size, "-");
    else
        snprintf(buf, size, "%.*f", v < 10 ? 4 : v < 1000 ? 3 : 1, v);
    return buf;
}

static void heading(FILE *out, const json_t *s, const char *end)
{
    const char *label = text_of(s, "label");
    fprintf(out, "%s%sag_gemm %s%s\n", label, *label ? ": " : "", text_of(s, "options"), end);
    fprintf(out, "%lld ranks on %s; %smedian of %lld rounds, worst rank; check: %s%s\n",
            json_integer_value(json_object_get(s, "ranks")), text_of(s, "device"),
            json_is_true(json_object_get(s, "modelled")) ? "modelled times, " : "",
            json_integer_value(json_object_get(s, "rounds")), text_of(s, "check"), end);
    fprintf(out, "without: ag_gemm; with: %s ag_gemm\n\n", text_of(s, "prefix"));
}

static void print_rows(FILE *out, const json_t *s, const char *format)
{
    const char *name;
    json_t *row, *all = json_object_get(s, "rows");
    json_object_foreach(all, name, row)
    {
        char title[64], cell[3][32];
        const char *unit = json_string_value(json_object_get(row, "unit"));
        snprintf(title, sizeof title, "%s%s%s", name, unit && *unit ? " " : "", unit ? unit : "");
        number(json_object_get(row, "without"), cell[0], sizeof cell[0]);
        number(json_object_get(row, "with"), cell[1], sizeof cell[1]);
        number(json_object_get(row, "ratio"), cell[2], sizeof cell[2]);
        fprintf(out, format, title, cell[0], cell[1], cell[2]);
    }
}

void bench_table(FILE *out, const json_t *s)
{
    heading(out, s, "");
    fprintf(out, "%16s %12s %12s %8s\n", "", "without", "with", "ratio");
    print_rows(out, s, "%16s %12s %12s %8s\n");
}

void bench_markdown(FILE *out, const json_t *s)
{
    heading(out, s, "  ");
    fputs("| | without | with | ratio |\n|---|---:|---:|---:|\n", out);
    print_rows(out, s, "| %s | %s | %s | %s |\n");
}
