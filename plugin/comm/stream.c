/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/stream.h"

#include <stdatomic.h>
#include "cache/captures.h"

_Atomic unsigned slr_streams_ended;

/* The streams that this thread has asked for most lately; a call looks at one or two of them. */
enum { KNOWN = 4 };
static _Thread_local struct known {
    CUstream stream;
    unsigned ended;
    struct slr_stream_facts facts;
} known[KNOWN] __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned latest;

/* Odd, as no handle is. A counter of its own: an address of the thread's would come again. */
slr_stream_id slr_stream_own_id(void)
{
    static _Atomic slr_stream_id last = SLR_NO_STREAM;
    static _Thread_local slr_stream_id own;
    if (own == 0)
        own = atomic_fetch_add(&last, 2) + 2;
    return own;
}

void slr_stream_ends(void)
{
    atomic_fetch_add(&slr_streams_ended, 1);
}

/* ---- contexts ---- */

/* cuda.h says that an event and the stream that it is recorded on are of the same context, and leaves open whether a green
 * one and the primary one are that. So it is tried, once, with an event of the primary one, on a stream of a green one
 * that does not capture. */
static bool shares_events(CUcontext primary, CUstream stream)
{
    static _Atomic int answer; /* 0: not tried; 1: yes; -1: no */
    CUevent event = NULL;
    CUcontext old;
    if (atomic_load(&answer) != 0 || slr_real.cuCtxPushCurrent(primary) != CUDA_SUCCESS)
        return atomic_load(&answer) > 0;
    const bool made = slr_real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    slr_real.cuCtxPopCurrent(&old); /* a default stream is the green one's */
    if (made) {
        atomic_store(&answer, slr_real.cuEventRecord(event, stream) == CUDA_SUCCESS ? 1 : -1);
        slr_real.cuEventDestroy(event);
    }
    return atomic_load(&answer) > 0;
}

_Atomic bool slr_any_green;

/* Of the stream's context `own`. */
static CUcontext home_of(CUcontext own, CUstream stream)
{
    CUcontext primary = NULL;
    CUgreenCtx green = NULL;
    if (!slr_real.cuStreamGetCtx_v2 || slr_real.cuStreamGetCtx_v2(stream, &primary, &green) != CUDA_SUCCESS || !green)
        return own;
    atomic_store(&slr_any_green, true);
    return shares_events(primary, stream) ? primary : own;
}

/* That this thread has asked for most lately, and their homes. */
static _Thread_local struct home {
    CUcontext ctx, home;
    unsigned ended;
} homes[KNOWN] __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned latest_home;

/* Its default stream stands for its streams. */
CUcontext slr_context_home_of_current(CUcontext ctx)
{
    const unsigned now = atomic_load(&slr_streams_ended);
    for (unsigned i = 0; i < KNOWN; i++)
        if (homes[i].ctx == ctx && homes[i].ended == now)
            return homes[i].home;
    if (!ctx || !slr_nothing_captures()) /* a capture may not survive the question */
        return ctx;
    struct home *h = &homes[latest_home++ % KNOWN];
    *h = (struct home){.ctx = ctx, .home = home_of(ctx, NULL), .ended = now};
    return h->home;
}

CUcontext slr_context_now(void)
{
    CUcontext ctx = NULL;
    return slr_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? slr_context_home_of_current(ctx) : NULL;
}

CUcontext slr_context_home(CUcontext ctx)
{
    CUcontext old, home = NULL;
    if (ctx && slr_real.cuCtxPushCurrent(ctx) == CUDA_SUCCESS) {
        home = slr_context_home_of_current(ctx);
        slr_real.cuCtxPopCurrent(&old);
    }
    return home;
}

CUcontext slr_context_home_of_green(CUgreenCtx green)
{
    CUcontext ctx = NULL;
    const bool is = slr_real.cuCtxFromGreenCtx && slr_real.cuCtxFromGreenCtx(&ctx, green) == CUDA_SUCCESS;
    return is ? slr_context_home(ctx) : NULL;
}

/* ---- streams ---- */

static struct slr_stream_facts ask(CUstream stream)
{
    struct slr_stream_facts facts = {.blocking = true};
    unsigned flags = 0;
    if (slr_real.cuStreamGetCtx && slr_real.cuStreamGetCtx(stream, &facts.own) == CUDA_SUCCESS)
        facts.ctx = home_of(facts.own, stream);
    if (slr_real.cuStreamGetFlags && slr_real.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS)
        facts.blocking = !(flags & CU_STREAM_NON_BLOCKING);
    return facts;
}

/* A capture does not survive these questions (seen with driver 580). Nothing on the legacy default
 * stream goes with a capture, and whoever captures has the stream's context current. */
static struct slr_stream_facts of_capture(void)
{
    struct slr_stream_facts facts = {.blocking = true};
    if (slr_real.cuCtxGetCurrent(&facts.own) == CUDA_SUCCESS)
        facts.ctx = slr_context_home_of_current(facts.own);
    return facts;
}

struct slr_stream_facts slr_stream_facts(CUstream stream)
{
    unsigned now = atomic_load(&slr_streams_ended); /* before the driver is asked */
    for (unsigned i = 0; i < KNOWN; i++)
        if (known[i].stream == stream && known[i].ended == now && known[i].facts.ctx)
            return known[i].facts;
    if (slr_stream_may_capture(stream))
        return of_capture();
    struct known *k = &known[latest++ % KNOWN];
    *k = (struct known){.stream = stream, .ended = now, .facts = ask(stream)};
    return k->facts;
}

CUcontext slr_stream_context(CUstream stream)
{
    CUcontext ctx = NULL;
    if (!slr_stream_is_default(stream))
        return slr_stream_facts(stream).ctx;
    return slr_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS ? ctx : NULL;
}

_Thread_local struct slr_at_home slr_at_home __attribute__((tls_model("initial-exec")));

CUcontext slr_stream_find_away(CUstream stream, CUcontext ctx)
{
    const unsigned now = atomic_load(&slr_streams_ended);
    const CUstream name = slr_stream_name(stream, false);
    struct slr_stream_facts facts;
    if (slr_stream_is_default(name))
        facts.own = facts.ctx = slr_stream_context(name);
    else
        facts = slr_stream_facts(stream);
    if (facts.ctx == ctx && !slr_stream_is_default(name) &&
        slr_nothing_captures()) /* else it may not be the stream's own */
        slr_at_home = (struct slr_at_home){.stream = stream, .ctx = ctx, .ended = now};
    return facts.ctx && facts.ctx != ctx ? facts.own : NULL;
}

bool slr_stream_find_green(CUstream stream, CUcontext primary)
{
    if (slr_stream_is_default(stream))
        return false;
    const struct slr_stream_facts facts = slr_stream_facts(stream);
    return facts.ctx == primary && facts.own != primary;
}

/* ---- events ---- */

enum { SHARED = 64 };
static _Atomic(CUevent) shared[SHARED];
static _Atomic bool all_shared; /* there was no room: every event counts as one */

void slr_event_share(CUevent event)
{
    if (slr_event_is_shared(event))
        return;
    for (unsigned i = 0; i < SHARED; i++) {
        CUevent none = NULL;
        if (atomic_compare_exchange_strong(&shared[i], &none, event))
            return;
    }
    atomic_store(&all_shared, true);
}

bool slr_event_is_shared(CUevent event)
{
    for (unsigned i = 0; i < SHARED; i++)
        if (atomic_load_explicit(&shared[i], memory_order_relaxed) == event)
            return true;
    return atomic_load(&all_shared);
}

void slr_event_ends(CUevent event)
{
    for (unsigned i = 0; i < SHARED; i++) {
        CUevent expected = event;
        atomic_compare_exchange_strong(&shared[i], &expected, NULL);
    }
}
