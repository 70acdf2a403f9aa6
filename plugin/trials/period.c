/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/period.h"

void slr_trial_gemms_add(struct slr_trial_gemms *g, uint64_t gemm)
{
    g->gemm[g->calls++ % SLR_TRIAL_WATCHED_CALLS] = gemm;
}

/* The GEMM of the n-th latest call, from 1. */
static uint64_t latest(const struct slr_trial_gemms *g, uint32_t n)
{
    return g->gemm[(g->calls - n) % SLR_TRIAL_WATCHED_CALLS];
}

/* Of so many calls, the latest. */
static bool has(const struct slr_trial_gemms *g, uint32_t period, uint32_t calls)
{
    for (uint32_t n = 1; n + period <= calls; n++)
        if (latest(g, n) != latest(g, n + period))
            return false;
    return true;
}

static uint32_t evidence(uint32_t period)
{
    const uint32_t calls = 3 * period < SLR_TRIAL_PERIOD ? SLR_TRIAL_PERIOD : 3 * period;
    return calls < SLR_TRIAL_WATCHED_CALLS ? calls : SLR_TRIAL_WATCHED_CALLS;
}

uint32_t slr_trial_gemms_period(const struct slr_trial_gemms *g)
{
    for (uint32_t period = 1; period <= SLR_TRIAL_PERIOD && g->calls >= evidence(period); period++)
        if (has(g, period, evidence(period)))
            return period;
    return 0;
}
