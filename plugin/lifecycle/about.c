/* SPDX-License-Identifier: Apache-2.0 */
/* What a process says of itself: in the log, where it makes its first communicator, and on stderr, at its end. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/counters.h"
#include "base/log.h"
#include "base/real.h"
#include "base/settings.h"
#include "plugin/lifecycle/lifecycle.h"
#include "plugin/lifecycle/lifecycle_impl.h"
#include "plugin/trials/ways.h"

enum { COMMAND_MOST = 800, SETTINGS_MOST = 600, FILES_MOST = 300 }; /* a line has to hold all */

/* The program and its arguments, with spaces between them. */
static void command(char *text, size_t size)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    n = n < 0 ? 0 : n;
    while (n > 0 && text[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        text[i] = text[i] ? text[i] : ' ';
    text[n] = '\0';
}

/* "MIN_BYTES=0 TRIALS=1": those that are given. Where the log goes is no news. */
static void settings(char *text, size_t size)
{
    const struct slr_settings *s = slr_settings();
    size_t len = 0;
    *text = '\0';
    for (int i = 0; i < SLR_S_COUNT && len < size; i++)
        if (s->given[i] && i != SLR_S_LOG && i != SLR_S_LOG_FILE && i != SLR_S_LOG_FORMAT && i != SLR_S_CONF_FILE)
            len += (size_t)snprintf(text + len, size - len, "%s%s=%s", len ? " " : "", slr_setting_rows[i].name,
                                    s->text[i]);
}

/* The files that some of them are from, with a comma between: there are two at most. */
static void settings_files(char *text, size_t size)
{
    const struct slr_settings *s = slr_settings();
    const char *before = NULL;
    size_t len = 0;
    *text = '\0';
    for (int i = 0; i < SLR_S_COUNT && len < size; i++) {
        const char *file = s->given[i] ? s->place[i].file : NULL;
        if (file && file != before && (len == 0 || !strstr(text, file)))
            len += (size_t)snprintf(text + len, size - len, "%s%s", len ? "," : "", before = file);
    }
}

static _Atomic unsigned long queues_from, queues_to;

void slr_about_queues(unsigned long from, unsigned long to)
{
    atomic_store(&queues_to, to);
    atomic_store(&queues_from, from);
}

void slr_about_log(void)
{
    static _Atomic bool told;
    char of[COMMAND_MOST], given[SETTINGS_MOST], files[FILES_MOST];
    int nccl = 0, cuda = 0;
    if (!slr_log_enabled(SLR_LOG_INFO) || atomic_exchange(&told, true))
        return;
    command(of, sizeof of);
    settings(given, sizeof given);
    settings_files(files, sizeof files);
    if (slr_real.ncclGetVersion)
        slr_real.ncclGetVersion(&nccl);
    if (slr_real.cuDriverGetVersion)
        slr_real.cuDriverGetVersion(&cuda);
    slr_log(SLR_LOG_INFO, "process", "version=%s nccl=%d cuda=%d settings=%s files=%s command=%s", SLIPRING_VERSION,
            nccl, cuda, given, files, of);
    const unsigned long from = atomic_load(&queues_from);
    if (from)
        slr_log(SLR_LOG_INFO, "connections", "from=%lu to=%lu", from, atomic_load(&queues_to));
}

/* ---- the end ---- */

struct text {
    char *start;
    size_t size, len;
};

#define C(member) ((unsigned long long)atomic_load_explicit(&slr_counters.member, memory_order_relaxed))

__attribute__((format(printf, 2, 3))) static void append(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->start + t->len, t->size - t->len, fmt, args);
    va_end(args);
    t->len += n < 0 ? 0 : (size_t)n;
    t->len = t->len < t->size ? t->len : t->size - 1;
}

/* Of those from `first` to before `end` the one that has occurred most; `end`: none has. */
static enum slr_reason most(const _Atomic uint64_t *counts, enum slr_reason first, enum slr_reason end)
{
    enum slr_reason found = end;
    uint64_t n = 0;
    for (enum slr_reason r = first; r < end; r++) {
        const uint64_t of_it = slr_reason_moves(r) ? 0 : atomic_load_explicit(&counts[r], memory_order_relaxed);
        if (of_it > n) {
            n = of_it;
            found = r;
        }
    }
    return found;
}

/* "for one_rank (...)", with what to do. What a site learns by is no reason to do anything. */
static void add_reason(struct text *t, int id, enum slr_reason r)
{
    const char *cure = slr_reason_cure(r);
    const bool untried = r == slr_collectives[id].untried;
    if (untried && slr_trials_none())
        append(t, "as no ways are tried: %s", slr_trials_none());
    else if (untried || r == SLR_R_TRIAL)
        append(t, "%s their ways were tried (%s)", untried ? "before" : "while", slr_reason_name(r));
    else
        append(t, "for %s (%s)%s%s", slr_reason_name(r), slr_reason_doc(r), cure ? ": " : "", cure ? cure : "");
}

static uint64_t calls_of(const struct slr_totals *n)
{
    return n->calls + n->scatters + n->reduces;
}

static uint64_t moved_of(const struct slr_totals *n)
{
    return n->substituted + n->scatters_substituted + n->reduces_substituted;
}

static void add_gathers(struct text *t, const struct slr_totals *n)
{
    append(t, "%llu of %llu all-gathers went over the ring", (unsigned long long)n->substituted,
           (unsigned long long)n->calls);
    if (n->fused > 0)
        append(t, ", %llu GEMMs ran in parts behind them", (unsigned long long)n->fused);
}

/* Reduce-scatters and all-reduces. */
static void add_scatters(struct text *t, const struct slr_totals *n)
{
    if (n->scatters > 0)
        append(t, "%llu of %llu reduce-scatters went over the ring", (unsigned long long)n->scatters_substituted,
               (unsigned long long)n->scatters);
    if (n->reduces > 0)
        append(t, "%s%llu of %llu all-reduces went over the ring", n->scatters > 0 ? "; " : "",
               (unsigned long long)n->reduces_substituted, (unsigned long long)n->reduces);
    if (n->scatters_fused > 0)
        append(t, ", %llu %sas their GEMMs completed the parts", (unsigned long long)n->scatters_fused,
               n->scatters > 0 && n->reduces > 0 ? "of both " : "");
}

/* Less than a hundredth is what measurements differ by. Where NCCL has all, its time is what was chosen. */
static void add_outcome(struct text *t, const char *whose, double as_chosen, double by_nccl, const struct slr_totals *n)
{
    const double saved = by_nccl - as_chosen, share = saved < 0 ? -saved / by_nccl : saved / by_nccl;
    const bool seldom = 2 * moved_of(n) < calls_of(n);
    if (saved >= 0 && saved <= 0)
        append(t, "%s: NCCL is faster, or as fast, and has the calls%s", seldom ? "not worth it here" : "nothing won",
               seldom ? "; leave slipring out" : "");
    else if (share < 0.01)
        append(t, "even with NCCL");
    else
        append(t, "%s %.1f%% of the %s time against NCCL", saved < 0 ? "lost" : "won", 100 * share, whose);
}

static void add_sites(struct text *t)
{
    append(t, "measured at %llu call site%s: %.3f ms as chosen, %.3f ms by NCCL", C(chosen), C(chosen) > 1 ? "s" : "",
           (double)C(chosen_ns) / 1e6, (double)C(chosen_nccl_ns) / 1e6);
}

/* Why nothing has been measured. */
static void add_unmeasured(struct text *t, const struct slr_totals *n)
{
    uint64_t graphs = 0;
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        graphs += C(of[id].by_reason[SLR_R_GRAPH]);
    if (slr_trials_none())
        append(t, "ring and NCCL were not compared, as %s", slr_trials_none());
    else if (2 * graphs > moved_of(n))
        append(t, "most calls are in CUDA graphs, where ring and NCCL are not compared");
    else
        append(t, "too few calls to compare ring and NCCL, which takes up to %llu at a call site",
               (unsigned long long)slr_trial_need(slr_get(SLR_S_TRIALS), slr_get(SLR_S_TRIALS_AFTER)));
}

/* What it did for the job: by what the program takes, where that has been measured, else by the calls' own times. */
static void add_verdict(struct text *t, const struct slr_totals *n)
{
    if (C(felt_nccl_ns) > 0) {
        add_outcome(t, "program's", (double)C(felt_ns), (double)C(felt_nccl_ns), n);
        append(t, ": ");
        if (C(felt) > 0) /* else all calls of communicators over hosts */
            append(t, "with %llu call site%s as chosen ", C(felt), C(felt) > 1 ? "s" : "");
        append(t, "%llu calls of the program took %.3f ms, by NCCL %.3f ms; ", C(felt_calls), (double)C(felt_ns) / 1e6,
               (double)C(felt_nccl_ns) / 1e6);
    } else if (C(chosen_nccl_ns) > 0) {
        add_outcome(t, "calls'", (double)C(chosen_ns), (double)C(chosen_nccl_ns), n);
        append(t, ", ");
        add_sites(t);
        append(t, "; ");
    } else if (moved_of(n) > 0) {
        append(t, "not known whether it helped: ");
        add_unmeasured(t, n);
        append(t, "; ");
    } else if (calls_of(n) > 0) {
        append(t, "nothing was moved: ");
    }
}

static void add_measured(struct text *t)
{
    if (C(felt_nccl_ns) > 0 && C(chosen) > 0) { /* else it has been said */
        append(t, "; ");
        add_sites(t);
    }
    if (C(traced_ns) > 0)
        append(t, "; of %.3f ms of traced gathers %.3f ms were hidden", (double)C(traced_ns) / 1e6,
               (double)C(traced_hidden_ns) / 1e6);
}

static unsigned long long less(unsigned long long a, unsigned long long b)
{
    return a > b ? a - b : 0; /* another thread may be between counting the one and the other */
}

/* A hundredth of all bytes, or more, stayed with NCCL as such calls: a barrier by an all-reduce is nothing to do anything
 * about. */
static bool matters(int id)
{
    unsigned long long all = 0;
    for (int other = 0; other < SLR_COLLECTIVES; other++)
        all += C(of[other].bytes);
    return 100 * less(C(of[id].bytes), C(of[id].moved_bytes)) >= all;
}

/* Why calls of a collective stayed with NCCL. */
static void add_left(struct text *t, int id)
{
    const unsigned long long left = less(C(of[id].calls), C(of[id].moved));
    const enum slr_reason why = most(slr_counters.of[id].by_reason, SLR_R_NOT_TRACKED, SLR_R_FUSED);
    if (left == 0 || why == SLR_R_FUSED || !matters(id))
        return;
    append(t, "; %llu %s%s stayed with NCCL, ", left, slr_collectives[id].words, left > 1 ? "s" : "");
    if (C(of[id].by_reason[why]) < left)
        append(t, "%llu of them ", C(of[id].by_reason[why]));
    add_reason(t, id, why);
}

/* Why calls stayed with NCCL; where no gather did, why no GEMM ran in parts. */
static void add_why(struct text *t, const struct slr_totals *n)
{
    enum slr_reason join = most(slr_counters.of[SLR_ALL_GATHER].by_reason, SLR_R_JOIN_OTHER_OP, SLR_R_COUNT);
    for (int id = 0; id < SLR_COLLECTIVES; id++)
        add_left(t, id);
    if (n->passed == 0 && n->fused == 0 && n->substituted > 0 && join != SLR_R_COUNT) {
        append(t, "; no GEMM ran in parts, mostly ");
        add_reason(t, SLR_ALL_GATHER, join);
        if (!slr_reason_cure(join))
            append(t, ": `slipring run --record DIR` and `slipring report DIR` say more");
    }
}

const char *slr_closing_text(char *text, size_t size)
{
    struct text t = {.start = text, .size = size};
    struct slr_totals n;
    slr_counters_total(&n);
    *text = '\0';
    const bool sums = n.scatters > 0 || n.reduces > 0;
    if (n.calls == 0 && !sums && slr_launched() != SLR_LAUNCHED_RUN)
        return text;
    append(&t, "rank 0: ");
    add_verdict(&t, &n);
    if (n.calls > 0)
        add_gathers(&t, &n);
    else if (!sums)
        append(&t,
               "communicators were made, but neither ncclAllGather, ncclReduceScatter nor ncclAllReduce was called");
    if (sums) {
        append(&t, n.calls > 0 ? "; " : "");
        add_scatters(&t, &n);
    }
    add_measured(&t);
    add_why(&t, &n);
    return text;
}

void slr_closing_say(void)
{
    char text[SLR_LOG_LINE];
    if (slr_launched() == SLR_LAUNCHED_QUIET || !slr_log_enabled(SLR_LOG_WARN) || !slr_launched_rank0())
        return;
    if (*slr_closing_text(text, sizeof text) && slr_launched_first())
        slr_log_tell(STDERR_FILENO, "job", text);
}
