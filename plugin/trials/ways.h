/* SPDX-License-Identifier: Apache-2.0 */
/* The folder trials/: how the gathers of a call site are served best, found by trying. This file: the
 * ways that are tried, when, and how the best is chosen from what the ranks have measured. It knows
 * nothing of CUDA. trials.h is the folder's door.
 *
 * A *site* is what is equal on all ranks of the calls that belong together: the bytes of a shard, on
 * one communicator. A *row* is a site and the GEMM that consumes its gathers, or no GEMM: a site has
 * as many rows as GEMMs have been seen behind it.
 *
 *   way            the gather                      a GEMM that consumes it
 *   ring           goes over the ring              in parts by the pace (kernels/gemm_parts.h)
 *   nccl           stays with NCCL                 whole
 *   whole          goes over the ring              whole, behind it
 *   parts, 4 ways  goes over the ring              in 1, 1.5, 2, 3 equal parts a rank
 *
 * The number of a call among those of its site decides the way: none is tried in the first `after`
 * calls, in which memory is mapped; then each way has SLR_TRIAL_RUN calls in turn, `rounds` times.
 * The first call of a run is not measured, as it comes behind another way. So no rank has to be
 * told which way a call goes while ways are tried.
 */
#ifndef SLR_PLUGIN_TRIALS_WAYS_H
#define SLR_PLUGIN_TRIALS_WAYS_H

#include <stdbool.h>
#include <stdint.h>
#include "plugin/comm/trial_row.h"

#define SLR_TRIAL_RUN 4u

/* Raised when a way's word comes to mean something else, or its times change: rules of a tune file
 * from before are not used then. */
#define SLR_WAYS_VERSION 1u

/* The way's word in a tune file: "pace", "whole", or p and the number of equal parts. Of SLR_WAY_NCCL
 * there is none. And back; -1: no way over the ring has that word with so many ranks. */
#define SLR_WAY_WORD 16
void slr_way_word(int way, int nranks, char word[SLR_WAY_WORD]);
int slr_way_of_word(const char *word, int nranks);

/* Of a way: the number of equal parts; 1: whole; 0: by the pace, or NCCL's. */
uint32_t slr_way_parts(int way, int nranks);

/* The way of call `number` of a site, from 0, and the round. *measured: its time counts. True: ways are being tried,
 * else it is SLR_WAY_RING. */
bool slr_way_of_call(uint64_t number, uint64_t after, uint32_t rounds, int *way, uint32_t *round, bool *measured);

/* The first call behind the trials. */
uint64_t slr_trials_end(uint64_t after, uint32_t rounds);

/* Of a GEMM, or 0, on a site that the ring has. */
int slr_way_chosen(const struct slr_trial_choice *choice, uint64_t gemm, uint32_t site);

/* Chooses for one site, and puts that into *choice. rows[r]: of rank r, count[r] of them. `base`:
 * what is in use without trials, SLR_WAY_RING or, of small gathers, SLR_WAY_NCCL.
 * A row counts that has been measured in every way, on the ranks that have it; its time is that of the
 * slowest. What is in use without trials is left only for what was better in every round: clocks and
 * neighbours change from one to the next. Of these ways over the ring the one with the best median is
 * taken, and NCCL when its medians, of all rows together, are 3% better than those, and in every round
 * better, or 10% whatever the rounds were; of small gathers the ring when it is 3% better than NCCL. */
void slr_trials_choose(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint32_t site,
                       int base, struct slr_trial_choice *choice);

/* Of the slowest rank. False: the row is not on this rank, or not measured in every way. */
bool slr_trials_slowest(const struct slr_trial_row *const *rows, const uint32_t *count, int nranks, uint64_t gemm,
                        uint32_t site, struct slr_trial_row *out);

/* The median of n > 0 values, which it puts in order. */
float slr_trials_median(float *values, unsigned n);

#endif
