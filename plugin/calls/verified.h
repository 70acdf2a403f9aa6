/* SPDX-License-Identifier: Apache-2.0 */
/* SLIPRING_VERIFY: a sample of the calls that the ring moves is done by NCCL too, and compared
 * (gather/verify.h, scatter/verify_sum.h).
 *
 *   prepare   each call's memory
 *   NCCL      the calls one by one, in the order in which they were made: of each communicator of this
 *             process, one call of each of its ranks that this thread has, in one group of NCCL's
 *   ring      the caller's; joined to the streams
 *   finish    the host waits for the streams and compares
 *
 * NCCL comes before the ring, so that its kernels do not wait for the ring on the stream: another rank may
 * make these calls one by one, and waits for NCCL's before it comes to its next call. For the same
 * reason no group of NCCL's has two calls of a communicator: whatever groups the ranks make, each of them
 * has the same sequence of NCCL's operations. */
#ifndef SLR_PLUGIN_CALLS_VERIFIED_H
#define SLR_PLUGIN_CALLS_VERIFIED_H

#include "plugin/comm/call.h"

/* Of n numbered calls those with `verify` set: prepares them, and has NCCL do them. */
ncclResult_t slr_verified_start(struct slr_call *calls, size_t n);

/* The ring has been joined. Compares, and frees what start allocated; `r` != ncclSuccess: does only that,
 * and returns r. */
ncclResult_t slr_verified_finish(const struct slr_call *calls, size_t n, ncclResult_t r);

#endif
