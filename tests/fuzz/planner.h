/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: the draws, and what is known of order. */
#ifndef TESTS_FUZZ_PLANNER_H
#define TESTS_FUZZ_PLANNER_H

#include "plan.h"

/* Actors of a rank: its streams, its host thread, and its communicators, which keep their calls in order. */
enum { HOST = STREAMS, COMM, ACTORS = COMM + COMMS };

/* Of each stream, the number of the last operation that is known to come before. */
struct seen {
    int of[STREAMS];
};

struct use {
    struct seen wrote, read;
    int64_t k, columns; /* what lies at the buffer's start: a matrix of small integers; 0: not known */
    int stream;         /* which brought it */
};

/* The second cuBLAS handle. */
struct worker {
    int stream;
    struct place at;
    size_t bytes; /* 0: it has no workspace */
};

struct known {
    struct worker worker;
    int sent, received; /* buffers of the last call */
    struct seen seen[ACTORS], event[EVENTS];
    struct seen
        graphs[COMMS]; /* what the last launch of a graph with calls of the communicator came after, and itself */
    int issued[STREAMS];
    struct use use[BUFFERS];
};

struct planner {
    struct plan *plan;
    int step;
    uint64_t key, uniform_n, own_n[RANKS], extra_n[RANKS];
    int as[RANKS]; /* all operations are of this thread, 1 or 2; 0: each of its own */
    int captured;  /* how what is put down now is recorded: 0 not, 1 to be launched, 2 to be thrown away */
    struct known known[RANKS];
};

/* Below n: equal for all ranks; a rank's own. */
uint64_t uniform(struct planner *p, uint64_t n);
uint64_t draw(struct planner *p, int rank, uint64_t n);
#define ONE_IN(p, rank, n) (draw(p, rank, n) == 0)
/* A rank's own, beside its other draws: what is drawn so leaves programs without it as they are. */
uint64_t extra(struct planner *p, int rank, uint64_t n);
int any_stream(struct planner *p, int rank);
bool has(const struct planner *p, enum kind kind);

/* The next operation of the plan; valid until the next one is put down. */
struct op *put_down(struct planner *p, enum op_kind kind, int rank, int stream);

/* ---- plan_order.c ---- */

void seen_join(struct seen *a, const struct seen *b);
/* The actor is about to read or write the buffer: puts down the edges that are missing. `also` (or NULL) comes before
 * it anyway. */
void need(struct planner *p, int rank, int actor, const struct seen *also, int buffer, bool write);
/* The actor is to come after all this. */
void need_all(struct planner *p, int rank, int actor, const struct seen *all);
/* An operation on the stream reads `from` and writes `to` (-1: nothing). */
void issued(struct planner *p, int rank, int stream, int from, int to);
/* The same in two parts, for calls of a group. */
void begin(struct planner *p, int rank, int stream);
void uses(struct planner *p, int rank, int stream, int from, int to);
/* The last operation of the stream also writes the buffer. */
void also_writes(struct planner *p, int rank, int stream, int buffer);
/* Some operation on streams and events alone. */
void order_step(struct planner *p, int rank);
void sync_stream(struct planner *p, int rank, int stream);
/* The stream rests for a moment. */
void hold_stream(struct planner *p, int rank, int stream);

/* ---- plan_local.c ---- */

/* n bytes at `off` are taken from the source. */
void fill(struct planner *p, int rank, int stream, struct place to, size_t bytes, enum source source);
void look(struct planner *p, int rank, int buffer);
void multiply(struct planner *p, int rank, int buffer);
void local_step(struct planner *p, int rank);

/* ---- plan_ways.c ---- */

void draw_ways(struct planner *p);
/* The thread that makes the call, and how it does. */
void choose_way(struct planner *p, struct op *op);
/* What is put down until the end is of the thread of that stream. */
void one_thread_begin(struct planner *p, int rank, int stream);
void one_thread_end(struct planner *p, int rank);

/* ---- plan_scratch.c ---- */

/* With a workspace, perhaps, for a GEMM that is about to be put down; then for one that has been. */
void scratch_before(struct planner *p, int rank, int stream, int from, int to, struct gemm *g);
void scratch_behind(struct planner *p, int rank, int stream, const struct gemm *g);

/* ---- plan_calls.c ---- */

/* A call on the way into the plan. */
struct draft {
    int number; /* in plan->calls */
    size_t elem;
    int64_t k, columns; /* a gather of a matrix; 0: any bytes */
    enum source sent;   /* SOURCE_NOISE: any bytes */
    struct place from[RANKS], to[RANKS];
    int stream[RANKS];
};
struct call *call_of(struct planner *p, const struct draft *d);
int new_call(struct plan *plan);
/* Each rank makes n calls of a group by one thread. */
void by_one_thread(struct planner *p, struct draft *d, int n);
/* The edges that n calls of a group need, with a rank's part of them; the calls of all ranks; what is known behind
 * them. */
void make_edges(struct planner *p, int rank, const struct draft *d, int n);
void put_calls(struct planner *p, const struct draft *d, int n, bool grouped);
void note_calls(struct planner *p, int rank, const struct draft *d, int n);

/* A call of the communicator; each rank's part of the calls of a step. */
/* ncclAvg where it is exact, of so many ranks as a power of two; else ncclSum. */
ncclRedOp_t exact_average(const struct planner *p, int comm);
void draw_call(struct planner *p, struct draft *d, int comm);
void draw_parts(struct planner *p, struct draft *d, int n);
/* Poison, and what is sent: the latter behind the former of all calls of a group. */
void prepare(struct planner *p, int rank, const struct draft *d);
void prepare_matrix(struct planner *p, int rank, const struct draft *d);
void put_call(struct planner *p, int rank, const struct draft *d);
/* What may come behind it. */
void behind_call(struct planner *p, int rank, const struct draft *d);

/* How often it is run makes a difference: of the sum of a buffer into itself, on some rank. */
bool adds_up(struct planner *p, const struct draft *d);

void calls_step(struct planner *p);
/* The victim's fate may come now: at the beginning of a step, before its part in a call, or after it. */
enum moment { AT_START, BEFORE_CALL, AFTER_CALL, MOMENTS };
void fate_moment(struct planner *p, enum moment moment);

/* ---- plan_capture.c ---- */

void capture_step(struct planner *p);

/* ---- plan_product.c ---- */

/* A GEMM of one of the program's few shapes on each rank, and the reduce-scatter or all-reduce of what it makes: as
 * always, or with something in between, or otherwise. */
void product_step(struct planner *p);

/* ---- plan_narrow.c ---- */

/* A gather of 8-bit floats of one of the program's few shapes, and a GEMM of it on each rank. */
void narrow_step(struct planner *p);

#endif
