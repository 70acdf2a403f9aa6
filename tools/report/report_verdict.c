/* SPDX-License-Identifier: Apache-2.0 */
/* The first line of a report: what slipring did for the job, against NCCL, and how that is known. One rank of each
 * communicator has told the ways of its call sites; what it has measured is the slowest rank's time. */
#include <inttypes.h>
#include <string.h>
#include "base/status.h"
#include "tools/report/advice.h"

struct found {
    double chosen, nccl;     /* ms: of all calls since their ways were chosen, as they went; all by NCCL */
    double calls;            /* of these sites, since then */
    unsigned sites, ring;    /* measured by their own times, with calls since; of these over the ring */
    unsigned program, left;  /* sites that go by what the program takes; of which nothing was measured */
    unsigned close;          /* communicators over hosts of which it was not certain */
    unsigned late;           /* for which a way was chosen, and no call has gone by it */
    uint64_t most;           /* calls of one of those left, or late, at most */
    const struct duel *duel; /* the latest */
    const struct duel
        *sums; /* the latest over hosts of reduce-scatters or all-reduces, which tells where there is no other */
};

static void add_way(struct found *f, const struct member *b, const struct site_way *w)
{
    const double calls = (double)(w->over_ring + w->over_nccl);
    const bool left = strcmp(w->reason, "unmeasured") == 0, late = !left && calls <= 0;
    double ring, nccl;
    if (left || late) {
        f->left += left;
        f->late += late;
        f->most = w->calls > f->most ? w->calls : f->most;
    } else if (strcmp(w->reason, "program") == 0) {
        f->program++;
    } else if (report_way_times(b, w, &ring, &nccl)) {
        f->sites++;
        f->ring += !w->nccl;
        f->calls += calls;
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
    for (size_t i = 0; i < b->duels.n; i++) {
        const struct duel *d = &b->duels.at[i];
        if (d->of) {
            if (strcmp(d->of, "pieces") != 0 && strcmp(d->by, "none") != 0 && d->ring_ms > 0 && d->nccl_ms > 0)
                f->sums = d;
            continue;
        }
        const bool of_hosts = d->sites == 0, close = of_hosts && strcmp(d->by, "none") == 0;
        f->program += of_hosts && !close;
        f->close += close;
        if (!close && d->ring_ms > 0 && d->nccl_ms > 0 && (!f->duel || d->ts >= f->duel->ts))
            f->duel = d;
    }
}

static double calls_of(const struct report *r)
{
    return report_sum(r, F_CALLS) + report_sum(r, F_SCATTERS) + report_sum(r, F_REDUCES);
}

/* For which most calls stayed with NCCL; SLR_R_COUNT: not told. */
static enum slr_reason most_reason(const struct report *r, uint64_t *n)
{
    enum slr_reason most = SLR_R_COUNT;
    *n = 0;
    for (enum slr_reason i = 0; i < SLR_R_FUSED; i++) {
        const char *name = slr_reason_name(i);
        uint64_t calls = 0;
        for (int op = 0; op < SLR_COLLECTIVES && !slr_reason_moves(i); op++)
            calls += report_count_of(r, (enum slr_collective_id)op, name);
        if (calls > *n) {
            *n = calls;
            most = i;
        }
    }
    return most;
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
static void say_duel(struct report *r, const struct duel *d)
{
    const double saved = d->nccl_ms - d->ring_ms;
    if (d->by && (strcmp(d->by, "nccl") == 0 || strcmp(d->by, "without") == 0))
        out_say(r->o,
                "Not worth it here: %" PRIu64
                " calls, and what is between them, take %.3f ms over the ring and %.3f ms by NCCL, which has them: "
                "measured, by turns. Leave slipring out.",
                d->calls, d->ring_ms, d->nccl_ms);
    else
        out_say(r->o,
                "%s: %.3f ms of the %.3f ms (%.1f%%) that %" PRIu64
                " calls, and what is between them, take by NCCL: measured, by turns.",
                outcome(saved, d->nccl_ms), size_of(saved), d->nccl_ms, 100 * size_of(saved) / d->nccl_ms, d->calls);
}

static void say_sites(struct report *r, const struct found *f)
{
    const double saved = f->nccl - f->chosen;
    char time[FORM_ROOM], all[FORM_ROOM], sum[FORM_ROOM], left[120] = ", though tried";
    if (f->most < trial_need(r))
        snprintf(left, sizeof left, " to the end, with %" PRIu64 " calls at most, and it takes up to %" PRIu64, f->most,
                 trial_need(r));
    if (f->ring == 0 && f->left == 0)
        out_say(r->o,
                "Not worth it here: at %s NCCL is faster, or as fast, and has the calls: measured there. Leave "
                "slipring out.",
                f->sites > 1 ? "all call sites" : "the one call site");
    else if (f->ring == 0)
        out_say(
            r->o,
            "Nothing won: at %u call site%s NCCL is faster, or as fast, and has the calls; %u other%s not measured%s.",
            f->sites, f->sites > 1 ? "s" : "", f->left, f->left > 1 ? "s were" : " was", left);
    else
        out_say(r->o,
                "%s: %s of the %s (%.1f%%) that a call takes by NCCL, with its GEMM; %s in %.0f calls: measured at %u "
                "call site%s.",
                outcome(saved, f->nccl), form_time(time, size_of(saved) * 1e6 / f->calls),
                form_time(all, f->nccl * 1e6 / f->calls), 100 * size_of(saved) / f->nccl,
                form_time(sum, size_of(saved) * 1e6), f->calls, f->sites, f->sites > 1 ? "s" : "");
}

static void say_measured(struct report *r, const struct found *f)
{
    if (f->program && f->duel)
        say_duel(r, f->duel);
    else if (f->sites)
        say_sites(r, f);
    else
        say_duel(r, f->sums);
}

/* Why nothing is known. */
enum unknown { OFF, GRAPHS, CLOSE, AT_THE_END, FEW, UNMEASURED, UNTOLD };

static enum unknown unknown_of(const struct report *r, const struct found *f)
{
    const double graphs = (double)report_count(r, "graph") + (double)report_count_of(r, SLR_REDUCE_SCATTER, "graph") +
                          (double)report_count_of(r, SLR_ALL_REDUCE, "graph");
    return trial_need(r) == 0                   ? OFF
           : 2 * graphs > report_moved(r)       ? GRAPHS
           : f->close                           ? CLOSE
           : f->duel || f->late                 ? AT_THE_END
           : f->left && f->most < trial_need(r) ? FEW
           : f->left                            ? UNMEASURED
                                                : UNTOLD;
}

/* What was found came at the end. */
static void say_late(struct report *r, const struct found *f)
{
    const struct duel *d = f->duel;
    char found[160] = "";
    if (d)
        snprintf(found, sizeof found,
                 ": %" PRIu64 " calls, and what is between them, take %.3f ms over the ring, %.3f ms by NCCL", d->calls,
                 d->ring_ms, d->nccl_ms);
    out_say(r->o,
            "Not known whether it helped: ring and NCCL were compared at the end of the run only%s. It takes up to "
            "%" PRIu64 " calls of a call site; there were %" PRIu64 " at most.",
            found, trial_need(r), f->most);
}

static void say_unmeasured(struct report *r, const struct found *f)
{
    static const char *const words[] = {
        [OFF] = "ring and NCCL were not compared, as SLIPRING_TRIALS=0 says",
        [GRAPHS] = "most calls are in CUDA graphs, where ring and NCCL are not compared",
        [CLOSE] =
            "over hosts and by NCCL the program takes as long, as far as that was certain, and NCCL has the calls",
        [UNMEASURED] =
            "ring and NCCL were tried, but in half of the rounds or more their times could not be measured on "
            "all ranks",
        [UNTOLD] =
            "these logs do not say that ring and NCCL were compared; with CUBLAS_WORKSPACE_CONFIG set, on any rank, "
            "they are not",
    };
    const enum unknown why = unknown_of(r, f);
    if (why == AT_THE_END)
        say_late(r, f);
    else if (why == FEW)
        out_say(r->o,
                "Not known whether it helped: the program made too few calls to compare ring and NCCL, %" PRIu64
                " at most at one call site. It takes up to %" PRIu64 ".",
                f->most, trial_need(r));
    else
        out_say(r->o, "Not known whether it helped: %s.", words[why]);
}

static void say_unmoved(struct report *r)
{
    uint64_t n;
    const enum slr_reason reason = most_reason(r, &n);
    char some[60] = "", why[400] = "";
    if (n && (double)n < calls_of(r))
        snprintf(some, sizeof some, "%" PRIu64 " of them ", n);
    if (n)
        snprintf(why, sizeof why, ", %sfor %.60s: %.200s", some, slr_reason_name(reason), slr_reason_doc(reason));
    out_say(r->o, "Nothing was moved: all %.0f calls stayed with NCCL%s.", calls_of(r), why);
}

static bool is_measured(const struct found *f)
{
    return f->sites || (f->program && f->duel) || f->sums;
}

void report_verdict(struct report *r)
{
    struct found f = {0};
    report_each_member(r, add_member, &f);
    if (report_has_failed(r))
        out_say(r->o, "Failed, see What to do. Until then:");
    if (is_measured(&f))
        say_measured(r, &f);
    else if (report_moved(r) > 0)
        say_unmeasured(r, &f);
    else if (calls_of(r) > 0)
        say_unmoved(r);
    else
        out_say(r->o, "These logs show no all-gather, reduce-scatter or all-reduce.");
}

void advise_unknown(struct report *r, struct advices *a)
{
    struct found f = {0};
    report_each_member(r, add_member, &f);
    if (is_measured(&f) || report_moved(r) <= 0)
        return;
    const enum unknown why = unknown_of(r, &f);
    if (why == OFF)
        advice_add(a, ADVICE_REST, 0,
                   "SLIPRING_TRIALS=3, its default, compares ring and NCCL, and keeps what is faster.");
    else if (why == GRAPHS)
        advice_add(a, ADVICE_REST, 0,
                   "Make up to %" PRIu64
                   " calls of each size outside of CUDA graphs before the first one is captured: ring "
                   "and NCCL are compared then, and graphs go by that. SLIPRING_GRAPHS=off leaves graphs to NCCL, to "
                   "compare the program's time.",
                   trial_need(r));
    else if ((why == FEW || why == AT_THE_END) && !report_has_failed(r))
        advice_add(a, ADVICE_REST, 0,
                   "Run for %" PRIu64
                   " calls of a call site or more. SLIPRING_TUNE_FILE=FILE and SLIPRING_TUNE_KEEP=on keep "
                   "what was found for the runs behind.",
                   trial_need(r));
}
