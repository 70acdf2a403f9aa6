/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/small.h"

#include "base/settings.h"

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

void slr_small_full(struct slr_comm *c)
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
