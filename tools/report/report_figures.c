/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a report as numbers, behind the sections of its JSON form. */
#include <inttypes.h>
#include <string.h>
#include "base/status.h"
#include "tools/report/report.h"

static void put_count(struct json_writer *w, const char *key, uint64_t n)
{
    json_put_number(w, key, "%" PRIu64, n);
}

static void put_ns(struct json_writer *w, const char *key, double ns)
{
    json_put_number(w, key, "%.0f", ns);
}

static void put_run(struct report *r, struct json_writer *w)
{
    json_put_open(w, "run", "{");
    put_count(w, "number", r->index + 1);
    put_count(w, "of", r->m->runs.n);
    put_ns(w, "wall_ns", (double)r->run->wall);
    put_ns(w, "ns", (double)(r->run->last_ts - r->run->first_ts));
    put_count(w, "processes", r->run->processes.n);
    put_count(w, "ranks", r->run->ranks.n);
    json_put_bool(w, "software_gpu", run_is_software(r->m, r->run));
    json_put_close(w);
}

static void put_processes(struct report *r, struct json_writer *w)
{
    json_put_open(w, "processes", "[\n");
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        json_put_open(w, NULL, "{");
        json_put_text(w, "host", p->host);
        json_put_number(w, "pid", "%" PRId64, p->pid);
        json_put_number(w, "rank", "%" PRId32, p->rank);
        json_put_text(w, "version", p->version);
        put_count(w, "nccl", p->nccl);
        put_count(w, "cuda", p->cuda);
        json_put_text(w, "settings", p->settings);
        json_put_text(w, "command", p->command);
        json_put_close(w);
    }
    json_put_close(w);
}

/* Of the line `summary`, all ranks together. */
static void put_totals(struct report *r, struct json_writer *w)
{
    static const struct {
        enum log_field f;
        const char *name;
    } sums[] = {{F_CALLS, "calls"},
                {F_BYTES, "bytes"},
                {F_SUBSTITUTED, "substituted"},
                {F_SUBSTITUTED_BYTES, "substituted_bytes"},
                {F_PASSED, "passed"},
                {F_FUSED, "fused"},
                {F_GEMM_CHUNKS, "gemm_chunks"},
                {F_JOINED, "joined"},
                {F_STAGED, "staged"},
                {F_ZERO_COPY, "zero_copy"},
                {F_PUSHED, "pushed"},
                {F_SCATTERS, "scatters"},
                {F_SCATTERS_SUBSTITUTED, "scatters_substituted"},
                {F_REDUCES, "reduces"},
                {F_REDUCES_SUBSTITUTED, "reduces_substituted"},
                {F_SCATTERS_FUSED, "scatters_fused"},
                {F_SCATTERS_PRODUCED, "scatters_produced"}};
    json_put_open(w, "totals", "{");
    json_put_bool(w, "known", report_has_summary(r));
    json_put_bool(w, "whole", report_endless(r, NULL, 0) == 0);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        put_ns(w, sums[i].name, report_sum(r, sums[i].f));
    json_put_close(w);
}

static void put_reasons(struct report *r, struct json_writer *w)
{
    json_put_open(w, "reasons", "{");
    for (int i = 0; i < SLR_R_COUNT; i++) {
        const char *name = slr_reason_name((enum slr_reason)i);
        uint64_t n = report_count(r, name);
        if (n)
            put_count(w, name, n);
    }
    json_put_close(w);
}

static void put_overlap(struct report *r, struct json_writer *w)
{
    json_put_open(w, "overlap", "{");
    put_count(w, "traced", r->sites.traced);
    put_ns(w, "time_ns", r->sites.ring_time);
    put_ns(w, "hidden_ns", r->sites.ring_hidden);
    put_ns(w, "exposed_ns", r->sites.ring_exposed);
    put_ns(w, "late_ns", r->sites.ring_late);
    json_put_close(w);
}

static void put_reductions(struct report *r, struct json_writer *w)
{
    json_put_open(w, "reductions", "[\n");
    for (int id = SLR_ALL_GATHER + 1; id < SLR_COLLECTIVES; id++) {
        const struct reductions n = report_reductions(r, (enum slr_collective_id)id, MODEL_NONE);
        json_put_open(w, NULL, "{");
        json_put_text(w, "op", slr_collectives[id].op);
        put_count(w, "traced", n.traced);
        put_ns(w, "time_ns", n.time);
        put_ns(w, "hidden_ns", n.hidden);
        put_ns(w, "exposed_ns", n.exposed);
        json_put_close(w);
    }
    json_put_close(w);
}

static void put_gemm(struct json_writer *w, const struct site *s)
{
    if (!s->fused) {
        json_put_text(w, "gemm", NULL);
        return;
    }
    json_put_open(w, "gemm", "{");
    put_count(w, "m", s->fused->m);
    put_count(w, "n", s->fused->n);
    put_count(w, "k", s->fused->k);
    json_put_text(w, "form", s->fused->form);
    put_count(w, "parts", s->parts ? s->parts : s->fused->parts);
    json_put_close(w);
}

static void put_ended(struct json_writer *w, const struct site *s)
{
    json_put_open(w, "ended", "{");
    for (size_t i = 0; i < s->ended.n; i++)
        put_count(w, s->ended.at[i].reason, s->ended.at[i].n);
    json_put_close(w);
}

static void put_callers(struct json_writer *w, const struct site *s)
{
    json_put_open(w, "callers", "[");
    for (unsigned i = 0; i < s->callers.count; i++)
        json_put_text(w, NULL, s->callers.name[i]);
    if (s->callers.more)
        json_put_text(w, NULL, SLR_NAMES_MORE);
    json_put_close(w);
}

static void put_site(struct report *r, struct json_writer *w, size_t i)
{
    const struct site *s = &r->sites.list.at[i];
    char label[CALL_SITE + 16];
    json_put_open(w, NULL, "{");
    json_put_text(w, "label", site_label(&r->sites, i, label, sizeof label));
    json_put_text(w, "communicator", r->m->comms.at[s->comm].name);
    put_count(w, "nranks", r->m->comms.at[s->comm].nranks);
    json_put_text(w, "decision", s->pass ? "pass" : "ring");
    json_put_text(w, "reason", s->reason);
    put_count(w, "call_site", call_site_number(&r->sites, s->comm, s->number));
    put_count(w, "shard", s->shard);
    json_put_text(w, "dtype", s->dtype);
    json_put_bool(w, "in_place", s->in_place);
    put_count(w, "calls", s->calls);
    put_count(w, "traced", s->traced);
    put_ns(w, "median_ns", (double)s->median);
    put_ns(w, "p90_ns", (double)s->p90);
    put_ns(w, "exposed_median_ns", (double)s->exposed_median);
    put_ns(w, "late_median_ns", (double)s->late_median);
    put_ns(w, "time_ns", s->time_sum);
    put_ns(w, "hidden_ns", s->hidden_sum);
    put_ns(w, "exposed_ns", s->exposed_sum);
    put_ended(w, s);
    put_gemm(w, s);
    put_callers(w, s);
    json_put_close(w);
}

void report_figures(struct report *r)
{
    struct json_writer *w = r->o->json;
    put_run(r, w);
    put_processes(r, w);
    put_totals(r, w);
    put_reasons(r, w);
    put_overlap(r, w);
    put_reductions(r, w);
    report_place_figures(r, w);
    json_put_open(w, "call_sites", "[\n");
    for (size_t i = 0; i < r->sites.list.n; i++)
        put_site(r, w, i);
    json_put_close(w);
}
