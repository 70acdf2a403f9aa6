/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring for `slipring tune` (SLIPRING_TUNE_EXPLORE): for each communicator, collective and size
 * class, call k is made with a candidate that k alone decides, and its time on the stream is taken
 * by events and logged.
 *
 * Exploring, without SLIPRING_TUNE_FILE: candidate k mod C. 0 is NCCL's default; then every
 * algorithm and protocol that the cost table does not exclude, each with NCCL's number of channels
 * and with 4 and 16. The order is that of the cost table, so all ranks choose alike by the number
 * of the call. After SLIPRING_TUNE_EXPLORE rounds NCCL's default is used. A size class is a power
 * of two: [2^c, 2^(c+1)).
 *
 * Confirming, with SLIPRING_TUNE_FILE: two candidates, 0 NCCL's default, 1 what the first fitting
 * rule says; one call of each in every two, in an order that has no period. Calls that no rule
 * fits, or one with only defaults, are not measured. After the rounds the table decides. The ranks
 * have agreed on both settings and the table (tuner_match.h).
 *
 * Measured are calls outside groups that are not captured; one at a time for each thread. */
#ifndef SLR_PLUGIN_TUNER_EXPLORE_H
#define SLR_PLUGIN_TUNER_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"
#include "plugin/abi/nccl_common.h"

struct slr_comm;
struct slr_tuner;
struct slr_tuner_ask;
struct slr_tuner_choice;
struct slr_tune_rule;

/* Calls that took part so far: [collective][size class][registered]. */
struct slr_explore {
    uint32_t calls[SLR_NCCL_TUNED_FUNCS][64][2];
};

/* The candidate of the next call; notes it for slr_explore_end on this thread. Under the tuner's
 * lock. `rule`: the table's for this call, or NULL. False: nothing is to be tried (any more). */
bool slr_explore_choose(struct slr_tuner *tuner, const struct slr_tuner_ask *ask, const struct slr_tune_rule *rule,
                        struct slr_tuner_choice *choice);

/* NCCL can not do what the candidate wants: the call is none of the candidate's, and not measured.
 */
void slr_explore_drop(void);

/* Around the real call of a collective on `stream`. The result is returned as it is. */
void slr_explore_begin(const struct slr_comm *c, CUstream stream);
ncclResult_t slr_explore_end(ncclResult_t result);

/* Logs what has been measured and is over. */
void slr_explore_drain(void);

#endif
