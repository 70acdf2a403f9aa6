/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: in how many calls of a site its GEMMs come once each, from what came with the latest
 * calls without a gap. (sites/period.h finds longer ones, of all calls of a communicator; it wants to see a period
 * three times, for which there are too few calls before ways are tried.) */
#ifndef SLR_PLUGIN_TRIALS_PERIOD_H
#define SLR_PLUGIN_TRIALS_PERIOD_H

#include <stdint.h>
#include "plugin/trials/ways.h"

#define SLR_TRIAL_WATCHED_CALLS (2 * SLR_TRIAL_PERIOD)

struct slr_trial_gemms {
    uint64_t gemm[SLR_TRIAL_WATCHED_CALLS]; /* 0: none */
    uint32_t calls;                         /* in all */
};

void slr_trial_gemms_add(struct slr_trial_gemms *g, uint64_t gemm);

/* The smallest period of SLR_TRIAL_PERIOD at most that the latest calls have, three times over: at least SLR_TRIAL_PERIOD
 * calls, and never more than SLR_TRIAL_WATCHED_CALLS. 0: none, or too few calls. */
uint32_t slr_trial_gemms_period(const struct slr_trial_gemms *g);

#endif
