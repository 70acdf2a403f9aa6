/* SPDX-License-Identifier: Apache-2.0 */
/* In how many calls a program does the same again.
 *
 * From its latest calls without a gap: of a site, by the GEMMs that come with them, and of a communicator, by the
 * calls. (tools/symmetry/period.c finds those of buffers as well, for which it compares each call with the 128 before
 * it.) */
#ifndef SLR_PLUGIN_TRIALS_PERIOD_H
#define SLR_PLUGIN_TRIALS_PERIOD_H

#include <stdbool.h>
#include "plugin/trials/ways.h"

#define SLR_TRIAL_WATCHED_CALLS (2 * SLR_TRIAL_PERIOD)

#define SLR_TRIAL_LATEST_CALLS 1024u

struct slr_trial_gemms {
    uint64_t gemm[SLR_TRIAL_WATCHED_CALLS]; /* 0: none */
    uint32_t calls;                         /* in all */
};

struct slr_trial_calls {
    uint64_t call[SLR_TRIAL_LATEST_CALLS]; /* operation, size, and whether it is the first one of its group */
    uint32_t calls;                        /* in all */
};

void slr_trial_gemms_add(struct slr_trial_gemms *g, uint64_t gemm);

/* The smallest period of SLR_TRIAL_PERIOD at most that the latest calls have, three times over: at least
 * SLR_TRIAL_PERIOD calls, and never more than SLR_TRIAL_WATCHED_CALLS. 0: none, or too few calls. */
uint32_t slr_trial_gemms_period(const struct slr_trial_gemms *g);

/* None came with the latest SLR_TRIAL_PERIOD calls. */
bool slr_trial_gemms_none(const struct slr_trial_gemms *g);

#define SLR_TRIAL_ENOUGH 4u /* times SLIPRING_TRIALS_AFTER: in so many calls an iteration shows, unless it is long */

void slr_trial_calls_add(struct slr_trial_calls *of, uint64_t call);

/* The smallest period that half of the calls that are kept have, and `least` at least, and that has come three times.
 * So one of layers, which is shorter, is not taken for the iteration's once there have been some. 0: none. */
uint32_t slr_trial_calls_period(const struct slr_trial_calls *of, uint32_t least);

/* Of `calls` so far: there are enough, and an iteration is known from as many, or will not be. */
bool slr_trial_calls_enough(const struct slr_trial_calls *of, uint64_t calls, uint64_t enough);

#endif
