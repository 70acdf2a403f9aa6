/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a call goes. */
#include "plugin/trials/trials.h"

#include <stdlib.h>
#include "base/settings.h"
#include "kernels/gemm.h"
#include "plugin/comm/control.h"
#include "plugin/comm/group_kept.h"
#include "base/log.h"
#include "base/hash.h"
#include "plugin/comm/lane.h"
#include "plugin/trials/ways.h"
#include "plugin/trials/trials_impl.h"
#include "plugin/tuner/tuner.h"

enum {
    AHEAD = 16, /* calls that a choice is known before it holds */
    LOOK = 8,   /* rank 0 looks for what can be chosen at each of so many calls */
    WATCH = 17, /* behind the trials, one of so many calls of a site is looked at; no multiple of a program's period */
};

uint32_t slr_trials_prepare(struct slr_comm *c)
{
    if (slr_trials_none() || !slr_real.cuEventQuery || !slr_real.cuEventElapsedTime)
        return 0;
    c->trials = calloc(1, sizeof *c->trials);
    if (c->trials) {
        c->shared.control->post[c->rank].gpu = slr_known_gpu(c);
        c->shared.control->post[c->rank].floor = slr_small_floor();
    }
    return c->trials ? (uint32_t)slr_get(SLR_S_TRIALS) : 0;
}

/* Of the agreed change: the choice is copied before this rank says that it knows it. */
static void learn(void *context)
{
    struct slr_trials *t = context;
    t->coming = t->shared->choice;
}

void slr_trials_open(struct slr_comm *c)
{
    struct slr_post *post = c->shared.control->post;
    uint32_t rounds = SLR_TRIAL_ROUNDS;
    for (int r = 0; r < c->nranks; r++)
        rounds = post[r].tries < rounds ? post[r].tries : rounds;
    struct slr_trials *t = c->trials;
    if (!rounds) {
        free(t);
        c->trials = NULL;
        return;
    }
    t->rounds = rounds;
    t->after = (uint32_t)slr_get(SLR_S_TRIALS_AFTER);
    t->shared = (void *)((char *)c->shared.control + slr_control_trials_at(c->nranks));
    t->agreed = (struct slr_agreed){.shared = &t->shared->agreed,
                                    .rank = c->rank,
                                    .nranks = c->nranks,
                                    .ahead = AHEAD,
                                    .learn = learn,
                                    .context = t,
                                    .place = UINT64_MAX};
    t->now.site = t->site_before = -1;
    if (c->rank == 0)
        slr_known_publish(c);
}

void slr_trials_ready(struct slr_comm *c)
{
    slr_small_open(c);
}

/* ---- calls ---- */

/* `site`: of the next call, or -1. A small one that stays with NCCL may stand between a gather and its
 * GEMM, whose time goes on. */
static void go_on(struct slr_comm *c, int site, bool small, CUstream stream)
{
    struct slr_trials *t = c->trials;
    if (!slr_trials_same_group(t) && (!small || !slr_small_is_quiet(t, site)))
        slr_trials_stop(t);
    if ((t->clocks_out || t->trying) && slr_shared_enter(&c->shared) == SLR_OK) {
        if (t->clocks_out)
            slr_trials_read(t, site, stream);
        slr_trials_post(t);
        slr_shared_leave();
    }
    if (c->rank == 0 && t->agreed.calls % LOOK == 0)
        slr_trials_lead(c);
}

/* It computes what is sent, or none does, and neither was it tried, nor does a rule name it. */
static bool is_stranger(struct slr_trials *t, uint32_t site, const struct slr_consumer *made)
{
    return !slr_known_consumer(t, site, made) && !slr_trials_has_tried(t, 0, site) &&
           !(made->m && slr_trials_has_tried(t, slr_consumer_hash(made), site));
}

/* Rank 0's, before ways are tried: what comes with the calls of a site. A gather's GEMM comes behind it, so its call
 * counts as measured (measure.c). */
static bool watch(const struct slr_trials *t, struct slr_trial_site *s, const struct slr_consumer *made)
{
    if (t->agreed.rank != 0 || s->calls > t->after || s->again > 0 || s->known)
        return false;
    if (s->kind->produced)
        slr_trial_gemms_add(&s->behind, made->m ? slr_consumer_hash(made) : 0);
    return !s->kind->produced;
}

/* A call in a group with others, whose time is that of all. */
static bool may_measure_group(const struct slr_trial_site *s)
{
    return !s->kind->produced && s->alone == 0; /* times of both kinds can not be compared */
}

/* Whether the call's time is taken. `grouped`: it is in a group with others. `made`: slr_call's. */
static bool count(struct slr_trials *t, struct slr_trial_site *s, bool grouped, const struct slr_consumer *made)
{
    bool measured;
    s->seen++;
    s->called = t->agreed.calls;
    s->alone += !grouped;
    s->apart += t->site_before != s - t->site;
    if (slr_small_early(t, s))
        return false;
    if (s->calls == t->after && s->again == 0) {
        s->period = t->in_force.period[s - t->site];
        s->sparse = slr_trials_is_sparse(s);
    }
    const struct slr_turns turns = slr_trials_turns(t, s);
    const uint64_t number = turns.stage == SLR_STAGE_DUEL ? t->agreed.calls - 1 : s->calls;
    s->calls++;
    t->now.trying =
        slr_way_of_call(number, &turns, &t->now.way, &t->now.round, &measured) && s->state != SLR_SITE_GIVEN_UP;
    t->now.duel = t->now.trying && turns.stage == SLR_STAGE_DUEL;
    if (s->state != SLR_SITE_TRYING) {
        measured = !s->kind->produced && s->calls % WATCH == 0;
        if (s->kind->produced && !grouped) {
            s->watched++;
            s->strangers +=
                (made->m || t->in_force.chosen[s - t->site]) && is_stranger(t, (uint32_t)(s - t->site), made);
        }
    }
    return (watch(t, s, made) || measured) && (!grouped || may_measure_group(s)) && s->state != SLR_SITE_GIVEN_UP;
}

/* Rank 0's. Groups differ between ranks, but iterations do not. */
static void remember(struct slr_trials *t, const struct slr_call *call)
{
    const struct slr_group *open = slr_group_now();
    const uint64_t group = open ? open->number : 0;
    slr_trial_calls_add(&t->calls,
                        slr_mix(call->shard, (uint64_t)call->flow->kind->id << 1 | (group && group != t->group)));
    t->group = group;
}

/* Which way the calls of a site go that are not tried: by what has been chosen, or by a rule; -1: neither. */
static int found_of(const struct slr_trials *t, int site)
{
    const uint32_t by = site < 0 ? 0 : slr_trials_goes_by(t, &t->in_force, (uint32_t)site);
    const struct slr_trial_known *known = t->site[by].known;
    if (site < 0 || (!t->in_force.chosen[by] && !known))
        return -1;
    const int way = t->in_force.chosen[by] ? t->in_force.site_way[by] : known->way;
    return way == SLR_WAY_NCCL ? SLR_WAY_NCCL : SLR_WAY_RING;
}

static enum slr_reason way_now(const struct slr_trials *t, const struct slr_collective *kind, bool small)
{
    if (t->now.trying)
        return t->now.way == SLR_WAY_NCCL ? SLR_R_TRIAL : SLR_R_RING;
    const int found = found_of(t, t->now.site);
    if (found >= 0)
        return found == SLR_WAY_NCCL ? SLR_R_MEASURED : SLR_R_RING;
    if (kind->untried != SLR_R_RING)
        return kind->untried;
    return small && !t->warming ? SLR_R_TOO_SMALL : SLR_R_RING;
}

/* Which ways have been tried in the group that this thread is in, or of the call. */
static void note_way(struct slr_trials *t)
{
    const struct slr_group *open = slr_group_now();
    const uint64_t group = open ? open->number : 0;
    if (!group || group != t->ways_group)
        t->ways = 0;
    t->ways_group = group;
    if (t->now.trying)
        t->ways |= 1u << t->now.way;
}

static enum slr_reason next(struct slr_call *call)
{
    struct slr_trials *t = call->comm->trials;
    const size_t bytes = call->shard * (size_t)call->comm->nranks;
    const struct slr_collective *kind = call->flow->kind;
    const bool rings = kind->untried == SLR_R_RING, small = rings && bytes < t->min;
    if (rings && !slr_small_admits(call->comm, bytes))
        return SLR_R_TOO_SMALL;
    t->now = (struct slr_trial_turn){.site = slr_trials_find(call->comm, call, small), .way = SLR_WAY_RING};
    t->warming = false;
    go_on(call->comm, t->now.site, small, call->stream);
    if (slr_agreed_call(&t->agreed) == t->agreed.place) {
        slr_trials_go_by(t);
        slr_small_bound(call->comm);
    }
    if (slr_blocks_wants(&t->blocks, t->agreed.calls - 1) && slr_shared_enter(&call->comm->shared) == SLR_OK) {
        slr_blocks_call(&t->blocks, t->agreed.calls - 1, call->stream);
        slr_shared_leave();
    }
    if (call->comm->rank == 0) {
        remember(t, call);
        if (kind->produced && t->now.site >= 0)
            slr_form_note(t, slr_trials_first(t, t->now.site), call->made.m ? slr_consumer_hash(&call->made) : 0);
    }
    call->context = t->now.site >= 0 ? t->site[t->now.site].context : 0;
    call->measured = t->now.site >= 0 && count(t, &t->site[t->now.site], slr_in_group(), &call->made);
    note_way(t);
    t->site_before = t->now.site;
    /* Where no GEMM was expected to make what it sends, whether one did or not: its time is not in the row's. */
    if (call->measured && kind->produced && (!t->making || (int)t->making->site != t->now.site))
        slr_trials_make(call->comm, t->now.site, &(struct slr_consumer){0}, call->stream);
    const enum slr_reason why = way_now(t, kind, small);
    if (t->now.site >= 0 && !t->now.trying)
        t->site[t->now.site].went[why == SLR_R_RING]++;
    call->turn = t->now;
    call->place = t->agreed.calls;
    call->behind = t->contexts.now;
    return why;
}

enum slr_reason slr_trials_call(struct slr_call *call)
{
    if (!call->comm->trials)
        return call->flow->kind->untried;
    slr_lane_lock(call->comm->lane);
    enum slr_reason why = next(call);
    slr_lane_unlock(call->comm->lane);
    return why;
}

bool slr_trials_tries_whole(const struct slr_trial_turn *turn)
{
    return turn->trying && !turn->duel && turn->way == SLR_WAY_WHOLE && !slr_get(SLR_S_PARTS);
}

/* Of a reduce-scatter's site, and of the GEMM before it, when nothing is tried. */
static int decided_way(const struct slr_trials *t, uint32_t site, const struct slr_consumer *what)
{
    const struct slr_trial_known *known = slr_known_consumer(t, site, what);
    if (known)
        return known->way;
    return found_of(t, (int)site) == SLR_WAY_RING
               ? slr_way_chosen(&t->in_force, slr_consumer_hash(what), slr_trials_goes_by(t, &t->in_force, site))
               : SLR_WAY_NCCL;
}

/* What the next call of that size would go by, were its ways not tried. */
static bool wishes_ring(const struct slr_trials *t, size_t shard, size_t bytes, const struct slr_collective *kind)
{
    const int site = slr_trials_first_of(t, shard, kind);
    if (site >= 0)
        return found_of(t, site) >= 0 ? found_of(t, site) == SLR_WAY_RING : kind->untried == SLR_R_RING;
    const struct slr_trial_known *known = slr_known_site(t, bytes, kind, 0);
    return known ? known->way != SLR_WAY_NCCL : kind->untried == SLR_R_RING;
}

bool slr_trials_captured(struct slr_comm *c, size_t shard, const struct slr_collective *kind)
{
    const struct slr_trials *t = c->trials;
    if (!t)
        return kind->untried == SLR_R_RING;
    slr_lane_lock(c->lane);
    const bool wish = wishes_ring(t, shard, shard * (size_t)c->nranks, kind);
    slr_lane_unlock(c->lane);
    return slr_capture_way(t->shared->captured, SLR_TRIAL_SITES, shard, kind, wish);
}

uint32_t slr_trials_blocks_chosen(const struct slr_comm *c, size_t shard, const struct slr_collective *kind,
                                  const struct slr_gemm *gemm)
{
    const struct slr_trials *t = c->trials;
    const int site = t ? slr_trials_first_of(t, shard, kind) : -1;
    if (!t || found_of(t, site) != SLR_WAY_RING)
        return 0;
    const struct slr_consumer what = slr_trials_name(gemm, SLR_CONSUMER_C);
    return slr_way_blocks(decided_way(t, (uint32_t)site, &what));
}

uint32_t slr_trials_parts(const struct slr_comm *c, const struct slr_trial_turn *turn, const struct slr_gemm *gemm,
                          bool on_a)
{
    const struct slr_trials *t = c->trials;
    if (!t || turn->site < 0)
        return 0;
    if (turn->trying && !turn->duel)
        return slr_way_parts(turn->way, c->nranks);
    const struct slr_consumer what = slr_trials_name(gemm, on_a ? SLR_CONSUMER_A : SLR_CONSUMER_B);
    const struct slr_trial_known *known = turn->duel ? NULL : slr_known_consumer(t, (uint32_t)turn->site, &what);
    const uint32_t by = turn->duel ? (uint32_t)turn->site : slr_trials_goes_by(t, &t->in_force, (uint32_t)turn->site);
    const int way = known ? known->way : slr_way_chosen(&t->in_force, slr_consumer_hash(&what), by);
    return slr_way_parts(way, c->nranks);
}

/* The way of the site's next call, and whether its time counts. */
static int next_way(const struct slr_trials *t, uint32_t site, const struct slr_consumer *what, bool *measured)
{
    const struct slr_trial_site *s = &t->site[site];
    const struct slr_turns turns = slr_trials_turns(t, s);
    uint32_t round;
    int way;
    *measured = false;
    const uint64_t number = turns.stage == SLR_STAGE_DUEL ? t->agreed.calls : s->calls;
    if (s->state != SLR_SITE_GIVEN_UP && slr_way_of_call(number, &turns, &way, &round, measured))
        return turns.stage == SLR_STAGE_DUEL && way == SLR_WAY_RING
                   ? slr_way_chosen(&t->in_force, slr_consumer_hash(what), site)
                   : way;
    return decided_way(t, site, what);
}

uint32_t slr_trials_blocks(struct slr_comm *c, size_t shard, const struct slr_collective *kind,
                           const struct slr_gemm *gemm, CUstream stream)
{
    struct slr_trials *t = c->trials;
    const int site = t ? slr_trials_peek(t, shard, kind) : -1;
    bool measured;
    if (site < 0)
        return 0;
    const struct slr_consumer what = slr_trials_name(gemm, SLR_CONSUMER_C);
    const int way = next_way(t, (uint32_t)site, &what, &measured);
    slr_trials_make(c, measured ? site : -1, &what, stream);
    return slr_way_blocks(way);
}

void slr_trials_close(struct slr_comm *c, bool gone)
{
    if (!c->trials)
        return;
    slr_trials_stop(c->trials);
    slr_trials_tell(c);
    if (!gone) {
        slr_clocks_close(c->trials->clocks);
        slr_blocks_close(&c->trials->blocks);
    }
    slr_form_close(c->trials);
    free(c->trials);
    c->trials = NULL;
}
