/* SPDX-License-Identifier: Apache-2.0 */
/* A random program of all ranks, planned as a whole from the seed before anything runs: who calls what, on which
 * stream, and which bytes everybody must see. Each rank plays its own operations (play.c), as a process or as a thread.
 *
 * What is planned (plan.c) is drawn step by step, each step from the seed and its own number, a rank's own part also
 * from the rank. So a step can be left out without changing what the others draw.
 *
 * No races, by construction (plan_order.c): the planner follows what CUDA and NCCL promise about order and adds the
 * events and waits that are missing. NCCL promises that the calls of one communicator run in the order of the calls,
 * on whatever streams; the planner relies on it, so two such calls on two streams often have no event between them.
 *
 * Expected bytes (plan_host.c) come from running the plan in its order on host memory. A plan without races has only
 * one result, and its order is one of those that are allowed.
 *
 * No deadlock: whatever an operation or a host waits for stands earlier in the plan.
 */
#ifndef TESTS_FUZZ_PLAN_H
#define TESTS_FUZZ_PLAN_H

#include "../programs/fuse.h"

enum { RANKS = 4, STREAMS = 3, EVENTS = 5, COMMS = 2, MOST_GROUP = 3 };
/* Nobody writes into the last three after the beginning: a matrix of the plan's type, one of 8-bit floats, and factors. */
enum { DATA = 5, OUTS = 2, WEIGHT = DATA + OUTS, NARROW, FACTORS, BUFFERS };
enum { NOISE = 64 << 10 }; /* a fill begins at most so far behind the start of its source */

/* What a program may contain; --kinds chooses. */
#define KINDS(X)                                                                                                       \
    X(threads, "the ranks are threads of one process, with a device each")                                             \
    X(order, "calls of one communicator on several streams, ordered by nothing but the order of the calls")            \
    X(broadcast, "ncclBroadcast")                                                                                      \
    X(reduce, "ncclAllReduce of integers, which NCCL keeps")                                                           \
    X(sendrecv, "ncclSend and ncclRecv in a group, each rank to the next one or the one after it")                     \
    X(groups, "groups of two or three calls, on one communicator or several, also of different kinds")                 \
    X(gemm, "GEMMs on what was gathered")                                                                              \
    X(capture, "captures that are thrown away, on one rank, some or all")                                              \
    X(replay, "collectives that all ranks record into a graph, and launch")                                            \
    X(stop, "SIGSTOP for a while, between two calls or when a stream gets there")                                      \
    X(freeze, "SIGSTOP of a rank for ever; the others abort")                                                          \
    X(kill, "SIGKILL of a rank; the others abort when they are told")                                                  \
    X(scatter, "ncclReduceScatter, of any buffers and of what GEMMs have just made")                                   \
    X(fp8, "GEMMs of 8-bit floats that were gathered as bytes, with factors or without")                               \
    X(ptds, "two threads of a rank in turn, each with its per-thread default stream")                                  \
    X(workspace, "cuBLAS handles with a workspace in the program's buffers")                                           \
    X(deepbind, "operations by a second library, opened with RTLD_DEEPBIND, that calls the driver itself")             \
    X(conditional, "graphs whose collectives are in bodies of conditional nodes: IF, WHILE, SWITCH")                   \
    X(sums, "ncclAllReduce of floats, of any buffers and of what GEMMs have just made")

enum kind {
#define X(name, text) KIND_##name,
    KINDS(X)
#undef X
        KIND_COUNT
};

enum fate { LIVES, FREEZES, DIES };

enum op_kind {
    OP_GATHER,
    OP_BROADCAST,
    OP_REDUCE,
    OP_SCATTER,
    OP_SENDRECV,
    OP_GROUP_START,
    OP_GROUP_END,
    OP_COPY,
    OP_SET,
    OP_FILL,
    OP_GEMM,
    OP_LOOK, /* a copy to the host, which is compared */
    OP_RECORD,
    OP_WAIT,
    OP_QUERY,
    OP_SYNC_EVENT,
    OP_SYNC_STREAM,
    OP_SYNC_DEVICE,
    OP_HOLD,  /* the stream rests */
    OP_REST,  /* the host does */
    OP_RENEW, /* cudaFree and cudaMalloc of a buffer's size */
    OP_CAPTURE,
    OP_CAPTURE_END,
    OP_STOP,
    OP_FREEZE,
    OP_KILL
};

/* How a call reaches CUDA: by the runtime, with the stream's handle; by its functions for per-thread default streams,
 * with none; by the second library. */
enum by { BY_RUNTIME, BY_PTSZ, BY_BOUND, WAYS };

struct place {
    int buffer;
    size_t off;
};

/* What is done with the second cuBLAS handle before a GEMM of it: given a workspace; nothing; given a stream, which
 * takes the workspace away; destroyed and made. */
enum handle { HANDLE_PLAIN, HANDLE_SETS, HANDLE_KEEPS, HANDLE_RESETS, HANDLE_NEW };

/* C (m x n, fp32 or bf16) = W' X for an X of `inner` rows, or X' W. Sums: W' X' for an X of `inner` columns, or X W. */
struct gemm {
    bool x_is_b, sums;
    bool c_bf16; /* where the plan's type is that */
    int64_t m, n, inner;
    enum { WIDE, NO_FACTORS, BY_TENSOR, BY_ROW } narrow; /* but for WIDE X and W are of 8 bits, W is NARROW's */
    bool x_e5m2, w_e5m2;                                 /* else e4m3 */
    struct place factors;                                /* of X; those of W are FACTORS' first */
    enum handle handle;                                  /* p->blas but for HANDLE_PLAIN; of WIDE alone */
    struct place scratch;                                /* the workspace, which the GEMM may write */
    size_t scratch_bytes;                                /* 0: none */
};

/* What OP_FILL takes its bytes from: any bytes, small integers of the plan's type, small multiples of a half in either
 * type of 8 bits, powers of two in fp32, small integers in fp16. */
enum source { SOURCE_NOISE, SOURCE_INTEGERS, SOURCE_NARROW, SOURCE_FACTORS, SOURCE_HALVES, SOURCES };

/* The conditional node of which a body is recorded, instead of a graph. IF with two bodies runs the second one for 0. */
struct branch {
    enum { NO_BRANCH, BRANCH_IF, BRANCH_WHILE, BRANCH_SWITCH, BRANCHES } kind;
    int bodies, body; /* how many; which one is recorded */
    int value;        /* of the handle; of WHILE how often the body runs */
};

/* One operation of one rank. */
struct op {
    enum op_kind kind;
    int step, rank;
    int thread; /* of the rank, which makes the call: 0 or 1 */
    enum by by;
    int stream; /* -1: the host's own doing */
    int event;
    int call; /* of collectives: in plan->calls; of captures: how often the graph is launched */
    struct place from, to;
    size_t bytes;
    int value; /* of OP_SET; microseconds of OP_HOLD; milliseconds of OP_REST and OP_STOP; of OP_FILL: enum
                * source */
    struct gemm gemm;
    struct branch branch; /* of OP_CAPTURE and OP_CAPTURE_END */
    bool thrown;          /* recorded into a graph that never runs */
    bool captured;        /* recorded into a graph; those that run do so at its OP_CAPTURE_END */
    uint8_t *expected;    /* of OP_LOOK */
    uint8_t *any;         /* the same: bytes that are not 0 here may be anything; NULL: there are none */
};

/* What is equal in all ranks' operations of a call. */
struct call {
    enum op_kind kind;
    int comm;
    size_t count, bytes; /* elements; bytes of a rank's part (of a reduce-scatter, of what it receives) */
    ncclDataType_t type;
    ncclRedOp_t redop;
    int root, shift;
    bool alone; /* in no group with calls of other kinds: slipring may substitute it */
    int op[RANKS];
};

/* The ranks of a communicator, by colour as of ncclCommSplit. */
struct team {
    int colour[RANKS], rank[RANKS], size;
};

struct plan {
    uint64_t seed;
    unsigned kinds;
    bool threads;
    bool two_threads;      /* of a rank: their per-thread default streams are its first two streams */
    bool conditional;      /* NCCL puts no events into graphs, which bodies of conditional nodes do not take */
    int bound_from[RANKS]; /* the step from which on a rank has the second library; 0: never */
    int nranks, nstreams, ncomms, steps;
    bool blocking[RANKS][STREAMS];
    enum api type; /* elements of matrices: API_EX_BF16 or API_S */
    size_t elem, shard, size[BUFFERS];
    struct team team[COMMS];
    enum fate fate;
    int victim, fate_step, fate_op; /* fate_op: the operation by which the victim goes; -1: none */
    struct op *ops;
    int nops, room;
    struct call *calls;
    int ncalls, calls_room;
};

struct plan_options {
    uint64_t seed;
    unsigned kinds;
    int steps;
    const char *without; /* steps that are left out: "3,4,17" */
};

/* ---- plan.c ---- */
void plan_make(struct plan *plan, const struct plan_options *o);
void plan_free(struct plan *plan);

/* What a rank sends in the call. */
size_t sent_bytes(const struct plan *plan, const struct call *c);
/* A reduce-scatter or an all-reduce. */
bool is_sum(const struct call *c);
bool is_float(ncclDataType_t type);
/* Of matrices. */
ncclDataType_t plan_type(const struct plan *plan);
size_t gemm_c_bytes(const struct gemm *g);

/* The global rank of the i-th rank in the team of `rank`. */
int team_member(const struct plan *plan, int comm, int rank, int i);

/* ---- plan_text.c ---- */
void op_text(const struct plan *plan, const struct op *op, char *text, size_t room);

/* ---- plan_host.c ---- */

size_t source_bytes(const struct plan *plan);
void source_make(const struct plan *plan, int rank, enum source source, uint8_t *to);

/* The value of an 8-bit float. */
float narrow_value(bool e5m2, uint8_t byte);

/* Runs the plan on host memory: fills in `expected` of the looks of `rank`, or of all for -1. */
void plan_expect(struct plan *plan, int rank);

#endif
