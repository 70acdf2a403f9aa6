/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator of the stand-in NCCL and what its parts share. */
#ifndef SOFTGPU_NCCL_COMM_H
#define SOFTGPU_NCCL_COMM_H

#include "block.h"
#include "tuner_use.h"
#include "../blas/driver_table.h"

#include <pthread.h>

struct job;
struct capture; /* one that goes on, or has ended */
struct capture_order {
    struct capture *captures;
    CUevent serial; /* the communicator's latest work, in a graph or not; NULL: nothing was ever captured */
    CUstream live;  /* where work outside of graphs meets it */
};

struct ncclComm {
    struct ncclComm *next; /* in the list of live communicators */
    int refs;              /* of that list, of calls under way and of launched kernels; under the list's lock */
    int rank, nranks, device, blocking;
    int max_ctas; /* as configured; 0: not */
    CUcontext ctx;
    struct block block;
    struct comm_tuner tuner;
    _Atomic int async; /* ncclResult_t: ncclInProgress while it is made or `later` is not 0, else the first error */
    _Atomic int abort; /* ends waits and running kernels */
    _Atomic int revoked, finalized, suspended;
    _Atomic uint32_t connected; /* kinds of collectives: connect.c */
    uint64_t derivations;       /* calls of split and shrink so far */
    _Atomic uint64_t derived;   /* how many of them are over */
    uint64_t grows;             /* calls of grow so far */
    uint64_t windows;           /* the same for registrations of windows */
    _Atomic uint64_t windows_met;

    pthread_mutex_t launch_lock; /* from drawing a place in the order to the launch; taken before `lock` */
    pthread_mutex_t lock;        /* the fields below */
    pthread_cond_t changed;
    uint64_t issued, done; /* kernels queued and finished; they run in the order in which they were queued */
    int running;
    int in_graphs;                 /* captured kernels whose graphs are still there */
    int made;                      /* the job that makes it is over */
    int error;                     /* ncclResult_t, the first */
    int later;                     /* groups that go on by themselves (later.c), of those that it is not blocking for */
    struct later *group;           /* one of them */
    _Atomic int unjoined, joining; /* whose thread nobody has joined yet; threads that do so now */

    struct capture_order order; /* captured.c; under launch_lock */

    struct profiler *profiler; /* profiler.h; NULL: none */
};

/* Logs as NCCL does (NCCL_DEBUG=WARN), keeps the text for ncclGetLastError, and returns `code`. */
ncclResult_t nccl_warn(ncclResult_t code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for wrong use, which the driver's report names as well. */
ncclResult_t nccl_misuse(ncclResult_t code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The communicator if it is a live one, with a reference, else NULL. */
struct ncclComm *comm_get(ncclComm_t comm);
void comm_put(struct ncclComm *comm);
/* As comm_get, and fails unless operations may be started on it. */
ncclResult_t comm_get_ready(ncclComm_t comm, const char *who, struct ncclComm **out);

/* A new communicator in the list, state ncclInProgress, on the calling thread's device. */
ncclResult_t comm_new(struct ncclComm **out, int nranks, int rank, const ncclConfig_t *config);
/* Meets the other ranks and checks what NCCL checks; `abort` ends it. */
ncclResult_t comm_connect(struct ncclComm *comm, const struct block_id *id, const _Atomic int *abort);
/* Records the end of making the job's communicator: the caller has one that was made from another only now, and none
 * after an error, but one that it may ask for that. */
void comm_made(const struct job *job);
/* An error of what runs; the first one stays. */
void comm_failed(struct ncclComm *comm, ncclResult_t rc);
void comm_remove(struct ncclComm *comm, enum rank_state how);
/* Waits until all launched kernels have ended, unless the communicator failed. */
void comm_drain(struct ncclComm *comm);
/* Ends whatever waits or runs on the communicator and drops it. */
void comm_abort(struct ncclComm *comm);
ncclResult_t comm_check_config(const ncclConfig_t *config);

/* ---- groups (group.c) ---- */

/* Work that may meet other ranks on the host (init, split): in a group all of it runs at the same time. */
struct job {
    struct job *next;
    ncclResult_t (*run)(struct job *job);
    void (*turn_over)(const struct job *job); /* the next of its kind may go on; also for one that never runs */
    struct ncclComm *comm;                    /* a reference */
    struct ncclComm *tells; /* whose blocking decides, and whose state tells: `comm` or `parent`; NULL: it blocks */
    ncclComm_t *user;       /* where the caller wants the handle */
    struct block_id id;
    struct ncclComm *parent; /* a reference, or NULL */
    int color, key, shrink;
    unsigned char *excluded; /* per rank of the parent */
    uint64_t seq;
    void *buff; /* a window */
    size_t size;
    ncclWindow_t *win;
    ncclResult_t rc;
    pthread_t thread;
};
ncclResult_t group_submit_job(struct job *job);

/* The jobs of a group, all of which meet, and then its operations. Takes both over. */
ncclResult_t group_run(struct job *jobs, struct op *ops);

/* ---- later.c: what goes on when the call has returned, as communicators are not blocking ----
 *
 * As NCCL does it: the group as it is, on a thread of its own. Its communicators' state is ncclInProgress until all of
 * it is over, and meanwhile only ncclCommGetAsyncError and ncclCommAbort may be called on them. Who first sees that it
 * is over joins the thread; NCCL's code for that is not for two threads at once, which is reported as misuse. Streams
 * have the work when the state says so, and no sooner: SOFTGPU_NCCL_LATER_US later than the call. */

/* The communicator by which a group's kind is known; ncclInvalidArgument: the group is of the other kind. */
ncclResult_t group_is_of(const struct ncclComm *comm);
ncclResult_t later_start(struct job *jobs, struct op *ops);
/* The same for one function on a communicator, which is passed a reference to it. */
ncclResult_t later_call(struct ncclComm *comm, ncclResult_t (*what)(struct ncclComm *comm));
/* Ends all that goes on for the communicator, and waits for that. */
void later_abort(struct ncclComm *comm);
/* The state of the communicator; joins what is over. */
ncclResult_t later_ask(struct ncclComm *comm);

/* For jobs in which the ranks of `parent` meet (derive.c). Several of them in one group have a thread each, and are
 * taken in the order of their calls, on all ranks: `over` counts those that are over. */
void job_wait_for_turn(const struct job *job, _Atomic uint64_t *over);
/* Waits until `word` of `rank` has reached this call's number. */
ncclResult_t job_wait_for_rank(struct job *job, int rank, _Atomic uint64_t *word);

/* Whether all of a range (or nothing) is in one buffer that is registered with the communicator. */
int registered_with(const struct ncclComm *comm, const void *p, size_t bytes);
/* Forgets what is registered with the communicator; returns how many windows that were. */
int registrations_drop(const struct ncclComm *comm);

/* One collective or point-to-point call. */
enum op_kind {
    OP_ALL_GATHER,
    OP_ALL_REDUCE,
    OP_BROADCAST,
    OP_REDUCE,
    OP_REDUCE_SCATTER,
    OP_GATHER,
    OP_SCATTER,
    OP_ALL_TO_ALL,
    OP_SEND,
    OP_RECV,
};
struct op {
    struct op *next;
    enum op_kind kind;
    struct ncclComm *comm; /* a reference */
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t redop;
    int root; /* or peer */
    CUstream stream;
    int algo, proto, channels; /* tuner_use.h; set at the launch */
    void *call_event;          /* profiler.h */
};
/* Takes over `op` by copy; launches it now or at the end of the group. */
ncclResult_t group_submit_op(const struct op *op);
/* An error inside a group makes the whole group fail. */
ncclResult_t group_note_error(ncclResult_t rc);

/* ---- connecting (connect.c) ---- */

/* Tells the peers of all communicators of these operations that this rank has come to them. */
void connect_announce(const struct op *ops);
/* Waits until all ranks of `comm` have announced these operations. The thread's context is the communicator's. */
ncclResult_t connect_meet(struct ncclComm *comm, const struct op *ops);

/* ---- launching and running (plan.c, exchange.c, reduce.c) ---- */

/* Launches the operations of one communicator as one kernel. Takes over the list. */
ncclResult_t plan_launch(struct ncclComm *comm, struct op *ops);
double op_link_bytes(const struct op *op);
void op_extents(const struct op *op, size_t *send_bytes, size_t *recv_bytes);
void ops_free(struct op *ops);
size_t type_bytes(ncclDataType_t type);

/* ---- launches and graphs (captured.c) ---- */

struct captured { /* the capture that a launch is part of; graph NULL: none */
    CUgraph graph;
    cuuint64_t id;
    CUstream stream; /* of the communicator's own; set by capture_order_before */
};
CUresult captured_on(CUstream stream, struct captured *c);
/* Around a launch on `stream`, with launch_lock: it follows the communicator's earlier work, and later work follows it. */
int captures_are_ordered(void); /* NCCL_GRAPH_MIXING_SUPPORT; read at each call */
CUresult capture_order_before(struct ncclComm *comm, struct captured *c, CUstream stream);
CUresult capture_order_after(struct ncclComm *comm, const struct captured *c, CUstream stream);
void capture_order_end(struct ncclComm *comm);
/* `to` waits for what is on `from` now. */
CUresult stream_after(CUstream to, CUstream from);
/* `gone` is called when nothing of the graph can run any more, on a thread that must not call CUDA. */
CUresult captured_keep(const struct captured *c, void (*gone)(void *arg), void *arg);
/* Waits until no graph holds a kernel of the communicator. */
void comm_wait_for_graphs(struct ncclComm *comm, const char *call);

/* Runs the operations on the calling thread; `data` 0: only meet the peers, do not touch the buffers. */
ncclResult_t exchange_run(struct ncclComm *comm, const struct op *ops, int data);

/* dst = srcs[0] op srcs[1] ... in this order; dst may be one of the sources. */
void reduce_block(ncclDataType_t type, ncclRedOp_t op, const void *const *srcs, int nsrcs, void *dst, size_t count);

#endif
