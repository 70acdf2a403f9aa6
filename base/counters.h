/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: relaxed atomics, summed over all threads, written to the log once at the end of the
 * process. */
#ifndef SLR_BASE_COUNTERS_H
#define SLR_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>
#include "base/reason.h"

struct slr_counters {
    _Atomic uint64_t gathers;     /* ncclAllGather calls seen */
    _Atomic uint64_t bytes;       /* gathered bytes of those, all ranks' shards together */
    _Atomic uint64_t substituted; /* moved to the ring */
    _Atomic uint64_t substituted_bytes;
    /* Shards that went to a peer in each way. */
    _Atomic uint64_t zero_copy, pushed, staged;
    _Atomic uint64_t mapped; /* blocks of peers that a communicator got access to */
    /* The handle cache (cache/handles.h): handles and descriptors made; blocks of other processes
     * opened, found open, closed. */
    _Atomic uint64_t exports, imports, import_hits, import_closes;
    _Atomic uint64_t verified, verify_bad;
    /* Call sites of communicators that have ended; those whose receive buffers were symmetric then;
     * how often one ceased to be. */
    _Atomic uint64_t sites, sites_symmetric, sites_broken;
    /* Reduce-scatters: seen, moved to the ring, of these behind the parts of a GEMM; GEMMs in parts,
     * because one was expected. */
    _Atomic uint64_t scatters, scatters_substituted, scatters_fused, scatters_produced;
    _Atomic uint64_t gemms_chunks; /* GEMM calls that fusion made out of `by_reason[FUSED]` ones */
    _Atomic uint64_t by_reason[SLR_R_COUNT];
    _Atomic uint64_t scatters_by_reason[SLR_R_COUNT];
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

static inline void slr_count(enum slr_reason r)
{
    atomic_fetch_add_explicit(&slr_counters.by_reason[r], 1, memory_order_relaxed);
}

/* The same of a reduce-scatter. */
static inline void slr_count_scatter(enum slr_reason r)
{
    atomic_fetch_add_explicit(&slr_counters.scatters_by_reason[r], 1, memory_order_relaxed);
}

/* What is reported: counters.def. Not one snapshot: a thread may be between two of them. */
struct slr_totals {
#define X(name, value, doc) uint64_t name;
#include "base/counters.def"
#undef X
};
void slr_counters_total(struct slr_totals *t);

/* One "summary" line, and one "count" or "scatter_count" line per reason that occurred, at level info. Nothing when no
 * gather and no reduce-scatter was seen. */
void slr_counters_log(void);

#endif
