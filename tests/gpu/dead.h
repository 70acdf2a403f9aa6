/* SPDX-License-Identifier: Apache-2.0 */
/* What dead.c, which strikes, and dead_rank.c, a rank, share: one page for each case, mapped by both.
 *
 * The parent fills `plan` before it starts the ranks. Each rank writes its own mark and outcome; the parent writes
 * struck_us just before the signal and resumed just before SIGCONT, and reads the outcomes when the ranks have ended.
 * Plain words and polling: a rank that dies holds up nobody.
 */
#ifndef TESTS_GPU_DEAD_H
#define TESTS_GPU_DEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEAD_RANKS = 2, DEAD_SLOTS = 4 };

/* Where the victim is when the signal comes. */
enum dead_when {
    DEAD_BEFORE,  /* before its call; the other one calls afterwards */
    DEAD_WAITING, /* the other one has called and waits for its shard */
    DEAD_BUSY,    /* its calls are queued or being queued: a random moment from its first call on */
    DEAD_AFTER,   /* its own gathers are complete; the other one still works with what it has gathered */
};

struct dead_load {
    size_t m, k, columns; /* C (m x 2 columns) = A (m x k) * gathered (k x 2 columns), column-major, bf16; a shard is k
                             x columns */
    int rounds, slots;    /* gathers, each with data of its own; so many at a time */
    bool gemm;
    int more;      /* GEMMs that the survivor queues behind those of each round */
    int window_us; /* DEAD_BUSY: the signal comes within this time of the first call */
};

struct dead_plan {
    enum dead_when when;
    struct dead_load load;
    int signal, victim;
    bool blind;         /* the survivor never asks for the communicator's error */
    bool abort_stopped; /* the survivor aborts while the victim is stopped */
    bool untold;        /* NCCL may have moved what was in flight, and tells nothing */
    bool alone;         /* the survivor has no second thread */
    unsigned seed;
};

enum { DEAD_NOT_TOLD = -1 };

struct dead_outcome {
    int right, wrong;  /* rounds whose event was complete before any abort: all bytes right, or not */
    int64_t told_us;   /* from the signal to the first error that NCCL's interface told, or DEAD_NOT_TOLD */
    bool told_by_call; /* as the result of ncclAllGather, or of a GEMM that hung */
    bool complete;     /* the stream was complete when the communicator was aborted or destroyed */
    bool all_complete; /* so were all rounds */
    int64_t end_us;    /* how long ncclCommAbort took; 0: it was destroyed */
    bool drained;      /* the stream was idle in time after that */
    bool freed;        /* its thread did not come back from a call until another one had aborted */
    bool ended;        /* the rank got to its end */
    char trouble[160]; /* a call that failed, or a wait that did not end */
};

enum { DEAD_READY = 1, DEAD_CALLED, DEAD_ENDED }; /* marks; they only grow */

struct dead_page {
    struct dead_plan plan;
    _Atomic uint32_t id_there;
    char id[128]; /* ncclUniqueId, by rank 0 */
    _Atomic uint32_t mark[DEAD_RANKS];
    _Atomic uint32_t at; /* the victim is where it is to be struck */
    _Atomic int64_t struck_us;
    _Atomic uint32_t resumed;
    struct dead_outcome outcome[DEAD_RANKS];
};

/* Microseconds of CLOCK_MONOTONIC, the same for all processes. */
int64_t dead_now(void);
void dead_sleep(int64_t us);

/* Plays one rank; the exit status. */
int dead_rank(struct dead_page *page, int rank);

#endif
