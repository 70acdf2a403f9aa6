/* SPDX-License-Identifier: Apache-2.0 */
/* One rank plays its operations of a plan, and compares what it sees.
 *
 * Where a rank goes away (plan->fate), a second thread of each other rank does what the watchdog of a framework does:
 * it asks ncclCommGetAsyncError, and when that tells, or nothing moves any more, it calls ncclCommAbort. What a stream
 * has completed before that call (and before a call of NCCL has returned an error) has to be right, byte for byte; what
 * comes after is not looked at.
 *
 * NCCL's abort returns when no graph holds a call of the communicator. So the executable graphs are destroyed before;
 * one that still runs ends when it has, and as other communicators' calls may stand before it on its stream, a rank
 * that captures aborts all of its communicators at once.
 */
#ifndef TESTS_FUZZ_PLAY_H
#define TESTS_FUZZ_PLAY_H

#include <cublasLt.h>
#include <cuda.h>
#include <pthread.h>

#include "../order/forms.h"
#include "plan.h"
#include "ways.h"

/* What all processes of one program share. */
struct board {
    ncclUniqueId id;
    _Atomic int id_made, gone;    /* the victim is dead or frozen */
    _Atomic int aborted;          /* a rank has aborted, which may fail the communicators of the others */
    _Atomic int frozen, rests_ms; /* what a rank that stops itself says before */
    _Atomic int at[RANKS];        /* the operation that the rank is in, for a report */
};

struct looked {
    const struct op *op;
    uint8_t *got;
    cudaEvent_t event; /* behind the copy */
    bool good;         /* complete before anybody was told; then compared in the end */
    bool compared;
};

struct player {
    struct plan *plan;
    struct board *board;
    int rank;
    ncclComm_t comm[COMMS];
    cudaStream_t stream[STREAMS];
    cudaEvent_t event[EVENTS];
    uint8_t *buffer[BUFFERS], *source[SOURCES];
    const struct way *of[BUFFERS]; /* who has allocated the buffer */
    cublasHandle_t blas, worker;
    cublasLtHandle_t lt;
    pthread_mutex_t turn_lock;
    pthread_cond_t turn_comes;
    int turn; /* so many of the rank's operations have been played, by either thread; under the lock */
    pthread_mutex_t launched_lock;
    cudaGraphExec_t *launched; /* until the end, or the abort */
    int nlaunched, capturing;  /* a stream; -1 */
    CUgraph graph;             /* of the conditional node whose body is being captured, with its handle */
    CUgraphConditionalHandle handle;
    uint8_t *words; /* device memory, of which each graph has four bytes */
    int ngraphs;
    uint8_t *pinned;
    struct looked *looked;
    _Atomic int nlooked;

    /* of the rank that stays when another one goes */
    _Atomic unsigned in_nccl;          /* odd: this rank's thread is within a call of NCCL */
    _Atomic unsigned in_gemm;          /* odd: within a GEMM */
    pthread_mutex_t comm_lock;         /* comm[] is being asked, or leaves */
    bool saw_error;                    /* under comm_lock: a communicator that has left had an error before */
    _Atomic bool told, aborting, done; /* a call has returned an error; ncclCommAbort is called; all is played */
    int slowest_abort_ms;
};

/* On the device of the rank. */
void player_open(struct player *p);
void player_play(struct player *p);
void player_close(struct player *p);

/* Nobody has been told of a failure, and nobody has aborted. */
bool player_trusts(const struct player *p);
/* The copy's bytes are what the plan says. */
void player_compare(struct player *p, struct looked *l);
/* A call has returned an error, which it may when a rank has died or aborted; then nothing more is played. */
void player_told(struct player *p, const char *call, const char *error);

/* ---- play_graph.c ---- */

void player_capture(struct player *p, const struct op *op);
void player_capture_end(struct player *p, const struct op *op);
/* Destroys the executable graphs. */
void player_drop_graphs(struct player *p);

/* ---- play_ways.c ---- */

/* How the operation reaches CUDA, and the stream that it names then. */
const struct way *player_way(const struct op *op);
const struct way *player_second(void); /* the library's; NULL before its first use */
cudaStream_t player_stream(const struct player *p, const struct op *op);
/* The cuBLAS handle of a GEMM, with its stream and workspace. */
cublasHandle_t player_handle(struct player *p, const struct op *op);

/* ---- play_narrow.c ---- */

/* A GEMM of 8-bit floats. */
cublasStatus_t narrow_status(struct player *p, const struct op *op);

/* ---- play_watch.c ---- */

/* A communicator of this rank has an error, or had one when it was aborted. */
bool player_sees_error(struct player *p);
/* Plays while the thread described above watches. */
void player_play_watched(struct player *p);
/* Ends the communicators, by ncclCommDestroy or, when a rank is gone, ncclCommAbort. */
void player_leave(struct player *p);

int64_t now_ms(void);

#endif
