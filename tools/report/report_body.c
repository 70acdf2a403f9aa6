/* SPDX-License-Identifier: Apache-2.0 */
/* A report from its beginning to its end. */
#include "tools/report/report.h"

void report_write(struct report *r, bool html, bool bold, FILE *to)
{
    struct out o = {.to = to, .html = html, .bold = bold};
    r->o = &o;
    sites_find(&r->sites, r->m, r->index);
    report_glance(r);
    if (html) {
        report_timeline(r);
        report_bars(r);
    }
    report_advice(r);
    report_sites(r);
    report_scatters(r);
    report_trials(r);
    report_differences(r);
    report_ranks(r);
    report_nccl(r);
    report_communicators(r);
    report_memory(r);
    report_notes(r);
    out_end(&o);
    sites_free(&r->sites);
}
