/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder trials/ alone: which site a call belongs to.
 *
 * A program's calls of one size are many: forward, backward, of attention, of the layer behind it. What is best for one
 * need not be for another. What tells them apart has to be the same on all ranks at the call itself, as it decides which
 * way the call goes (R1): nothing of the program's memory, streams or GEMMs is. The sequence of calls is. So a call's
 * *context* is what the SLR_CONTEXT_CALLS calls before it were, operation and size of each, and no rank is told anything.
 *
 *   the first call of a size         makes the size's first site. All of its calls belong there,
 *                                    whatever their context, unless it has a site of its own
 *   a context has come OFTEN times,  the first such is the first site's own; a later one gets a site
 *   and is no rare one               of its own from that call on, while there is room
 *
 * A rare one, of less than a SLR_CONTEXT_SHARE-th of the size's calls, is what stands where a forward pass becomes a
 * backward pass: it would take a hundred iterations to be measured. A site of its own goes by what its size's first site
 * has found until it has found something itself.
 *
 * Small gathers (small.h) are one site a size and in no context: whether they come here changes.
 *
 * All of this is a function of the calls that come to the trials, in their order; under the communicator's lock. */
#ifndef SLR_PLUGIN_TRIALS_FIND_H
#define SLR_PLUGIN_TRIALS_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/counters.h"

#define SLR_CONTEXT_CALLS 3
#define SLR_CONTEXT_OFTEN 4u
#define SLR_CONTEXT_SHARE 16u
#define SLR_CONTEXTS 8       /* sites of a size, most */
#define SLR_CONTEXTS_SEEN 64 /* contexts that are no site yet; then the oldest is forgotten */

struct slr_trials;
struct slr_comm;
struct slr_call;

/* Contexts are never 0: no call has been in one. */
struct slr_trial_contexts {
    uint64_t now; /* of the next call */
    struct {
        uint64_t context;
        size_t shard;
        const struct slr_collective *kind;
        uint32_t calls;
    } seen[SLR_CONTEXTS_SEEN];
    uint32_t added;
};

/* Of the next call; -1: none, there are too many. Call it once for each. */
int slr_trials_find(struct slr_comm *c, const struct slr_call *call, bool small);

/* The same, of a call that is yet to come, if it is the next one: nothing is counted. */
int slr_trials_peek(const struct slr_trials *t, size_t shard, const struct slr_collective *kind);

/* The size's first site. */
int slr_trials_first_of(const struct slr_trials *t, size_t shard, const struct slr_collective *kind);

#endif
