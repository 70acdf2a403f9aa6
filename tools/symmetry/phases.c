/* SPDX-License-Identifier: Apache-2.0 */
/* From calls to phases: the state machine of phases.h. */
#include "tools/symmetry/phases.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

bool sym_phases_open(struct sym_phases *p, int nranks, sym_phase_fn over, void *ctx)
{
    *p = (struct sym_phases){.nranks = nranks, .over = over, .ctx = ctx};
    p->use = calloc((size_t)SYM_PHASE_KNOWN * (size_t)nranks, sizeof(*p->use));
    p->token = calloc(1 + (size_t)nranks, sizeof(*p->token));
    if (p->use && p->token && sym_period_open(&p->period, nranks))
        return true;
    sym_phases_close(p);
    return false;
}

void sym_phases_close(struct sym_phases *p)
{
    sym_sites_close(&p->sites);
    sym_period_close(&p->period);
    free(p->use);
    free(p->token);
    *p = (struct sym_phases){0};
}

/* The calls that are known are kept in a ring, by their number. */
static struct sym_use *use_of(const struct sym_phases *p, uint64_t call)
{
    return &p->use[call % SYM_PHASE_KNOWN * (uint64_t)p->nranks];
}

/* Only in a phase: without one the length is 0. */
static unsigned site_of(const struct sym_phases *p, uint64_t call)
{
    return (unsigned)((call - p->first) % p->length);
}

_Static_assert(SLR_COLLECTIVES <= 4, "two bits hold each");

/* What makes two calls of a rank the same: a hash, as only equality matters. */
static uint64_t token_of(const struct sym_use *use)
{
    uint64_t token = slr_mix(use->shard, (uint64_t)use->op << 1 | use->in_place);
    for (enum sym_side side = SYM_RECV; side < SYM_SIDES; side++) {
        const struct sym_where *w = &use->at[side];
        token = slr_mix(token, (uint64_t)w->ordinal << 1 | w->known);
        token = slr_mix(token, w->size);
        token = slr_mix(token, w->offset);
    }
    return token;
}

static void compare_with_past(struct sym_phases *p, const struct sym_use *use)
{
    /* Of the first rank, as NCCL wants the count and the type to be equal on all. */
    p->token[0] = use->shard << 2 | (uint64_t)use->op;
    for (int r = 0; r < p->nranks; r++)
        p->token[1 + r] = token_of(&use[r]);
    sym_period_add(&p->period, p->token);
}

/* One call of the present phase: its site takes it. */
static void site_call(struct sym_phases *p, uint64_t call, const struct sym_use *use)
{
    sym_site_take(&p->sites, site_of(p, call), call, use);
}

/* Of a gather in place both sides are one. */
static uint64_t breaks_of(const struct sym_site *site)
{
    return site->side[SYM_RECV].breaks + (site->in_place ? 0 : site->side[SYM_SEND].breaks);
}

uint64_t sym_phases_breaks(const struct sym_phases *p)
{
    uint64_t n = p->breaks;
    for (unsigned i = 0; i < p->sites.count; i++)
        n += breaks_of(&p->sites.site[i]);
    return n;
}

/* The phase is over. Its sites go; how often they broke stays in the total. */
static void end_phase(struct sym_phases *p)
{
    if (p->by != SYM_BY_NOTHING)
        p->over(p->ctx, p);
    p->breaks = sym_phases_breaks(p);
    sym_sites_close(&p->sites);
    p->by = SYM_BY_NOTHING;
    p->length = 0;
}

/* A phase of period `length`, from as far back as its sizes fit. Without memory for its sites the
 * present one stays. */
static void begin_phase(struct sym_phases *p, unsigned length, enum sym_evidence by)
{
    struct sym_sites sites;
    if (!sym_sites_open(&sites, length, p->nranks))
        return;
    end_phase(p);
    /* A run of n matches with the call `length` before covers n + length calls. */
    uint64_t fit = (uint64_t)sym_period_by_sizes(&p->period, length) + length;
    p->first = p->last + 1 - (fit < SYM_PHASE_KNOWN ? fit : SYM_PHASE_KNOWN);
    p->length = length;
    p->by = by;
    p->sites = sites;
    p->phases++;
    /* The sites see the past as if the phase had been known from its first call. */
    for (uint64_t call = p->first; call <= p->last; call++)
        site_call(p, call, use_of(p, call));
}

/* Sizes alone never confirm: layers of one size have a shorter period by sizes than by places. So a
 * phase by sizes goes on being reconsidered, and gives way to one by places. */
static bool confirmed(const struct sym_phases *p)
{
    const uint64_t seen = p->period.seen, behind_gap = seen > p->length ? seen - p->length : 0;
    return p->by == SYM_BY_PLACES &&
           sym_period_by_places(&p->period, p->length) >= (behind_gap < 2 * p->length ? behind_gap : 2 * p->length);
}

/* Looks for a phase, or a better one. `least`: matches that are evidence; `patience`: calls after
 * which sizes are, too. */
static void reconsider(struct sym_phases *p, unsigned least, uint64_t patience)
{
    if (confirmed(p))
        return;
    unsigned length = sym_period_find(&p->period, true, least);
    enum sym_evidence by = SYM_BY_PLACES;
    /* A period by sizes is taken only where there is no phase: it is too weak to replace one. */
    if (!length && p->by == SYM_BY_NOTHING && p->period.seen >= patience) {
        length = sym_period_find(&p->period, false, least);
        by = SYM_BY_SIZES;
    }
    if (!length)
        return;
    /* The same period with better evidence is the same phase: its sites stay. */
    if (p->by != SYM_BY_NOTHING && length == p->length)
        p->by = by;
    else
        begin_phase(p, length, by);
}

static void remember(struct sym_phases *p, uint64_t call, const struct sym_use *use)
{
    if (call != p->last + 1) /* the log does not list those in between */
        sym_period_gap(&p->period);
    memcpy(use_of(p, call), use, (size_t)p->nranks * sizeof(*use));
    p->last = call;
    p->calls++;
    compare_with_past(p, use);
}

void sym_phases_take(struct sym_phases *p, uint64_t call, const struct sym_use *use)
{
    remember(p, call, use);
    if (p->by != SYM_BY_NOTHING) {
        const struct sym_site *site = &p->sites.site[site_of(p, call)];
        /* A size is what the program computes; another one at this place, or another operation, is
         * another iteration. The call itself is in the ring, where the phase that it begins will find it. */
        if (site->calls > 0 && (site->shard != use->shard || site->op != use->op))
            end_phase(p);
        else
            site_call(p, call, use);
    }
    reconsider(p, SYM_PHASE_LEAST, SYM_PHASE_KNOWN);
}

void sym_phases_end(struct sym_phases *p)
{
    /* A short program has fewer calls than the usual evidence asks for; there is nothing to wait
     * for. */
    if (p->by == SYM_BY_NOTHING)
        reconsider(p, 0, 0);
    if (p->by != SYM_BY_NOTHING)
        p->over(p->ctx, p);
}

unsigned sym_phases_symmetric(const struct sym_phases *p)
{
    /* The receive side alone: it is what a put or multicast without agreement would write to. */
    unsigned n = 0;
    for (unsigned i = 0; i < p->sites.count; i++)
        n += p->sites.site[i].side[SYM_RECV].found.state == SYM_SITE_SYMMETRIC;
    return n;
}
