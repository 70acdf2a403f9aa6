/* SPDX-License-Identifier: Apache-2.0 */
/* The gather: its way to the ring.
 *
 * What the folder is for: one substituted gather from the decision (calls/decide.h) until no stream has to be made
 * to wait for it any more, and the GEMM that consumes it. Its doors besides this header: pending.h
 * (for the gates of interpose/), pending_state.h, fuse.h, order.h, graphs.h, passed_alone.h,
 * transfer.h, verify.h, nccl_call.h. pending_impl.h is for the folder alone. It uses the folders
 * util, comm, memory, sites, timeline, tuner and profiler.
 */
#ifndef SLR_PLUGIN_GATHER_GATHER_H
#define SLR_PLUGIN_GATHER_GATHER_H

#include "plugin/comm/call.h"

/* Counts how a moved call's shards go. */
void slr_gather_count_routes(const struct slr_comm *c, const struct slr_route *route);

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
