/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that one thread alone works on (product.h).
 *
 * Something is written before its stream has come to the call that writes it. All that stands on the stream has been
 * seen to, but for what another thread puts there between the GEMM and the call: it may have passed the gate before the
 * GEMM, and come to the driver behind it. What it uses there can be free by the time of the call, and be what is
 * written, as a framework's allocator knows of that thread's stream order, and the gate does not.
 *
 * So the gate is kept open from the first time on that a stream is asked for, all who pass it are seen, and the stream
 * is one thread's until another one puts anything on it, or on a default stream, in whatever context; then it is
 * nobody's for good, and does not keep the gate open. Who has passed the closed gate shows nowhere; before something is
 * early, EARLIER calls have come and gone, with the GEMMs between them. A thread that is held up for so long between two
 * instructions, as by a debugger, and then works on that stream, is not served.
 *
 * Of a stream for which nothing is asked any more, as NCCL has been chosen, the gate is closed again, and all is
 * forgotten. */
#include <pthread.h>
#include "base/real.h"
#include "cache/handles.h"
#include "plugin/comm/call.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/stream.h"
#include "plugin/produce/product.h"
#include "plugin/produce/product_parts.h"

enum { STREAMS = 8, EARLIER = 2, UNASKED = 1 << 16 };

struct solo {
    CUstream stream;    /* as slr_stream_name() calls it */
    const void *thread; /* NULL: several */
    unsigned calls;     /* that have asked */
    unsigned unasked;   /* operations since the latest */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* innermost */
static struct solo solos[STREAMS];
static unsigned known;
static _Atomic unsigned alone; /* of these, with one thread */

static _Thread_local char self __attribute__((tls_model("initial-exec"))); /* its address is the thread's */

/* Under the lock. */
static void count_alone(int change)
{
    atomic_fetch_add(&alone, (unsigned)change);
    atomic_fetch_add(&slr_gate_word, (unsigned)change);
}

/* Under the lock: the calling thread works on it. */
static void work_on(struct solo *s)
{
    if (!s->thread || s->thread == &self)
        return;
    s->thread = NULL;
    count_alone(-1);
}

/* Default streams make others wait, and wait for them. */
static bool ordered(CUstream a, CUstream b)
{
    return a == b || slr_stream_is_default(a) || slr_stream_is_default(b);
}

void slr_solo_note(CUstream stream)
{
    if (atomic_load_explicit(&alone, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < known; i++)
        if (ordered(solos[i].stream, stream))
            work_on(&solos[i]);
    for (unsigned i = 0; i < known; i++)
        if (solos[i].thread && ++solos[i].unasked > UNASKED) {
            solos[i] = solos[--known];
            count_alone(-1);
        }
    pthread_mutex_unlock(&lock);
}

/* Under the lock. NULL: there are too many. */
static struct solo *solo_of(CUstream stream)
{
    for (unsigned i = 0; i < known; i++)
        if (solos[i].stream == stream)
            return &solos[i];
    if (known == STREAMS)
        return NULL;
    solos[known] = (struct solo){.stream = stream, .thread = &self};
    count_alone(1);
    return &solos[known++];
}

bool slr_solo(CUstream stream)
{
    pthread_mutex_lock(&lock);
    struct solo *s = solo_of(stream);
    if (s) {
        work_on(s);
        s->unasked = 0;
    }
    const bool is = s && s->thread && ++s->calls > EARLIER;
    pthread_mutex_unlock(&lock);
    return is;
}

/* A peer's GEMM could use the result's memory, and sends some parts before others are computed. */
static bool peers_reach(const struct slr_call *call)
{
    return slr_memory_given((CUdeviceptr)(uintptr_t)call->recv, call->bytes) ||
           slr_shared_any_in_one_process(&call->comm->shared);
}

bool slr_product_unused(const struct slr_product *p, const struct slr_call *call, uint64_t joins)
{
    const uintptr_t recv = (uintptr_t)call->recv;
    const struct slr_extent written = {recv, recv + call->bytes};
    if (call->send == call->recv)
        return true;
    const bool stood_before = p->joins == joins && !p->allocated;
    const bool unused = stood_before && !peers_reach(call) && !slr_ranges_meet(&p->used, written);
    return unused && slr_solo(p->stream) && slr_solo(slr_stream_name(call->stream, false));
}
