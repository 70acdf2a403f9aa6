/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of pending gathers (pending.h), for the folders of plugin/: what a communicator keeps of its own, and how
 * operations join it, overtake it, or consume it. The order of all locks: docs/locks.md.
 *
 * Two locks, so that no thread of a rank waits for another rank's thread:
 *
 *   a lane's lock           Held over every use of its ring: gathers, joins, fused GEMMs, and so
 *                           over driver and cuBLAS calls, which may wait for the device. Only
 *                           threads that work for this rank take it: those whose operation is on
 *                           one of its streams or in its context.
 *   the table lock          Held over changes of who is pending, and of holders and carriers, for
 *                           all communicators. For moments, never over a call of the driver or of a
 *                           library; taken inside of a lane's lock.
 *
 * What the table of pending gathers says of a communicator changes with both locks held, so it may be read with either;
 * the carriers change with the table lock alone.
 */
#ifndef SLR_PLUGIN_PENDING_PENDING_STATE_H
#define SLR_PLUGIN_PENDING_PENDING_STATE_H

#include "kernels/gemm.h"
#include "plugin/comm/lane.h"
#include "plugin/comm/stream.h"
#include "plugin/comm/comm.h"
#include "plugin/pending/pending.h"

struct slr_expect_site;

#define SLR_HOLDERS 8
#define SLR_CARRIERS 16

struct slr_holder {
    CUstream stream; /* as slr_stream_name() calls it */
    bool blocking;   /* synchronises with the legacy default stream */
    bool origin;     /* the gather was called on it */
    bool partner;    /* a group has made it a holder; neither: a follower */
    bool aside;      /* waits for the GEMM aside as well, which was called on it; under both locks */
    /* These two change under the table lock alone, as what overtakes waits for nobody. */
    _Atomic bool overtaken; /* of an origin: no event can carry the gather from there any more */
    _Atomic bool moved_on;  /* of an origin: the next event has to come after more than the carrier does */
    unsigned from;          /* the first of the gathers that it holds: it is behind those before */
};

/* One of the gathers that are pending together. */
struct slr_member {
    struct slr_gather gather;
    struct slr_expect_site *expected; /* transfer/transfer.h; or NULL */
    struct slr_trial_turn turn;
};

struct slr_pending {
    bool active;
    uint64_t serial;                        /* of all that were pending in this process: names this one */
    struct slr_member member[SLR_TOGETHER]; /* in the order in which they end; the last one is the ring's latest, the
                                             * others' arrivals it keeps at the same places */
    unsigned members;
    struct slr_plan plan; /* made the latest time, */
    size_t slot;          /* for slots of that size */
    struct slr_holder holder[SLR_HOLDERS];
    unsigned holders;
    bool followed;         /* there are or were followers */
    bool carried;          /* an event was to be recorded on the origin: the ring is carrying */
    _Atomic bool shown;    /* the host may have seen its end, and nothing was joined; under the table lock alone */
    _Atomic bool read;     /* a GEMM that consumes it is being enqueued: fuse.c */
    struct slr_gemm aside; /* while some holder has that: kernels/gemm.h */
    CUevent carrier[SLR_CARRIERS];
    unsigned carriers;
    uint64_t unseen;       /* the count of pending_events.c for which `carrier` holds */
    struct slr_lane *next; /* in the list of those with a pending gather */
};

void slr_table_lock(void);
void slr_table_unlock(void);

/* A lane with a pending gather for which `match` says yes, its communicator held: slr_lane_put() ends that. NULL: none.
 * `match` is called under the table lock. */
struct slr_lane *slr_pending_find(bool (*match)(struct slr_lane *lane, void *ctx), void *ctx);

/* slr_pending_observe() for one kind of call each. */
bool slr_pending_record(const struct slr_observed *o, CUresult *answer);
bool slr_pending_wait(const struct slr_observed *o, CUresult *answer);
void slr_pending_alloc(const struct slr_observed *o);
void slr_pending_free(const struct slr_observed *o);
void slr_pending_event_end(CUevent event);

/* An operation that is about to be put on a stream. */
struct slr_operation {
    CUstream stream;           /* as slr_stream_name() calls it */
    const struct slr_lane *of; /* `stream` as a holder of this one's gather need not be joined; or NULL */
    /* Whether it may overtake one of the gathers on `stream` (pending.h). Under the table lock. Or NULL. */
    bool (*overtakes)(const struct slr_lane *lane, const struct slr_gather *g, const void *what);
    const void *what;
    bool waits_for_nothing; /* of what overtakes: so events may be recorded behind it, by the carrier */
    /* Of what overtakes: the communicator whose operation it is. Events behind it may come after it on
     * the carrier of that one's gather (pending.h). Or NULL. */
    const struct slr_lane *among;
    enum slr_reason why; /* of joins, for the log */
    const char *who;
    const struct slr_gemm *gemm; /* that it is, described if it can be; or NULL */
    const char *attribute;       /* of a GEMM, what keeps it whole; or NULL */
};

/* Under the lane's lock. A holder is about to be made to wait for the lane's gather `g`. Counts that, and
 * writes a line for each reason, shape and GEMM (note.c). */
void slr_note_join(const struct slr_lane *lane, const struct slr_gather *g, enum slr_reason why,
                   const struct slr_operation *op);

/* Likewise: the operation overtakes the gather. Writes a line if it is a GEMM, which was to consume it
 * perhaps, and reads something else. */
void slr_note_overtaken(const struct slr_lane *lane, const struct slr_gather *g, const struct slr_operation *op);

/* Without any of the locks. Joins the holders that the operation could observe, but for those that
 * it overtakes. */
void slr_pending_join_observed(const struct slr_operation *op);

/* Whether an operation on the stream may observe any gather. One load. */
bool slr_pending_may_observe(CUstream stream);

/* Whether slr_pending_join_observed() would join any, or mark any as overtaken. */
bool slr_pending_observed(const struct slr_operation *op);

/* With either lock. `stream` as a holder of the gather, NULL: it is none. */
struct slr_holder *slr_pending_holder(struct slr_lane *lane, CUstream stream);

/* Under the lane's lock, all that follow. `stream` is a name that slr_stream_name()
 * returned. */

/* The ring has enqueued the gather. */
void slr_pending_add(struct slr_lane *lane, const struct slr_member *member);

/* Whether the next gather, on `stream`, can be pending together with what is: it is of the same group. If so, what is
 * pending makes room for it (slr_ring_keep), and when the ring has been given it (`member`; NULL: that has failed)
 * slr_pending_added() has to be called. */
bool slr_pending_goes_on(struct slr_lane *lane, CUstream stream);
void slr_pending_added(struct slr_lane *lane, const struct slr_member *member);

/* The latest one of those that are pending. With either lock. */
static inline const struct slr_gather *slr_pending_latest(const struct slr_lane *lane)
{
    return &lane->pending->member[lane->pending->members - 1].gather;
}

/* Around what is done with the ring's latest gather: of member `i` instead. */
static inline void slr_pending_turn_to(struct slr_lane *lane, unsigned i)
{
    if (i + 1 < lane->pending->members)
        slr_ring_swap(&lane->ring, i);
}

/* Makes the holder wait for the first `upto` of the gathers, fewer than there are. */
void slr_pending_join_some(struct slr_lane *lane, struct slr_holder *h, unsigned upto, enum slr_reason why,
                           const struct slr_operation *op);

/* Makes `stream` a follower. There must be room. */
void slr_pending_follow(struct slr_lane *lane, CUstream stream);

/* The GEMM, called on a holder, has been enqueued aside: what the holder is joined with now. Not while another one
 * is. */
void slr_pending_aside(struct slr_lane *lane, CUstream stream, const struct slr_gemm *gemm);
bool slr_pending_has_aside(const struct slr_lane *lane);

/* The holder was joined by somebody else's enqueues: a GEMM that consumed member `i`. */
void slr_pending_consumed(struct slr_lane *lane, CUstream stream, unsigned i);

#endif
