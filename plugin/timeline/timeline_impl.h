/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of measuring, for this folder: see timeline.h. */
#ifndef SLR_PLUGIN_TIMELINE_TIMELINE_IMPL_H
#define SLR_PLUGIN_TIMELINE_TIMELINE_IMPL_H

#include <pthread.h>
#include "kernels/ring.h"
#include "kernels/timing.h"
#include "plugin/timeline/timeline.h"
#include "plugin/comm/call.h"

/* SCATTER: of the ring, and its GEMM comes before it: reduce-scatters and all-reduces. */
enum slr_timed_kind { SLR_TIMED_RING, SLR_TIMED_PASS, SLR_TIMED_OTHER, SLR_TIMED_SCATTER };

/* A measured call: its stamps, and what its lines say besides. */
struct slr_timed {
    struct slr_timing timing; /* first: the ring's `timing` is that of the open record */
    struct slr_timed *next;
    enum slr_timed_kind kind;
    uint64_t number;
    enum slr_reason reason, ended;
    const char *func;                  /* SLR_TIMED_OTHER */
    const struct slr_collective *what; /* of a call of the ring's, or one of those that NCCL has */
    size_t shard, count;
    uint64_t context; /* slr_call's */
    ncclDataType_t type;
    bool in_place;
    CUstream stream;
    const void *send, *recv;
    uint32_t pieces, chunks;             /* SLR_TIMED_SCATTER: chunks are its parts */
    unsigned counted;                    /* of its events, in slr_timeline.events */
    unsigned deliveries[SLR_DELIVERIES]; /* peers that got this rank's shard in each way */
};

struct slr_timeline {
    CUdevice device;
    CUcontext ctx; /* of the device, retained */
    pthread_mutex_t lock;
    struct slr_timed *free, *closed, **closed_end; /* under `lock` */
    struct slr_timed *expected;                    /* of a product; under the communicator's lock */
    unsigned made, taken, events;

    pthread_mutex_t reading; /* held by who reads and writes lines; before `lock` */
    struct slr_device_clock clock;
    uint64_t at[SLR_TIMING_STAMPS]; /* the stamps of the record that is read, in the host's time */
    uint64_t told_error;            /* bound of the clock's error that has been written */
    bool ended;                     /* the last line has been written */
    _Atomic uint64_t sampled;       /* calls whose turn it was */
    uint64_t written, failed;       /* of those; failed: an event did, or the communicator */
    _Atomic uint64_t dropped;       /* no record was free */
};

/* Of a captured gather. What it says does not change any more when it is closed. */
struct slr_timed_capture {
    struct slr_timed timed; /* first */
    _Atomic unsigned users; /* graphs, and the lane until it is closed */
    _Atomic bool closed;
};

/* What the lines say of a call of the ring's. */
void slr_timeline_describe(struct slr_timed *m, const struct slr_call *call);
void slr_timeline_deliveries(struct slr_timed *m, const struct slr_comm *c, const struct slr_route *route);

/* One user fewer. */
void slr_timeline_leave(struct slr_timed_capture *capture);

/* The communicator's, made at its first measured call. NULL: it can not be measured; that has been said. */
struct slr_timeline *slr_timeline_of(struct slr_comm *c);

/* A record for a call, empty; NULL: none is free. When many are taken, the house-keeping thread is woken. */
struct slr_timed *slr_timeline_record(struct slr_timeline *timeline, enum slr_timed_kind kind, uint64_t number);

/* The same for a call that is being made: that is counted, and when there is none. */
struct slr_timed *slr_timeline_take(struct slr_timeline *timeline, enum slr_timed_kind kind, uint64_t number);

/* The record is complete but for the device's part. */
void slr_timeline_hand_in(struct slr_timeline *timeline, struct slr_timed *m);

/* Back to the free ones. */
void slr_timeline_give_back(struct slr_timeline *timeline, struct slr_timed *m);

/* Writes the lines of the closed records that are complete, oldest first. With `reading` held and
 * the context current. `last`: nobody looks again. */
void slr_timeline_read(struct slr_comm *c, struct slr_timeline *timeline, bool last);

/* The first line, and the last one: once each. */
void slr_timeline_say_start(const struct slr_comm *c, const struct slr_timeline *timeline);
void slr_timeline_say_end(const struct slr_comm *c, struct slr_timeline *timeline);

#endif
