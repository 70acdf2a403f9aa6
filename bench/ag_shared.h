/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a run share: a block of memory that is inherited over fork, or a mapped file.
 * Holds the rendezvous, a barrier, and each rank's place, error and results, so that whoever
 * watches can say where everybody is. */
#ifndef AG_SHARED_H
#define AG_SHARED_H

#include "ag_options.h"

#include <nccl.h>
#include <stdatomic.h>
#include <stdint.h>

/* X(name): where a rank is; also the names that --kill-at takes. */
#define AG_PHASES(X) X(init) X(comm) X(buffers) X(check) X(warmup) X(gemm) X(gather) X(sequence) X(whole) X(finish)

enum ag_phase {
#define X(name) AG_PHASE_##name,
    AG_PHASES(X)
#undef X
};
const char *ag_phase_name(int phase);

/* The timed loops. gemm, gather, sequence and whole are in the order of the phases. */
enum { AG_LOOPS = 4 };
enum ag_loop { AG_LOOP_GEMM, AG_LOOP_GATHER, AG_LOOP_SEQUENCE, AG_LOOP_WHOLE };

enum { AG_RUNNING = -1, AG_MAX_COMMS = 16 };

struct ag_times {
    double gpu_ms;  /* median over iterations, between two events; negative: not measured */
    double host_ms; /* wall time of the loop per iteration */
};

struct ag_record {
    atomic_int state; /* AG_RUNNING, then an ag_status */
    atomic_int phase;
    atomic_long iteration;
    int device;
    char device_name[256];
    char error[256];
    struct ag_times times[AG_LOOPS];
    uint64_t checked, wrong; /* elements */
    char first_wrong[160];
};

struct ag_shared {
    atomic_int ready; /* the file's creator has filled the block in */
    int ranks;
    atomic_int failed; /* some rank has ended badly: nobody waits for it at a barrier */
    atomic_int ids_ready;
    atomic_int arrived, generation; /* the barrier */
    atomic_int done;                /* ranks that have ended */
    ncclUniqueId ids[AG_MAX_COMMS];
    struct ag_record records[];
};

/* A block for `ranks` ranks that survives fork. NULL: out of memory. */
struct ag_shared *ag_shared_create(int ranks);

/* The block in `path`: rank 0 makes the file, the others wait for it at most `seconds`. NULL after
 * a message. */
struct ag_shared *ag_shared_meet(const char *path, int rank, int ranks, long seconds);
/* Rank 0 removes the file. */
void ag_shared_leave(const char *path, int rank);

/* Waits for all ranks. Returns 0, or -1 when some rank has failed. */
int ag_barrier(struct ag_shared *shared);

/* Ends a rank: its state becomes `status`. */
void ag_end(struct ag_shared *shared, int rank, enum ag_status status);

/* Seconds of a clock that does not jump. */
double ag_now(void);
void ag_sleep(double seconds);

#endif
