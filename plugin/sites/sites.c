/* SPDX-License-Identifier: Apache-2.0 */
/* What a site's buffers are, by its latest call and the one before: the table of sites.h. */
#include "plugin/sites/sites.h"

#include <stdlib.h>
#include <string.h>
#include "plugin/callers/callers.h"
#include "plugin/callers/names.h"

static const char *const state_names[] = {
#define STATE(id, name, doc) name,
#include "plugin/sites/symmetry.def"
};
static const char *const difference_names[] = {
#define DIFFERENCE(id, name, doc) name,
#include "plugin/sites/symmetry.def"
};

const char *slr_site_state_name(enum slr_site_state s)
{
    return (unsigned)s < SLR_SITE_STATES ? state_names[s] : "unknown";
}

const char *slr_difference_name(enum slr_difference d)
{
    return (unsigned)d < SLR_DIFFERENCES ? difference_names[d] : "unknown";
}

/* The first difference, in the order of symmetry.def. */
static enum slr_difference difference(const struct slr_where *a, const struct slr_where *b)
{
    if (!a->known || !b->known)
        return SLR_DIFF_UNKNOWN;
    if (a->ordinal != b->ordinal)
        return SLR_DIFF_ORDINAL;
    if (a->size != b->size)
        return SLR_DIFF_SIZE;
    return a->offset != b->offset ? SLR_DIFF_OFFSET : SLR_DIFF_NONE;
}

static uint64_t value_of(const struct slr_where *w, enum slr_difference what)
{
    switch (what) {
    case SLR_DIFF_ORDINAL:
        return w->ordinal;
    case SLR_DIFF_SIZE:
        return w->size;
    case SLR_DIFF_OFFSET:
        return w->offset;
    default:
        return 0;
    }
}

/* Rank `rank` is not where it is expected to be: the first one is named, the others are counted. */
static void blame(struct slr_finding *f, int rank, int peer, const struct slr_where *is,
                  const struct slr_where *expected)
{
    enum slr_difference what = difference(is, expected);
    if (what == SLR_DIFF_NONE || f->odd_ranks++ > 0)
        return;
    f->what = what;
    f->odd_rank = rank;
    f->like_rank = peer;
    f->value = value_of(is, what);
    f->expected = value_of(expected, what);
}

/* The first rank of the largest set of ranks that are alike. Quadratic in the ranks at worst; where
 * all are alike, the first one ends it. */
static int majority(const struct slr_use *now, int nranks, enum slr_side side)
{
    int best = 0, most = 0;
    for (int r = 0; r < nranks && most * 2 <= nranks; r++) { /* more than half can not be beaten */
        int n = 0;
        for (int q = r; q < nranks; q++)
            n += difference(&now[r].at[side], &now[q].at[side]) == SLR_DIFF_NONE;
        if (n > most) {
            most = n;
            best = r;
        }
    }
    return best;
}

struct slr_finding slr_site_compare(const struct slr_use *before, const struct slr_use *now, int nranks,
                                    enum slr_side side)
{
    struct slr_finding f = {.state = SLR_SITE_DIFFERS, .odd_rank = -1, .like_rank = -1};
    /* A rank of unknown memory differs also from itself: difference() says UNKNOWN. */
    for (int r = 0; r < nranks; r++)
        if (!now[r].at[side].known)
            blame(&f, r, -1, &now[r].at[side], &now[r].at[side]);
    if (f.odd_ranks > 0)
        return f;
    for (int r = 0; r < nranks && before; r++)
        blame(&f, r, -1, &now[r].at[side], &before[r].at[side]);
    if (f.odd_ranks > 0) {
        f.state = SLR_SITE_MOVES;
        return f;
    }
    /* Nobody has moved: now the ranks are compared with each other. */
    int peer = majority(now, nranks, side);
    for (int r = 0; r < nranks; r++)
        blame(&f, r, peer, &now[r].at[side], &now[peer].at[side]);
    /* One call shows where the ranks are, but not that they stay there. */
    if (!before)
        f.state = SLR_SITE_FRESH;
    else if (f.odd_ranks == 0)
        f.state = SLR_SITE_SYMMETRIC;
    return f;
}

bool slr_sites_open(struct slr_sites *s, unsigned count, int nranks)
{
    *s = (struct slr_sites){.nranks = nranks, .count = count};
    s->site = calloc(count, sizeof(*s->site));
    s->last = calloc((size_t)count * (size_t)nranks, sizeof(*s->last));
    if (s->site && s->last)
        return true;
    slr_sites_close(s);
    return false;
}

const char *slr_site_called_from(struct slr_sites *s, unsigned i, const char *caller)
{
    struct slr_site *site = &s->site[i];
    if (!site->callers)
        site->callers = calloc(1, sizeof *site->callers);
    if (!site->callers || site->caller_lines == SLR_CALLER_LINES)
        return NULL;
    const char *fresh = slr_names_add(site->callers, caller);
    site->caller_lines += fresh != NULL;
    return fresh;
}

void slr_sites_close(struct slr_sites *s)
{
    for (unsigned i = 0; s->site && i < s->count; i++)
        if (s->site[i].callers) {
            slr_names_close(s->site[i].callers);
            free(s->site[i].callers);
        }
    free(s->site);
    free(s->last);
    *s = (struct slr_sites){0};
}

/* Unknown memory is told apart by its address, so that "since" is right for it too. */
static bool stays(const struct slr_where *a, const struct slr_where *b)
{
    return a->known == b->known && a->offset == b->offset && (!a->known || difference(a, b) == SLR_DIFF_NONE);
}

static bool all_stay(const struct slr_use *before, const struct slr_use *now, int nranks, enum slr_side side)
{
    for (int r = 0; r < nranks; r++)
        if (!stays(&before[r].at[side], &now[r].at[side]))
            return false;
    return true;
}

/* One side of a call of the site; true when its state has changed. */
static bool take_side(struct slr_site_side *s, uint64_t call, const struct slr_use *before, const struct slr_use *now,
                      int nranks, enum slr_side side)
{
    struct slr_finding f = slr_site_compare(before, now, nranks, side);
    bool changed = f.state != s->found.state;
    /* Not by the state: ranks that differ may stay where they are, and "since" tells how long. */
    if (!before || !all_stay(before, now, nranks, side)) {
        s->since = call;
        s->moves += before != NULL;
    }
    /* A break is what a user of symmetry would have to notice: it was symmetric, and is not. */
    s->breaks += changed && s->found.state == SLR_SITE_SYMMETRIC;
    s->changes += changed;
    s->found = f;
    return changed;
}

unsigned slr_site_take(struct slr_sites *s, unsigned i, uint64_t call, const struct slr_use *use)
{
    struct slr_site *site = &s->site[i];
    /* Of the call before, until it is overwritten below. */
    struct slr_use *last = &s->last[(size_t)i * (size_t)s->nranks];
    const struct slr_use *before = site->calls++ > 0 ? last : NULL;
    unsigned changed = 0;
    site->shard = use->shard;
    site->scatter = use->scatter;
    /* Only if all ranks are: a rank that is not has a send buffer of its own to report. */
    site->in_place = true;
    for (int r = 0; r < s->nranks; r++)
        site->in_place &= use[r].in_place;
    for (enum slr_side side = SLR_RECV; side < SLR_SIDES; side++)
        changed |= (unsigned)take_side(&site->side[side], call, before, use, s->nranks, side) << side;
    memcpy(last, use, (size_t)s->nranks * sizeof(*last));
    /* In place both sides are one buffer, which is reported once. */
    return site->in_place ? changed & ~(1u << SLR_SEND) : changed;
}
