/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder share. They know nothing of slipring: plain cudart and NCCL, with exact checks.
 *
 * Each rank is a process of its own, started anew, so that ranks may have different environments: NAME=VALUE pairs in
 * ZERO_SET_<rank> (separated by blanks) are set in that rank only. Its wrong results are counted (tests/order/forms.h)
 * and end it with status 1.
 */
#ifndef TESTS_ZEROCOPY_ZERO_H
#define TESTS_ZEROCOPY_ZERO_H

#include "../order/forms.h"

/* For main(): starts the ranks, or is one of them and runs `body`. A rank that is not done after `seconds`: status 4.
 */
int zero_run(int nranks, int seconds, char **argv, rank_body body, void *arg);

/* All ranks of the program come to it. */
void zero_barrier(struct rank *r);

/* The sum of `n` over all ranks. Once in a program. */
int zero_sum(struct rank *r, int n);

/* As gather_alloc/gather_free, for the device side only; `extra` bytes more than the send buffer needs. */
void zero_alloc(struct gather *g, size_t extra);
void zero_free(struct gather *g);

/* Host memory for shards of up to `shard` bytes. */
void zero_host(struct gather *g, const struct rank *r, size_t shard);

/* Load, barrier, call, check: one whole gather. */
void zero_round(struct rank *r, struct gather *g, uint64_t seed, const char *what);

/* Gathers the buffers until peers have had time to map them. */
void zero_warm_up(struct rank *r, struct gather *g);

/* Waits until the device has `want` bytes free again, at most `ms`; what is free in the end. */
size_t zero_wait_free(size_t want, unsigned ms);

#endif
