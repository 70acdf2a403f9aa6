/* SPDX-License-Identifier: Apache-2.0 */
/* What call sites tried, and what was chosen. */
#include <inttypes.h>
#include "tools/report/report.h"

enum { TRIALS_SHOWN = 100, ONE = 32, GEMM = 256, LIST = TRIAL_WAYS * (2 * ONE) };

/* Four digits that count: 0.1844, 1.844, 18.44. */
static const char *put_ms(char *buf, double ms)
{
    int digits = ms < 0.99995 ? 4 : ms < 9.9995 ? 3 : ms < 99.995 ? 2 : 1;
    snprintf(buf, ONE, "%.*f", digits, ms);
    return buf;
}

/* With the GEMM in so many equal parts; below 0: not told. */
static double ms_of(const struct trial *t, uint64_t parts)
{
    for (unsigned i = 0; i < t->ways; i++)
        if (t->way[i].parts == parts)
            return t->way[i].ms;
    return -1;
}

/* "2:0.1744, 3:0.1887": the ways with more than one part. */
static void list_parts(char *buf, size_t size, const struct trial *t)
{
    char ms[ONE];
    size_t len = 0;
    snprintf(buf, size, "-");
    for (unsigned i = 0; i < t->ways; i++)
        if (t->way[i].parts != 1)
            len += (size_t)snprintf(buf + len, size - len, "%s%" PRIu64 ":%s", len ? ", " : "", t->way[i].parts,
                                    put_ms(ms, t->way[i].ms));
}

static bool has_gemm(const struct trial *t)
{
    return t->m && t->n && t->k;
}

/* Texts are interned. */
static bool alike(const struct trial *a, const struct trial *b)
{
    return a->scatter == b->scatter && a->shard == b->shard && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->batch == b->batch && a->trans == b->trans && a->type == b->type && a->gathered == b->gathered;
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
                 a->scatter ? "sent" : "gathered", a->gathered);
    table_cell(t, "%s", has_gemm(a) ? text : "no GEMM");
}

/* What was tried several times counts as it was chosen the last time. A duel is the end of what was tried before it. */
static const char *which_counts(const struct member *b, size_t i)
{
    const struct trial *one = &b->trials.at[i];
    unsigned before = 0;
    for (size_t k = 0; k < b->trials.n; k++)
        if (k != i && alike(&b->trials.at[k], one) && !b->trials.at[k].duel) {
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
    double ms = has_gemm(a) && a->parts ? ms_of(a, a->parts) : a->ring_ms;
    if (a->nccl || a->open || ms < 0 || a->nccl_ms <= 0)
        table_cell(t, "-");
    else
        table_cell(t, "%.1f%%", 100 * (1 - ms / a->nccl_ms));
}

static void put_trial(struct table *t, const struct comm *c, const struct member *b, size_t i)
{
    const struct trial *a = &b->trials.at[i];
    char bytes[FORM_ROOM], ms[ONE], list[LIST];
    double whole = ms_of(a, 1);
    table_cell(t, "%s", c->name);
    table_cell(t, "%s%s", form_bytes(bytes, (double)a->shard), a->scatter ? ", reduce-scatter" : "");
    put_gemm(t, a);
    table_cell(t, "%" PRIu64 ", %s%s", a->calls, a->clock ? a->clock : "not told", a->duel ? ", duel" : "");
    table_cell(t, "%s", put_ms(ms, a->ring_ms));
    table_cell(t, "%s", put_ms(ms, a->nccl_ms));
    table_cell(t, "%s", whole >= 0 ? put_ms(ms, whole) : "-");
    list_parts(list, sizeof list, a);
    table_cell(t, "%s", list);
    put_chosen(t, a, which_counts(b, i));
    put_gain(t, a);
}

void report_trials(struct report *r)
{
    static const struct column columns[] = {{"communicator", false, false},
                                            {"shard of a rank", false, true},
                                            {"GEMM: m, n, k, ops, types", false, true},
                                            {"calls, clock", false, true},
                                            {"ring", true, false},
                                            {"NCCL", true, false},
                                            {"whole", true, false},
                                            {"parts: time", false, true},
                                            {"chosen", false, true},
                                            {"less than NCCL", true, true}};
    struct table t = {.columns = columns, .n = sizeof columns / sizeof *columns};
    size_t n = 0;
    for (size_t i = 0; i < r->run->comms.n; i++) {
        const struct comm *c = &r->m->comms.at[r->run->comms.at[i]];
        for (size_t k = 0; k < c->members.n; k++) {
            const struct member *b = &r->m->members.at[c->members.at[k]];
            for (size_t j = 0; j < b->trials.n; j++)
                if (n++ < TRIALS_SHOWN)
                    put_trial(&t, c, b, j);
        }
    }
    if (n == 0)
        return;
    out_section(r->o, "tried", "What was tried");
    out_say(
        r->o,
        "For gathers, or reduce-scatters, of one size slipring has tried these ways and goes by the best: over the "
        "ring as it goes "
        "without trials, NCCL, and over the ring with the GEMM whole or in so many equal parts; times are ms from "
        "the gather to the end of its GEMM, or from the GEMM to the end of the reduce-scatter that sends its output, "
        "median of the slowest rank. Where NCCL and the best way over "
        "the ring "
        "were close, a duel of these two has decided.");
    out_table(r->o, &t);
    if (n > TRIALS_SHOWN)
        out_say(r->o, "%zu more are not listed.", n - TRIALS_SHOWN);
}
