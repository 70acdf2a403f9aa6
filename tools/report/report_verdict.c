/* SPDX-License-Identifier: Apache-2.0 */
/* The first line of a report: what slipring did for the job, against NCCL, and how that is known. One rank of each
 * communicator has told the ways of its call sites; what it has measured is the slowest rank's time. */
#include <inttypes.h>
#include <string.h>
#include "base/reason.h"
#include "tools/report/report.h"

struct found {
    double chosen, nccl;     /* ms: of all calls since their ways were chosen, as they went; all by NCCL */
    unsigned sites, ring;    /* measured by their own times; of these over the ring */
    unsigned program, left;  /* sites that go by what the program takes; of which nothing was measured */
    uint64_t most;           /* calls of one of the last, at most */
    int64_t since, until;    /* from the latest choice to the end */
    const struct duel *duel; /* the latest */
};

static void add_way(struct found *f, const struct member *b, const struct site_way *w)
{
    const double calls = (double)(w->over_ring + w->over_nccl);
    double ring, nccl;
    f->until = w->ts > f->until ? w->ts : f->until;
    if (strcmp(w->reason, "unmeasured") == 0) {
        f->left++;
        f->most = w->calls > f->most ? w->calls : f->most;
    } else if (strcmp(w->reason, "program") == 0) {
        f->program++;
    } else if (report_way_times(b, w, &ring, &nccl)) {
        f->sites++;
        f->ring += !w->nccl;
        f->chosen += (w->nccl ? nccl : ring) * calls;
        f->nccl += nccl * calls;
    }
}

static void add_member(void *ctx, const struct comm *c, const struct member *b)
{
    struct found *f = ctx;
    (void)c;
    for (size_t i = 0; i < b->ways.n; i++)
        add_way(f, b, &b->ways.at[i]);
    for (size_t i = 0; i < b->trials.n; i++)
        f->since = b->trials.at[i].ts > f->since ? b->trials.at[i].ts : f->since;
    for (size_t i = 0; i < b->duels.n; i++) {
        const struct duel *d = &b->duels.at[i];
        if (d->ring_ms > 0 && d->nccl_ms > 0 && (!f->duel || d->ts >= f->duel->ts))
            f->duel = d;
    }
}

static double calls_of(const struct report *r, bool moved)
{
    return moved ? report_sum(r, F_SUBSTITUTED) + report_sum(r, F_SCATTERS_SUBSTITUTED) +
                       report_sum(r, F_REDUCES_SUBSTITUTED)
                 : report_sum(r, F_CALLS) + report_sum(r, F_SCATTERS) + report_sum(r, F_REDUCES);
}

/* For which most calls stayed with NCCL; SLR_R_COUNT: not told. */
static enum slr_reason most_reason(const struct report *r, uint64_t *n)
{
    enum slr_reason most = SLR_R_COUNT;
    *n = 0;
    for (enum slr_reason i = 0; i < SLR_R_FUSED; i++) {
        const char *name = slr_reason_name(i);
        uint64_t calls = 0;
        for (int op = 0; op < SLR_COLLECTIVES && i != SLR_R_RING && i != SLR_R_GRAPH; op++)
            calls += report_count_of(r, (enum slr_collective_id)op, name);
        if (calls > *n) {
            *n = calls;
            most = i;
        }
    }
    return most;
}

/* Of settings as a process tells them: "MIN_BYTES=0 TRIALS=0". */
static bool without_trials(const char *given)
{
    const char *at = given ? strstr(given, "TRIALS=0") : NULL;
    return at && (at == given || at[-1] == ' ') && strchr(" ", at[strlen("TRIALS=0")]);
}

static bool any_without_trials(const struct report *r)
{
    for (size_t i = 0; i < r->run->processes.n; i++)
        if (without_trials(r->m->processes.at[r->run->processes.at[i]].settings))
            return true;
    return false;
}

static double size_of(double ms)
{
    return ms < 0 ? -ms : ms;
}

/* Less than a hundredth is what measurements differ by. */
static const char *outcome(double saved, double of)
{
    return size_of(saved) < of / 100 ? "Even" : saved < 0 ? "Lost" : "Won";
}

/* What all calls of a turn take together, and what is between them. */
static void say_duel(struct report *r, const struct duel *d, bool first)
{
    const bool by_nccl = d->by && strcmp(d->by, "nccl") == 0;
    const double saved = d->nccl_ms - d->ring_ms;
    if (first && by_nccl)
        out_say(r->o,
                "Not worth it here: %" PRIu64
                " calls, and what is between them, take %.3f ms over the ring and %.3f ms by "
                "NCCL, which has them: measured, by turns. Leave slipring out.",
                d->calls, d->ring_ms, d->nccl_ms);
    else if (first)
        out_say(r->o,
                "%s: %.3f ms of the %.3f ms (%.1f%%) that %" PRIu64
                " calls, and what is between them, take by NCCL: measured, by turns.",
                outcome(saved, d->nccl_ms), size_of(saved), d->nccl_ms, 100 * size_of(saved) / d->nccl_ms, d->calls);
    else
        out_say(r->o,
                "%" PRIu64 " calls, and what is between them, took %.3f ms over the ring, %.3f ms by NCCL, by turns.",
                d->calls, d->ring_ms, d->nccl_ms);
}

static void say_sites(struct report *r, const struct found *f)
{
    const double saved = f->nccl - f->chosen;
    char time[FORM_ROOM], all[FORM_ROOM], since[FORM_ROOM];
    if (f->ring == 0 && f->left == 0)
        out_say(r->o,
                "Not worth it here: at %s NCCL is faster, or as fast, and has the calls: measured there. Leave "
                "slipring out.",
                f->sites > 1 ? "all call sites" : "the one call site");
    else if (f->ring == 0)
        out_say(r->o,
                "Nothing won: at %u call site%s NCCL is faster, or as fast, and has the calls; %u other%s not measured "
                "to the end, with %" PRIu64 " calls at most.",
                f->sites, f->sites > 1 ? "s" : "", f->left, f->left > 1 ? "s were" : " was", f->most);
    else
        out_say(r->o,
                "%s: %s of the %s (%.1f%%) that the calls at %u call site%s, with their GEMMs, take by NCCL, in %s: "
                "measured "
                "there.",
                outcome(saved, f->nccl), form_time(time, size_of(saved) * 1e6), form_time(all, f->nccl * 1e6),
                100 * size_of(saved) / f->nccl, f->sites, f->sites > 1 ? "s" : "",
                form_time(since, (double)(f->until - f->since)));
}

static void say_measured(struct report *r, const struct found *f)
{
    if (f->program && f->duel) {
        say_duel(r, f->duel, true);
        return;
    }
    say_sites(r, f);
    if (f->duel && f->ring)
        say_duel(r, f->duel, false);
}

static void say_unmeasured(struct report *r, const struct found *f)
{
    const double graphs = (double)report_count(r, "graph") + (double)report_count_of(r, SLR_REDUCE_SCATTER, "graph") +
                          (double)report_count_of(r, SLR_ALL_REDUCE, "graph");
    if (any_without_trials(r))
        out_say(r->o, "Not known whether it helped: ring and NCCL were not compared, as SLIPRING_TRIALS=0 says.");
    else if (2 * graphs > calls_of(r, true))
        out_say(r->o,
                "Not known whether it helped: most calls are in CUDA graphs, where ring and NCCL are not compared.");
    else if (f->left)
        out_say(r->o,
                "Not known whether it helped: the program made too few calls to compare ring and NCCL, %" PRIu64
                " at most at one call site. It takes some hundred.",
                f->most);
    else
        out_say(r->o, "Not known whether it helped: these logs do not say that ring and NCCL were compared.");
}

static void say_unmoved(struct report *r)
{
    uint64_t n;
    const enum slr_reason reason = most_reason(r, &n);
    char why[300] = "";
    if (n)
        snprintf(why, sizeof why, ", %" PRIu64 " of them for %.60s: %.200s", n, slr_reason_name(reason),
                 slr_reason_doc(reason));
    out_say(r->o, "Nothing was moved: all %.0f calls stayed with NCCL%s.", calls_of(r, false), why);
}

void report_verdict(struct report *r)
{
    struct found f = {0};
    report_each_member(r, add_member, &f);
    if (f.sites || (f.program && f.duel))
        say_measured(r, &f);
    else if (calls_of(r, true) > 0)
        say_unmeasured(r, &f);
    else if (calls_of(r, false) > 0)
        say_unmoved(r);
    else
        out_say(r->o, "These logs show no all-gather, reduce-scatter or all-reduce.");
}
