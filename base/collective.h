/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a collective, and in what they differ: collectives.def. */
#ifndef SLR_BASE_COLLECTIVE_H
#define SLR_BASE_COLLECTIVE_H

#include <stdbool.h>
#include "base/reason.h"

enum slr_collective_id {
#define X(id, op, words, function, count, sends_all, produced, untried) SLR_##id,
#include "base/collectives.def"
#undef X
    SLR_COLLECTIVES
};

struct slr_collective {
    enum slr_collective_id id;
    const char *op, *words, *function, *count;
    bool sends_all, produced;
    enum slr_reason untried;
};

extern const struct slr_collective slr_collectives[SLR_COLLECTIVES];

#endif
