/* SPDX-License-Identifier: Apache-2.0 */
/* Which site a call belongs to: by its context (docs/trials.md), which is the same on all ranks at the call itself, as
 * it decides which way the call goes (R1): nothing of the program's memory, streams or GEMMs is. The sequence of calls
 * is, and what rank 0 has told of GEMMs (form.c).
 *
 * Small gathers are one site a size and in no context: whether they come here changes.
 *
 * All of this is a function of the calls that come to the trials, in their order; under the communicator's lock. */
#include "base/log.h"
#include "base/hash.h"
#include "base/settings.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/tuner/tuner.h"

#define BITS (63 / SLR_CONTEXT_CALLS) /* of a call in a context */

static uint64_t followed_by(uint64_t context, size_t shard, const struct slr_collective *kind)
{
    const uint64_t token = slr_mix(shard, kind->id) >> (64 - BITS) | 1;
    return (context << BITS | token) & UINT64_MAX >> 1;
}

int slr_trials_first_of(const struct slr_trials *t, size_t shard, const struct slr_collective *kind)
{
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].shard == shard && t->site[i].kind == kind)
            return (int)i;
    return -1;
}

/* Of the next call, if it is of that size: what came before, and the GEMM that is expected there. */
static uint64_t context_of(const struct slr_trials *t, size_t shard, const struct slr_collective *kind)
{
    const struct slr_trial_form *form = slr_form_of(&t->in_force, shard, kind);
    const int first = form ? slr_trials_first_of(t, shard, kind) : -1;
    return first < 0 ? t->contexts.now
                     : slr_mix(t->contexts.now, slr_form_at(form, t->site[first].in_all)) & UINT64_MAX >> 1;
}

static int own_site(const struct slr_trials *t, uint64_t context, size_t shard, const struct slr_collective *kind)
{
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].context == context && t->site[i].shard == shard && t->site[i].kind == kind)
            return (int)i;
    return -1;
}

int slr_trials_peek(const struct slr_trials *t, size_t shard, const struct slr_collective *kind)
{
    const int own = own_site(t, context_of(t, shard, kind), shard, kind);
    return own >= 0 ? own : slr_trials_first_of(t, shard, kind);
}

/* Its ways are not tried: as if they had been. */
static void begin_known(const struct slr_comm *c, struct slr_trial_site *s)
{
    struct slr_trials *t = c->trials;
    s->state = SLR_SITE_DECIDED;
    s->calls = slr_trials_stage_end(t, s);
    if (c->rank == 0)
        slr_log(SLR_LOG_INFO, "site_known", "op=%s comm=%s crank=%d shard=%zu context=%llx by=%s file=%s line=%d",
                s->kind->op, c->name, c->rank, s->shard, (unsigned long long)s->context,
                s->known->way == SLR_WAY_NCCL ? "nccl" : "ring", slr_tune_path(), s->known->line);
}

static unsigned smalls(const struct slr_trials *t)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->sites; i++)
        n += t->site[i].small && !t->site[i].known;
    return n;
}

/* There is one small size too many. */
static void give_up_small(struct slr_comm *c)
{
    struct slr_trials *t = c->trials;
    t->small_full = true;
    for (unsigned i = 0; i < t->sites; i++) {
        struct slr_trial_site *s = &t->site[i];
        if (s->small && !s->known && !t->in_force.chosen[i])
            slr_trials_event(t, s, SLR_SITE_GIVE_UP);
    }
    slr_small_bound(c);
}

/* `like`: the size's first site, in whose place the call's context is; -1: this is the one. */
static int new_site(struct slr_comm *c, const struct slr_call *call, bool small, int like, uint64_t context)
{
    struct slr_trials *t = c->trials;
    struct slr_trial_site *s = &t->site[t->sites];
    *s = (struct slr_trial_site){
        .shard = call->shard, .kind = call->flow->kind, .small = small, .like = like, .born = t->agreed.calls};
    s->context = like < 0 ? 0 : context;
    s->known = slr_known_site(t, call->shard * (size_t)c->nranks, call->flow->kind, s->context);
    if (small && !s->known && smalls(t) == SLR_SMALL_SITES) {
        give_up_small(c);
        return -1;
    }
    s->calls = small ? t->after : 0;
    if (s->known)
        begin_known(c, s);
    else
        t->trying++;
    return (int)t->sites++;
}

static bool has_room(const struct slr_trials *t, const struct slr_trial_site *of)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->sites; i++)
        n += t->site[i].shard == of->shard && t->site[i].kind == of->kind;
    return n < SLR_CONTEXTS && t->sites < SLR_TRIAL_SITES;
}

/* How often calls of that size have come in the context that this one is in. */
static uint32_t times_seen(struct slr_trial_contexts *of, uint64_t context, const struct slr_call *call)
{
    for (unsigned i = 0; i < SLR_CONTEXTS_SEEN && i < of->added; i++)
        if (of->seen[i].context == context && of->seen[i].shard == call->shard && of->seen[i].kind == call->flow->kind)
            return ++of->seen[i].calls;
    const unsigned at = of->added++ % SLR_CONTEXTS_SEEN;
    of->seen[at].context = context;
    of->seen[at].shard = call->shard;
    of->seen[at].kind = call->flow->kind;
    return of->seen[at].calls = 1;
}

/* It is of no site of its own yet: whose is it? */
static int place(struct slr_comm *c, const struct slr_call *call, int first, uint64_t context)
{
    struct slr_trials *t = c->trials;
    struct slr_trial_site *s = &t->site[first];
    const uint32_t times = times_seen(&t->contexts, context, call);
    if (times < SLR_CONTEXT_OFTEN || (uint64_t)times * SLR_CONTEXT_SHARE < s->in_all)
        return first;
    if (!s->context) {
        const struct slr_trial_known *known =
            s->known ? slr_known_site(t, s->shard * (size_t)c->nranks, s->kind, context) : NULL;
        s->context = context;
        s->known = known ? known : s->known;
        return first;
    }
    return has_room(t, s) ? new_site(c, call, false, first, context) : first;
}

static int site_of(struct slr_comm *c, const struct slr_call *call, bool small)
{
    struct slr_trials *t = c->trials;
    const uint64_t context = context_of(t, call->shard, call->flow->kind);
    const int own = small ? -1 : own_site(t, context, call->shard, call->flow->kind);
    const int first = own >= 0 ? own : slr_trials_first_of(t, call->shard, call->flow->kind);
    if (own >= 0)
        return own;
    if (first >= 0)
        return small ? first : place(c, call, first, context);
    return t->sites == SLR_TRIAL_SITES || (small && t->small_full) ? -1 : new_site(c, call, small, -1, 0);
}

int slr_trials_find(struct slr_comm *c, const struct slr_call *call, bool small)
{
    struct slr_trial_contexts *of = &c->trials->contexts;
    const int site = site_of(c, call, small);
    if (site >= 0)
        slr_trials_first(c->trials, site)->in_all++;
    if (!small)
        of->now = followed_by(of->now, call->shard, call->flow->kind);
    return site;
}

/* ---- small gathers ----
 *
 * Of fewer bytes than SLIPRING_MIN_BYTES, where that is not set by the user (docs/trials.md). Only on a communicator
 * that has made a larger one: its ring is connected then, so the search costs no device memory.
 *
 * comm->least_bytes is the size from which on calls come to the trials at all, so that others cost
 * what they cost without. It is the same on all ranks at each call: it follows from the calls so far
 * and from what has been agreed. Where a site stays with NCCL, so do all that are smaller, but for one
 * that is being tried, or that the ring has. Of more than SLR_SMALL_SITES sizes no new ones are tried,
 * and what is not decided yet stays with NCCL. */

uint64_t slr_small_floor(void)
{
    const uint64_t least = slr_get(SLR_S_MIN_BYTES);
    return slr_settings()->given[SLR_S_MIN_BYTES] ? least : least / SLR_SMALL_PART;
}

/* Not with the ring, for good. */
static bool is_left(const struct slr_trials *t, const struct slr_trial_site *s)
{
    const size_t i = (size_t)(s - t->site);
    if (t->in_force.chosen[i])
        return t->in_force.site_way[i] == SLR_WAY_NCCL;
    return s->state == SLR_SITE_GIVEN_UP || t->in_force.ended[i] || (s->known && s->known->way == SLR_WAY_NCCL);
}

/* The smallest size that a rule gives to the ring. */
static size_t least_known(const struct slr_trials *t, size_t least)
{
    for (uint32_t i = 0; i < t->shared->knowns; i++)
        if (t->shared->known[i].way != SLR_WAY_NCCL && t->shared->known[i].low < least)
            least = t->shared->known[i].low;
    return least > t->floor ? least : t->floor;
}

void slr_small_bound(struct slr_comm *c)
{
    const struct slr_trials *t = c->trials;
    size_t least = !t->large || t->small_full ? t->min : t->floor;
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].small && is_left(t, &t->site[i]) && t->site[i].shard * (size_t)c->nranks >= least)
            least = t->site[i].shard * (size_t)c->nranks + 1;
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].small && !is_left(t, &t->site[i]) && t->site[i].shard * (size_t)c->nranks < least)
            least = t->site[i].shard * (size_t)c->nranks;
    c->least_bytes = least_known(t, least);
}

void slr_small_open(struct slr_comm *c)
{
    struct slr_trials *t = c->trials;
    if (!t)
        return;
    t->min = slr_get(SLR_S_MIN_BYTES);
    size_t floor = 0;
    for (int r = 0; r < c->nranks; r++)
        floor = c->shared.control->post[r].floor > floor ? c->shared.control->post[r].floor : floor;
    t->floor = floor < t->min ? floor : t->min;
    slr_small_bound(c);
}

bool slr_small_admits(struct slr_comm *c, size_t bytes)
{
    struct slr_trials *t = c->trials;
    if (bytes < t->min)
        return t->large || slr_known_site(t, bytes, &slr_collectives[SLR_ALL_GATHER], 0) != NULL;
    if (!t->large) {
        t->large = true;
        slr_small_bound(c);
    }
    return true;
}

bool slr_small_is_quiet(const struct slr_trials *t, int site)
{
    return site < 0 || t->site[site].early < t->after || is_left(t, &t->site[site]);
}

bool slr_small_early(struct slr_trials *t, struct slr_trial_site *s)
{
    if (!s->small || s->early == t->after + SLR_SMALL_WARM)
        return false;
    s->early++;
    t->warming = s->early > t->after;
    return true;
}
