/* SPDX-License-Identifier: Apache-2.0 */
/* The report for programs, and the tables for docs/doctor.md. */
#include <string.h>
#include "tools/common/json.h"
#include "tools/doctor/doctor.h"

static void put_findings(struct json_writer *w, const struct doctor *d)
{
    json_put_open(w, "checks", "[\n");
    for (size_t i = 0; i < d->findings; i++) {
        const struct doctor_finding *f = &d->finding[i];
        json_put_open(w, NULL, "{");
        json_put_text(w, "check", doctor_rows[f->id].name);
        json_put_text(w, "group", doctor_rows[f->id].group);
        json_put_text(w, "result", doctor_result_name(f->result));
        json_put_text(w, "text", f->text);
        json_put_text(w, "advice", f->result == DOCTOR_OK ? "" : f->advice);
        json_put_close(w);
    }
    json_put_close(w);
}

static void put_devices(struct json_writer *w, const struct doctor_devices *v)
{
    json_put_open(w, "devices", "[\n");
    for (int i = 0; i < doctor_known_devices(v); i++) {
        const struct doctor_device *g = &v->device[i];
        char capability[32];
        snprintf(capability, sizeof capability, "%d.%d", g->major, g->minor);
        json_put_open(w, NULL, "{");
        json_put_text(w, "name", g->name);
        json_put_text(w, "pci", g->pci);
        json_put_text(w, "compute_capability", capability);
        json_put_number(w, "compute_mode", "%d", g->compute_mode);
        json_put_number(w, "bytes", "%llu", (unsigned long long)g->bytes);
        json_put_close(w);
    }
    json_put_close(w);
}

static void put_link(struct json_writer *w, const struct doctor_link *l, int from, int to)
{
    static const char *const paths[] = {"unknown", "board", "switch", "switches", "host_bridge", "node", "system"};
    json_put_open(w, NULL, "{");
    json_put_number(w, "from", "%d", from);
    json_put_number(w, "to", "%d", to);
    json_put_bool(w, "access", l->access);
    json_put_number(w, "nvlinks", "%u", l->nvlinks);
    json_put_text(w, "path", paths[l->path]);
    json_put_number(w, "rank", "%d", l->rank);
    json_put_close(w);
}

static void put_links(struct json_writer *w, const struct doctor_devices *v)
{
    json_put_open(w, "links", "[\n");
    for (int i = 0; i < doctor_known_devices(v); i++)
        for (int j = 0; j < doctor_known_devices(v); j++)
            if (i != j)
                put_link(w, &v->link[i][j], i, j);
    json_put_close(w);
}

void doctor_print_json(FILE *out, const struct doctor *d)
{
    static const char *const names[] = {
        [DOCTOR_EXIT_OK] = "ok", [DOCTOR_EXIT_WARN] = "warn", [DOCTOR_EXIT_FAIL] = "fail"};
    struct json_writer w = {.to = out};
    enum doctor_exit status = doctor_exit_status(d);
    json_put_open(&w, NULL, "{\n");
    json_put_text(&w, "version", SLIPRING_VERSION);
    json_put_text(&w, "device_kind", d->devices->softgpu ? "softgpu" : d->devices->count > 0 ? "gpu" : "none");
    json_put_text(&w, "result", names[status]);
    json_put_number(&w, "exit_status", "%d", (int)status);
    put_findings(&w, d);
    put_devices(&w, d->devices);
    put_links(&w, d->devices);
    json_put_close(&w);
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
