/* SPDX-License-Identifier: Apache-2.0 */
/* The application's streams: one name for each, and what the driver tells of them. */
#ifndef SLR_PLUGIN_COMM_STREAM_H
#define SLR_PLUGIN_COMM_STREAM_H

#include <stdbool.h>
#include "base/real.h"
#include "base/status.h"

/* One name for each stream: NULL for the legacy default stream, CU_STREAM_PER_THREAD for the
 * thread's. `per_thread`: a NULL stream means the latter, as with the _ptsz and _ptds entry
 * points. */
static inline CUstream slr_stream_name(CUstream stream, bool per_thread)
{
    if (stream == CU_STREAM_LEGACY)
        return NULL;
    return !stream && per_thread ? CU_STREAM_PER_THREAD : stream;
}

static inline bool slr_stream_is_default(CUstream stream)
{
    return !stream || stream == CU_STREAM_PER_THREAD;
}

/* Which stream a name means, of the streams of one context: equal exactly when two calls, also of two
 * threads, mean the same one. A name alone does not say that: each thread's default stream has the
 * one name, and means another stream to the driver when another thread calls. So a name is kept only
 * for calls of the same thread, or of a stream that is no thread's default; what is compared across
 * threads, or longer, is this. A thread's number is never used again; a handle is, so whoever keeps
 * its id forgets it when the stream is destroyed. */
typedef uint64_t slr_stream_id;

#define SLR_NO_STREAM ((slr_stream_id)1) /* that of none */

slr_stream_id slr_stream_own_id(void); /* of the calling thread's default stream */

static inline slr_stream_id slr_stream_id_of(CUstream name)
{
    return name == CU_STREAM_PER_THREAD ? slr_stream_own_id() : (uintptr_t)name;
}

/* ---- contexts ----
 *
 * All that slipring makes (streams, events, the code that adds, mappings) is of the device's primary context, which NCCL,
 * too, makes current in each call. With a stream of another one CUDA lets it do (cuda.h):
 *
 *   wait for an event of the ring's      yes, of any context or device: so any stream can be joined, and have a GEMM in
 *                                        parts behind it
 *   record one                           no: event and stream have to be of one context
 *   copies, words, sums                  they are only ever on the ring's own streams; memory is the device's, whichever
 *                                        context has allocated it
 *   a GEMM aside (kernels/gemm.h)        it would be on a stream of the ring's: so not from a stream of a green context,
 *                                        to which the program has given multiprocessors of its own
 *
 * A context's home is what its streams are compared by. A green context is its device's primary one with other
 * multiprocessors, and cuStreamGetCtx_v2 names that one: it is the home, if the driver records its events on streams of
 * the green one. cuda.h leaves that open (cuGreenCtxRecordEvent: yes), so it is tried, once. Then such a stream is as any
 * of the primary context's: gathers on it stay pending, events carry them, GEMMs consume them, in captures as well. Any
 * other context is its own home.
 *
 * On a stream that is not at home there a call that is the ring's is made on its visitor, a stream of the ring's
 * (gather/gather.h): an event of the stream's own context is recorded on that, and the visitor waits for it; behind the call
 * the visitor is joined at once, and the stream waits for it. Order alone differs, so no peer has to know (R1). The visitor
 * has calls of one communicator in their order, and what stood before each on its stream: NCCL would wait for the same.
 * By the visitor an operation of NCCL's, or a graph's launch, on such a stream is noted, too (pending/order.h). A capture
 * there stays with NCCL: this rank passes it alone.
 *
 * A default stream, given to a call while another context is current: to NCCL it is the primary context's, and so to the
 * program behind the call, as NCCL leaves that one current; slipring leaves the program's context as it was. So both
 * come before the call, and behind it, by the visitor. Whether a green context's default stream waits for the primary
 * one's streams CUDA does not say: an operation there joins as if it did.
 *
 * What waits for all of a context, or records it (gate.def: ALL, CONTEXT, GREEN): of the primary one the driver waits for
 * the ring's streams, and for its green ones. Of a green one it does not, so what is pending in the home is joined first,
 * and there is always something behind what a stream of it waits for (slr_ring_stand).
 * Of any other context nothing is pending. */

/* NULL: it can not be told. */
CUcontext slr_context_home(CUcontext ctx);
CUcontext slr_context_home_of_green(CUgreenCtx green);
CUcontext slr_context_now(void); /* of the calling thread's current context */
CUcontext slr_context_home_of_current(CUcontext current);

/* ---- streams ---- */

/* What the driver tells of a stream that is no default stream: asked once, as it does not change. */
struct slr_stream_facts {
    CUcontext ctx; /* the home of the context that it belongs to; NULL: it can not be told */
    CUcontext own; /* that context */
    bool blocking; /* it synchronises with the legacy default stream; also when that can not be told */
};

/* All these call the driver: without the table lock. */
struct slr_stream_facts slr_stream_facts(CUstream stream);

/* The default streams exist in each context: such a handle means that of the current one, and not of its home. */
CUcontext slr_stream_context(CUstream stream);

/* The context of a stream that has another home than `ctx`, a primary one; of a default stream the current context, if it
 * is another. NULL: it is none, or that can not be told. */
CUcontext slr_stream_find_away(CUstream stream, CUcontext ctx);

/* The stream of which that was NULL last, in this thread. */
extern _Thread_local struct slr_at_home {
    CUstream stream;
    CUcontext ctx;
    unsigned ended; /* slr_streams_ended then */
} slr_at_home __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* How many streams have been destroyed. What was learnt before the last one is not trusted. */
extern _Atomic unsigned slr_streams_ended __attribute__((visibility("hidden")));

static inline CUcontext slr_stream_away(CUstream stream, CUcontext ctx)
{
    const struct slr_at_home *h = &slr_at_home;
    return h->stream == stream && h->ctx == ctx && h->ended == atomic_load(&slr_streams_ended)
               ? NULL
               : slr_stream_find_away(stream, ctx);
}

/* Of a green context, whose home is `primary`. A default stream is none. */
bool slr_stream_find_green(CUstream stream, CUcontext primary);

extern _Atomic bool slr_any_green __attribute__((visibility("hidden"))); /* this process has had one */

static inline bool slr_stream_is_green(CUstream stream, CUcontext primary)
{
    return __builtin_expect(atomic_load_explicit(&slr_any_green, memory_order_relaxed), 0) &&
           slr_stream_find_green(stream, primary);
}

/* A stream, or a context with its streams, is about to be destroyed: others may get the handles. */
void slr_stream_ends(void);

/* Events that another process has, or had, a handle of, and can record. Until it is destroyed. */
void slr_event_share(CUevent event);
bool slr_event_is_shared(CUevent event);
void slr_event_ends(CUevent event);

/* A driver call of the program's that could notice or change what slipring has put on streams, as the
 * gate decodes it (interpose/gate.def) before the driver makes it: once, for all that listen. These are,
 * in this order, products (produce/product.h) and pending gathers (pending/pending.h). */

enum slr_act {
    SLR_ACT_NONE,      /* nothing that anybody could notice */
    SLR_ACT_OPERATION, /* put on `stream`, ordered against it, or asked of it */
    SLR_ACT_RECORD,    /* `event` on `stream`, with `flags` */
    SLR_ACT_WAIT,      /* of `stream` for `event`, with `flags` */
    SLR_ACT_EVENT_END, /* `event` is destroyed, or another process can record it from now on */
    SLR_ACT_ALLOC,     /* in the stream's order */
    SLR_ACT_FREE,      /* likewise: what begins at `memory` */
    SLR_ACT_QUERY,     /* whether `stream` is ready */
    SLR_ACT_NEXT,      /* what the next operation on `stream` would come behind, if it captures */
    SLR_ACT_HOST       /* the host, or the whole device, observes; of a blocking copy, `end` */
};

struct slr_observed {
    enum slr_act act;
    CUstream stream; /* as slr_stream_name() calls it */
    CUevent event;
    unsigned flags;
    CUcontext ctx;    /* that all of is observed; NULL: */
    CUgreenCtx green; /* this one; NULL: the current one */
    CUdeviceptr memory;
    CUdeviceptr end[2]; /* where device memory is copied to and from; 0: no such copy, or the host's memory */
    size_t bytes;       /* of an operation that copies so many, and does nothing else; 0: another one */
    bool unseen;        /* events may be recorded by it that are not told here */
    enum slr_reason why;
    const char *who; /* for the log */
};

#endif
