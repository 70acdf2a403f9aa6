/* SPDX-License-Identifier: Apache-2.0 */
/* The real call of an operation that stays with NCCL, and what slipring does around it. */
#ifndef SLR_PLUGIN_GATHER_NCCL_CALL_H
#define SLR_PLUGIN_GATHER_NCCL_CALL_H

#include "plugin/comm/call.h"

/* Around the real call of any operation. It comes behind the communicator's gathers (order.h); in a
 * group its stream synchronises with them. The result is returned as it is. */
void slr_nccl_begin(ncclComm_t comm, cudaStream_t stream);
ncclResult_t slr_nccl_end(ncclComm_t comm, cudaStream_t stream, ncclResult_t r);

/* The all-gather stays with NCCL: the real call with all that goes around it, guarded. */
ncclResult_t slr_gather_nccl(const struct slr_call *call);

#endif
