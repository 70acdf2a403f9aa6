/* The inside of pending gathers, for plugin/ only: see pending.h. */
#ifndef SLR_PLUGIN_PENDING_IMPL_H
#define SLR_PLUGIN_PENDING_IMPL_H

#include "plugin/comm.h"
#include "plugin/pending.h"

/* The pending lock: held over every use of a ring by gathers, joins and fused GEMMs. */
void slr_pending_lock(void);
void slr_pending_unlock(void);

/* All that follow: under the lock. `stream` is a name that slr_stream_name() returned. */

/* The ring has enqueued c->pending.gather. */
void slr_pending_add(struct slr_comm *c);

/* Joins all holders (no-op when not pending). The communicator's context need not be current. */
void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who);

/* Which holders an operation on `stream` leaves alone, although it could observe them. */
enum slr_spare {
    SLR_SPARE_NONE,
    SLR_SPARE_OWN,   /* `stream` as a holder of the one gather `of` */
    SLR_SPARE_HANDED /* `stream` as a holder that is not the origin, of any gather */
};

/* Joins the holders that an operation on `stream` could observe, but the spared ones. */
void slr_pending_join_observed(CUstream stream, enum slr_spare spare, const struct slr_comm *of, enum slr_reason why,
                               const char *who);

/* `stream` as a holder of the gather, NULL: it is none. */
struct slr_holder *slr_pending_holder(struct slr_comm *c, CUstream stream);

/* Makes `stream` a holder. There must be room. */
void slr_pending_hold(struct slr_comm *c, CUstream stream, bool origin);

/* The holder was joined by somebody else's enqueues: a GEMM that consumed the gather. */
void slr_pending_consumed(struct slr_comm *c, CUstream stream);

/* The first pending communicator, then along pending.next. */
struct slr_comm *slr_pending_first(void);

/* One name for each stream: NULL for the legacy default stream, CU_STREAM_PER_THREAD for the thread's. */
CUstream slr_stream_name(CUstream stream, bool per_thread);
bool slr_stream_is_default(CUstream stream);

#endif
