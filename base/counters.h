/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: relaxed atomics, summed over all threads, written to the log once at the end of the
 * process. */
#ifndef SLR_BASE_COUNTERS_H
#define SLR_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>
#include "base/collective.h"

/* Calls of a collective: seen, and the bytes of all ranks' shards; those moved to the ring; for each reason. */
struct slr_counted {
    _Atomic uint64_t calls, bytes, moved, moved_bytes;
    _Atomic uint64_t by_reason[SLR_R_COUNT];
};

struct slr_counters {
    struct slr_counted of[SLR_COLLECTIVES]; /* what became of pending gathers counts among the gathers' reasons */
    /* Shards that went to a peer in each way. */
    _Atomic uint64_t zero_copy, pushed, staged;
    _Atomic uint64_t mapped; /* blocks of peers that a communicator got access to */
    /* The handle cache (cache/handles.h): handles and descriptors made; blocks of other processes
     * opened, found open, closed. */
    _Atomic uint64_t exports, imports, import_hits, import_closes;
    _Atomic uint64_t verified, verify_bad;
    /* Reduce-scatters over the ring, behind the parts of a GEMM; GEMMs in parts, because one was expected. */
    _Atomic uint64_t scatters_fused, scatters_produced;
    _Atomic uint64_t gemms_chunks; /* GEMM calls that fusion made out of those with reason FUSED */
    /* What was measured, for the line at the end of the job. Gathers of the ring that were traced: their
     * time, and of that what the program's streams did not stand still for. Call sites whose ways rank 0
     * of a communicator has chosen by their own times, each once for each GEMM: time of a call as chosen, and by NCCL.
     * Call sites for which what the program takes has decided, and of each time that it did: calls of the communicator, and
     * what the program takes for them. */
    _Atomic uint64_t traced_ns, traced_hidden_ns;
    _Atomic uint64_t chosen, chosen_ns, chosen_nccl_ns;
    _Atomic uint64_t felt, felt_calls, felt_ns, felt_nccl_ns;
};
extern struct slr_counters slr_counters;

/* What has become of a gather that was pending. */
static inline void slr_count(enum slr_reason r)
{
    atomic_fetch_add_explicit(&slr_counters.of[SLR_ALL_GATHER].by_reason[r], 1, memory_order_relaxed);
}

/* A call, decided by `why`; bytes: of all ranks' shards. */
void slr_count_call(const struct slr_collective *kind, uint64_t bytes, enum slr_reason why);

/* What is reported: counters.def. Not one snapshot: a thread may be between two of them. */
struct slr_totals {
#define X(name, value, doc) uint64_t name;
#include "base/counters.def"
#undef X
};
void slr_counters_total(struct slr_totals *t);

/* One "summary" line, and for each collective one line per reason that occurred, at level info. Nothing when no call of
 * any was seen. */
void slr_counters_log(void);

#endif
