/* The decision on one all-gather, and its way to the ring or to NCCL. */
#ifndef SLR_PLUGIN_GATHER_GATHER_H
#define SLR_PLUGIN_GATHER_GATHER_H

#include "plugin/comm/call.h"

/* Fills comm and shard, and decides: SLR_R_RING, or why the call stays with NCCL. Uses facts that are equal on all
 * ranks (R1), but for arguments that NCCL refuses on this rank alone, the capture state (R6) and the caller's region.
 */
enum slr_reason slr_gather_decide(struct slr_call *call);

/* Counts and logs the decision (one line for each distinct shape). */
void slr_gather_note(const struct slr_call *call, enum slr_reason why);

/* Begins a range for profiling tools (base/nvtx.h); what it returns goes to slr_nvtx_end. */
bool slr_gather_nvtx(const struct slr_call *call);

/* Marks where the next gather stands on its stream; the ring starts after it. */
ncclResult_t slr_gather_entry(struct slr_comm *c, CUstream stream);

/* In a group, after all entries: makes a stream wait for the entries of all streams of its communicator. */
ncclResult_t slr_gather_wait_entries(struct slr_comm *c, CUstream stream);

/* Makes stream `to` wait for what is on stream `from` now; the ring does not take part. */
ncclResult_t slr_gather_wait_stream(struct slr_comm *c, CUstream from, CUstream to);

/* Gives the call its number on the communicator, and with it whether it is verified. Once for each call, in order. */
void slr_gather_number(struct slr_call *call);

/* Moves the call to the ring, after slr_gather_entry and slr_gather_number. `defer`: leave it pending for a GEMM to
 * consume, else join at once for the reason `why`. */
ncclResult_t slr_gather_ring(const struct slr_call *call, bool defer, enum slr_reason why);

#endif
