/* SPDX-License-Identifier: Apache-2.0 */
/* A report from its beginning to its end. */
#include "tools/report/report.h"

void report_write(struct report *r, enum out_form form, bool bold, FILE *to)
{
    struct json_writer json = {.to = to};
    struct out o = {.to = to, .html = form == OUT_HTML, .bold = bold, .json = form == OUT_JSON ? &json : NULL};
    r->o = &o;
    sites_find(&r->sites, r->m, r->index);
    out_begin(&o, "slipring report");
    report_verdict(r);
    report_advice(r);
    report_glance(r);
    if (o.html) {
        report_timeline(r);
        report_bars(r);
    }
    report_sites(r);
    report_scatters(r);
    report_places(r);
    report_trials(r);
    report_ways(r);
    report_differences(r);
    report_ranks(r);
    report_nccl(r);
    report_communicators(r);
    report_memory(r);
    report_notes(r);
    out_end(&o);
    if (o.json) {
        report_figures(r);
        json_put_close(&json);
    }
    sites_free(&r->sites);
}
