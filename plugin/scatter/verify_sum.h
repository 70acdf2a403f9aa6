/* SPDX-License-Identifier: Apache-2.0 */
/* SLIPRING_VERIFY of reduce-scatters. NCCL's sums need not be the ring's, so each rank also gets what
 * all ranks contribute to its shard, through NCCL, from their send buffers as they are when the call
 * stands on the stream, and compares (kernels/reduce_check.h):
 *
 *   check=sum    the ring's result is, bit by bit, the sum of the contributions. This finds what the ring
 *                took too early, as of a GEMM whose output something has changed since
 *   check=nccl   and as near to NCCL's own result as rounding allows
 *
 * NCCL's operations stand before the entry of the ring's, behind which the result is written, also into `send`.
 *
 * Memory: the contributions and NCCL's result, ranks + 1 shards. On a device
 * that has not so much, of the host: every rank must make NCCL's calls, and these must not write into
 * the application's buffers, from which the ring still takes its data. */
#ifndef SLR_PLUGIN_SCATTER_VERIFY_SUM_H
#define SLR_PLUGIN_SCATTER_VERIFY_SUM_H

#include "plugin/comm/call.h"

/* Orders the call behind its communicator's on other streams, and what is copied behind its stream. Anything
 * but ncclSuccess: the communicator has failed. */
ncclResult_t slr_verify_sum_prepare(struct slr_call *call);

/* Within a group of NCCL's each: its reduce-scatter, and the contributions. */
ncclResult_t slr_verify_sum_run(const struct slr_call *call);
ncclResult_t slr_verify_sum_inputs(const struct slr_call *call);

/* As slr_verify_finish(). */
ncclResult_t slr_verify_sum_finish(const struct slr_call *call, ncclResult_t r);

#endif
