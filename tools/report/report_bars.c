/* SPDX-License-Identifier: Apache-2.0 */
/* For each call site of moved gathers: how much of a gather's time was hidden, and how much
 * exposed. */
#include "tools/report/report.h"

/* One bar: the gathers of a site that ended in one way. */
struct row {
    size_t site;
    const struct ending *ending;
    double hidden, exposed, late; /* of a median gather; exposed without late */
};

static struct row row_of(const struct site *s, size_t site, size_t k)
{
    const struct ending *e = &s->endings.at[k];
    double time = (double)e->median, exposed = (double)e->exposed_median;
    exposed = exposed < time ? exposed : time;
    double late = (double)e->late_median < exposed ? (double)e->late_median : exposed;
    return (struct row){site, e, time - exposed, exposed - late, late};
}

static void put_bar(struct report *r, const struct row *w, double longest)
{
    char label[CALL_SITE + 16], buf[4][FORM_ROOM], says[160], words[200];
    FILE *to = r->o->to;
    site_label(&r->sites, w->site, label, sizeof label);
    snprintf(says, sizeof says, "%s hidden (%s), %s exposed, %s for late ranks", form_time(buf[0], w->hidden),
             form_share(buf[1], overlap_of(w->hidden, w->hidden + w->exposed + w->late)), form_time(buf[2], w->exposed),
             form_time(buf[3], w->late));
    fputs("<div class=\"name\"><b>", to);
    html_text(to, label);
    fputs("</b><br>", to);
    html_text(to, w->ending->reason ? report_reason_words(words, sizeof words, w->ending->reason) : "not known");
    fprintf(to, " (%zu)</div>\n<div class=\"bar\" role=\"img\" aria-label=\"%s\">", w->ending->time.n, says);
    fprintf(to,
            "<span class=\"hid\" style=\"width:%.2f%%\"></span><span class=\"exp\" style=\"width:%.2f%%\"></span>"
            "<span class=\"late\" style=\"width:%.2f%%\"></span></div>\n<div class=\"num\">%s</div>\n",
            100 * w->hidden / longest, 100 * w->exposed / longest, 100 * w->late / longest, says);
}

static const char legend[] =
    "<ul class=\"legend\"><li><svg width=\"26\" height=\"14\" aria-hidden=\"true\"><rect class=\"gemm\" "
    "width=\"26\" height=\"14\" rx=\"2\"/></svg>hidden</li>"
    "<li><svg width=\"26\" height=\"14\" aria-hidden=\"true\"><rect class=\"wait\" x=\".5\" y=\".5\" width=\"25\" "
    "height=\"13\" rx=\"2\"/></svg>exposed</li>"
    "<li><svg width=\"26\" height=\"14\" aria-hidden=\"true\"><rect class=\"late\" x=\".5\" y=\".5\" width=\"25\" "
    "height=\"13\" rx=\"2\"/></svg>for late ranks</li></ul>\n";

static void find_rows(const struct report *r, struct row *rows, size_t *n, double *longest)
{
    size_t chosen[SITES_SHOWN], sites = report_chosen_sites(r, false, chosen, SITES_SHOWN);
    for (size_t i = 0; i < sites; i++) {
        const struct site *s = &r->sites.list.at[chosen[i]];
        for (size_t k = 0; k < s->endings.n && *n < SITES_SHOWN; k++) {
            struct row w = row_of(s, chosen[i], k);
            const double all = w.hidden + w.exposed + w.late;
            *longest = all > *longest ? all : *longest;
            rows[(*n)++] = w;
        }
    }
}

void report_bars(struct report *r)
{
    struct row rows[SITES_SHOWN];
    double longest = 0;
    size_t n = 0;
    find_rows(r, rows, &n, &longest);
    if (longest <= 0)
        return;
    out_section(r->o, "overlap", "Hidden and exposed time of each call site");
    out_say(r->o,
            "Medians of the gathers of all ranks, by how they ended (and how many did). Hidden: the application's "
            "stream worked "
            "meanwhile. Exposed: it stood still. For late ranks: it stood still because not all ranks had reached the "
            "call yet, which no way to gather can hide.");
    fprintf(r->o->to, "%s<div class=\"bars\">\n", legend);
    for (size_t i = 0; i < n; i++)
        put_bar(r, &rows[i], longest);
    fputs("</div>\n", r->o->to);
}
