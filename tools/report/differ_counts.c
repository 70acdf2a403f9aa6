/* SPDX-License-Identifier: Apache-2.0 */
/* What should be equal on all ranks: versions, settings, how often each reason occurred, calls, and shards by
 * their way. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "tools/report/report.h"

/* The value that most have; of several equally frequent ones the first. */
static int64_t usual(const int64_t *value, size_t n)
{
    size_t best = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        for (size_t k = 0; k < n; k++)
            same += value[i] == value[k];
        if (same > most)
            best = i, most = same;
    }
    return value[best];
}

static const char *label_of(const struct report *r, const struct process *p, char *buf, size_t size)
{
    for (size_t i = 0; i < r->run->ranks.n; i++) {
        const struct rank *k = &r->m->ranks.at[r->run->ranks.at[i]];
        if (&r->m->processes.at[k->process] == p)
            return k->label;
    }
    snprintf(buf, size, "pid %" PRId64, p->pid);
    return buf;
}

/* Up to a few ranks are named; when most differ from each other none is odd. */
static void tell(struct report *r, struct table *t, const struct process *const *who, const int64_t *value, size_t n,
                 const char *what)
{
    int64_t most = usual(value, n);
    size_t odd = 0;
    for (size_t i = 0; i < n; i++)
        odd += value[i] != most;
    if (odd == 0 || odd > (n + 1) / 2)
        return;
    for (size_t i = 0; i < n; i++) {
        char buf[40], its[40], others[40];
        if (value[i] == most)
            continue;
        snprintf(its, sizeof its, "%" PRId64, value[i]);
        snprintf(others, sizeof others, "%" PRId64, most);
        differ_row(t, label_of(r, who[i], buf, sizeof buf), "the whole run", what, its, others);
    }
}

static const char *version_of(const struct process *p)
{
    return p->version;
}

static const char *settings_of(const struct process *p)
{
    return p->settings && !*p->settings ? "none" : p->settings;
}

/* What processes say of themselves, where that is not what most of them say. NULL: not told. */
static void differ_text(struct report *r, struct table *t, const char *what, const char *(*of)(const struct process *))
{
    const struct run *run = r->run;
    const char *most = NULL;
    size_t of_most = 0;
    for (size_t i = 0; i < run->processes.n; i++) {
        const char *text = of(&r->m->processes.at[run->processes.at[i]]);
        size_t same = 0;
        for (size_t k = 0; text && k < run->processes.n; k++) {
            const char *other = of(&r->m->processes.at[run->processes.at[k]]);
            same += other && strcmp(text, other) == 0;
        }
        if (same > of_most)
            most = text, of_most = same;
    }
    for (size_t i = 0; most && i < run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[run->processes.at[i]];
        char buf[40];
        if (of(p) && strcmp(of(p), most) != 0)
            differ_row(t, label_of(r, p, buf, sizeof buf), "the whole run", what, of(p), most);
    }
}

static int64_t count_of(const struct process *p, int op, const char *reason)
{
    for (size_t i = 0; i < p->counts[op].n; i++)
        if (p->counts[op].at[i].reason == reason)
            return (int64_t)p->counts[op].at[i].n;
    return 0;
}

static void reasons(struct report *r, struct table *t, const struct process *const *who, int64_t *value, size_t n,
                    int op)
{
    struct tallies seen = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < who[i]->counts[op].n; k++)
            tally(&seen, who[i]->counts[op].at[k].reason, 1);
    for (size_t k = 0; k < seen.n; k++) {
        char what[300], words[200];
        for (size_t i = 0; i < n; i++)
            value[i] = count_of(who[i], op, seen.at[k].reason);
        snprintf(what, sizeof what, "%ss of which %s (%.60s)", slr_collectives[op].words,
                 report_reason_words(words, sizeof words, seen.at[k].reason), seen.at[k].reason);
        tell(r, t, who, value, n, what);
    }
    vec_free(&seen);
}

void differ_counts(struct report *r, struct table *t)
{
    static const struct {
        enum log_field f;
        const char *what;
    } sums[] = {{F_CALLS, "all-gathers"},
                {F_BYTES, "gathered bytes"},
                {F_STAGED, "shards copied before peers got them"},
                {F_ZERO_COPY, "shards that peers read where they lay"},
                {F_PUSHED, "shards written into peers' buffers"},
                {F_GEMM_CHUNKS, "parts of fused GEMMs"},
                {F_SCATTERS, "reduce-scatters"},
                {F_REDUCES, "all-reduces"}};
    differ_text(r, t, "version of slipring", version_of);
    differ_text(r, t, "settings that are given", settings_of);
    const struct process **who = tool_alloc(r->run->processes.n, sizeof *who);
    int64_t *value = tool_alloc(r->run->processes.n, sizeof *value);
    size_t n = 0;
    for (size_t i = 0; i < r->run->processes.n; i++) {
        const struct process *p = &r->m->processes.at[r->run->processes.at[i]];
        if (p->has_summary)
            who[n++] = p;
    }
    for (size_t k = 0; k < sizeof sums / sizeof *sums && n > 1; k++) {
        for (size_t i = 0; i < n; i++)
            value[i] = who[i]->summary[sums[k].f];
        tell(r, t, who, value, n, sums[k].what);
    }
    for (int op = 0; op < SLR_COLLECTIVES && n > 1; op++)
        reasons(r, t, who, value, n, op);
    free(who);
    free(value);
}
