/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/find.h"

#include "base/log.h"
#include "base/mix.h"
#include "plugin/comm/call.h"
#include "plugin/trials/known.h"
#include "plugin/trials/small.h"
#include "plugin/tuner/tune_state.h"

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

/* In the context of the next call. */
static int own_site(const struct slr_trials *t, size_t shard, const struct slr_collective *kind)
{
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].context == t->contexts.now && t->site[i].shard == shard && t->site[i].kind == kind)
            return (int)i;
    return -1;
}

int slr_trials_peek(const struct slr_trials *t, size_t shard, const struct slr_collective *kind)
{
    const int own = own_site(t, shard, kind);
    return own >= 0 ? own : slr_trials_first_of(t, shard, kind);
}

/* Its ways are not tried: as if they had been. */
static void begin_known(const struct slr_comm *c, struct slr_trial_site *s)
{
    struct slr_trials *t = c->trials;
    s->state = SLR_SITE_SETTLED;
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

/* `like`: the size's first site; -1: this is the one. */
static int new_site(struct slr_comm *c, const struct slr_call *call, bool small, int like)
{
    struct slr_trials *t = c->trials;
    struct slr_trial_site *s = &t->site[t->sites];
    *s = (struct slr_trial_site){
        .shard = call->shard, .kind = call->flow->kind, .small = small, .like = like, .born = t->agreed.calls};
    s->context = like < 0 ? 0 : t->contexts.now;
    s->known = slr_known_site(t, call->shard * (size_t)c->nranks, call->flow->kind, s->context);
    if (small && !s->known && smalls(t) == SLR_SMALL_SITES) {
        slr_small_full(c);
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
static uint32_t times_seen(struct slr_trial_contexts *of, const struct slr_call *call)
{
    for (unsigned i = 0; i < SLR_CONTEXTS_SEEN && i < of->added; i++)
        if (of->seen[i].context == of->now && of->seen[i].shard == call->shard && of->seen[i].kind == call->flow->kind)
            return ++of->seen[i].calls;
    const unsigned at = of->added++ % SLR_CONTEXTS_SEEN;
    of->seen[at].context = of->now;
    of->seen[at].shard = call->shard;
    of->seen[at].kind = call->flow->kind;
    return of->seen[at].calls = 1;
}

/* It is of no site of its own yet: whose is it? */
static int place(struct slr_comm *c, const struct slr_call *call, int first)
{
    struct slr_trials *t = c->trials;
    struct slr_trial_site *s = &t->site[first];
    const uint32_t times = times_seen(&t->contexts, call);
    s->in_all++;
    if (times < SLR_CONTEXT_OFTEN || (uint64_t)times * SLR_CONTEXT_SHARE < s->in_all)
        return first;
    if (!s->context) {
        s->context = t->contexts.now;
        return first;
    }
    return has_room(t, s) ? new_site(c, call, false, first) : first;
}

static int site_of(struct slr_comm *c, const struct slr_call *call, bool small)
{
    struct slr_trials *t = c->trials;
    const int own = small ? -1 : own_site(t, call->shard, call->flow->kind);
    const int first = own >= 0 ? own : slr_trials_first_of(t, call->shard, call->flow->kind);
    if (own >= 0) {
        t->site[t->site[own].like < 0 ? own : t->site[own].like].in_all++;
        return own;
    }
    if (first >= 0)
        return small ? first : place(c, call, first);
    return t->sites == SLR_TRIAL_SITES || (small && t->small_full) ? -1 : new_site(c, call, small, -1);
}

int slr_trials_find(struct slr_comm *c, const struct slr_call *call, bool small)
{
    struct slr_trial_contexts *of = &c->trials->contexts;
    const int site = site_of(c, call, small);
    if (!small)
        of->now = followed_by(of->now, call->shard, call->flow->kind);
    return site;
}
