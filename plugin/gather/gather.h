/* SPDX-License-Identifier: Apache-2.0 */
/* The gather: the decision on one all-gather, and its way to the ring or to NCCL.
 *
 * What the folder is for: one substituted gather from the decision until no stream has to be made
 * to wait for it any more, and the GEMM that consumes it. Its doors besides this header: pending.h
 * (for the gates of interpose/), pending_state.h, fuse.h, order.h, graphs.h, passed_alone.h,
 * transfer.h, verify.h, nccl_call.h. pending_impl.h is for the folder alone. It uses the folders
 * util, comm, memory, sites, timeline, tuner and profiler.
 */
#ifndef SLR_PLUGIN_GATHER_GATHER_H
#define SLR_PLUGIN_GATHER_GATHER_H

#include "plugin/comm/call.h"

/* Fills comm, which the caller puts back, and shard, and decides: SLR_R_RING, or why the call stays
 * with NCCL. Uses facts that are equal on all ranks (R1), but for arguments that NCCL refuses on
 * this rank alone, the capture state (R6) and the caller's region. */
enum slr_reason slr_gather_decide(struct slr_call *call);

/* Its steps, which a reduce-scatter's decision has in common. SLR_R_RING: go on.
 *
 * identify    fills comm and shard; NCCL has the calls of the communicator
 * arguments   NCCL refuses them, or there is nothing to do
 * here        facts of this rank alone (passed_alone.h finds ranks that differ in them), and its error;
 *             may enter the communicator's context */
enum slr_reason slr_gather_identify(struct slr_call *call);
enum slr_reason slr_gather_arguments(const struct slr_call *call);
enum slr_reason slr_gather_here(struct slr_call *call);

/* To be called after that, before NCCL or the program goes on: leaves the communicator's context,
 * which the decision may have entered. What the ring does in between need not enter it again, as
 * that takes four calls of the driver. */
void slr_gather_decided(struct slr_call *call);

/* Counts how a moved call's shards go. */
void slr_gather_count_routes(const struct slr_comm *c, const struct slr_route *route);

/* Counts and logs the decision (one line for each distinct shape), and who makes the call (callers/callers.h). Under no
 * lock. */
void slr_gather_note(struct slr_call *call, enum slr_reason why);

/* Only the latter, of a call that is noted when its group ends: the program may have left by then what it is in now. */
void slr_gather_name(struct slr_call *call);

/* Begins an NVTX range (base/nvtx.h); what it returns goes to slr_nvtx_end. */
bool slr_gather_nvtx(const struct slr_call *call);

/* The next gather's place on its stream: the ring starts after what is there now. */
ncclResult_t slr_gather_entry(struct slr_comm *c, CUstream stream);

/* In a group, after all entries: makes a stream wait for the entries of all streams of its
 * communicator. */
ncclResult_t slr_gather_wait_entries(struct slr_comm *c, CUstream stream);

/* Makes stream `to` wait for what is on stream `from` now; the ring does not take part. */
ncclResult_t slr_gather_wait_stream(struct slr_comm *c, CUstream from, CUstream to);

/* Gives the call its number on the communicator, and with it whether it is verified. Once for each
 * call, in order. */
void slr_gather_number(struct slr_call *call);

/* Moves the call to the ring, after slr_gather_entry and slr_gather_number. `defer`: leave it
 * pending for a GEMM to consume, else join at once for the reason `why`. */
ncclResult_t slr_gather_ring(const struct slr_call *call, bool defer, enum slr_reason why);

#endif
