/* SPDX-License-Identifier: Apache-2.0 */
/* SLIPRING_VERIFY: a sample of the calls that the ring moves is done by NCCL too, and compared
 * (gather/verify.h, scatter/scatter.h).
 *
 *   prepare   each call's memory
 *   NCCL      one call: of each rank of its communicator that this thread has, in one group of NCCL's
 *   ring      the same call, of these ranks. Then NCCL has the next one
 *   finish    the ring is joined to the streams; the host waits for these and compares
 *
 * Another rank may make these calls one by one, with no group: it does NCCL's part, the ring's, and waits for
 * both on the host before it comes to its next call. So NCCL's kernel of a call must not wait for the ring's of
 * the same one: it comes before. And NCCL's next one must not come before this call is on the ring: NCCL connects
 * the ranks in the call (passed/in_call.h), where the host would wait for that rank, which waits for this ring. For
 * the same reason no group of NCCL's has two calls of a communicator: whatever groups the ranks make, each of them
 * has the same sequence of NCCL's operations. Ranks that group calls of several communicators in another order
 * than others may wait for each other when NCCL connects, as they would without groups. */
#ifndef SLR_PLUGIN_CALLS_VERIFIED_H
#define SLR_PLUGIN_CALLS_VERIFIED_H

#include "plugin/comm/call.h"

/* n numbered calls: those with `verify` set are prepared, and NCCL does them; `ring` enqueues each of all. In the order
 * in which they were made, but for ranks of one communicator, whose same calls come together. */
ncclResult_t slr_verified_run(struct slr_call *calls, size_t n, ncclResult_t (*ring)(const struct slr_call *call));

/* The ring has been joined. Compares, and frees what start allocated; `r` != ncclSuccess: does only that,
 * and returns r. */
ncclResult_t slr_verified_finish(const struct slr_call *calls, size_t n, ncclResult_t r);

#endif
