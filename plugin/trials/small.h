/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: gathers of fewer bytes than SLIPRING_MIN_BYTES. Where that is not set by
 * the user, it is only where the search begins: down to an eighth of it the ring is tried, too.
 *
 * Only on a communicator that has made a gather of SLIPRING_MIN_BYTES or more: its ring is connected
 * then, so the search costs no device memory. The first calls of a small site stay with NCCL; the next
 * SLR_SMALL_WARM go over the ring, in which memory is mapped; then its ways are tried. What is in use
 * is NCCL: the ring is taken only for what is clearly better.
 *
 * comm->least_bytes is the size from which on calls come to the trials at all, so that others cost
 * what they cost without. It is the same on all ranks at each call: it follows from the calls so far
 * and from what has been agreed. Where a site stays with NCCL, so do all that are smaller, but for one
 * that is being tried, or that the ring has. Of more than SLR_SMALL_SITES sizes no new ones are tried,
 * and what is not decided yet stays with NCCL. */
#ifndef SLR_PLUGIN_TRIALS_SMALL_H
#define SLR_PLUGIN_TRIALS_SMALL_H

#include "plugin/trials/known.h"

#define SLR_SMALL_PART 8u
#define SLR_SMALL_WARM 16u
#define SLR_SMALL_SITES 6u

/* For the post: from how many gathered bytes on this rank would try the ring. */
uint64_t slr_small_floor(void);

/* The communicator has been agreed on: sets its least_bytes. */
void slr_small_open(struct slr_comm *c);

/* A call of so many gathered bytes comes. False: it is small, and not for the trials. */
bool slr_small_admits(struct slr_comm *c, size_t bytes);

/* There is one size too many. */
void slr_small_full(struct slr_comm *c);

/* Something has been agreed. */
void slr_small_bound(struct slr_comm *c);

/* A small call of this site, or of none (-1), stays with NCCL and is not measured. */
bool slr_small_is_quiet(const struct slr_trials *t, int site);

/* Of a small site, before its ways are tried: counts the call. False: it is behind that. */
bool slr_small_early(struct slr_trials *t, struct slr_trial_site *s);

#endif
