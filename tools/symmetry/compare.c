/* SPDX-License-Identifier: Apache-2.0 */
/* What a site's buffers are, by its latest call and the one before: the table of sites.h. */
#include "tools/symmetry/compare.h"

#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
#define STATE(id, name, doc) name,
#include "tools/symmetry/symmetry.def"
};
static const char *const difference_names[] = {
#define DIFFERENCE(id, name, doc) name,
#include "tools/symmetry/symmetry.def"
};

const char *sym_site_state_name(enum sym_site_state s)
{
    return (unsigned)s < SYM_SITE_STATES ? state_names[s] : "unknown";
}

const char *sym_difference_name(enum sym_difference d)
{
    return (unsigned)d < SYM_DIFFERENCES ? difference_names[d] : "unknown";
}

/* The first difference, in the order of symmetry.def. */
static enum sym_difference difference(const struct sym_where *a, const struct sym_where *b)
{
    if (!a->known || !b->known)
        return SYM_DIFF_UNKNOWN;
    if (a->many || b->many)
        return SYM_DIFF_MANY;
    if (a->ordinal != b->ordinal)
        return SYM_DIFF_ORDINAL;
    if (a->size != b->size)
        return SYM_DIFF_SIZE;
    return a->offset != b->offset ? SYM_DIFF_OFFSET : SYM_DIFF_NONE;
}

static uint64_t value_of(const struct sym_where *w, enum sym_difference what)
{
    switch (what) {
    case SYM_DIFF_ORDINAL:
        return w->ordinal;
    case SYM_DIFF_SIZE:
        return w->size;
    case SYM_DIFF_OFFSET:
        return w->offset;
    default:
        return 0;
    }
}

/* Rank `rank` is not where it is expected to be: the first one is named, the others are counted. */
static void blame(struct sym_finding *f, int rank, int peer, const struct sym_where *is,
                  const struct sym_where *expected)
{
    enum sym_difference what = difference(is, expected);
    if (what == SYM_DIFF_NONE || f->odd_ranks++ > 0)
        return;
    f->what = what;
    f->odd_rank = rank;
    f->like_rank = peer;
    f->value = value_of(is, what);
    f->expected = value_of(expected, what);
}

/* The first rank of the largest set of ranks that are alike. Quadratic in the ranks at worst; where
 * all are alike, the first one ends it. */
static int majority(const struct sym_use *now, int nranks, enum sym_side side)
{
    int best = 0, most = 0;
    for (int r = 0; r < nranks && most * 2 <= nranks; r++) { /* more than half can not be beaten */
        int n = 0;
        for (int q = r; q < nranks; q++)
            n += difference(&now[r].at[side], &now[q].at[side]) == SYM_DIFF_NONE;
        if (n > most) {
            most = n;
            best = r;
        }
    }
    return best;
}

struct sym_finding sym_site_compare(const struct sym_use *before, const struct sym_use *now, int nranks,
                                    enum sym_side side)
{
    struct sym_finding f = {.state = SYM_SITE_DIFFERS, .odd_rank = -1, .like_rank = -1};
    /* A rank of unknown memory differs also from itself: difference() says UNKNOWN. */
    for (int r = 0; r < nranks; r++)
        if (!now[r].at[side].known)
            blame(&f, r, -1, &now[r].at[side], &now[r].at[side]);
    if (f.odd_ranks > 0)
        return f;
    for (int r = 0; r < nranks && before; r++)
        blame(&f, r, -1, &now[r].at[side], &before[r].at[side]);
    if (f.odd_ranks > 0) {
        f.state = SYM_SITE_MOVES;
        return f;
    }
    /* Nobody has moved: now the ranks are compared with each other. */
    int peer = majority(now, nranks, side);
    for (int r = 0; r < nranks; r++)
        blame(&f, r, peer, &now[r].at[side], &now[peer].at[side]);
    /* One call shows where the ranks are, but not that they stay there. */
    if (!before)
        f.state = SYM_SITE_FRESH;
    else if (f.odd_ranks == 0)
        f.state = SYM_SITE_SYMMETRIC;
    return f;
}

bool sym_sites_open(struct sym_sites *s, unsigned count, int nranks)
{
    *s = (struct sym_sites){.nranks = nranks, .count = count};
    s->site = calloc(count, sizeof(*s->site));
    s->last = calloc((size_t)count * (size_t)nranks, sizeof(*s->last));
    if (s->site && s->last)
        return true;
    sym_sites_close(s);
    return false;
}

void sym_sites_close(struct sym_sites *s)
{
    free(s->site);
    free(s->last);
    *s = (struct sym_sites){0};
}

/* Unknown memory is told apart by its address, so that "since" is right for it too. */
static bool stays(const struct sym_where *a, const struct sym_where *b)
{
    return a->known == b->known && a->offset == b->offset && (!a->known || difference(a, b) == SYM_DIFF_NONE);
}

static bool all_stay(const struct sym_use *before, const struct sym_use *now, int nranks, enum sym_side side)
{
    for (int r = 0; r < nranks; r++)
        if (!stays(&before[r].at[side], &now[r].at[side]))
            return false;
    return true;
}

/* One side of a call of the site; true when its state has changed. */
static bool take_side(struct sym_site_side *s, uint64_t call, const struct sym_use *before, const struct sym_use *now,
                      int nranks, enum sym_side side)
{
    struct sym_finding f = sym_site_compare(before, now, nranks, side);
    bool changed = f.state != s->found.state;
    /* Not by the state: ranks that differ may stay where they are, and "since" tells how long. */
    if (!before || !all_stay(before, now, nranks, side)) {
        s->since = call;
        s->moves += before != NULL;
    }
    /* A break is what a user of symmetry would have to notice: it was symmetric, and is not. */
    s->breaks += changed && s->found.state == SYM_SITE_SYMMETRIC;
    s->changes += changed;
    s->found = f;
    return changed;
}

unsigned sym_site_take(struct sym_sites *s, unsigned i, uint64_t call, const struct sym_use *use)
{
    struct sym_site *site = &s->site[i];
    /* Of the call before, until it is overwritten below. */
    struct sym_use *last = &s->last[(size_t)i * (size_t)s->nranks];
    const struct sym_use *before = site->calls++ > 0 ? last : NULL;
    unsigned changed = 0;
    site->shard = use->shard;
    site->op = use->op;
    /* Only if all ranks are: a rank that is not has a send buffer of its own to report. */
    site->in_place = true;
    for (int r = 0; r < s->nranks; r++)
        site->in_place &= use[r].in_place;
    for (enum sym_side side = SYM_RECV; side < SYM_SIDES; side++)
        changed |= (unsigned)take_side(&site->side[side], call, before, use, s->nranks, side) << side;
    memcpy(last, use, (size_t)s->nranks * sizeof(*last));
    /* In place both sides are one buffer, which is reported once. */
    return site->in_place ? changed & ~(1u << SYM_SEND) : changed;
}
