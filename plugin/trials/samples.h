/* SPDX-License-Identifier: Apache-2.0 */
/* For trials.c alone: what has been measured of one row (ways.h) on this rank.
 *
 * A way's time is the device's, unless in any way the device was nearly always done when the site's
 * next call came: then the program waits for the host in that way at least, and all are compared by
 * what an iteration takes, the time from call to call or the device's, whichever is longer. (The host
 * may run ahead of a device that is busy.)
 */
#ifndef SLR_PLUGIN_TRIALS_SAMPLES_H
#define SLR_PLUGIN_TRIALS_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>
#include "plugin/trials/clock.h"
#include "plugin/trials/ways.h"
#include "plugin/util/consumer.h"

#define SLR_SAMPLES SLR_TRIAL_PERIOD /* of a way in a round, at most */

struct slr_samples {
    uint64_t gemm; /* slr_consumer_hash(&what) */
    uint32_t site;
    struct slr_consumer what;
    struct slr_trial_row
        before; /* what was measured when all ways have been in one stage, the latest; calls 0: never */
    uint8_t count[SLR_WAYS][SLR_TRIAL_ROUNDS];
    float ms[SLR_WAYS][SLR_TRIAL_ROUNDS][SLR_SAMPLES];     /* on the device */
    float period[SLR_WAYS][SLR_TRIAL_ROUNDS][SLR_SAMPLES]; /* from call to call on the host, or ms if that is longer */
    uint8_t idle[SLR_WAYS];                                /* how often the device was done at the next call */
};

/* A call's times. NULL: nothing. */
void slr_samples_add(struct slr_samples *row, const struct slr_clock *clock, float ms);

/* A stage begins. */
void slr_samples_forget(struct slr_samples *row);

/* Every way has been measured in more than half of the rounds, if not now, then in a stage before. */
bool slr_samples_tried(const struct slr_samples *row, uint32_t rounds);

/* Now, in the stage that tries all ways. */
bool slr_samples_whole(const struct slr_samples *row, uint32_t rounds);

/* Times are the host's. */
bool slr_samples_of_host(const struct slr_samples *row, uint32_t rounds);

/* For the other ranks. `base`: the way that others are compared with. */
struct slr_trial_row slr_samples_row(const struct slr_samples *row, uint32_t rounds, int base);

/* The same at the end of a stage. What all ways have taken counts until all are measured anew: a stage that has missed
 * some of them says what an earlier one has found. But a GEMM that has not come at all is the program's no more. */
struct slr_trial_row slr_samples_post(struct slr_samples *row, uint32_t rounds, int base, enum slr_stage stage);

#endif
