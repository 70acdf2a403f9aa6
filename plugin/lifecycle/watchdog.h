/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: a thread of each process that has a communicator on the ring (threads.h). It never
 * puts work on a stream, and calls nothing that may wait for the device. What does is the
 * returning thread's.
 *
 * Each tick, for every communicator:
 *
 * - a peer is FAILED: this rank fails too, first of all, so that no rank goes on with data of a
 *   broken call;
 *
 * - a peer is dead or LEFT and this rank waits for it, or it leaves to NCCL what this rank has made
 *   (passed_alone.h): this rank fails;
 *
 * - a peer is dead or LEFT, and a gather that the trials have given to NCCL does not end within a second
 *   (passed/nccl_turn.h): this rank fails, and ncclCommAbort ends NCCL's kernel;
 *
 * - no progress for SLIPRING_STALL_WARN: one warning; for SLIPRING_STALL_TIMEOUT: this rank fails;
 *
 * - this rank has failed: the waits of its sending part for every peer that is dead, LEFT or FAILED
 *   itself are released, so that it writes into nobody's memory any more. A wait for a healthy peer
 *   is never released before that peer has failed as well: a released `done` wait lets this rank
 *   overwrite a staging slot that the peer may still be reading;
 *
 * - and the application is informed: its receiving part is released as well. Until then every
 *   stream that waits for the broken gather stays held, as behind an NCCL kernel whose peer is
 *   gone: a stream that completes says that the data is there. Informed means ncclCommAbort,
 *   ncclCommDestroy, ncclCommFinalize, ncclCommRevoke, or a call on the communicator that returned
 *   the error. ncclCommGetAsyncError does not count: frameworks call it on a thread of their own,
 *   while another one waits for the stream. It reports the error all the same (design rule R8);
 *
 * - this rank has failed, the application is not informed, its gathers hold streams, and one of its
 *   threads has been in a GEMM in the communicator's context for SLIPRING_GEMM_TIMEOUT: that call is
 *   made to return CUBLAS_STATUS_EXECUTION_FAILED, which informs (passed/in_call.h). In this order: the
 *   error is set, the call is told, the waits are released. When the call has not come back by then, a
 *   peer is stopped: as in ncclCommAbort all waits are released, for healthy peers too, behind
 *   `broken`;
 *
 * - this rank has failed, the application is not informed, and one of its threads is in NCCL's call in its
 *   turn: that call is made to return the error, which informs, at once. When it has not come back 0.2 s later,
 *   what NCCL has under way is ended (revoke.h), after 0.6 s all waits are released.
 */
#ifndef SLR_PLUGIN_LIFECYCLE_WATCHDOG_H
#define SLR_PLUGIN_LIFECYCLE_WATCHDOG_H

#include "plugin/comm/comm.h"

/* One tick for one communicator, now, from another thread (abort does not wait for the next
 * tick). */
void slr_watchdog_look(struct slr_comm *c);

#endif
