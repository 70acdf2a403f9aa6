/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of pending gathers, for this folder only: see pending.h; the order of all locks:
 * docs/locks.md.
 *
 * Two locks, so that no thread of a rank waits for another rank's thread:
 *
 *   a communicator's lock   Held over every use of its ring: gathers, joins, fused GEMMs, and so
 *                           over driver and cuBLAS calls, which may wait for the device. Only
 *                           threads that work for this rank take it: those whose operation is on
 *                           one of its streams or in its context.
 *   the table lock          Held over changes of who is pending, and of holders and carriers, for
 *                           all communicators. For moments, never over a call of the driver or of a
 *                           library; taken inside of a communicator's lock.
 */
#ifndef SLR_PLUGIN_GATHER_PENDING_IMPL_H
#define SLR_PLUGIN_GATHER_PENDING_IMPL_H

#include "plugin/comm/stream.h"
#include "plugin/gather/pending.h"
#include "plugin/gather/pending_state.h"

void slr_table_lock(void);
void slr_table_unlock(void);

/* A pending communicator for which `match` says yes, held: slr_comm_put() ends that. NULL: none.
 * `match` is called under the table lock. */
struct slr_comm *slr_pending_find(bool (*match)(struct slr_comm *c, void *ctx), void *ctx);

/* An operation that is about to be put on a stream. */
struct slr_operation {
    CUstream stream;           /* as slr_stream_name() calls it */
    const struct slr_comm *of; /* `stream` as a holder of this one's gather need not be joined; or NULL */
    /* Whether it may overtake the gather on `stream` (pending.h). Under the table lock. Or NULL. */
    bool (*overtakes)(const struct slr_comm *c, const void *what);
    const void *what;
    bool waits_for_nothing; /* of what overtakes: so events may be recorded behind it, by the carrier */
    /* Of what overtakes: the communicator whose operation it is. Events behind it may come after it on
     * the carrier of that one's gather (pending.h). Or NULL. */
    const struct slr_comm *among;
    enum slr_reason why; /* of joins, for the log */
    const char *who;
    const struct slr_gemm *gemm; /* that it is, described if it can be; or NULL */
    const char *attribute;       /* of a GEMM, what keeps it whole; or NULL */
};

/* Under the communicator's lock. A holder of its gather is about to be made to wait. Counts that, and
 * writes a line for each reason, shape and GEMM (note.c). */
void slr_note_join(const struct slr_comm *c, enum slr_reason why, const struct slr_operation *op);

/* Likewise: the operation overtakes the gather. Writes a line if it is a GEMM, which was to consume it
 * perhaps, and reads something else. */
void slr_note_overtaken(const struct slr_comm *c, const struct slr_operation *op);

/* Without any of the locks. Joins the holders that the operation could observe, but for those that
 * it overtakes. */
void slr_pending_join_observed(const struct slr_operation *op);

/* Whether an operation on the stream may observe any gather. One load. */
bool slr_pending_may_observe(CUstream stream);

/* Whether slr_pending_join_observed() would join any, or mark any as overtaken. */
bool slr_pending_observed(const struct slr_operation *op);

/* With either lock. `stream` as a holder of the gather, NULL: it is none. */
struct slr_holder *slr_pending_holder(struct slr_comm *c, CUstream stream);

/* Under the communicator's lock, all that follow. `stream` is a name that slr_stream_name()
 * returned. */

/* The ring has enqueued c->pending->gather. */
void slr_pending_add(struct slr_comm *c);

/* Makes `stream` a follower. There must be room. */
void slr_pending_follow(struct slr_comm *c, CUstream stream);

/* The GEMM, called on a holder, has been enqueued aside: what the holder is joined with now. Not while another one is. */
void slr_pending_aside(struct slr_comm *c, CUstream stream, const struct slr_gemm *gemm);
bool slr_pending_has_aside(const struct slr_comm *c);

/* The holder was joined by somebody else's enqueues: a GEMM that consumed the gather. */
void slr_pending_consumed(struct slr_comm *c, CUstream stream);

#endif
