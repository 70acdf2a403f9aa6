/* The decision on one all-gather, and its way to the ring or to NCCL. */
#ifndef SLR_PLUGIN_GATHER_H
#define SLR_PLUGIN_GATHER_H

#include "plugin/comm.h"

/* One ncclAllGather call as the application made it. */
struct slr_call {
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclComm_t nccl;
    CUstream stream;
    struct slr_comm *comm; /* NULL: not tracked */
    size_t shard;          /* bytes of one rank's shard; 0 if the type is unknown or the size overflows */
    uint32_t left;         /* what this rank had left to NCCL before it: left.h */
    uint64_t number;       /* among the communicator's moved calls, from 1 */
    uint64_t passed;       /* among its calls that stay with NCCL, from 1; 0: it is none of them */
    enum slr_reason why;   /* the decision */
    bool verify;           /* moved to the ring, and one of the sample that is compared with NCCL (verify.h) */
    CUdeviceptr reference; /* NCCL's result while it is compared */
};

/* Fills comm and shard, and decides: SLR_R_RING, or why the call stays with NCCL. Uses facts that are equal on all
 * ranks (R1), but for arguments that NCCL refuses on this rank alone, the capture state (R6) and the caller's region.
 */
enum slr_reason slr_gather_decide(struct slr_call *call);

/* NCCL's data types as logs name them, and bytes of an element; "?" and 0 for an unknown one. */
const char *slr_type_name(ncclDataType_t type);
size_t slr_type_bytes(ncclDataType_t type);

/* send == recv + rank * shard. */
bool slr_gather_in_place(const struct slr_call *call);

/* Counts and logs the decision (one line for each distinct shape). */
void slr_gather_note(const struct slr_call *call, enum slr_reason why);

/* Begins a range for profiling tools (base/nvtx.h); what it returns goes to slr_nvtx_end. */
bool slr_gather_nvtx(const struct slr_call *call);

/* Marks where the call stands on its stream; the ring starts after it. */
ncclResult_t slr_gather_entry(const struct slr_call *call);

/* In a group, after all entries: makes the call's stream wait for the entries of all streams of its communicator. */
ncclResult_t slr_gather_meet(const struct slr_call *call);

/* Gives the call its number on the communicator, and with it whether it is verified. Once for each call, in order. */
void slr_gather_number(struct slr_call *call);

/* Moves the call to the ring, after slr_gather_entry and slr_gather_number. `defer`: leave it pending for a GEMM to
 * consume, else join at once for the reason `why`. */
ncclResult_t slr_gather_ring(const struct slr_call *call, bool defer, enum slr_reason why);

/* Makes stream `to` wait for what is on stream `from` now; the ring does not take part. */
ncclResult_t slr_gather_cross(struct slr_comm *comm, CUstream from, CUstream to);

/* The real call, guarded. */
ncclResult_t slr_gather_nccl(const struct slr_call *call);

#endif
