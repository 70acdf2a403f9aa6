/* SPDX-License-Identifier: Apache-2.0 */
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
#ifndef SLR_PLUGIN_COMM_WATCH_H
#define SLR_PLUGIN_COMM_WATCH_H

#include "base/real.h"
#include "base/reason.h"
#include "base/status.h"

struct slr_call;
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
