/* SPDX-License-Identifier: Apache-2.0 */
/* A report from its beginning to its end. */
#include "tools/report/report.h"

/* What few need, and long. */
static void write_details(struct report *r)
{
    report_sites(r);
    report_scatters(r);
    report_places(r);
    report_trials(r);
    report_ways(r);
}

static void write_sections(struct report *r)
{
    out_begin(r->o, "slipring report");
    report_verdict(r);
    report_advice(r);
    report_glance(r);
    if (r->o->html) {
        report_timeline(r);
        report_bars(r);
    }
    report_calls(r);
    if (r->details)
        write_details(r);
    report_differences(r);
    report_ranks(r);
    if (r->details) {
        report_nccl(r);
        report_communicators(r);
        report_memory(r);
    }
    report_notes(r);
}

void report_write(struct report *r, const struct report_form *form, FILE *to)
{
    struct json_writer json = {.to = to};
    struct out o = {.to = to,
                    .html = form->form == OUT_HTML,
                    .bold = form->bold,
                    .width = form->width,
                    .json = form->form == OUT_JSON ? &json : NULL};
    r->o = &o;
    r->details = form->details || o.json;
    sites_find(&r->sites, r->m, r->index);
    write_sections(r);
    out_end(&o);
    if (o.json) {
        report_figures(r);
        json_put_close(&json);
    }
    sites_free(&r->sites);
}
