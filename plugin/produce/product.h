/* SPDX-License-Identifier: Apache-2.0 */
/* Products: outputs of GEMMs that a reduce-scatter is expected to send, computed in parts with an event
 * behind each (produce.h). The reduce-scatter may take the parts as they complete, in the stead of all
 * that stands before its call, only if nothing can have touched the output in between.
 *
 * A product is *live* from before the GEMM's first part is enqueued, as other threads may put something
 * between the parts, to the first of these:
 *
 *   taken     by the reduce-scatter of its communicator that sends it, on the GEMM's stream, or on the
 *             one that follows it
 *   dropped   anything else is put on any stream of the device by this process, or may have been. What
 *             could change the output, or depend on it, has to be put on a stream first; where it is
 *             and what it does is not looked at.
 *
 * But these do not drop it:
 *
 *   an event is recorded    the first few on its stream, behind all parts, are remembered
 *   a stream waits for one  of those: that stream follows the product, the first one. `before` is
 *                           recorded on it first: behind that the stream waits for the product only.
 *                           For any other event: if the stream is the product's or follows it, the
 *                           product is late
 *   memory is allocated     or given back in a stream's order: nothing is written
 *
 * Of a *late* product the parts may be sent as they complete, but the call's result may only be written
 * behind all that stands before the call, as with what the stream waits for somebody may have ended to
 * use that memory. That is also what slipring itself or the driver has it wait for: gathers that the GEMM,
 * or the wait, has overtaken; memory that others had, and that is handed out to the stream behind them.
 *
 * The legacy default stream makes streams wait, too: all that are not non-blocking come behind what it
 * waits for, and it comes behind what they wait for. So waits and records there are waits of such streams,
 * and waits of such streams are its own.
 *
 * What is done in other contexts, or by other processes, does not drop the product, and could change the
 * output: so what would make it late does drop it once there has been any such thing (`foreign`). Events
 * that other processes may record are not remembered.
 *
 * Events that may have been recorded unseen (graphs, launches with events among their attributes) are
 * recorded by operations, which drop it anyway.
 *
 * Threads: gates are passed by any thread. The list and each product's `live`, follower and events are
 * changed under a lock of this file's, innermost, never held over a call of the driver; what else is in
 * a product is its communicator's, under that lock (docs/locks.md). */
#ifndef SLR_PLUGIN_PRODUCE_PRODUCT_H
#define SLR_PLUGIN_PRODUCE_PRODUCT_H

#include "kernels/gemm_block.h"
#include "kernels/ring_scatter.h"
#include "plugin/comm/comm.h"

#define SLR_PRODUCT_PARTS 256
#define SLR_PRODUCT_CARRIERS 4

struct slr_product {
    struct slr_comm *comm;
    uint64_t key; /* produce.h */
    CUcontext ctx;
    CUstream stream; /* as slr_stream_name() calls it */
    CUdeviceptr c;
    size_t bytes, elem;
    struct slr_extent uses[SLR_GEMM_USES]; /* of the GEMM */
    bool blocking;                         /* the stream, or what follows it: not non-blocking */
    unsigned parts;
    struct slr_scatter_part part[SLR_PRODUCT_PARTS];
    CUevent event[SLR_PRODUCT_PARTS]; /* NULL: not made yet */
    CUevent before;                   /* likewise; in a capture: what stood before the GEMM */
    /* Measures the parts, for slr_timeline_scatter(); NULL: nothing does. In a capture it is the product's. */
    struct slr_timing *timing;
    unsigned long long capture; /* captured.h: in which it is expected; 0: it is not */
    CUgraphNode last;           /* and the node of its last part */
    /* Under the list's lock. */
    bool live, making, late, foreign; /* making: its parts are being enqueued */
    CUstream follower;
    bool follows; /* there is one */
    CUevent carrier[SLR_PRODUCT_CARRIERS];
    unsigned carriers;
    struct slr_product *next;
};

/* Under the communicator's lock: its product, to be filled in, which is not live any more; NULL: no
 * memory. */
struct slr_product *slr_product_of(struct slr_comm *c);

/* Likewise; `p` has been filled in, and its parts are about to be enqueued. late: its stream holds a gather. And:
 * they have been, or (not good) not all of them: an operation, which drops what else is live in its
 * context. */
void slr_product_begin(struct slr_product *p, bool late);
void slr_product_made(struct slr_product *p, bool good);

/* Under the communicator's lock: the product of a reduce-scatter of `bytes` from `send` on `stream`;
 * NULL: none that is live. It is not live any more, and stays as it is until the lock is given up.
 * *before: slr_scatter.before. Of one that is late the caller sees to that. */
struct slr_product *slr_product_take(struct slr_comm *c, CUdeviceptr send, size_t bytes, CUstream stream,
                                     CUevent *before);

/* Something is live. One load: for who has to find out more before it calls what follows. */
bool slr_product_any(void);

/* An operation that is none of the exceptions, in that context. Cheap when nothing is live. Without
 * locks, as all that follow. */
void slr_product_operation(CUcontext ctx);

/* The same, from a gate: on a stream, or (per_thread: 0 is the thread's default stream) all. */
void slr_product_on_stream(CUstream stream, bool per_thread);
void slr_product_on_all(void);

/* Memory is about to be allocated or given back in a stream's order. */
void slr_product_memory(void);

/* An event is about to be recorded on a stream (flags: and it must not be remembered); a stream to wait
 * for one (held: and it holds a gather; shared: other processes may record it); one to be destroyed, or
 * to be recorded by others, too. */
void slr_product_record(CUevent event, CUstream stream, bool per_thread, unsigned flags);
void slr_product_wait(CUstream stream, CUevent event, bool per_thread, unsigned flags, bool held, bool shared);
void slr_product_event_end(CUevent event);

/* The communicator ends; its context is current unless that has gone. */
void slr_product_close(struct slr_comm *c, bool gone);

#endif
