/* SPDX-License-Identifier: Apache-2.0 */
/* The duel of a communicator's sites: when it begins, how long its turns are, and what became of them. */
#include "plugin/trials/trials_impl.h"

#include <string.h>
#include "base/counters.h"
#include "base/log.h"
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
        for (int way = 0; way < 2; way++)
            for (uint32_t i = 0; i < c->trials->rounds; i++) {
                const float other = c->trials->shared->post[r].turn[way][i];
                const bool known = other > 0 && (r == 0 || ms[way][i] > 0);
                ms[way][i] = !known ? 0 : other > ms[way][i] ? other : ms[way][i];
            }
}

/* Of the rounds of which both are known; 0: there are none. */
static void mean_of(const struct slr_comm *c, double mean[2])
{
    float ms[2][SLR_TRIAL_ROUNDS];
    uint32_t n = 0;
    slr_duel_turns(c, ms);
    for (uint32_t i = 0; i < c->trials->rounds; i++)
        if (ms[SLR_WAY_RING][i] > 0 && ms[SLR_WAY_NCCL][i] > 0) {
            n++;
            for (int way = 0; way < 2; way++)
                mean[way] += ((double)ms[way][i] - mean[way]) / n;
        }
}

void slr_duel_tell(const struct slr_comm *c, unsigned sites, const struct slr_block_pairs *pairs, int felt)
{
    const struct slr_trials *t = c->trials;
    double mean[2] = {0};
    mean_of(c, mean);
    const uint32_t calls = t->blocks.turns.run - SLR_DUEL_FIRST;
    if (felt >= 0) {
        atomic_fetch_add(&slr_counters.felt, sites);
        atomic_fetch_add(&slr_counters.felt_calls, calls);
        atomic_fetch_add(&slr_counters.felt_ns, (uint64_t)(mean[felt] * 1e6));
        atomic_fetch_add(&slr_counters.felt_nccl_ns, (uint64_t)(mean[SLR_WAY_NCCL] * 1e6));
    }
    slr_log(SLR_LOG_INFO, "duel",
            "comm=%s crank=%d sites=%u calls=%u ring_ms=%.4f nccl_ms=%.4f rounds=%u less=%.4f by=%s", c->name, c->rank,
            sites, calls, mean[SLR_WAY_RING], mean[SLR_WAY_NCCL], pairs->n, pairs->mean,
            felt < 0               ? "sites"
            : felt == SLR_WAY_RING ? "ring"
                                   : "nccl");
}

/* ---- what the program takes ----
 *
 * How long it takes over the turns of a duel (ways.h).
 *
 * A turn is measured by two events on the streams of the calls: at the first call of it that is measured, and at the
 * first one behind it. docs/trials.md says why, and when something is certain.
 *
 * Under the communicator's lock, its context current where a stream is given. Whatever goes wrong costs the time. */

#define RESOLUTION 0.002

void slr_blocks_open(struct slr_blocks *b, const struct slr_turns *turns)
{
    b->turns = *turns;
    b->upto = slr_trials_end(turns);
    b->begun = b->ended = 0;
}

void slr_blocks_call(struct slr_blocks *b, uint64_t number, CUstream stream)
{
    const uint64_t at = number - b->turns.after, block = at / b->turns.run;
    if (at % b->turns.run == 0 && block > 0 && slr_trial_record(&b->end[block - 1], stream))
        b->ended |= 1u << (block - 1);
    if (at % b->turns.run == SLR_DUEL_FIRST && slr_trial_record(&b->begin[block], stream))
        b->begun |= 1u << block;
}

bool slr_blocks_over(const struct slr_blocks *b, uint64_t next)
{
    if (next <= b->upto)
        return false;
    for (unsigned i = 0; i < 2 * b->turns.rounds; i++)
        if ((b->ended & 1u << i) && slr_real.cuEventQuery(b->end[i]) == CUDA_ERROR_NOT_READY)
            return false;
    return true;
}

void slr_blocks_read(const struct slr_blocks *b, float ms[2][SLR_TRIAL_ROUNDS])
{
    for (unsigned i = 0; i < 2 * SLR_TRIAL_ROUNDS; i++) {
        float *to = &ms[slr_duel_way(i)][i / 2];
        const bool known = i < 2 * b->turns.rounds && (b->begun & b->ended & 1u << i);
        if (!known || slr_real.cuEventElapsedTime(to, b->begin[i], b->end[i]) != CUDA_SUCCESS || *to < 0)
            *to = 0;
    }
}

void slr_blocks_close(struct slr_blocks *b)
{
    for (unsigned i = 0; i < SLR_BLOCKS; i++) {
        slr_trial_drop(&b->begin[i]);
        slr_trial_drop(&b->end[i]);
    }
}

void slr_blocks_add(struct slr_block_pairs *pairs, float ms[2][SLR_TRIAL_ROUNDS], uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        const double ring = (double)ms[SLR_WAY_RING][i], nccl = (double)ms[SLR_WAY_NCCL][i];
        if (ring <= 0 || nccl <= 0)
            continue;
        const double less = 2 * (nccl - ring) / (nccl + ring), off = less - pairs->mean;
        pairs->n++;
        pairs->mean += off / pairs->n;
        pairs->squares += off * (less - pairs->mean);
    }
}

/* Student's t, one side, by degrees of freedom; beyond the last one it is taken for that. */
#define LEAST 8
static const double least[2][LEAST] = {{3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397},   /* 0.9 */
                                       {31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896}}; /* 0.99 */

int slr_blocks_judge(const struct slr_block_pairs *pairs, bool again)
{
    if (pairs->n < 2)
        return -1;
    const double t = least[again][pairs->n - 2 < LEAST ? pairs->n - 2 : LEAST - 1];
    if (pairs->mean * pairs->mean * pairs->n * (pairs->n - 1) <= pairs->squares * t * t ||
        (pairs->mean < RESOLUTION && pairs->mean > -RESOLUTION))
        return -1;
    return pairs->mean > 0 ? SLR_WAY_RING : SLR_WAY_NCCL;
}
