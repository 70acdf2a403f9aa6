/* The watchdog: one thread for each process that has a communicator on the ring. It never puts work on a stream.
 *
 * Each tick, for every communicator:
 *   a peer is FAILED                                  -> this rank fails too (first), so that no rank goes on with data
 * of a broken call a peer is dead or LEFT and this rank waits for it -> this rank fails no progress for
 * SLIPRING_STALL_WARN               -> one warning;  for SLIPRING_STALL_TIMEOUT -> this rank fails this rank has failed
 * -> the waits for every peer that is dead, LEFT or FAILED itself are released A wait for a healthy peer is never
 * released before that peer has failed as well: a released `done` wait lets this rank overwrite a staging slot that the
 * peer may still be reading. Also frees retired staging (retire.h) and analyses call sites (symmetry.h), on the second
 * thread. ncclCommGetAsyncError tells the application (design rule R8).
 */
#ifndef SLR_PLUGIN_WATCHDOG_H
#define SLR_PLUGIN_WATCHDOG_H

#include "plugin/comm.h"

void slr_watchdog_start(void);

/* At the end of the process: the watchdog makes no CUDA call any more, so that none comes after CUDA's own end. */
void slr_watchdog_stop(void);

/* One tick for one communicator, now, from another thread (abort does not wait for the next tick). */
void slr_watchdog_look(struct slr_comm *c);

/* Only whether a peer has failed, from host memory: for the data path. A rank that fails says so before its waits are
 * released, so a gather that was enqueued while no peer had failed is either whole or in error. */
void slr_watchdog_look_failed(struct slr_comm *c);

#endif
