/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/window.h"
#include <stdlib.h>
#include <string.h>

struct candidate {
    uint64_t first;
    int64_t begin, end;
    uint64_t pattern; /* how its gathers ended, on the first rank */
    bool fused;
};
VEC_TYPE(candidates, struct candidate);

static double traced_time(const struct report *r, const struct comm *c, bool pass)
{
    double sum = 0;
    for (size_t k = 0; k < c->members.n; k++) {
        const struct member *b = &r->m->members.at[c->members.at[k]];
        for (size_t i = 0; i < b->gathers.n; i++)
            if (b->gathers.at[i].pass == pass)
                sum += (double)(b->gathers.at[i].end - b->gathers.at[i].begin) + 1;
        for (size_t i = 0; i < b->scatters.n && !pass; i++)
            sum += (double)(b->scatters.at[i].end - b->scatters.at[i].begin) + 1;
    }
    return sum;
}

/* The communicator whose traced calls take the most time. */
static bool choose_comm(struct window *w, const struct report *r, bool pass)
{
    double most = 0;
    for (size_t i = 0; i < r->run->comms.n; i++) {
        double time = traced_time(r, &r->m->comms.at[r->run->comms.at[i]], pass);
        if (time > most) {
            most = time;
            w->comm = r->run->comms.at[i];
            w->pass = pass;
        }
    }
    return most > 0;
}

static void extend(struct candidate *d, const struct member *b, const struct gather *g)
{
    const struct span *s;
    size_t n = member_spans(b, g->pass, g->call, &s);
    d->begin = g->begin < d->begin ? g->begin : d->begin;
    d->end = g->end > d->end ? g->end : d->end;
    for (size_t i = 0; i < n; i++)
        d->end = s[i].end > d->end ? s[i].end : d->end;
}

/* `length` calls from `first` on, if every rank has them all. */
static bool measure(struct candidate *d, const struct report *r, const struct window *w, uint64_t first,
                    uint64_t length)
{
    const struct comm *c = &r->m->comms.at[w->comm];
    *d = (struct candidate){.first = first, .begin = INT64_MAX, .end = INT64_MIN, .pattern = 1};
    for (uint64_t call = first; call < first + length; call++)
        for (size_t k = 0; k < c->members.n; k++) {
            const struct member *b = &r->m->members.at[c->members.at[k]];
            const struct gather *g = member_call(b, w->pass, call);
            if (!g)
                return false;
            extend(d, b, g);
            if (k == 0) {
                d->pattern = d->pattern * 1099511628211u + (uintptr_t)g->ended;
                d->fused |= g->ended && strcmp(g->ended, "fused") == 0;
            }
        }
    return true;
}

static void find_candidates(struct candidates *list, const struct report *r, const struct window *w, uint64_t length)
{
    const struct comm *c = &r->m->comms.at[w->comm];
    const struct member *b = &r->m->members.at[c->members.at[0]];
    const size_t all = b->gathers.n + b->scatters.n, stride = 1 + all / 20000; /* enough of them */
    for (size_t i = 0; i < all; i += stride) {
        const struct gather *g = i < b->gathers.n ? &b->gathers.at[i] : &b->scatters.at[i - b->gathers.n];
        const struct phase *p = w->pass ? NULL : comm_phase(c, g->call);
        struct candidate d;
        if (g->pass != w->pass || (p && length > 1 && length == p->period && (g->call - p->first) % p->period != 0))
            continue;
        if (measure(&d, r, w, g->call, length))
            vec_push(list, d);
    }
}

static size_t with_pattern(const struct candidates *list, uint64_t pattern)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->at[i].pattern == pattern;
    return n;
}

/* What most windows are like; one with a fused GEMM if a quarter of them are. */
static uint64_t usual_pattern(const struct candidates *list, size_t *like)
{
    uint64_t best = 0;
    bool fused = false;
    *like = 0;
    for (size_t i = 0; i < list->n && i < 2000; i++) {
        const struct candidate *d = &list->at[i];
        if (d->pattern == best)
            continue;
        size_t n = with_pattern(list, d->pattern);
        bool often = d->fused && 4 * n >= list->n;
        if ((often && !fused) || (often == fused && n > *like)) {
            best = d->pattern;
            fused = often;
            *like = n;
        }
    }
    return best;
}

static int by_length(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    int64_t la = a->end - a->begin, lb = b->end - b->begin;
    return la < lb ? -1 : la > lb ? 1 : a->first < b->first ? -1 : a->first > b->first;
}

/* The first third of the windows is left out when enough are left: there programs warm up. */
static void choose(struct window *w, struct candidates *list)
{
    size_t skip = list->n >= 6 ? list->n / 3 : 0, n = 0;
    memmove(list->at, list->at + skip, (list->n - skip) * sizeof *list->at);
    w->windows = list->n -= skip;
    uint64_t pattern = usual_pattern(list, &w->like);
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].pattern == pattern)
            list->at[n++] = list->at[i];
    qsort(list->at, n, sizeof *list->at, by_length);
    const struct candidate *d = &list->at[(n - 1) / 2];
    w->first = d->first;
    w->begin = d->begin;
    w->end = d->end > d->begin ? d->end : d->begin + 1;
}

static bool find_with(struct window *w, const struct report *r, uint64_t length)
{
    struct candidates list = {0};
    find_candidates(&list, r, w, length);
    bool found = list.n > 0;
    if (found) {
        choose(w, &list);
        w->last = w->first + length - 1;
    }
    vec_free(&list);
    return found;
}

bool window_find(struct window *w, const struct report *r)
{
    *w = (struct window){0};
    if (!choose_comm(w, r, false) && !choose_comm(w, r, true))
        return false;
    const struct comm *c = &r->m->comms.at[w->comm];
    uint64_t period = c->phases.n && !w->pass ? c->phases.at[c->phases.n - 1].period : 1;
    uint64_t length = period < 2 ? 2 : period > 6 ? 6 : period;
    while (length > 1 && !find_with(w, r, length))
        length--;
    return length > 1 || find_with(w, r, 1);
}
