/* SPDX-License-Identifier: Apache-2.0 */
/* Which communicator a tuner belongs to, and whether the ranks' tuners decide alike.
 *
 * Match. NCCL makes the tuner inside the call that makes the communicator, but only tells how many
 * ranks and, since 2.28, a number of its own. A tuner that is made on the thread of the call
 * belongs to it: so it is with one communicator at a time. Those of a group, or of ncclCommInitAll,
 * are made on NCCL's threads: they are matched after the call, when nothing else is being made in
 * the process, by the number of ranks; where that is not certain, they stay alone.
 *
 * Agreement. Each rank posts a word of what its tuner decides by (table, settings), 0 without
 * either, in the control block. Once all ranks have posted, any that has a tuner compares, and the
 * first writes the result by compare-and-swap into the block's word `tune`, which all obey: ON, or
 * OFF with the rank that differs. A rank that dies, or is not there by the deadline, is one that
 * differs. This does not depend on whether the ring is used. Without a control block (a rank has no
 * slipring): OFF, except where NCCL counts several hosts, where nobody can compare. */
#ifndef SLR_PLUGIN_LIFECYCLE_TUNER_MATCH_H
#define SLR_PLUGIN_LIFECYCLE_TUNER_MATCH_H

#include "plugin/lifecycle/agreement.h"
#include "plugin/tuner/tuner.h"

/* Around the real call: a tuner may be made for this communicator from here on; not any more.
 * Forget may be called any number of times. */
void slr_tune_expect(struct slr_init *init);
void slr_tune_forget(struct slr_init *init);

/* After the real call, for all inits of the thread, whose `comm` is known: finds the tuners. */
void slr_tune_match(struct slr_init *list);

/* For the post. */
uint64_t slr_tune_word(const struct slr_init *init);

/* Decides, for each. Waits until `deadline` for ranks that have not posted. */
void slr_tune_agree(struct slr_init *list, uint64_t deadline);

#endif
