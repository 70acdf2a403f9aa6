/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a communicator's operations when they are on several streams.
 *
 * NCCL runs the operations of one communicator in the order of the calls, also when they are on
 * different streams and no event joins these. Programs rely on it: a gather on one stream, a
 * broadcast of the gathered buffer on another one. The ring is not NCCL's, so this order is made
 * here, between substituted gathers, and between them and NCCL's operations:
 *
 *   call                       its stream waits for
 *   substituted gather on S    the previous gather and its own-shard copy, if on another stream;
 *                              the latest operation of NCCL, if on another stream
 *   operation of NCCL on S     the previous gather and its own-shard copy, if on another stream
 *                              and if it is NCCL's first operation since (NCCL orders the next ones
 *                              behind that); one that overtakes the gather on S is as none
 *
 * On one and the same stream the stream's order and the joins (pending.h) do that, so a program
 * with one stream pays a few comparisons.
 *
 * What a stream has to wait for is an event behind the operation. When it is recorded:
 *
 *   with the operation   the communicator is known to use several streams, or that is open: NCCL's
 *                        first 32 operations, until a gather comes on the same stream; or it is on
 *                        a thread's default stream, which only that thread can name; or something bypasses
 *                        slipring, and could destroy the stream (base/real.h)
 *   late                 else: when the first call on another stream comes, or just before the
 *                        stream is destroyed; that call waits for more than it must, once
 *
 * Why it can not deadlock: all ranks call the operations of a communicator in one order, and each
 * waits for those before it, as NCCL's do. An event behind an operation waits for what stood on its
 * stream before, as the operation does.
 *
 * A captured operation takes no part, in either direction: it does not run now. A launch of a graph that holds
 * operations of the communicator is one: of NCCL's, or a gather (record/replay.c).
 *
 * Operations of one group have no order among themselves; group.c makes their streams wait for each
 * other.
 */
#ifndef SLR_PLUGIN_PENDING_ORDER_H
#define SLR_PLUGIN_PENDING_ORDER_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"
#include "plugin/comm/stream.h"

struct slr_comm;
struct slr_lane;

/* An operation and the event behind it. */
struct slr_ordered {
    _Atomic slr_stream_id id; /* of its stream; changed under the lane's lock */
    CUstream stream;          /* its name, while nothing is noted */
    _Atomic bool open;        /* there is one, and calls on other streams have to wait for it */
    _Atomic bool noted;       /* `behind` has been recorded behind it */
    CUevent behind;           /* NULL: not made yet */
};

struct slr_order {
    struct slr_ordered gather; /* the ring's latest; `behind` stands for its own-shard copy */
    struct slr_ordered nccl;   /* the latest operation of NCCL since then */
    bool gathered;             /* there was a gather */
    bool nccl_behind;          /* an operation of NCCL has come behind the latest gather */
    bool several;              /* more than one stream is in use */
    unsigned seen;             /* operations of NCCL before the first gather */
};

/* Around a gather that the ring moves, under the lane's lock, its context current. Anything
 * but SLR_OK: `stream` could not be made to wait. */
enum slr_status slr_order_before_gather(struct slr_lane *lane, CUstream stream);
enum slr_status slr_order_after_gather(struct slr_lane *lane, CUstream stream);

/* Of a stream of another context than the lane's: *stream becomes the ring's visitor, which stands behind what is on it now.
 * Any other stays. Under the lane's lock, its context current. */
enum slr_status slr_order_bring(struct slr_lane *lane, CUstream *stream);
enum slr_status slr_order_bring_from(struct slr_lane *lane, CUstream *stream, CUcontext ctx); /* which is its context */

/* The same around the launch of a graph with such gathers, or with operations of NCCL's (`gather`: false), on a stream
 * of another context, `ctx`, as a graph for several devices has: no event of the communicator's can be recorded there.
 * Anything but SLR_OK: it could not be ordered. */
enum slr_status slr_order_before_away(struct slr_lane *lane, CUstream stream, CUcontext ctx, bool gather);
enum slr_status slr_order_after_away(struct slr_lane *lane, CUstream stream, CUcontext ctx, bool gather);

/* Whether what is put on `stream` now comes behind the lane's latest gather anyway. Under its
 * lock. */
bool slr_order_behind_gather(const struct slr_lane *lane, CUstream stream);

/* Whether a call on `stream` has to wait for operations on others. Under the lane's lock. */
bool slr_order_elsewhere(const struct slr_lane *lane, CUstream stream);

/* Around an operation that NCCL enqueues on the stream, without locks. NULL: nothing. */
void slr_order_before_nccl(struct slr_comm *c, CUstream stream);
void slr_order_after_nccl(struct slr_comm *c, CUstream stream);

/* Before the launch of a graph that holds such operations; behind it as behind them. */
void slr_order_before_launch(struct slr_comm *c, CUstream stream);

/* Under the communicator's lock: streams may end unseen from now on (base/real.h). Records what is late. */
void slr_order_note(struct slr_comm *c);

/* The stream is about to be destroyed. Cheap. */
void slr_order_stream_end(CUstream stream);

/* The communicator ends; its context is current. */
void slr_order_close(struct slr_lane *lane);

#endif
