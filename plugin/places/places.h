/* SPDX-License-Identifier: Apache-2.0 */
/* Where the buffers of this rank's calls lie, for the log. `slipring report` joins the ranks' logs and finds
 * the call sites (tools/symmetry); nothing in the library depends on it. docs/memory.md, Symmetry, says what
 * for. This header is the folder's door.
 *
 * docs/memory.md says what a place is, and which calls are listed: 9,855 of a communicator. Places have numbers, from 0
 * in the order of their first calls: 512, and then 32 that lack the buffer that is new, "elsewhere"; and one for the
 * rest. Memory: 66 KiB of the heap; with SLIPRING_CALLERS 77 KiB more, and the names (callers/callers.h). Lines: 577
 * `place`, some 260 `places`, 64 `caller_place` for each place, 1 `places_end`.
 *
 *   state of a listed call        0: not made, or not by this rank (a graph's launch makes several at once); else its
 *                                 place + 1
 *   written                       by
 *   places, listed and last calls the thread that holds the communicator's lock; published by `count` and
 *                                 `latest`, which come last
 *   what has been logged          whoever holds the lock of places.c, under which only the log and callers/ are called
 *
 * A call costs comparisons with the place that followed last time; a hash only where that is another one.
 */
#ifndef SLR_PLUGIN_PLACES_PLACES_H
#define SLR_PLUGIN_PLACES_PLACES_H

#include "base/log.h"

struct slr_comm;
struct slr_watcher;

/* The log shows them. Never changes. */
static inline bool slr_places_shown(void)
{
    return slr_log_enabled(SLR_LOG_INFO);
}

/* Notes calls. When they are shown; without memory nothing is noted. */
extern const struct slr_watcher slr_places_watcher;

/* Logs what is new, in lines that are long enough. On the house-keeping thread. */
void slr_places_tick(struct slr_comm *c);

/* The communicator or the process ends: logs what is left, once. */
void slr_places_end(struct slr_comm *c);

/* The same, and frees the memory. */
void slr_places_dispose(struct slr_comm *c);

#endif
