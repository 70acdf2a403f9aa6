/* The inside of pending gathers, for plugin/ only: see pending.h. */
#ifndef SLR_PLUGIN_PENDING_IMPL_H
#define SLR_PLUGIN_PENDING_IMPL_H

#include "plugin/comm.h"
#include "plugin/pending.h"

/* The pending lock: held over every use of a ring by gathers, joins and fused GEMMs. */
void slr_pending_lock(void);
void slr_pending_unlock(void);

/* Under the lock. The ring has enqueued c->pending.gather. */
void slr_pending_add(struct slr_comm *c);

/* Under the lock: joins (no-op when not pending). The communicator's context need not be current. */
void slr_pending_join(struct slr_comm *c, enum slr_reason why, const char *who);

/* Under the lock: the gather was consumed and joined by somebody else's enqueues. */
void slr_pending_remove(struct slr_comm *c);

/* Under the lock: the first pending communicator, then along pending.next. */
struct slr_comm *slr_pending_first(void);

/* The legacy default stream has two names. */
bool slr_stream_is_legacy(CUstream s);

#endif
