/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tables/tables.h"
#include "base/reason.h"
#include "base/settings.h"
#include "tools/common/json.h"

static const char *scope_text(const struct slr_setting_row *row)
{
    return row->scope == SLR_SCOPE_UNIFORM ? "yes" : "no";
}

static const char *default_text(const struct slr_setting_row *row)
{
    return row->def[0] ? row->def : "(empty)";
}

/* A '|' would end the cell. */
static void put_cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putc('\\', out);
        putc(*text, out);
    }
}

static void setting_text(FILE *out, const struct slr_setting_row *row, const char *form)
{
    fprintf(out, "SLIPRING_%s\n    default %s; %s%s\n    %s\n", row->name, default_text(row), form,
            row->scope == SLR_SCOPE_UNIFORM ? "; equal on all ranks" : "", row->doc);
}

static void setting_markdown(FILE *out, const struct slr_setting_row *row, const char *form)
{
    fprintf(out, "| `SLIPRING_%s` | `%s` | ", row->name, default_text(row));
    put_cell(out, form);
    fprintf(out, " | %s | ", scope_text(row));
    put_cell(out, row->doc);
    fputs(" |\n", out);
}

static void setting_json(struct json_writer *w, const struct slr_setting_row *row, const char *form)
{
    char name[64];
    snprintf(name, sizeof name, "SLIPRING_%s", row->name);
    json_put_open(w, NULL, "{");
    json_put_text(w, "name", name);
    json_put_text(w, "default", row->def);
    json_put_text(w, "form", form);
    json_put_bool(w, "uniform", row->scope == SLR_SCOPE_UNIFORM);
    json_put_text(w, "doc", row->doc);
    json_put_close(w);
}

static void reason_json(struct json_writer *w, const char *name, const char *doc)
{
    json_put_open(w, NULL, "{");
    json_put_text(w, "name", name);
    json_put_text(w, "doc", doc);
    json_put_close(w);
}

static void print_settings(FILE *out, struct json_writer *json, enum form form)
{
    if (form == FORM_MARKDOWN)
        fputs("| Setting | Default | Accepted | Equal on all ranks | Meaning |\n|---|---|---|---|---|\n", out);
    for (int i = 0; i < SLR_S_COUNT; i++) {
        const struct slr_setting_row *row = &slr_setting_rows[i];
        char accepted[160];
        slr_setting_form(row, accepted, sizeof accepted);
        if (form == FORM_MARKDOWN)
            setting_markdown(out, row, accepted);
        else if (form == FORM_JSON)
            setting_json(json, row, accepted);
        else
            setting_text(out, row, accepted);
    }
}

static void print_reasons(FILE *out, struct json_writer *json, enum form form)
{
    if (form == FORM_MARKDOWN)
        fputs("| Reason | Meaning |\n|---|---|\n", out);
    for (int r = 0; r < SLR_R_COUNT; r++) {
        const char *name = slr_reason_name(r), *doc = slr_reason_doc(r);
        if (form == FORM_MARKDOWN) {
            fprintf(out, "| `%s` | ", name);
            put_cell(out, doc);
            fputs(" |\n", out);
        } else if (form == FORM_JSON) {
            reason_json(json, name, doc);
        } else {
            fprintf(out, "%s\n    %s\n", name, doc);
        }
    }
}

void print_table(FILE *out, enum table table, enum form form)
{
    struct json_writer json = {.to = out};
    if (form == FORM_VALUES) {
        print_values(out);
        return;
    }
    if (form == FORM_JSON)
        json_put_open(&json, NULL, "[\n");
    (table == TABLE_SETTINGS ? print_settings : print_reasons)(out, &json, form);
    if (form == FORM_JSON)
        json_put_close(&json);
}

void print_document(FILE *out, enum table table)
{
    fprintf(out, "<!-- Generated from base/%s by the build target docs-tables. Do not edit. -->\n",
            table == TABLE_SETTINGS ? "settings.def" : "reasons.def");
    if (table == TABLE_SETTINGS)
        fputs("# Settings\n\n"
              "Environment variables, read once by each process. An empty value counts as unset. A value that is\n"
              "not accepted, or a name that does not exist, is told once in the log, and the default is used.\n"
              "Settings that must be equal on all ranks are compared when a communicator is made: when they differ,\n"
              "its all-gathers stay with NCCL on all ranks, and the log says which rank differs.\n\n",
              out);
    else
        fputs("# Reasons\n\n"
              "Why a call went the way it did: the field `reason` of the log's lines, and the counters at the end\n"
              "of the process.\n\n",
              out);
    print_table(out, table, FORM_MARKDOWN);
}

void print_counters(FILE *out)
{
    fputs("| Counter | Meaning |\n|---|---|\n", out);
#define X(name, value, doc)                                                                                            \
    fputs("| `" #name "` | ", out);                                                                                    \
    put_cell(out, doc);                                                                                                \
    fputs(" |\n", out);
#include "base/counters.def"
#undef X
}
