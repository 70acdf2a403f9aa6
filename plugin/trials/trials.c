/* SPDX-License-Identifier: Apache-2.0 */
/* Which way a call goes. */
#include "plugin/trials/trials.h"

#include <stdlib.h>
#include "plugin/comm/group_record.h"
#include "base/log.h"
#include "plugin/trials/capture_way.h"
#include "plugin/trials/known.h"
#include "plugin/trials/small.h"
#include "plugin/tuner/tune_state.h"

enum {
    AHEAD = 16, /* calls that a choice is settled before it holds */
    LOOK = 8,   /* rank 0 looks for what can be chosen at each of so many calls */
    WATCH = 16, /* behind the trials, one of so many calls of a site is looked at */
};

uint32_t slr_trials_prepare(struct slr_comm *c)
{
    const char *reproducible = getenv("CUBLAS_WORKSPACE_CONFIG");
    if ((reproducible && *reproducible) || !slr_real.cuEventQuery || !slr_real.cuEventElapsedTime)
        return 0;
    c->trials = slr_get(SLR_S_TRIALS) ? calloc(1, sizeof *c->trials) : NULL;
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
    t->now.site = t->gather.site = -1;
    if (c->rank == 0)
        slr_known_publish(c);
}

void slr_trials_ready(struct slr_comm *c)
{
    slr_small_open(c);
}

/* ---- calls ---- */

/* Its ways are not tried: as if they had been. */
static void begin_known(const struct slr_comm *c, struct slr_trial_site *s)
{
    struct slr_trials *t = c->trials;
    s->posted = s->chosen = 1;
    s->calls = slr_trials_stage_end(t, s);
    if (c->rank == 0)
        slr_log(SLR_LOG_INFO, "site_known", "op=%s comm=%s crank=%d shard=%zu by=%s file=%s line=%d",
                s->scatter ? "reducescatter" : "allgather", c->name, c->rank, s->shard,
                s->known->way == SLR_WAY_NCCL ? "nccl" : "ring", slr_tune_path(), s->known->line);
}

static unsigned smalls(const struct slr_trials *t)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->sites; i++)
        n += t->site[i].small && !t->site[i].known;
    return n;
}

static int new_site(struct slr_comm *c, size_t shard, bool scatter, bool small)
{
    struct slr_trials *t = c->trials;
    struct slr_trial_site *s = &t->site[t->sites];
    *s = (struct slr_trial_site){.shard = shard, .scatter = scatter, .small = small};
    s->known = slr_known_site(t, shard * (size_t)c->nranks, scatter);
    if (small && !s->known && smalls(t) == SLR_SMALL_SITES) {
        slr_small_full(c);
        return -1;
    }
    s->calls = small ? t->after : 0;
    if (s->known)
        begin_known(c, s);
    else
        t->unposted++;
    return (int)t->sites++;
}

/* -1: there is none yet. */
static int known_site(const struct slr_trials *t, size_t shard, bool scatter)
{
    for (unsigned i = 0; i < t->sites; i++)
        if (t->site[i].shard == shard && t->site[i].scatter == scatter)
            return (int)i;
    return -1;
}

static int site_of(struct slr_comm *c, const struct slr_call *call, bool small)
{
    struct slr_trials *t = c->trials;
    const int site = known_site(t, call->shard, call->scatter);
    if (site >= 0)
        return site;
    return t->sites == SLR_TRIAL_SITES || (small && t->small_full) ? -1
                                                                   : new_site(c, call->shard, call->scatter, small);
}

/* `site`: of the next call, or -1. A small one that stays with NCCL may stand between a gather and its
 * GEMM, whose time goes on. */
static void go_on(struct slr_comm *c, int site, bool small)
{
    struct slr_trials *t = c->trials;
    if (!small || !slr_small_is_quiet(t, site))
        slr_trials_stop(t);
    if ((t->clocks_out || t->unposted) && slr_shared_enter(&c->shared) == SLR_OK) {
        slr_trials_post(t, !t->clocks_out || slr_trials_read(t, site));
        slr_shared_leave();
    }
    if (c->rank == 0 && t->agreed.calls % LOOK == 0)
        slr_trials_lead(c);
}

/* It computes what is sent, and neither was it tried, nor does a rule name it. */
static bool is_stranger(struct slr_trials *t, uint32_t site, const struct slr_consumer *made)
{
    return made->m && !slr_known_consumer(t, site, made) && !slr_trials_has_tried(t, slr_consumer_hash(made), site);
}

/* Rank 0's, before ways are tried: what comes with the calls of a site. A gather's GEMM comes behind it, so its call
 * counts as measured (measure.c). */
static bool watch(const struct slr_trials *t, struct slr_trial_site *s, const struct slr_consumer *made)
{
    if (t->agreed.rank != 0 || s->calls > t->after || s->again > 0 || s->known)
        return false;
    if (s->scatter)
        slr_trial_gemms_add(&s->behind, made->m ? slr_consumer_hash(made) : 0);
    return !s->scatter;
}

/* Whether the call's time is taken. `grouped`: it can not be. `made`: slr_call's. */
static bool count(struct slr_trials *t, struct slr_trial_site *s, bool grouped, const struct slr_consumer *made)
{
    bool measured;
    s->seen++;
    s->alone += !grouped;
    if (slr_small_early(t, s))
        return false;
    if (s->calls == t->after && s->again == 0)
        s->period = t->in_force.period[s - t->site];
    const struct slr_turns turns = slr_trials_turns(t, s);
    t->now.trying = slr_way_of_call(s->calls++, &turns, &t->now.way, &t->round, &measured) && !s->given_up;
    t->now.duel = t->now.trying && turns.stage == SLR_STAGE_DUEL;
    if (s->posted > s->again) {
        measured = !s->scatter && s->calls % WATCH == 0;
        s->strangers += is_stranger(t, (uint32_t)(s - t->site), made);
    }
    return (watch(t, s, made) || measured) && !grouped && !s->given_up;
}

static enum slr_reason way_now(const struct slr_trials *t, bool scatter, bool small)
{
    const struct slr_trial_site *s = &t->site[t->now.site < 0 ? 0 : t->now.site];
    if (t->now.trying)
        return t->now.way == SLR_WAY_NCCL ? SLR_R_TRIAL : SLR_R_RING;
    if (t->now.site >= 0 && t->in_force.chosen[t->now.site])
        return t->in_force.site_way[t->now.site] == SLR_WAY_NCCL ? SLR_R_MEASURED : SLR_R_RING;
    if (t->now.site >= 0 && s->known)
        return s->known->way == SLR_WAY_NCCL ? SLR_R_MEASURED : SLR_R_RING;
    if (scatter)
        return SLR_R_SCATTER_UNTRIED;
    return small && !t->warming ? SLR_R_TOO_SMALL : SLR_R_RING;
}

static enum slr_reason next(struct slr_call *call)
{
    struct slr_trials *t = call->comm->trials;
    const size_t bytes = call->shard * (size_t)call->comm->nranks;
    const bool small = !call->scatter && bytes < t->min;
    if (!call->scatter && !slr_small_admits(call->comm, bytes))
        return SLR_R_TOO_SMALL;
    t->now = (struct slr_trial_turn){.site = site_of(call->comm, call, small), .way = SLR_WAY_RING};
    t->warming = false;
    go_on(call->comm, t->now.site, small);
    if (slr_agreed_call(&t->agreed) == t->agreed.place) {
        slr_trials_go_by(t);
        slr_small_bound(call->comm);
    }
    const bool apart = slr_in_group() || (call->scatter && !call->made.m);
    call->measured = t->now.site >= 0 && count(t, &t->site[t->now.site], apart, &call->made);
    const enum slr_reason why = way_now(t, call->scatter, small);
    if (why == SLR_R_RING && !call->scatter)
        t->gather = t->now;
    return why;
}

enum slr_reason slr_trials_call(struct slr_call *call)
{
    if (!call->comm->trials)
        return SLR_R_RING;
    slr_comm_lock(call->comm);
    enum slr_reason why = next(call);
    slr_comm_unlock(call->comm);
    return why;
}

/* A reduce-scatter's site, when nothing is tried. */
static bool is_for_ring(const struct slr_trials *t, int site)
{
    const struct slr_trial_site *s = &t->site[site < 0 ? 0 : site];
    return site >= 0 && (t->in_force.chosen[site] ? t->in_force.site_way[site] != SLR_WAY_NCCL
                                                  : s->known && s->known->way != SLR_WAY_NCCL);
}

/* And of the GEMM before it. */
static int settled_way(const struct slr_trials *t, uint32_t site, const struct slr_consumer *what)
{
    const struct slr_trial_known *known = slr_known_consumer(t, site, what);
    if (known)
        return known->way;
    return is_for_ring(t, (int)site) ? slr_way_chosen(&t->in_force, slr_consumer_hash(what), site) : SLR_WAY_NCCL;
}

/* What the next call of that size would go by, were its ways not tried. */
static bool wishes_ring(const struct slr_trials *t, size_t shard, size_t bytes, bool scatter)
{
    const int site = known_site(t, shard, scatter);
    const struct slr_trial_known *known = site >= 0 ? t->site[site].known : slr_known_site(t, bytes, scatter);
    if (site >= 0 && t->in_force.chosen[site])
        return t->in_force.site_way[site] != SLR_WAY_NCCL;
    return known ? known->way != SLR_WAY_NCCL : !scatter;
}

bool slr_trials_captured(struct slr_comm *c, size_t shard, bool scatter)
{
    const struct slr_trials *t = c->trials;
    if (!t)
        return !scatter;
    slr_comm_lock(c);
    const bool wish = wishes_ring(t, shard, shard * (size_t)c->nranks, scatter);
    slr_comm_unlock(c);
    return slr_capture_way(t->shared->captured, SLR_TRIAL_SITES, shard, scatter, wish);
}

uint32_t slr_trials_blocks_chosen(const struct slr_comm *c, size_t shard, const struct slr_gemm *gemm)
{
    const struct slr_trials *t = c->trials;
    const int site = t ? known_site(t, shard, true) : -1;
    if (!is_for_ring(t, site))
        return 0;
    const struct slr_consumer what = slr_trials_name(gemm, SLR_CONSUMER_C);
    return slr_way_blocks(settled_way(t, (uint32_t)site, &what));
}

uint32_t slr_trials_parts(const struct slr_comm *c, const struct slr_gemm *gemm, bool on_a)
{
    const struct slr_trials *t = c->trials;
    if (!t || t->gather.site < 0)
        return 0;
    if (t->gather.trying && !t->gather.duel)
        return slr_way_parts(t->gather.way, c->nranks);
    const struct slr_consumer what = slr_trials_name(gemm, on_a ? SLR_CONSUMER_A : SLR_CONSUMER_B);
    const struct slr_trial_known *known =
        t->gather.duel ? NULL : slr_known_consumer(t, (uint32_t)t->gather.site, &what);
    int way = known ? known->way : slr_way_chosen(&t->in_force, slr_consumer_hash(&what), (uint32_t)t->gather.site);
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
    if (!s->given_up && slr_way_of_call(s->calls, &turns, &way, &round, measured))
        return turns.stage == SLR_STAGE_DUEL && way == SLR_WAY_RING
                   ? slr_way_chosen(&t->in_force, slr_consumer_hash(what), site)
                   : way;
    return settled_way(t, site, what);
}

uint32_t slr_trials_blocks(struct slr_comm *c, size_t shard, const struct slr_gemm *gemm, CUstream stream)
{
    struct slr_trials *t = c->trials;
    const int site = t ? known_site(t, shard, true) : -1;
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
    if (!gone)
        slr_clocks_close(c->trials->clocks);
    free(c->trials);
    c->trials = NULL;
}
