/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives, and what is counted of their calls: relaxed atomics, summed over all threads,
 * written to the log once at the end of the process. */
#ifndef SLR_BASE_COUNTERS_H
#define SLR_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

enum slr_collective_id {
#define X(id, ...) SLR_##id,
#include "base/collectives.def"
#undef X
    SLR_COLLECTIVES
};

/* A row of collectives.def, which says what the columns are. */
struct slr_collective {
    enum slr_collective_id id;
    const char *op, *words, *function, *count;
    bool sends_all, gets_all, produced;
    enum slr_reason untried;
    int setting; /* enum slr_setting_id */
    enum slr_reason off;
};
extern const struct slr_collective slr_collectives[SLR_COLLECTIVES];

/* Calls of a collective: seen, and the bytes of all ranks' shards; those moved to the ring; for
 * each reason. */
struct slr_counted {
    _Atomic uint64_t calls, bytes, moved, moved_bytes;
    _Atomic uint64_t by_reason[SLR_R_COUNT];
};

struct slr_counters {
    struct slr_counted of[SLR_COLLECTIVES];     /* what became of pending gathers counts among the gathers' reasons */
    _Atomic uint64_t zero_copy, pushed, staged; /* shards that went to a peer in each way */
    _Atomic uint64_t mapped;                    /* blocks of peers that a communicator got access to */
    _Atomic uint64_t exports;                   /* of cache/handles.h: handles and descriptors made, */
    _Atomic uint64_t imports, import_hits, import_closes; /* blocks of other processes opened, found open, closed */
    _Atomic uint64_t verified, verify_bad;
    _Atomic uint64_t scatters_fused;    /* reduce-scatters and all-reduces over the ring behind the parts of a GEMM */
    _Atomic uint64_t scatters_produced; /* GEMMs in parts, because such a call was expected */
    _Atomic uint64_t gemms_chunks;      /* GEMM calls that fusion made out of those with reason FUSED */
    /* For the line at the end of the job. Gathers of the ring that were traced: their time, and of
     * that what the program's streams did not stand still for. */
    _Atomic uint64_t traced_ns, traced_hidden_ns;
    /* Call sites whose ways rank 0 of a communicator has chosen by their own times, each once for
     * each GEMM: time of a call as chosen, and by NCCL. */
    _Atomic uint64_t chosen, chosen_ns, chosen_nccl_ns;
    /* Call sites for which what the program takes has decided; and each time that it did: calls of
     * the communicator, and what the program takes for them. */
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

/* One "summary" line, and for each collective one for each reason that occurred, at level info;
 * none without calls. */
void slr_counters_log(void);

/* Called again and again by one thread, with slr_now_ms(). The same, but "totals", 10 s after the first time, 20 and
 * 40 s later, and then each minute, if there have been calls: what is known of a process that does not come to its
 * end. */
void slr_counters_tick(uint64_t now);

#endif
