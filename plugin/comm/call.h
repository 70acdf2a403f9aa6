/* SPDX-License-Identifier: Apache-2.0 */
/* A call of a collective as the application made it, with what slipring has found out and decided about it. */
#ifndef SLR_PLUGIN_COMM_CALL_H
#define SLR_PLUGIN_COMM_CALL_H

#include "base/counters.h"
#include "plugin/comm/comm.h"
#include "plugin/util/consumer.h"

/* What a reduce-scatter that is compared is compared with (scatter/scatter.h), on the device. */
struct slr_compared {
    CUdeviceptr memory; /* all of it; 0: none */
    void *host;         /* the same, where the device had none */
    CUdeviceptr inputs; /* what every rank contributes, in their order, a shard each */
    CUdeviceptr sums;   /* NCCL's result */
};

struct slr_call;
struct slr_capture;

/* SLIPRING_VERIFY: a call is done by NCCL too, and compared (calls/collective.h). */
struct slr_compare {
    ncclResult_t (*prepare)(struct slr_call *call);    /* memory; ncclSuccess, or the communicator has failed */
    ncclResult_t (*nccl)(const struct slr_call *call); /* in a group of NCCL's each; what it needs besides, or NULL */
    ncclResult_t (*inputs)(const struct slr_call *call);
    ncclResult_t (*finish)(const struct slr_call *call,
                           ncclResult_t r); /* `r` != ncclSuccess: gives back what it has */
};

/* What is done with the calls of a collective, in the order of calls/collective.h; with the guard up, and under no
 * lock. NULL: nothing. */
struct slr_flow {
    const struct slr_collective *kind;
    /* Whether settings leave any to the ring. Uniform (R1), as `has`. */
    enum slr_reason (*may)(const struct slr_call *call);
    /* Of one that is large enough: types and reductions that the ring has not. Before this rank's state is looked at,
     * which is nothing to what all ranks leave to NCCL. */
    enum slr_reason (*has)(const struct slr_call *call);
    /* Which way it goes now, as far as settings leave that open: trials/trials.h. */
    enum slr_reason (*choose)(struct slr_call *call);
    /* When the ranks are connected: SLR_R_RING, or why NCCL has it. Uniform. */
    enum slr_reason (*can)(const struct slr_call *call);
    ncclResult_t (*nccl)(struct slr_call *call);
    /* Its place on its stream, from which on the ring may start, where that is not `ring`'s to find. */
    ncclResult_t (*enter)(const struct slr_call *call);
    /* When it has been numbered. `entered`: slr_gather_entry() has been called for it. */
    ncclResult_t (*ring)(const struct slr_call *call, bool entered);
    const struct slr_capture *capture; /* record/record.h */
    struct slr_compare compare;
};

/* A call of one of base/collectives.def as the application made it. Of a reduce-scatter `count` and
 * `shard` are what each rank receives. */
struct slr_call {
    const struct slr_flow *flow;
    ncclRedOp_t op;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclComm_t nccl;
    CUstream stream;
    const ncclCollConfig_t *config; /* the program's, while it makes the call; NULL: none */
    CUcontext from;             /* the stream's, where it is another one than the communicator's: slr_stream_away() */
    CUstream away;              /* if there is one, the program's, while `stream` stands for it: slr_gather_visit() */
    struct slr_comm *comm;      /* NULL: not tracked */
    size_t shard;               /* bytes of one rank's shard; 0 if the type is unknown or the size overflows */
    size_t bytes;               /* of all ranks' shards; of an all-reduce the last ones may be shorter, or empty */
    uint32_t passed_alone;      /* what this rank had left to NCCL before it: passed_alone.h */
    uint64_t number;            /* among the communicator's moved calls, from 1 */
    uint64_t passed;            /* among its calls that stay with NCCL, from 1; 0: it is none of them */
    enum slr_reason why;        /* the decision */
    int step;                   /* of a gather over hosts: hosts/hosts.h */
    unsigned beside;            /* slr_gather's */
    const CUevent *arrives;     /* in pieces, in place, when these have come (kernels/ring.h); NULL: it is there */
    bool small;                 /* of small ones */
    bool kept;                  /* for its group's end, by which the ring is given it */
    bool held;                  /* until its group's end, and outside of a region when it was called */
    bool entered;               /* this thread is in the communicator's context for it (slr_shared_work_begin) */
    struct slr_consumer made;   /* of a reduce-scatter: the GEMM that has computed what it sends; m 0: none */
    uint64_t caller;            /* who makes it: callers/callers.h; 0: not asked for, not known */
    bool measured;              /* its time counts in the trials (trials.h) */
    struct slr_trial_turn turn; /* which way it goes there */
    uint64_t context;           /* of its call site there; 0: it has none */
    uint64_t place;             /* among those that count there */
    uint64_t behind;            /* what the calls up to it were, there; 0 without trials */
    bool verify;                /* moved to the ring, and one of the sample that is compared with NCCL (verify.h) */
    CUdeviceptr reference;      /* NCCL's result while it is compared */
    /* Likewise, of a reduce-scatter. */
    struct slr_compared compared;
};

/* NCCL's in-place: both buffers are one, or the smaller is this rank's shard of the larger one. */
static inline bool slr_call_in_place(const struct slr_call *call)
{
    const bool sends_all = call->flow->kind->sends_all;
    const char *all = sends_all ? call->send : call->recv, *own = sends_all ? call->recv : call->send;
    if (sends_all && call->flow->kind->gets_all)
        return own == all;
    return call->comm && own == all + (size_t)call->comm->rank * call->shard;
}

/* ---- who watches ---- */

/* Who watches the calls of communicators without having a part in them: places (for the log), the trials' clocks,
 * the timeline, NCCL's profiler. They are told in the order in which they came to watch.
 *
 *   event      when                                                                     under
 *   begins     the ring is about to be given the call                                   A
 *   enqueued   it has been, or that has failed                                          A
 *   joined     a stream is about to wait for the gather (why), or has consumed it       B
 *   over       no stream has to wait for the gather any more                            B
 *   leaves     NCCL's function is about to be called for a call that NCCL is left       C
 *   left       it has been; of a call in a group NCCL enqueues it at the end; with ncclInProgress: and will be told
 *              once more when NCCL has put it on its stream
 *   kept       the ring is going to be given the call at its group's end
 *
 * A: the communicator's lock, its context current. B: the lane's lock. C: no lock. Always with the guard up. A captured
 * call runs when its graph is launched: of its recording only `joined` and `over` are told, of the capture's lane. */

struct slr_lane;
struct slr_place;
struct slr_route;
struct slr_timing;

/* What the ring makes of a call. */
struct slr_watched {
    const struct slr_place *send, *recv; /* where its buffers lie; NULL: not looked for */
    struct slr_timing *gemm;             /* what measures the parts that it sends; NULL: nothing does */
    /* When it has been enqueued. */
    enum slr_status status;
    CUstream end; /* a stream that is behind its end */
    uint32_t pieces, chunks;
    const struct slr_route *route; /* of a gather, by rank */
    bool joined, fused;            /* its stream waits for it already; it was sent from a GEMM's parts */
};

struct slr_watcher {
    void (*begins)(const struct slr_call *call, const struct slr_watched *w);
    void (*enqueued)(const struct slr_call *call, const struct slr_watched *w);
    void (*joined)(const struct slr_lane *lane, enum slr_reason why);
    void (*over)(struct slr_lane *lane);
    void (*leaves)(const struct slr_call *call);
    void (*left)(const struct slr_call *call, ncclResult_t r);
    void (*kept)(const struct slr_call *call);
};

#define SLR_WATCHERS 8
extern const struct slr_watcher *slr_watcher[SLR_WATCHERS + 1]; /* NULL: the end */

/* From now on; a second time is nothing. Every thread that makes a communicator comes here for all of them before it
 * makes calls, so nothing is written while calls are told. */
void slr_watch(const struct slr_watcher *watcher);

#define SLR_WATCH(event, ...)                                                                                          \
    do {                                                                                                               \
        for (const struct slr_watcher **at_ = slr_watcher; *at_; at_++)                                                \
            if ((*at_)->event)                                                                                         \
                (*at_)->event(__VA_ARGS__);                                                                            \
    } while (0)

#endif
