/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's operations of a communicator that has failed are ended, so that a call of NCCL in its turn comes back
 * (passed/nccl_turn.h). NCCL waits in it for a peer that is gone, on the host, until it is aborted. ncclCommAbort would
 * free the communicator, which the program still has to do; ncclCommRevoke only ends what is under way. An NCCL
 * without it is left alone: there another thread has to abort.
 *
 * A thread of its own calls it, as it waits for NCCL's streams. What ends the communicator for the program comes behind
 * it, or, if it has begun, keeps it from beginning. */
#ifndef SLR_PLUGIN_LIFECYCLE_REVOKE_H
#define SLR_PLUGIN_LIFECYCLE_REVOKE_H

#include "plugin/comm/comm.h"

/* The watchdog's: once for each communicator, later calls do nothing. The program has been told. */
void slr_revoke_begin(struct slr_comm *c);

/* Before the program's own call that ends the communicator: waits for that, at most a second. True: NCCL's part of
 * ncclCommRevoke has been done. */
bool slr_revoke_end(struct slr_comm *c);

#endif
