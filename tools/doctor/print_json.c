/* The report for programs, and the tables for docs/doctor.md. */
#include <string.h>
#include "tools/doctor/doctor.h"

/* Bytes that are no UTF-8 would make the whole unreadable; paths and variables may hold any. Length of the character at
 * `s`, 0 when it is none. */
static unsigned utf8_length(const unsigned char *s)
{
    unsigned n = *s < 0x80                 ? 1
                 : *s >= 0xc2 && *s < 0xe0 ? 2
                 : *s >= 0xe0 && *s < 0xf0 ? 3
                 : *s >= 0xf0 && *s < 0xf5 ? 4
                                           : 0;
    for (unsigned i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xf0 && s[1] < 0x90);
    bool beyond = (*s == 0xed && s[1] > 0x9f) || (*s == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : n;
}

static void json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        unsigned n = utf8_length(s);
        if (n == 0)
            fputs("\\ufffd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s < ' ' || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else
            fwrite(s, 1, n, out);
        s += n ? n : 1;
    }
    fputc('"', out);
}

static void json_pair(FILE *out, const char *name, const char *value, const char *after)
{
    fprintf(out, "\"%s\": ", name);
    json_string(out, value);
    fputs(after, out);
}

static void json_findings(FILE *out, const struct doctor *d)
{
    fputs("  \"checks\": [", out);
    for (size_t i = 0; i < d->findings; i++) {
        const struct doctor_finding *f = &d->finding[i];
        fputs(i ? ",\n    {" : "\n    {", out);
        json_pair(out, "check", doctor_rows[f->id].name, ", ");
        json_pair(out, "group", doctor_rows[f->id].group, ", ");
        json_pair(out, "result", doctor_result_name(f->result), ", ");
        json_pair(out, "text", f->text, ", ");
        json_pair(out, "advice", f->result == DOCTOR_OK ? "" : f->advice, "}");
    }
    fputs("\n  ],\n", out);
}

static void json_devices(FILE *out, const struct doctor_devices *v)
{
    fputs("  \"devices\": [", out);
    for (int i = 0; i < doctor_known_devices(v); i++) {
        const struct doctor_device *g = &v->device[i];
        fputs(i ? ",\n    {" : "\n    {", out);
        json_pair(out, "name", g->name, ", ");
        json_pair(out, "pci", g->pci, ", ");
        fprintf(out, "\"compute_capability\": \"%d.%d\", \"compute_mode\": %d, \"bytes\": %llu}", g->major, g->minor,
                g->compute_mode, (unsigned long long)g->bytes);
    }
    fputs("\n  ],\n", out);
}

static void json_links(FILE *out, const struct doctor_devices *v)
{
    static const char *const paths[] = {"unknown", "board", "switch", "switches", "host_bridge", "node", "system"};
    const char *between = "\n";
    fputs("  \"links\": [", out);
    for (int i = 0; i < doctor_known_devices(v); i++)
        for (int j = 0; j < doctor_known_devices(v); j++) {
            const struct doctor_link *l = &v->link[i][j];
            if (i == j)
                continue;
            fprintf(out,
                    "%s    {\"from\": %d, \"to\": %d, \"access\": %s, \"nvlinks\": %u, \"path\": \"%s\", \"rank\": %d}",
                    between, i, j, l->access ? "true" : "false", l->nvlinks, paths[l->path], l->rank);
            between = ",\n";
        }
    fputs("\n  ]\n", out);
}

void doctor_print_json(FILE *out, const struct doctor *d)
{
    static const char *const names[] = {"ok", "warn", "fail"};
    enum doctor_exit status = doctor_exit_status(d);
    fputs("{\n  ", out);
    json_pair(out, "version", SLIPRING_VERSION, ",\n  ");
    json_pair(out, "device_kind", d->devices->softgpu ? "softgpu" : d->devices->count > 0 ? "gpu" : "none", ",\n  ");
    json_pair(out, "result", names[status], ",\n");
    fprintf(out, "  \"exit_status\": %d,\n", (int)status);
    json_findings(out, d);
    json_devices(out, d->devices);
    json_links(out, d->devices);
    fputs("}\n", out);
}

void doctor_print_markdown(FILE *out)
{
    const char *group = "";
    fputs("| Check | What it finds out | What to do |\n|---|---|---|\n", out);
    for (int i = 0; i < DOCTOR_CHECKS; i++) {
        const struct doctor_row *row = &doctor_rows[i];
        if (strcmp(group, row->group) != 0)
            fprintf(out, "| **%s** | | |\n", group = row->group);
        fprintf(out, "| `%s` | %s | %s |\n", row->name, row->meaning, row->advice);
    }
    fputs("\nVariables that `variables` looks for:\n\n", out);
    doctor_print_variables(out);
}
