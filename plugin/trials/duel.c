/* SPDX-License-Identifier: Apache-2.0 */
/* The duel of a communicator's sites: when it begins, how long its turns are, and what became of them. */
#include "plugin/trials/trials_impl.h"

#include <string.h>
#include "plugin/comm/comm.h"

#define PATIENCE 512u  /* calls of the communicator that a duel waits for other sites */
#define GONE 8u        /* iterations without a call of a site, */
#define GONE_LEAST 64u /* and calls of the communicator, behind which it is not waited for */
#define IN_GROUPS 48u  /* calls of it in a turn, where nothing but the program's time can tell */

/* A site of an earlier phase of the program, such as its first step, is none to wait for. */
static bool goes_on(const struct slr_trials *t, const struct slr_trial_site *s)
{
    const uint64_t without = t->agreed.calls - s->called, some = GONE * (uint64_t)slr_trial_calls_period(&t->calls, 0);
    return s->seen >= SLR_SPARSE_LEAST && slr_trials_is_called(t, s) &&
           (!some || without <= (some > GONE_LEAST ? some : GONE_LEAST));
}

/* Its ways are being tried, or going to be: that would be in what the program takes. */
static bool is_tried(const struct slr_trials *t, uint32_t site)
{
    const struct slr_trial_site *s = &t->site[site];
    return !slr_trials_is_decided(s) && goes_on(t, s) && t->coming.ended[site] <= s->again &&
           !slr_trials_posted_by_all(t, site);
}

bool slr_duel_may_begin(struct slr_trials *t)
{
    bool held = false, tried = false, duelling = false;
    for (uint32_t i = 0; i < t->sites; i++) {
        held |= slr_trials_is_held(&t->site[i]);
        tried |= is_tried(t, i);
        duelling |= is_tried(t, i) && slr_stage_of(t->site[i].again) == SLR_STAGE_DUEL;
    }
    if (!held)
        t->held_since = t->agreed.calls;
    return !tried || (!duelling && t->agreed.calls - t->held_since > PATIENCE);
}

/* Each of a site's calls comes with so many of the communicator's: in an iteration, if one is known, it is called. In
 * groups an iteration is the least that can be measured. */
static uint64_t gap_of(const struct slr_trials *t, const struct slr_trial_site *s, uint32_t period)
{
    const uint64_t gap = s->seen ? (t->agreed.calls - s->born + s->seen / 2) / s->seen : 1;
    return period && (slr_trials_is_grouped(s) || gap > period) ? period : gap;
}

/* Calls that a turn of the site's latest duel measured, where that is to be repeated; else 0. */
static uint64_t measured_before(const struct slr_trials *t, const struct slr_trial_site *s)
{
    const bool repeated = s->before_duel < 0 && s->duel_calls;
    return repeated ? s->duel_calls / (2 * t->rounds) - SLR_DUEL_FIRST : 0;
}

uint32_t slr_duel_length(const struct slr_trials *t, uint32_t site, uint32_t least)
{
    const struct slr_trial_site *s = &t->site[site];
    const uint32_t period = slr_trial_calls_period(&t->calls, 0);
    const uint64_t gap = gap_of(t, s, period);
    const bool grouped = slr_trials_is_grouped(s);
    const uint64_t again = 2 * measured_before(t, s), least_calls = again ? again : grouped ? IN_GROUPS : 0;
    const uint32_t run = slr_duel_run(gap < UINT32_MAX ? (uint32_t)gap : UINT32_MAX, s->period,
                                      grouped || slr_trials_is_sparse(s), period, (uint32_t)least_calls);
    return run > least ? run : least;
}

void slr_duel_turns(const struct slr_comm *c, float ms[2][SLR_TRIAL_ROUNDS])
{
    memset(ms, 0, sizeof(float[2][SLR_TRIAL_ROUNDS]));
    for (int r = 0; r < c->nranks; r++)
        slr_blocks_slowest(ms, c->trials->shared->post[r].turn, c->trials->rounds, r == 0);
}

void slr_duel_tell(const struct slr_comm *c, unsigned sites, const struct slr_block_pairs *pairs, int felt)
{
    float ms[2][SLR_TRIAL_ROUNDS];
    slr_duel_turns(c, ms);
    slr_blocks_tell(c, sites, NULL, &c->trials->blocks.turns, ms, pairs, felt);
}
