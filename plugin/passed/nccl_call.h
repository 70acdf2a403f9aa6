/* SPDX-License-Identifier: Apache-2.0 */
/* The real call of an operation that stays with NCCL, and what slipring does around it. */
#ifndef SLR_PLUGIN_PASSED_NCCL_CALL_H
#define SLR_PLUGIN_PASSED_NCCL_CALL_H

#include <stdbool.h>
#include "base/real.h"

struct slr_call;

/* Around the real call of any operation. It comes behind the communicator's gathers (order.h); in a
 * group its stream synchronises with them. The result is returned as it is. */
void slr_nccl_begin(ncclComm_t comm, cudaStream_t stream);
ncclResult_t slr_nccl_end(ncclComm_t comm, cudaStream_t stream, ncclResult_t r);

/* The all-gather stays with NCCL: the real call with all that goes around it, guarded.
 *
 * It overtakes (pending.h) the gathers that its stream holds and whose memory it does not touch: so
 * does the gather of the scale factors behind that of a matrix, and the GEMM on the stream reads
 * both. NCCL's kernel then waits for what stands on the stream, but not for the ring, and the ring
 * waits for no kernel, so no two ranks wait for each other, whichever of them overtakes. What NCCL's
 * call does inside is then not the program's: it joins nothing, and what NCCL records for its own
 * order on its own streams does not wait for the ring either. Operations of the communicator that
 * come later are ordered behind the pending gather as if this one had not been (order.h).
 *
 * Not in a group or a capture, nor where the ways of a call site are measured: these join. */
ncclResult_t slr_gather_nccl(const struct slr_call *call);

#endif
