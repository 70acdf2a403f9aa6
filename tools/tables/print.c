/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tables/tables.h"
#include <limits.h>
#include <stdlib.h>
#include "base/status.h"
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

/* `v`: with its value there. */
static void setting_text(FILE *out, int i, const struct values *v)
{
    const struct slr_setting_row *row = &slr_setting_rows[i];
    char form[160];
    fprintf(out, "SLIPRING_%s", row->name);
    if (v) {
        putc('=', out);
        put_value(out, &v->now, i);
    }
    char from[PATH_MAX + 16];
    if (v && v->now.given[i])
        fprintf(out, "\n    from %s", slr_setting_place_text(&v->now.place[i], from, sizeof from));
    fprintf(out, "\n    default %s; %s%s\n    %s\n", default_text(row), slr_setting_form(row, form, sizeof form),
            row->scope == SLR_SCOPE_UNIFORM ? "; equal on all ranks" : "", row->doc);
}

static void setting_markdown(FILE *out, const struct slr_setting_row *row)
{
    char form[160];
    fprintf(out, "| `SLIPRING_%s` | `%s` | ", row->name, default_text(row));
    put_cell(out, slr_setting_form(row, form, sizeof form));
    fprintf(out, " | %s | ", scope_text(row));
    put_cell(out, row->doc);
    fputs(" |\n", out);
}

static void value_json(struct json_writer *w, const struct values *v, int i)
{
    char *text = NULL, from[PATH_MAX + 16];
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to) {
        put_value(to, &v->now, i);
        fclose(to);
    }
    json_put_text(w, "value", text);
    json_put_text(w, "from", v->now.given[i] ? slr_setting_place_text(&v->now.place[i], from, sizeof from) : "default");
    json_put_text(w, "refused", v->refused[i]);
    free(text);
}

static void setting_json(struct json_writer *w, int i, const struct values *v)
{
    const struct slr_setting_row *row = &slr_setting_rows[i];
    char text[160];
    snprintf(text, sizeof text, "SLIPRING_%s", row->name);
    json_put_open(w, NULL, "{");
    json_put_text(w, "name", text);
    value_json(w, v, i);
    json_put_text(w, "default", row->def);
    json_put_text(w, "form", slr_setting_form(row, text, sizeof text));
    json_put_text(w, "group", row->group == SLR_GROUP_BASIC ? "basic" : "expert");
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

const char *group_title(enum slr_setting_group group)
{
    return group == SLR_GROUP_BASIC ? "Basic" : "Expert";
}

static void print_group_head(FILE *out, enum slr_setting_group group)
{
    fprintf(out, "%s## %s\n\n", group ? "\n" : "", group_title(group));
    fputs("| Setting | Default | Accepted | Equal on all ranks | Meaning |\n|---|---|---|---|---|\n", out);
}

static void print_setting(FILE *out, struct json_writer *json, enum form form, int i, const struct values *v)
{
    if (form == FORM_MARKDOWN)
        setting_markdown(out, &slr_setting_rows[i]);
    else if (form == FORM_JSON)
        setting_json(json, i, v);
    else
        setting_text(out, i, form == FORM_TEXT ? NULL : v);
}

/* Of those that are left out. */
static bool is_dull(int i, const struct values *v)
{
    return slr_setting_rows[i].group == SLR_GROUP_EXPERT && !v->now.given[i] && !v->refused[i];
}

static void print_settings(FILE *out, struct json_writer *json, enum form form)
{
    static struct values v;
    int left = 0;
    if (form >= FORM_JSON)
        values_read(&v);
    for (int group = 0; group < SLR_GROUPS; group++) {
        if (form == FORM_MARKDOWN)
            print_group_head(out, (enum slr_setting_group)group);
        for (int i = 0; i < SLR_S_COUNT; i++) {
            bool of_group = slr_setting_rows[i].group == (enum slr_setting_group)group;
            bool left_out = of_group && form == FORM_VALUES && is_dull(i, &v);
            left += left_out;
            if (of_group && !left_out)
                print_setting(out, json, form, i, &v);
        }
    }
    if (left)
        fprintf(out, "%d more for special cases have their defaults: slipring env --all\n", left);
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
              "Environment variables, read once by each process. What they leave open, files may set, as NCCL's\n"
              "nccl.conf does: the one that `SLIPRING_CONF_FILE` names, else `~/" SLR_SETTINGS_HOME "`; then\n"
              "`" SLR_SETTINGS_SYSTEM "`.\n\n"
              "    # the prefix may be left out; of several lines for a name the first counts\n"
              "    LOG_FILE=/var/log/slipring-%h-%p.log\n\n"
              "An empty value is the default. A value that is not accepted, or a name that does not exist, is told\n"
              "once in the log, with file and line, and else ignored. The file in `$HOME` has to belong to the\n"
              "user, or to root; a process with more rights than its user reads the system's alone.\n\n"
              "Settings that must be equal on all ranks are compared when a communicator is made, wherever they are\n"
              "from: when they differ, its all-gathers stay with NCCL on all ranks, and the log says which rank\n"
              "differs.\n\n"
              "`slipring env` prints them with their values and where these are from; `--all`: the expert ones,\n"
              "too, which are for special cases; `--json`: for scripts.\n\n",
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
