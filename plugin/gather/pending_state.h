/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator keeps of its pending gather (pending.h), and how its own operations join it.
 *
 * What the table of pending gathers says of a communicator changes with both locks held (the
 * communicator's and the table's, pending_impl.h), so it may be read with either; the carriers
 * change with the table lock alone.
 */
#ifndef SLR_PLUGIN_GATHER_PENDING_STATE_H
#define SLR_PLUGIN_GATHER_PENDING_STATE_H

#include "kernels/gemm.h"
#include "plugin/comm/comm.h"

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
};

struct slr_pending {
    bool active;
    uint64_t serial; /* of all that were pending in this process: names this one */
    struct slr_gather gather;
    size_t slot; /* for which gather.plan was made */
    struct slr_holder holder[SLR_HOLDERS];
    unsigned holders;
    bool followed;         /* there are or were followers */
    bool carried;          /* an event was to be recorded on the origin: the ring is carrying */
    _Atomic bool shown;    /* the host may have seen its end, and nothing was joined; under the table lock alone */
    _Atomic bool read;     /* a GEMM that consumes it is being enqueued: fuse.c */
    struct slr_gemm aside; /* while some holder has that: gemm_aside.h */
    CUevent carrier[SLR_CARRIERS];
    unsigned carriers;
    uint64_t unseen;       /* the count of pending_events.c for which `carrier` holds */
    struct slr_comm *next; /* in the list of pending communicators */
};

/* Under the communicator's lock: joins all holders (no-op when not pending). The communicator's
 * context need not be current. */
void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who);

/* Without locks, in a group end. The gather's group has the communicator's operations on `stream`,
 * too, so what is put there later has to see it: makes the stream a holder, a partner of the
 * origin, or joins the gather. Does nothing when it is not pending. */
void slr_pending_share(struct slr_comm *c, CUstream stream);

#endif
