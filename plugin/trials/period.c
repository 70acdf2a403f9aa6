/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/trials/period.h"

void slr_trial_gemms_add(struct slr_trial_gemms *g, uint64_t gemm)
{
    g->gemm[g->calls++ % SLR_TRIAL_WATCHED_CALLS] = gemm;
}

static bool has(const struct slr_trial_gemms *g, uint32_t period)
{
    for (uint32_t i = period; i < SLR_TRIAL_WATCHED_CALLS; i++) /* from the oldest on, which has the next one's place */
        if (g->gemm[(g->calls + i) % SLR_TRIAL_WATCHED_CALLS] !=
            g->gemm[(g->calls + i - period) % SLR_TRIAL_WATCHED_CALLS])
            return false;
    return true;
}

uint32_t slr_trial_gemms_period(const struct slr_trial_gemms *g)
{
    for (uint32_t period = 1; period <= SLR_TRIAL_PERIOD && g->calls >= SLR_TRIAL_WATCHED_CALLS; period++)
        if (has(g, period))
            return period;
    return 0;
}
