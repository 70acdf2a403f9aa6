/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm/stream.h"

#include <stdatomic.h>
#include "cache/captures.h"

/* How many streams have been destroyed. What was learnt before the last one is not trusted. */
static _Atomic unsigned ended;

/* The streams that this thread has asked for most lately; a call looks at one or two of them. */
enum { KNOWN = 4 };
static _Thread_local struct known {
    CUstream stream;
    unsigned ended;
    struct slr_stream_facts facts;
} known[KNOWN];
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
    atomic_fetch_add(&ended, 1);
}

static struct slr_stream_facts ask(CUstream stream)
{
    struct slr_stream_facts facts = {.blocking = true};
    unsigned flags = 0;
    if (!slr_real.cuStreamGetCtx || slr_real.cuStreamGetCtx(stream, &facts.ctx) != CUDA_SUCCESS)
        facts.ctx = NULL;
    if (slr_real.cuStreamGetFlags && slr_real.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS)
        facts.blocking = !(flags & CU_STREAM_NON_BLOCKING);
    return facts;
}

/* A capture does not survive these questions (seen with driver 580). Nothing on the legacy default
 * stream goes with a capture, and whoever captures has the stream's context current. */
static struct slr_stream_facts of_capture(void)
{
    struct slr_stream_facts facts = {.blocking = true};
    if (slr_real.cuCtxGetCurrent(&facts.ctx) != CUDA_SUCCESS)
        facts.ctx = NULL;
    return facts;
}

struct slr_stream_facts slr_stream_facts(CUstream stream)
{
    unsigned now = atomic_load(&ended); /* before the driver is asked */
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
