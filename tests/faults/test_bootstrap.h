/* SPDX-License-Identifier: Apache-2.0 */
/* What test_bootstrap.c and test_bootstrap_member.c share. */
#ifndef TESTS_STRANGERS_TEST_BOOTSTRAP_H
#define TESTS_STRANGERS_TEST_BOOTSTRAP_H

#include "plugin/bootstrap/bootstrap.h"

#ifndef TIMEOUT_MS
#define TIMEOUT_MS 20000 /* SLIPRING_AGREE_TIMEOUT's default: what a silent process must not cost */
#endif

/* Of two ranks. */
static inline struct slr_bootstrap_self rank_of(int rank)
{
    return (struct slr_bootstrap_self){.rank = rank, .nranks = 2, .process = 1000 + (uint64_t)rank};
}

#endif
