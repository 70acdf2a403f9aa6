/* The end of a communicator's shared part: staging memory and control block.
 *
 * The owner's block may be freed only when every peer has closed its import (state LEFT) or is dead, so it is kept here
 * until then; the watchdog looks again at each tick. Neither ncclCommDestroy nor the application ever waits for it.
 */
#ifndef SLR_PLUGIN_RETIRE_H
#define SLR_PLUGIN_RETIRE_H

#include "plugin/comm.h"

/* Takes over *s (which may hold nothing). The caller has closed its own imports; this posts LEFT, unless
 * one of them could not be closed (`stuck`). */
void slr_retire(const struct slr_shared *s);

/* Frees what no peer uses any more. Called by the watchdog. Returns how many are left, those that another thread is
 * freeing among them. */
unsigned slr_retire_tick(void);

/* Before a communicator is made: while `bytes` more do not fit the budget and communicators that have ended still hold
 * memory, waits for their peers and for the thread that frees it, at most `ms`. */
void slr_retire_for_room(uint64_t bytes, uint64_t budget, unsigned ms);

/* The context of *s has been reset since it was retained (cache/device_reset.h): nothing in it is touched any more. */
bool slr_shared_gone(const struct slr_shared *s);

/* Whether the peer is another rank of this process. */
bool slr_shared_same_process(const struct slr_shared *s, int peer);

/* Looks whether the processes of the peers still live; fills peer_dead. */
void slr_shared_watch_peers(struct slr_shared *s);

/* Opens the watches on the peers' processes, whose ids the control block holds from the start. */
void slr_shared_open_watches(struct slr_shared *s);

/* At the end of the process: waits, at most `ms`, until no living peer reads from this process's staging memory any
 * more. */
void slr_retire_before_exit(unsigned ms);

#endif
