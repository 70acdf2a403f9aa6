/* SPDX-License-Identifier: Apache-2.0 */
/* Lines come in the order in which ranks wrote them, perhaps twice; the model has them in order,
 * once. */
#include <stdlib.h>
#include <string.h>
#include "tools/model/model_tables.h"

#define COMPARE(a, b)                                                                                                  \
    if ((a) != (b))                                                                                                    \
    return (a) < (b) ? -1 : 1

static int by_call(const void *x, const void *y)
{
    const struct gather *a = x, *b = y;
    COMPARE(a->pass, b->pass);
    COMPARE(a->call, b->call);
    COMPARE(a->begin, b->begin);
    return 0;
}

static int by_begin(const void *x, const void *y)
{
    const struct span *a = x, *b = y;
    COMPARE(a->pass, b->pass);
    COMPARE(a->call, b->call);
    COMPARE(a->begin, b->begin);
    COMPARE(a->end, b->end);
    COMPARE(a->lane, b->lane);
    COMPARE(a->kind, b->kind);
    COMPARE(a->peer, b->peer);
    COMPARE(a->piece, b->piece);
    return 0;
}

static int by_time(const void *x, const void *y)
{
    const struct collective *a = x, *b = y;
    COMPARE(a->begin, b->begin);
    COMPARE(a->end, b->end);
    COMPARE(a->profiled, b->profiled);
    COMPARE(a->seq, b->seq);
    return strcmp(a->func, b->func);
}

static int placed_by_call(const void *x, const void *y)
{
    const struct placed *a = x, *b = y;
    COMPARE(a->call, b->call);
    return 0;
}

static int by_ts(const void *x, const void *y)
{
    const struct trial *a = x, *b = y;
    COMPARE(a->ts, b->ts);
    COMPARE(a->site.shard, b->site.shard);
    COMPARE(a->site.op, b->site.op);
    COMPARE(a->site.context, b->site.context);
    COMPARE(a->m, b->m);
    COMPARE(a->n, b->n);
    COMPARE(a->k, b->k);
    return 0;
}

static int duel_by_ts(const void *x, const void *y)
{
    const struct duel *a = x, *b = y;
    COMPARE(a->ts, b->ts);
    COMPARE(a->sites, b->sites);
    COMPARE(a->calls, b->calls);
    return 0;
}

static int way_by_ts(const void *x, const void *y)
{
    const struct site_way *a = x, *b = y;
    COMPARE(a->ts, b->ts);
    COMPARE(a->site.shard, b->site.shard);
    COMPARE(a->site.op, b->site.op);
    COMPARE(a->site.context, b->site.context);
    return 0;
}

/* Sorts, and leaves out what is equal to the one before; returns how many are left. */
static size_t sort_once(void *at, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    char *base = at;
    size_t kept = n > 0;
    if (n > 1)
        qsort(at, n, size, compare);
    for (size_t i = 1; i < n; i++)
        if (compare(base + i * size, base + (kept - 1) * size) != 0) {
            if (kept != i)
                memcpy(base + kept * size, base + i * size, size);
            kept++;
        }
    return kept;
}

#define ORDER(m, v, compare)                                                                                           \
    do {                                                                                                               \
        size_t kept_ = sort_once((v)->at, (v)->n, sizeof *(v)->at, compare);                                           \
        (m)->twice += (v)->n - kept_;                                                                                  \
        (v)->n = kept_;                                                                                                \
    } while (0)

static const struct model *ordering; /* for by_crank: qsort passes no context */

static int by_crank(const void *x, const void *y)
{
    const struct member *a = &ordering->members.at[*(const uint32_t *)x];
    const struct member *b = &ordering->members.at[*(const uint32_t *)y];
    COMPARE(a->crank, b->crank);
    COMPARE(a->process, b->process);
    return 0;
}

void model_order(struct model *m)
{
    for (size_t i = 0; i < m->members.n; i++) {
        struct member *b = &m->members.at[i];
        ORDER(m, &b->gathers, by_call);
        ORDER(m, &b->scatters, by_call);
        ORDER(m, &b->spans, by_begin);
        ORDER(m, &b->placed, placed_by_call);
        ORDER(m, &b->collectives, by_time);
        ORDER(m, &b->trials, by_ts);
        ORDER(m, &b->duels, duel_by_ts);
        ORDER(m, &b->ways, way_by_ts);
        model_find_trial_sites(b);
    }
    ordering = m;
    for (size_t i = 0; i < m->comms.n; i++) {
        struct comm *c = &m->comms.at[i];
        if (c->members.n > 1)
            qsort(c->members.at, c->members.n, sizeof *c->members.at, by_crank);
    }
}

const struct phase *comm_phase(const struct comm *c, uint64_t call)
{
    const struct phase *found = NULL;
    for (size_t i = 0; i < c->phases.n; i++) /* a later one knew more calls */
        if (c->phases.at[i].first <= call)
            found = &c->phases.at[i];
    return found;
}

static const struct gather *find(const struct gather *at, size_t n, bool pass, uint64_t call)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct gather *g = &at[mid];
        if (g->pass < pass || (g->pass == pass && g->call < call))
            low = mid + 1;
        else
            high = mid;
    }
    const struct gather *g = low < n ? &at[low] : NULL;
    return g && g->pass == pass && g->call == call ? g : NULL;
}

const struct gather *member_gather(const struct member *b, bool pass, uint64_t call)
{
    return find(b->gathers.at, b->gathers.n, pass, call);
}

const struct gather *member_call(const struct member *b, bool pass, uint64_t call)
{
    const struct gather *g = member_gather(b, pass, call);
    return g ? g : find(b->scatters.at, b->scatters.n, pass, call);
}

size_t member_spans(const struct member *b, bool pass, uint64_t call, const struct span **at)
{
    size_t low = 0, high = b->spans.n, n = 0;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct span *s = &b->spans.at[mid];
        if (s->pass < pass || (s->pass == pass && s->call < call))
            low = mid + 1;
        else
            high = mid;
    }
    *at = low < b->spans.n ? &b->spans.at[low] : NULL;
    while (low + n < b->spans.n && b->spans.at[low + n].pass == pass && b->spans.at[low + n].call == call)
        n++;
    return n;
}
