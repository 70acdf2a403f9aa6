/* SPDX-License-Identifier: Apache-2.0 */
/* What call sites tried, and what was chosen. */
#include <inttypes.h>
#include <string.h>
#include "tools/report/report.h"

enum { TRIALS_SHOWN = 100, DUELS_SHOWN = 40, GEMM = 256, LIST = TRIAL_WAYS * (2 * TRIAL_MS) };

/* "2:0.1744, 3:0.1887": the ways with more than one part. */
static void list_parts(char *buf, size_t size, const struct trial *t)
{
    char ms[TRIAL_MS];
    size_t len = 0;
    snprintf(buf, size, "-");
    for (unsigned i = 0; i < t->ways; i++)
        if (t->way[i].parts != 1)
            len += (size_t)snprintf(buf + len, size - len, "%s%" PRIu64 ": %s", len ? ", " : "", t->way[i].parts,
                                    report_trial_ms(ms, t->way[i].ms));
}

static bool has_gemm(const struct trial *t)
{
    return t->m && t->n && t->k;
}

/* "4096 x 8192 x 1024, tn, bf16, gathered b". */
static void put_gemm(struct table *t, const struct trial *a)
{
    char text[GEMM];
    size_t at = (size_t)snprintf(text, sizeof text, "%" PRIu64 " x %" PRIu64 " x %" PRIu64, a->m, a->n, a->k);
    if (a->batch > 1)
        at += (size_t)snprintf(text + at, sizeof text - at, ", batch %" PRIu64, a->batch);
    if (a->trans && a->type && a->gathered)
        snprintf(text + at, sizeof text - at, ", %.16s, %.64s, %s %.16s", a->trans, a->type,
                 slr_collectives[a->site.op].produced ? "sent" : "gathered", a->gathered);
    table_cell(t, "%s", has_gemm(a) ? text : "no GEMM");
}

/* What was tried several times counts as it was chosen the last time. A duel is the end of what was tried before it. */
static const char *which_counts(const struct member *b, size_t i)
{
    const struct trial *one = &b->trials.at[i];
    unsigned before = 0;
    for (size_t k = 0; k < b->trials.n; k++)
        if (k != i && report_trials_alike(&b->trials.at[k], one) && !b->trials.at[k].duel) {
            if (k > i)
                return " (tried again below)";
            before++;
        }
    return before > one->duel && !one->open ? " (again: this counts)" : "";
}

static void put_chosen(struct table *t, const struct trial *a, const char *which)
{
    if (a->open)
        table_cell(t, "a duel, below%s", which);
    else if (a->nccl)
        table_cell(t, "NCCL%s", which);
    else if (!has_gemm(a))
        table_cell(t, "ring%s", which);
    else if (a->parts > 1)
        table_cell(t, "ring, %" PRIu64 " parts%s", a->parts, which);
    else
        table_cell(t, "ring, %s%s", a->parts ? "whole" : "by the pace", which);
}

static void put_gain(struct table *t, const struct trial *a)
{
    double ms = report_trial_ring(a);
    if (a->nccl || a->open || ms <= 0 || a->nccl_ms <= 0)
        table_cell(t, "-");
    else
        table_cell(t, "%.1f%%", 100 * (1 - ms / a->nccl_ms));
}

static void put_trial(struct table *t, const struct sites *s, const struct member *b, size_t i)
{
    const struct trial *a = &b->trials.at[i];
    char site[CALL_SITE], ms[TRIAL_MS], list[LIST];
    table_cell(t, "%s", report_trial_site(site, s, b, a->number));
    put_gemm(t, a);
    table_cell(t, "%" PRIu64 ", %s%s", a->calls, a->clock ? a->clock : "not known", a->duel ? ", duel" : "");
    table_cell(t, "%s", report_trial_ms(ms, a->ring_ms));
    table_cell(t, "%s", report_trial_ms(ms, a->nccl_ms));
    table_cell(t, "%s", report_trial_ms(ms, report_trial_parts(a, 1)));
    list_parts(list, sizeof list, a);
    table_cell(t, "%s", list);
    put_chosen(t, a, which_counts(b, i));
    put_gain(t, a);
}

struct shown {
    struct report *r;
    struct table table;
    size_t trials, duels;
};

static void put_member(void *ctx, const struct comm *c, const struct member *b)
{
    struct shown *s = ctx;
    (void)c;
    for (size_t i = 0; i < b->trials.n; i++)
        if (s->trials++ < TRIALS_SHOWN)
            put_trial(&s->table, &s->r->sites, b, i);
    s->duels += b->duels.n;
}

/* "1.844 ms"; "-": there is none. */
static const char *with_unit(char *buf, double ms)
{
    report_trial_ms(buf, ms);
    return *buf == '-' ? buf : strcat(buf, " ms");
}

/* Over hosts, of something else than gathers. */
static void say_duel_of(struct report *r, const struct comm *c, const struct duel *d)
{
    char with[TRIAL_MS], without[TRIAL_MS];
    const bool pieces = strcmp(d->of, "pieces") == 0, none = strcmp(d->by, "none") == 0;
    const char *what = pieces                            ? "gathers in more pieces"
                       : strcmp(d->of, "allreduce") == 0 ? "all-reduces"
                                                         : "reduce-scatters";
    out_item(r->o, "%s, duel of %s over hosts: %" PRIu64 " calls of the program took %s so, %s %s; %s%s.", c->name,
             what, d->calls, with_unit(with, d->ring_ms), with_unit(without, d->nccl_ms),
             pieces ? "in fewer" : "by NCCL", none ? "not certain, so without" : "decided: ", none ? "" : d->by);
}

static void say_duel(struct report *r, const struct comm *c, const struct duel *d)
{
    char ring[TRIAL_MS], nccl[TRIAL_MS], decided[64] = "not certain: each site by its own times";
    if (strcmp(d->by, "sites") != 0)
        snprintf(decided, sizeof decided, "decided: %s%s", strcmp(d->by, "nccl") == 0 ? "NCCL" : "ring",
                 d->sites == 1 ? "" : " for all of them");
    out_item(r->o,
             "%s, duel of %" PRIu64 " site%s: %" PRIu64 " calls of the program took %s over the ring, %s by "
             "NCCL; %s.",
             c->name, d->sites, d->sites == 1 ? "" : "s", d->calls, with_unit(ring, d->ring_ms),
             with_unit(nccl, d->nccl_ms), decided);
}

static void say_duels(void *ctx, const struct comm *c, const struct member *b)
{
    struct shown *s = ctx;
    for (size_t i = 0; i < b->duels.n; i++)
        if (s->duels++ < DUELS_SHOWN)
            (b->duels.at[i].of ? say_duel_of : say_duel)(s->r, c, &b->duels.at[i]);
}

static void say_all_duels(struct shown *s)
{
    if (s->duels == 0)
        return;
    out_say(s->r->o, "What a call takes is not all that a program feels, so in a duel all sites of a communicator that "
                     "need one go one way, then the other; the times are of all calls of the communicator in a turn "
                     "and of what runs beside them, the mean of the slowest rank.");
    s->duels = 0;
    report_each_member(s->r, say_duels, s);
    if (s->duels > DUELS_SHOWN)
        out_say(s->r->o, "%zu more duels are not listed.", s->duels - DUELS_SHOWN);
}

void report_trials(struct report *r)
{
    static const struct column columns[] = {{"call site", false, true},    {"GEMM: m, n, k, ops, types", false, true},
                                            {"calls, clock", false, true}, {"ring", true, false},
                                            {"NCCL", true, false},         {"whole", true, false},
                                            {"parts: time", false, true},  {"chosen", false, true},
                                            {"less than NCCL", true, true}};
    struct shown s = {.r = r, .table = {.columns = columns, .n = sizeof columns / sizeof *columns}};
    report_each_member(r, put_member, &s);
    if (s.trials + s.duels == 0)
        return;
    out_section(r->o, "tried", "What was tried");
    out_say(r->o,
            "For gathers, reduce-scatters or all-reduces of one size slipring has tried these ways and goes by the "
            "best: over the ring as it goes without trials, NCCL, and over the ring with the GEMM whole or in so many "
            "equal parts; times are ms from the gather to the end of its GEMM, or from the GEMM to the end of the "
            "reduce-scatter or all-reduce that sends its output, median of the slowest rank. Calls of one size that "
            "come behind different calls are "
            "sites of their own, told apart by a letter. Where NCCL and the best way over the ring were close, a duel "
            "of these two has decided.");
    out_table(r->o, &s.table);
    if (s.trials > TRIALS_SHOWN)
        out_say(r->o, "%zu more are not listed.", s.trials - TRIALS_SHOWN);
    say_all_duels(&s);
}
