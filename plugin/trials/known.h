/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: what the tune file knows of call sites, and what is kept there.
 *
 * Rank 0 reads the file when the ranks have posted, takes what fits the communicator as it is, and
 * writes it into the control block before it says READY. All ranks go by that; so it does not matter
 * whether the others have the file, or another one, or when it changes. */
#ifndef SLR_PLUGIN_TRIALS_KNOWN_H
#define SLR_PLUGIN_TRIALS_KNOWN_H

#include "plugin/trials/trials_impl.h"

/* For the post: the model of this rank's GPU. */
uint64_t slr_known_gpu(const struct slr_comm *c);

/* Rank 0's, when all have posted. */
void slr_known_publish(struct slr_comm *c);

/* The first rule for gathers, or reduce-scatters, of so many bytes in all, in that context (find.h; 0: in whichever) or
 * else in whichever; NULL: none is known. It decides between ring and NCCL. */
const struct slr_trial_known *slr_known_site(const struct slr_trials *t, size_t bytes,
                                             const struct slr_collective *kind, uint64_t context);

/* Of a site with `known`, the first rule of the same kind that is for this GEMM, which consumes its gathers
 * or makes what is sent; NULL: none is, or the site has been tried since. */
const struct slr_trial_known *slr_known_consumer(const struct slr_trials *t, uint32_t site,
                                                 const struct slr_consumer *consumer);

/* Rank 0's: has what was chosen for one row kept (plugin/tuner/tune_keep.h). */
void slr_known_keep(const struct slr_comm *c, const struct slr_samples *row, const struct slr_trial_choice *choice);

/* The same of a site of which no row was measured. */
void slr_known_keep_site(const struct slr_comm *c, uint32_t site, const struct slr_trial_choice *choice);

#endif
