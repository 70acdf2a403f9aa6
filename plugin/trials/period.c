/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/period.h"

/* What the latest `calls` calls were, the latest one at [(calls - 1) % room]. */
struct sequence {
    const uint64_t *what;
    uint32_t room, calls;
};

/* Of the n-th latest call, from 1. */
static uint64_t latest(const struct sequence *s, uint32_t n)
{
    return s->what[(s->calls - n) % s->room];
}

/* Of so many calls, the latest. */
static bool has(const struct sequence *s, uint32_t period, uint32_t calls)
{
    for (uint32_t n = 1; n + period <= calls; n++)
        if (latest(s, n) != latest(s, n + period))
            return false;
    return true;
}

void slr_trial_gemms_add(struct slr_trial_gemms *g, uint64_t gemm)
{
    g->gemm[g->calls++ % SLR_TRIAL_WATCHED_CALLS] = gemm;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t evidence(uint32_t period)
{
    const uint32_t calls = larger(3 * period, SLR_TRIAL_PERIOD);
    return calls < SLR_TRIAL_WATCHED_CALLS ? calls : SLR_TRIAL_WATCHED_CALLS;
}

uint32_t slr_trial_gemms_period(const struct slr_trial_gemms *g)
{
    const struct sequence s = {g->gemm, SLR_TRIAL_WATCHED_CALLS, g->calls};
    for (uint32_t period = 1; period <= SLR_TRIAL_PERIOD && g->calls >= evidence(period); period++)
        if (has(&s, period, evidence(period)))
            return period;
    return 0;
}

bool slr_trial_gemms_none(const struct slr_trial_gemms *g)
{
    const struct sequence s = {g->gemm, SLR_TRIAL_WATCHED_CALLS, g->calls};
    return slr_trial_gemms_period(g) == 1 && latest(&s, 1) == 0;
}

void slr_trial_calls_add(struct slr_trial_calls *of, uint64_t call)
{
    of->call[of->calls++ % SLR_TRIAL_LATEST_CALLS] = call;
}

uint32_t slr_trial_calls_period(const struct slr_trial_calls *of, uint32_t least)
{
    const struct sequence s = {of->call, SLR_TRIAL_LATEST_CALLS, of->calls};
    const uint32_t kept = of->calls < SLR_TRIAL_LATEST_CALLS ? of->calls : SLR_TRIAL_LATEST_CALLS;
    for (uint32_t period = 1; larger(3 * period, least) <= kept; period++)
        if (has(&s, period, larger(larger(3 * period, kept / 2), least)))
            return period;
    return 0;
}

bool slr_trial_calls_enough(const struct slr_trial_calls *of, uint64_t calls, uint64_t enough)
{
    return calls >= enough && (calls >= SLR_TRIAL_LATEST_CALLS || slr_trial_calls_period(of, (uint32_t)enough));
}
