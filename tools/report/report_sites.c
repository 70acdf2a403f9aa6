/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: their figures, and what was decided and why. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

/* "fused 12, next_gather 3", the most frequent first. */
static void list_tally(char *buf, size_t size, const struct tallies *t)
{
    uint64_t below = UINT64_MAX;
    size_t len = 0, listed = 0;
    *buf = '\0';
    while (listed < t->n) { /* all of the largest number that is left */
        uint64_t next = 0;
        for (size_t i = 0; i < t->n; i++)
            if (t->at[i].n < below && t->at[i].n > next)
                next = t->at[i].n;
        for (size_t i = 0; i < t->n; i++)
            if (t->at[i].n == next && ++listed && len + 80 < size)
                len +=
                    (size_t)snprintf(buf + len, size - len, "%s%.50s %" PRIu64, len ? ", " : "", t->at[i].reason, next);
        below = next;
        if (next == 0)
            return;
    }
}

static void put_figures(struct table *t, const struct report *r, size_t i)
{
    const struct site *s = &r->sites.list.at[i];
    char buf[6][FORM_ROOM], label[CALL_SITE + 16];
    table_cell(t, "%s", site_label(&r->sites, i, label, sizeof label));
    table_cell(t, "%s%s", s->pass ? "NCCL: " : "ring", s->pass ? s->reason ? s->reason : "?" : "");
    table_cell(t, "%s", s->calls ? form_count(buf[0], s->calls) : "-");
    if (s->traced == 0) {
        for (int k = 0; k < 5; k++)
            table_cell(t, "-");
        return;
    }
    table_cell(t, "%s", form_time(buf[1], (double)s->median));
    table_cell(t, "%s", form_time(buf[2], (double)s->p90));
    table_cell(t, "%s", form_time(buf[3], (double)s->exposed_median));
    table_cell(t, "%s", form_time(buf[4], (double)s->late_median));
    table_cell(t, "%s", form_share(buf[5], overlap_of(s->hidden_sum, s->time_sum)));
}

static void figures(struct report *r, const size_t *chosen, size_t n)
{
    static const struct column columns[] = {
        {"call site", false, true}, {"went to", false, true}, {"calls", true, false}, {"median", true, false},
        {"p90", true, false},       {"exposed", true, false}, {"late", true, false},  {"overlap", true, false}};
    struct table t = {.columns = columns, .n = sizeof columns / sizeof *columns};
    for (size_t i = 0; i < n; i++)
        put_figures(&t, r, chosen[i]);
    out_table(r->o, &t);
}

/* "symmetric since call 4", "differs since call 3: rank 1, ordinal 5 not 4"; "moved 3 times". */
void report_symmetry(char *buf, size_t size, const struct symmetry *y)
{
    const struct sym_finding *f = &y->found;
    int len = snprintf(buf, size, "%s %s", strcmp(y->buffer, "both") == 0 ? "send and recv" : y->buffer,
                       sym_site_state_name(f->state));
    if (y->since)
        len += snprintf(buf + len, size - (size_t)len, " since call %" PRIu64, y->since);
    if (f->odd_rank >= 0)
        len += snprintf(buf + len, size - (size_t)len, ": rank %d, %.40s", f->odd_rank, sym_difference_name(f->what));
    if (f->odd_rank >= 0 && f->value != f->expected)
        len += snprintf(buf + len, size - (size_t)len, " %" PRIu64 " not %" PRIu64, f->value, f->expected);
    if (f->odd_ranks > 1)
        len += snprintf(buf + len, size - (size_t)len, " (%d ranks)", f->odd_ranks);
    if (y->moves)
        snprintf(buf + len, size - (size_t)len, ", moved %" PRIu64 " time%s", y->moves, y->moves > 1 ? "s" : "");
}

/* How many of the buffers, at their places of an iteration, are the same on all ranks every time. */
static void symmetry_of(char *buf, size_t size, const struct site *s)
{
    size_t same = 0;
    for (size_t i = 0; i < s->buffers.n; i++)
        same += s->buffers.at[i]->found.state == SYM_SITE_SYMMETRIC;
    if (s->buffers.n)
        snprintf(buf, size, "%zu of %zu symmetric", same, s->buffers.n);
    else
        snprintf(buf, size, s->pass ? "-" : "not known");
}

static void way_of(char *buf, size_t size, const struct site *s)
{
    double sum = (double)s->slot + (double)s->place + (double)s->push;
    const struct {
        const char *name;
        uint64_t n;
    } ways[] = {{"read in place", s->place}, {"staged", s->slot}, {"written", s->push}};
    size_t len = 0;
    snprintf(buf, size, "-");
    for (int i = 0; i < 3; i++)
        if (ways[i].n)
            len += (size_t)snprintf(buf + len, size - len, "%s%.0f%% %s", len ? ", " : "",
                                    100 * (double)ways[i].n / sum, ways[i].name);
}

static void gemm_of(char *buf, size_t size, const struct site *s)
{
    const struct shape *f = s->fused;
    size_t len = 0;
    uint64_t parts = s->parts ? s->parts : f ? f->parts : 0;
    snprintf(buf, size, "-");
    if (parts)
        len = (size_t)snprintf(buf, size, "%" PRIu64 " parts", parts);
    if (parts && f && f->form)
        snprintf(buf + len, size - len, " of %" PRIu64 " x %" PRIu64 " x %" PRIu64 ", %.8s", f->m, f->n, f->k, f->form);
}

/* "NCCL: below_min_bytes (Ring LL, 2 channels)". */
static void put_passed(struct table *t, const struct site *s)
{
    char list[160] = "";
    size_t len = 0;
    for (size_t i = 0; i < s->choices.n && i < 3; i++) {
        const struct choice *c = &s->choices.at[i];
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%.12s %.12s, %" PRIu32 " channels", i ? "; " : "",
                                c->algo ? c->algo : "?", c->proto ? c->proto : "?", c->channels);
    }
    table_cell(t, "NCCL: %s%s%s%s", s->reason ? s->reason : "?", len ? " (" : "", list, len ? ")" : "");
}

static void put_decision(struct table *t, const struct report *r, size_t i)
{
    static const char *const made[] = {
        [SITE_CALLED] = "ring", [SITE_IN_GRAPHS] = "graph", [SITE_BOTH] = "ring and graph"};
    const struct site *s = &r->sites.list.at[i];
    char label[CALL_SITE + 16], why[200], symmetric[300], way[80], gemm[120];
    site_label(&r->sites, i, label, sizeof label);
    list_tally(why, sizeof why, &s->ended);
    symmetry_of(symmetric, sizeof symmetric, s);
    way_of(way, sizeof way, s);
    gemm_of(gemm, sizeof gemm, s);
    table_cell(t, "%s", label);
    if (s->pass)
        put_passed(t, s);
    else
        table_cell(t, "%s%s%s", made[s->made], *why ? ": " : "", why);
    table_cell(t, "%s%s", s->dtype ? s->dtype : "-", s->mixed ? " (varies)" : s->in_place ? ", in place" : "");
    table_cell(t, "%s", gemm);
    table_cell(t, "%s", way);
    table_cell(t, "%s", symmetric);
}

static void decisions(struct report *r, const size_t *chosen, size_t n)
{
    static const struct column columns[] = {
        {"call site", false, true},  {"decision: how it ended", false, true},  {"type", false, true},
        {"fused GEMM", false, true}, {"how peers get the shard", false, true}, {"buffers", false, true}};
    struct table t = {.columns = columns, .n = sizeof columns / sizeof *columns};
    for (size_t i = 0; i < n; i++)
        put_decision(&t, r, chosen[i]);
    out_table(r->o, &t);
}

/* One site's calls may end in several ways, and be hidden as differently. */
static void endings(struct report *r, const size_t *chosen, size_t n)
{
    static const struct column columns[] = {
        {"call site", false, true}, {"ended", false, true},   {"gathers", true, false},       {"median", true, false},
        {"exposed", true, false},   {"overlap", true, false}, {"median overlap", true, false}};
    struct table t = {.columns = columns, .n = 7};
    for (size_t i = 0; i < n; i++) {
        const struct site *s = &r->sites.list.at[chosen[i]];
        for (size_t k = 0; k < s->endings.n && k < 12; k++) {
            const struct ending *e = &s->endings.at[k];
            char label[CALL_SITE + 16], buf[4][FORM_ROOM];
            table_cell(&t, "%s", site_label(&r->sites, chosen[i], label, sizeof label));
            table_cell(&t, "%s", e->reason ? e->reason : "not known");
            table_cell(&t, "%zu", e->time.n);
            table_cell(&t, "%s", form_time(buf[0], (double)e->median));
            table_cell(&t, "%s", form_time(buf[1], (double)e->exposed_median));
            table_cell(&t, "%s", form_share(buf[2], overlap_of(e->hidden_sum, e->time_sum)));
            table_cell(&t, "%s", form_share(buf[3], (double)e->share_median / 1e4));
        }
    }
    if (t.cells.n == 0)
        return;
    out_section(r->o, "endings", "How gathers ended");
    out_say(r->o, "Gathers of all ranks: fused with a GEMM, or joined for the reason that is named. Few long gathers "
                  "(the first ones) can "
                  "weigh much in the overlap of the sums; the median of the gathers' own overlaps does not show them.");
    out_table(r->o, &t);
}

/* The reasons that these sites name, with what they mean. */
static void meanings(struct report *r, const size_t *chosen, size_t n)
{
    static const struct column columns[] = {{"reason", false, false}, {"means", false, true}};
    struct table t = {.columns = columns, .n = 2};
    struct tallies seen = {0};
    for (size_t i = 0; i < n; i++) {
        const struct site *s = &r->sites.list.at[chosen[i]];
        tally(&seen, s->reason, 1);
        if (s->made != SITE_CALLED)
            tally(&seen, "graph", 1);
        for (size_t k = 0; k < s->ended.n; k++)
            tally(&seen, s->ended.at[k].reason, 1);
    }
    for (size_t i = 0; i < seen.n; i++)
        if (strcmp(seen.at[i].reason, "-") != 0) {
            const char *meaning = reason_meaning(seen.at[i].reason);
            table_cell(&t, "%s", seen.at[i].reason);
            table_cell(&t, "%s", meaning ? meaning : "not known here");
        }
    out_table(r->o, &t);
    vec_free(&seen);
}

void report_sites(struct report *r)
{
    size_t chosen[2 * SITES_SHOWN];
    size_t n = report_chosen_sites(r, false, chosen, SITES_SHOWN);
    n += report_chosen_sites(r, true, chosen + n, SITES_SHOWN);
    if (n == 0)
        return;
    out_section(r->o, "times", "Times of all-gathers");
    if (r->sites.traced)
        out_say(r->o,
                "median, p90: time of a gather, from when the application's stream reached the call until the last "
                "byte had arrived. exposed: how long the stream stood still for it, median. late: of that, until the "
                "last rank had reached the call, median: waiting for a slow rank and not for data. overlap: 1 - "
                "exposed / time, over all gathers. A stream can stand still longer than the gather takes, for peers "
                "that still read this rank's shard; then nothing of it is hidden. Calls are one rank's.");
    else
        out_say(r->o,
                "Times are missing: these logs have no trace lines. Record them with `slipring run --record DIR`.");
    figures(r, chosen, n);
    if (n < r->sites.list.n)
        out_say(r->o, "%zu more take less time and are not listed.", r->sites.list.n - n);
    endings(r, chosen, n);
    out_section(r->o, "decisions", "What was decided, and why");
    decisions(r, chosen, n);
    meanings(r, chosen, n);
}
