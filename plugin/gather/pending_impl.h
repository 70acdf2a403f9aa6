/* The inside of pending gathers, for plugin/ only: see pending.h; the order of all locks: docs/locks.md.
 *
 * Two locks, so that no thread of a rank waits for another rank's thread:
 *
 *   a communicator's lock   held over every use of its ring: gathers, joins, fused GEMMs, and so over driver and cuBLAS
 *                           calls, which may wait for the device. Only threads that work for this rank take it: those
 *                           whose operation is on one of its streams or in its context.
 *   the table lock          who holds, carries and is pending, for all communicators. Held for moments, never over a
 *                           call of the driver or of a library; taken inside of a communicator's lock.
 *
 * What the table says of a communicator changes with both held, so it may be read with either; `carrier` changes with
 * the table lock alone.
 */
#ifndef SLR_PLUGIN_GATHER_PENDING_IMPL_H
#define SLR_PLUGIN_GATHER_PENDING_IMPL_H

#include "plugin/comm/comm.h"
#include "plugin/gather/pending.h"
#include "plugin/comm/stream.h"

#define SLR_HOLDERS 8
#define SLR_CARRIERS 16

/* A stream that counts as being behind the gather and has not been made to wait for it: see pending.h. */
struct slr_holder {
    CUstream stream; /* as slr_stream_name() calls it */
    bool blocking;   /* synchronises with the legacy default stream */
    bool origin;     /* the gather was called on it */
};

struct slr_pending {
    bool active;
    struct slr_gather gather;
    struct slr_holder holder[SLR_HOLDERS];
    unsigned holders;
    bool handed;                   /* there are or were holders beside the origin */
    CUevent carrier[SLR_CARRIERS]; /* events of the application that carry it */
    unsigned carriers;
    uint64_t unseen;       /* the count of pending_events.c for which `carrier` holds */
    struct slr_comm *next; /* in the list of pending communicators */
};

void slr_table_lock(void);
void slr_table_unlock(void);

/* A pending communicator for which `match` says yes, held: slr_comm_put() ends that. NULL: none. `match` is called
 * under the table lock. */
struct slr_comm *slr_pending_find(bool (*match)(struct slr_comm *c, void *ctx), void *ctx);

/* Under the communicator's lock, all that follow, but for those that say otherwise. `stream` is a name that
 * slr_stream_name() returned. */

/* The ring has enqueued c->pending->gather. */
void slr_pending_add(struct slr_comm *c);

/* Joins all holders (no-op when not pending). The communicator's context need not be current. */
void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who);

/* Which holders an operation on `stream` leaves alone, although it could observe them. */
enum slr_spare {
    SLR_SPARE_NONE,
    SLR_SPARE_OWN,   /* `stream` as a holder of the one gather `of` */
    SLR_SPARE_HANDED /* `stream` as a holder that is not the origin, of any gather */
};

/* Without any of the locks. Joins the holders that an operation on `stream` could observe, but the spared ones. */
void slr_pending_join_observed(CUstream stream, enum slr_spare spare, const struct slr_comm *of, enum slr_reason why,
                               const char *who);

/* With either lock. `stream` as a holder of the gather, NULL: it is none. */
struct slr_holder *slr_pending_holder(struct slr_comm *c, CUstream stream);

/* Makes `stream` a holder. There must be room. */
void slr_pending_hold(struct slr_comm *c, CUstream stream, bool origin);

/* The holder was joined by somebody else's enqueues: a GEMM that consumed the gather. */
void slr_pending_consumed(struct slr_comm *c, CUstream stream);

#endif
