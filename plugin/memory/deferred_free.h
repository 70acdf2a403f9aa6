/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a communicator's shared part: staging memory and control block.
 *
 * The owner's block may be freed only when every peer has closed its import (state LEFT) or is
 * dead, so it is kept here until then; the returning thread (lifecycle/threads.h) looks again
 * at each tick. Neither ncclCommDestroy nor the application ever waits for it.
 */
#ifndef SLR_PLUGIN_MEMORY_DEFERRED_FREE_H
#define SLR_PLUGIN_MEMORY_DEFERRED_FREE_H

#include "plugin/comm/comm.h"

/* Takes over *s (which may be empty). The caller has closed its own imports; this posts LEFT,
 * unless one of them could not be closed (`stuck`). */
void slr_defer_free(const struct slr_shared *s);

/* Frees what no peer uses any more. Called by the returning thread, and by a rank that needs
 * room. Returns how many are left, those that another thread is freeing among them. */
unsigned slr_deferred_free_tick(void);

/* Before staging is made: while `bytes` more do not fit the budget and communicators that have
 * ended still hold memory, waits for their peers and for the thread that frees it, at most `ms`. */
void slr_deferred_for_room(uint64_t bytes, uint64_t budget, unsigned ms);

/* At the end of the process: waits, at most `ms`, until no living peer reads from this process's
 * staging memory any more. */
void slr_deferred_before_exit(unsigned ms);

#endif
