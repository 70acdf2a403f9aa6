/* SPDX-License-Identifier: Apache-2.0 */
/* Which way the calls of each site go in the end, and why. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

enum { WAYS_SHOWN = 100, WHY = 200 };

/* Rows of one site that were told together: [first, end) of the member's trials. */
struct rows {
    size_t first, end;
};

static bool together(const struct member *b, size_t i, size_t end)
{
    const struct trial *a = &b->trials.at[i], *last = &b->trials.at[end - 1];
    for (size_t k = i + 1; k < end; k++)
        if (report_trials_alike(a, &b->trials.at[k]))
            return false;
    return a->number == last->number && a->duel == last->duel && a->open == last->open && a->nccl == last->nccl;
}

/* The latest rows of a site that chose what it goes by; `open`: those that left it to a duel. */
static struct rows latest(const struct member *b, uint32_t number, bool nccl, bool open)
{
    struct rows rows = {.end = b->trials.n};
    for (; rows.end > 0; rows.end--) {
        const struct trial *t = &b->trials.at[rows.end - 1];
        if (t->number == number && t->open == open && (open || t->nccl == nccl))
            break;
    }
    rows.first = rows.end;
    while (rows.first > 0 && together(b, rows.first - 1, rows.end))
        rows.first--;
    return rows;
}

/* Where a duel could not be measured, the rows before it have decided. */
static struct rows rows_of(const struct member *b, uint32_t number, bool nccl)
{
    const struct rows chosen = latest(b, number, nccl, false);
    return chosen.end ? chosen : latest(b, number, nccl, true);
}

/* Means of the rows by their calls, as the library compares them; 0: a row has none. */
static void sum_up(const struct member *b, const struct rows *rows, double *ring, double *nccl)
{
    double calls = 0;
    bool known = true;
    *ring = *nccl = 0;
    for (size_t i = rows->first; i < rows->end; i++) {
        const struct trial *t = &b->trials.at[i];
        const double over_ring = report_trial_ring(t), weight = (double)t->calls;
        known = known && over_ring > 0 && t->nccl_ms > 0 && t->calls;
        calls += weight;
        *ring += over_ring * weight;
        *nccl += t->nccl_ms * weight;
    }
    *ring = known ? *ring / calls : 0;
    *nccl = known ? *nccl / calls : 0;
}

/* The size's first site, by whose times its others go until they have their own. */
static uint32_t first_of(const struct member *b, uint32_t number)
{
    const struct trial_site *s = &b->trial_sites.at[number];
    for (uint32_t i = 0; i < number; i++)
        if (b->trial_sites.at[i].shard == s->shard && b->trial_sites.at[i].op == s->op)
            return i;
    return number;
}

bool report_way_times(const struct member *b, const struct site_way *w, double *ring, double *nccl)
{
    const struct rows own = rows_of(b, w->number, w->nccl),
                      rows = own.end ? own : rows_of(b, first_of(b, w->number), w->nccl);
    if (rows.end == rows.first)
        return false;
    sum_up(b, &rows, ring, nccl);
    return *ring > 0 && *nccl > 0;
}

static void put_times(char *why, const struct sites *s, const struct member *b, const struct site_way *w)
{
    const uint32_t first = first_of(b, w->number);
    char ring[TRIAL_MS], nccl[TRIAL_MS], whose[CALL_SITE + 16] = "its own times", of[64] = "";
    struct rows rows = rows_of(b, w->number, w->nccl);
    double ring_ms, nccl_ms;
    if (!rows.end && first != w->number) {
        char site[CALL_SITE];
        rows = rows_of(b, first, w->nccl);
        snprintf(whose, sizeof whose, "times of %s", report_trial_site(site, s, b, first));
    }
    if (rows.end - rows.first > 1)
        snprintf(of, sizeof of, ", of %zu GEMMs by their calls", rows.end - rows.first);
    sum_up(b, &rows, &ring_ms, &nccl_ms);
    if (!rows.end)
        snprintf(why, WHY, "its own times, which these logs do not have");
    else
        snprintf(why, WHY, "%s%s: ring %s, NCCL %s%s", whose, of, report_trial_ms(ring, ring_ms),
                 report_trial_ms(nccl, nccl_ms), *nccl != '-' ? " ms" : "");
}

static void put_why(struct table *t, const struct sites *s, const struct member *b, const struct site_way *w)
{
    static const struct {
        const char *reason, *words;
    } known[] = {{"program", "what the program takes (duel)"},
                 {"known", "rule of the tune file"},
                 {"unmeasured", "not measured: as without trials"}};
    char why[WHY] = "";
    if (strcmp(w->reason, "measured") == 0)
        put_times(why, s, b, w);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(w->reason, known[i].reason) == 0)
            snprintf(why, sizeof why, "%s", known[i].words);
    table_cell(t, "%s", *why ? why : w->reason);
}

struct shown {
    const struct sites *sites;
    struct table table;
    size_t n;
};

static void put_member(void *ctx, const struct comm *c, const struct member *b)
{
    struct shown *s = ctx;
    char site[CALL_SITE];
    (void)c;
    for (size_t i = 0; i < b->ways.n; i++) {
        const struct site_way *w = &b->ways.at[i];
        if (s->n++ >= WAYS_SHOWN)
            continue;
        table_cell(&s->table, "%s", report_trial_site(site, s->sites, b, w->number));
        table_cell(&s->table, "%" PRIu64, w->calls);
        table_cell(&s->table, "%s", w->nccl ? "NCCL" : "ring");
        put_why(&s->table, s->sites, b, w);
        table_cell(&s->table, "%" PRIu64, w->over_ring);
        table_cell(&s->table, "%" PRIu64, w->over_nccl);
    }
}

void report_ways(struct report *r)
{
    static const struct column columns[] = {{"call site", false, true},   {"calls", true, false},
                                            {"way", false, false},        {"why", false, true},
                                            {"since: ring", true, false}, {"NCCL", true, false}};
    struct shown s = {.sites = &r->sites, .table = {.columns = columns, .n = sizeof columns / sizeof *columns}};
    report_each_member(r, put_member, &s);
    if (s.n == 0)
        return;
    out_section(r->o, "ways", "Which way call sites go");
    out_say(r->o,
            "At the end, of each site: its calls in all, the way that they go, and why; and of the calls since that "
            "was chosen, outside of trials, how many have gone over the ring and by NCCL.");
    out_table(r->o, &s.table);
    if (s.n > WAYS_SHOWN)
        out_say(r->o, "%zu more are not listed.", s.n - WAYS_SHOWN);
}
