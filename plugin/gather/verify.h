/* SPDX-License-Identifier: Apache-2.0 */
/* SLIPRING_VERIFY: a sample of the substituted gathers is run through NCCL too, and compared. */
#ifndef SLR_PLUGIN_GATHER_VERIFY_H
#define SLR_PLUGIN_GATHER_VERIFY_H

#include "plugin/comm/call.h"

/* Whether the communicator's next substituted gather is one of the sample; equal on all ranks. */
bool slr_verify_due(const struct slr_comm *c);

/* Of n calls those with `verify` set: runs the same calls through NCCL, in one group (one thread
 * may have several ranks), into memory of its own. Comes before the calls are moved to the ring, so
 * that NCCL's do not wait for the ring on the stream: another rank may make these calls one by one,
 * and waits for NCCL's before it comes to its next gather. Without memory NCCL writes into the
 * application's buffer: every rank must make the call, whatever it can afford. */
ncclResult_t slr_verify_start(struct slr_call *calls, size_t n);

/* The ring has been joined to the streams. Waits for them and compares all bytes. A difference is
 * an error line with the first byte, and the application gets NCCL's bytes. Frees what start
 * allocated; `r` != ncclSuccess: does only that, and returns r. */
ncclResult_t slr_verify_finish(const struct slr_call *calls, size_t n, ncclResult_t r);

#endif
