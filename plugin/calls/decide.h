/* SPDX-License-Identifier: Apache-2.0 */
/* For the folder calls/ alone: the decision on one call, and how it is counted and logged. */
#ifndef SLR_PLUGIN_CALLS_DECIDE_H
#define SLR_PLUGIN_CALLS_DECIDE_H

#include "plugin/comm/call.h"

/* Fills comm, which the caller puts back, and shard, and decides: SLR_R_RING, or why the call stays
 * with NCCL. Uses facts that are equal on all ranks (R1), but for arguments that NCCL refuses on
 * this rank alone, the capture state (R6) and the caller's region. */
enum slr_reason slr_call_decide(struct slr_call *call);

/* Its first steps. SLR_R_RING: go on.
 *
 * identify    fills comm and shard; NCCL has the calls of the communicator
 * arguments   NCCL refuses them, or there is nothing to do */
enum slr_reason slr_call_identify(struct slr_call *call);
enum slr_reason slr_call_arguments(const struct slr_call *call);

/* To be called after that, before NCCL or the program goes on: leaves the communicator's context,
 * which the decision may have entered. What the ring does in between need not enter it again, as
 * that takes four calls of the driver. */
void slr_call_decided(struct slr_call *call);

/* Counts and logs the decision (one line for each distinct shape), and who makes the call (callers/callers.h). Under no
 * lock. */
void slr_call_note(struct slr_call *call, enum slr_reason why);

/* Only the latter, of a call that is noted when its group ends: the program may have left by then what it is in now. */
void slr_call_name(struct slr_call *call);

/* Begins an NVTX range (base/nvtx.h); what it returns goes to slr_nvtx_end. */
bool slr_call_nvtx(const struct slr_call *call);

#endif
