/* SPDX-License-Identifier: Apache-2.0 */
/* The report for people: groups, one finding a line, wrapped at 100 columns; and the table of
 * links. */
#include <string.h>
#include "tools/common/utf8.h"
#include "tools/doctor/doctor.h"

#define WIDTH 100
#define INDENT 27 /* of a finding's text */

static const char *mark(enum doctor_result r)
{
    static const char *const marks[DOCTOR_RESULTS] = {"ok", "WARN", "FAIL", "?"};
    return marks[r];
}

static void print_finding(FILE *out, const struct doctor_finding *f)
{
    int n = fprintf(out, "  %-4s %-18s  ", mark(f->result), doctor_rows[f->id].name);
    utf8_wrap(out, f->text, INDENT, (size_t)n, WIDTH);
    if ((f->result == DOCTOR_WARN || f->result == DOCTOR_FAIL) && *f->advice) {
        n = fprintf(out, "%*s-> ", INDENT, "");
        utf8_wrap(out, f->advice, INDENT + 3, (size_t)n, WIDTH);
    }
}

static void link_cell(const struct doctor_devices *v, int i, int j, char *cell, size_t size)
{
    static const char *const paths[] = {"P2P", "board", "PIX", "PXB", "PHB", "NODE", "SYS"};
    const struct doctor_link *l = &v->link[i][j];
    if (i == j)
        snprintf(cell, size, "=");
    else if (!l->access)
        snprintf(cell, size, "none");
    else if (l->nvlinks)
        snprintf(cell, size, "NV%u", l->nvlinks);
    else
        snprintf(cell, size, "%s", paths[l->path]);
}

/* 16 devices fit 100 columns. */
static void print_links(FILE *out, const struct doctor_devices *v)
{
    int n = doctor_known_devices(v), shown = n < 16 ? n : 16;
    if (n < 2)
        return;
    fprintf(out, "\n       ");
    for (int j = 0; j < shown; j++)
        fprintf(out, "%5d", j);
    fputc('\n', out);
    for (int i = 0; i < shown; i++) {
        fprintf(out, "  %5d", i);
        for (int j = 0; j < shown; j++) {
            char cell[16];
            link_cell(v, i, j, cell, sizeof cell);
            fprintf(out, "%5s", cell);
        }
        fputc('\n', out);
    }
    if (shown < n)
        fprintf(out, "  (%d further devices: see --json)\n", n - shown);
    fputs("       NVn: n NVLinks; PIX, PXB: PCIe switches; PHB: host bridge; NODE, SYS: through the host;\n"
          "       P2P: peer access by a way that is not known here; none: no peer access\n\n",
          out);
}

static void print_summary(FILE *out, const struct doctor *d)
{
    static const char *const verdict[] = {
        [DOCTOR_EXIT_OK] = "nothing stands in the way of slipring",
        [DOCTOR_EXIT_WARN] = "slipring works; what the warnings say makes it slow or leaves something out",
        [DOCTOR_EXIT_FAIL] = "slipring would substitute nothing, or the program would not start: see FAIL above",
    };
    unsigned count[DOCTOR_RESULTS] = {0};
    char line[256];
    for (size_t i = 0; i < d->findings; i++)
        count[d->finding[i].result]++;
    int n = snprintf(line, sizeof line, "%u ok, %u warning%s, %u failure%s, %u unknown: %s.", count[DOCTOR_OK],
                     count[DOCTOR_WARN], count[DOCTOR_WARN] == 1 ? "" : "s", count[DOCTOR_FAIL],
                     count[DOCTOR_FAIL] == 1 ? "" : "s", count[DOCTOR_UNKNOWN], verdict[doctor_exit_status(d)]);
    fputc('\n', out);
    utf8_wrap(out, n > 0 ? line : "", 0, 0, WIDTH);
}

static void print_check(FILE *out, const struct doctor *d, enum doctor_id id)
{
    for (size_t i = 0; i < d->findings; i++)
        if (d->finding[i].id == id)
            print_finding(out, &d->finding[i]);
}

void doctor_print_text(FILE *out, const struct doctor *d)
{
    const char *group = "";
    fprintf(out, "slipring doctor " SLIPRING_VERSION "%s\n",
            d->devices->softgpu ? ", on softgpu: the software GPU, not hardware" : "");
    for (int id = 0; id < DOCTOR_CHECKS; id++) {
        if (!doctor_has(d, (enum doctor_id)id))
            continue;
        if (strcmp(group, doctor_rows[id].group) != 0)
            fprintf(out, "\n%s\n", group = doctor_rows[id].group);
        print_check(out, d, (enum doctor_id)id);
        if (id == DOCTOR_LINKS)
            print_links(out, d->devices);
    }
    print_summary(out, d);
}
