/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: what takes calls to the device, and what streams owe to them: a ring, its latest gather while that is
 * pending, the order of the calls over several streams, and the lock of all this. A communicator has one, in which its
 * calls run (lifecycle/whole.c). Each of its captures has another one, whose calls are put into the graph that is
 * captured (record/capture_lane.c). Gathers are pending in either, joined, carried by events and consumed by GEMMs, by the
 * same code; what has to differ is the lane's kind.
 *
 * The lock (docs/locks.md; a communicator's lock is that of its own lane) is held over all use of the ring by gathers,
 * joins and fused GEMMs, and, with the table lock (pending/pending_state.h), over changes of `pending`. */
#ifndef SLR_PLUGIN_COMM_LANE_H
#define SLR_PLUGIN_COMM_LANE_H

#include <pthread.h>
#include <stdbool.h>
#include "kernels/ring.h"

struct slr_comm;
struct slr_gemm;
struct slr_lane;
struct slr_member;
struct slr_order;
struct slr_pending;

/* What a GEMM that consumes the pending gather came to. */
enum slr_fusing {
    SLR_FUSING_DONE,       /* it has consumed it in parts; `stream`: there */
    SLR_FUSING_OVERWRITES, /* it can be in parts, but that it writes where the shard is that this rank sends */
    SLR_FUSING_REFUSED     /* cuBLAS did not take its first part */
};

/* Under the lane's lock. */
struct slr_lane_kind {
    bool runs; /* what is put on its streams runs; else it is captured: then it has no order with default streams */
    void (*failed)(struct slr_lane *lane, enum slr_status status, const char *what);
    /* While something captures: whether what is put on `stream` goes where the lane's work goes: then it may become a
     * follower. */
    bool (*takes)(const struct slr_lane *lane, CUstream stream);
    /* How many parts the GEMM is to have that consumes the gather, as its A or its B; 1: it stays whole; 0: by the
     * pace. */
    uint32_t (*parts)(const struct slr_lane *lane, const struct slr_member *m, const struct slr_gemm *gemm, bool on_a);
    /* The ring is turned to the gather (slr_pending_turn_to). */
    void (*fusing)(struct slr_lane *lane, const struct slr_member *m, enum slr_fusing what, CUstream stream);
};

struct slr_lane {
    pthread_mutex_t lock;
    const struct slr_lane_kind *kind;
    struct slr_comm *comm; /* whose calls it has */
    struct slr_pending *pending;
    struct slr_order *order;
    struct slr_ring ring;
};

/* Ends a use of its communicator (comm.h), with which it stays. NULL: nothing. */
void slr_lane_put(struct slr_lane *lane);

static inline void slr_lane_lock(struct slr_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
}

static inline void slr_lane_unlock(struct slr_lane *lane)
{
    pthread_mutex_unlock(&lane->lock);
}

static inline bool slr_lane_trylock(struct slr_lane *lane)
{
    return pthread_mutex_trylock(&lane->lock) == 0;
}

/* The same for who can do without: whoever holds it longer than a moment may wait in the driver for what
 * this thread is to do next. False: it was not to be had. */
bool slr_lane_lock_soon(struct slr_lane *lane);

#endif
