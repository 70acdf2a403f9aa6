/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's kernels in front of what is enqueued behind them.
 *
 * A program that sets CUDA_DEVICE_MAX_CONNECTIONS=1, as Megatron-LM does, has all its streams share one hardware queue,
 * so that work begins in the order in which it was enqueued: NCCL's kernel on one stream before the next GEMM on another
 * one, which would leave it no multiprocessor. The ring needs more queues (interpose/connections.c), and has no such
 * kernel; but what stays with NCCL would lose that order (3.7% of a step, docs/measurements.md). So events make it:
 *
 *   launch      of a kernel, by NCCL in a call that slipring has forwarded: with a launch completion event, which
 *               completes when all blocks of the kernel have begun (CUDA 12.3). The communicator is in front then.
 *   operation   the program's next one in that context ends it. If it is on another stream, that one waits for the
 *               event first. The host's waits are none: with one queue they do not stand behind the launch either.
 *
 * It can not deadlock where the program with one queue does not: the operation stands behind the launch there, too. In
 * captures nothing is made. A driver that refuses the event gets the launch as it is, and no further ones.
 *
 * Threads: any. Who is in front is changed under a lock of front.c's, innermost, never held over a call of the driver; a
 * communicator's event belongs to the thread that is in its call. */
#include "plugin/pending/pending.h"

#include <pthread.h>
#include "base/real.h"
#include "base/status.h"
#include "cache/captures.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/stream.h"

#define MOST_ATTRIBUTES 16u

static _Atomic bool on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slr_comm *list; /* those in front */
static _Atomic unsigned count;
static _Thread_local ncclComm_t in __attribute__((tls_model("initial-exec"))); /* in whose call this thread is */

void slr_front_on(void)
{
    atomic_store(&on, true);
}

void slr_front_begin(ncclComm_t comm)
{
    if (in || !atomic_load_explicit(&on, memory_order_relaxed))
        return;
    in = comm;
    atomic_fetch_add(&slr_gate_word, in != NULL); /* so launches are seen */
}

void slr_front_end(void)
{
    atomic_fetch_sub(&slr_gate_word, in != NULL);
    in = NULL;
}

/* Under the lock. */
static void put_on(struct slr_comm *c)
{
    if (c->front.is || c->front.never)
        return;
    c->front.is = true;
    c->front.next = list;
    list = c;
    atomic_fetch_add(&count, 1);
    atomic_fetch_add(&slr_gate_word, 1);
}

static void take_off(struct slr_comm *c)
{
    struct slr_comm **at = &list;
    if (!c->front.is)
        return;
    while (*at != c)
        at = &(*at)->front.next;
    *at = c->front.next;
    c->front.is = false;
    atomic_fetch_sub(&count, 1);
    atomic_fetch_sub(&slr_gate_word, 1);
}

/* ---- the launch ---- */

static bool has_events(const CUlaunchConfig *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            return true;
    return false;
}

static bool may_record(struct slr_comm *c, const CUlaunchConfig *config)
{
    CUcontext ctx = NULL;
    return slr_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx == c->shared.ctx &&
           !slr_stream_may_capture(config->hStream) &&
           (c->front.begun || SLR_CU(cuEventCreate, &c->front.begun, CU_EVENT_DISABLE_TIMING) == SLR_OK);
}

static bool launch_with(struct slr_comm *c, slr_launch_fn *launch, const struct slr_launch *l, CUresult *answer)
{
    CUlaunchAttribute attribute[MOST_ATTRIBUTES];
    CUlaunchConfig with = *l->config;
    for (unsigned i = 0; i < with.numAttrs; i++)
        attribute[i] = with.attrs[i];
    attribute[with.numAttrs++] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
                                                     .value.launchCompletionEvent.event = c->front.begun};
    with.attrs = attribute;
    *answer = launch(&with, l->function, l->params, l->extra);
    if (*answer != CUDA_SUCCESS) { /* as it is, then */
        atomic_store(&on, false);
        return false;
    }
    pthread_mutex_lock(&lock);
    c->front.stream = slr_stream_name(with.hStream, false);
    put_on(c);
    pthread_mutex_unlock(&lock);
    return true;
}

bool slr_front_launch(slr_launch_fn *launch, const struct slr_launch *l, CUresult *answer)
{
    if (!in || !atomic_load(&on) || !l->config || l->config->numAttrs >= MOST_ATTRIBUTES || has_events(l->config))
        return false;
    struct slr_comm *c = slr_comm_find(in);
    const bool done = c && may_record(c, l->config) && launch_with(c, launch, l, answer);
    slr_comm_put(c);
    return done;
}

/* ---- the operation behind it ---- */

/* One that is in front in the context, which it is not any more, held, and where; NULL: none. */
static struct slr_comm *passed(CUcontext ctx, CUstream *on_stream)
{
    pthread_mutex_lock(&lock);
    struct slr_comm *c = list;
    while (c && c->shared.ctx != ctx)
        c = c->front.next;
    if (c) {
        take_off(c);
        slr_comm_hold(c);
        *on_stream = c->front.stream;
    }
    pthread_mutex_unlock(&lock);
    return c;
}

static void wait_for(const struct slr_comm *c, CUstream stream)
{
    if (slr_shared_work_begin(&c->shared) != SLR_OK)
        return;
    /* Nobody needs it to be right. */
    (void)SLR_CU(cuStreamWaitEvent, stream, c->front.begun, 0);
    slr_shared_work_end();
}

void slr_front_operation(CUstream stream)
{
    if (atomic_load_explicit(&count, memory_order_acquire) == 0)
        return;
    const CUcontext ctx = slr_stream_context(stream);
    CUstream on_stream = NULL;
    for (struct slr_comm *c; (c = passed(ctx, &on_stream)) != NULL; slr_comm_put(c))
        if (on_stream != stream && !slr_stream_may_capture(stream))
            wait_for(c, stream);
}

/* ---- the end ---- */

void slr_front_leave(struct slr_comm *c)
{
    pthread_mutex_lock(&lock);
    take_off(c);
    c->front.never = true;
    pthread_mutex_unlock(&lock);
}

void slr_front_close(struct slr_comm *c, bool gone)
{
    slr_front_leave(c);
    if (c->front.begun && !gone)
        slr_real.cuEventDestroy(c->front.begun);
    c->front.begun = NULL;
}
