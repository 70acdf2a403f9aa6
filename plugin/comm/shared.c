/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a communicator that its peers use as well: its context, and whether the peers'
 * processes live. */
#include "base/cu.h"
#include "cache/device_reset.h"
#include "plugin/comm/comm.h"

bool slr_shared_gone(const struct slr_shared *s)
{
    return s->resets != slr_device_resets(s->device);
}

bool slr_shared_same_process(const struct slr_shared *s, int peer)
{
    return s->control->post[peer].pid == s->control->post[s->rank].pid;
}

void slr_shared_open_watches(struct slr_shared *s)
{
    for (int r = 0; r < s->nranks; r++)
        if (r != s->rank && !slr_shared_same_process(s, r))
            s->peer_watch[r] = slr_peer_process_watch(s->control->post[r].pid, s->control->post[r].process);
}

/* A process that is gone stays gone (peer_process.h), so several threads may do this at once: at
 * worst one of them sees the end one look later. */
void slr_shared_watch_peers(struct slr_shared *s)
{
    for (int r = 0; r < s->nranks; r++)
        if (r != s->rank && !s->peer_dead[r] && !slr_shared_same_process(s, r))
            s->peer_dead[r] = slr_peer_process_gone(s->peer_watch[r]);
}

/* While a thread captures a stream in the global mode, the driver refuses calls that it calls
 * unsafe, such as cuMemAlloc, on all threads, and ends the capture in error. The relaxed mode lifts
 * that for this thread. Entering nests, so only the outermost swaps. */
static _Thread_local CUstreamCaptureMode outer_mode __attribute__((tls_model("initial-exec")));
static _Thread_local int entered __attribute__((tls_model("initial-exec")));
/* The context of the first one, and how often it was entered again right behind that: then it is
 * current already, and a call of the driver saved. */
static _Thread_local CUcontext first __attribute__((tls_model("initial-exec")));
static _Thread_local int again __attribute__((tls_model("initial-exec")));

enum slr_status slr_context_enter(CUcontext ctx)
{
    if (entered == 1 && ctx == first) {
        again++;
        return SLR_OK;
    }
    SLR_TRY(SLR_CU(cuCtxPushCurrent, ctx));
    if (entered++ == 0) {
        first = ctx;
        outer_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        slr_swap_capture_mode(&outer_mode);
    }
    return SLR_OK;
}

enum slr_status slr_shared_enter(const struct slr_shared *s)
{
    if (slr_shared_gone(s))
        return SLR_ABSENT;
    return slr_context_enter(s->ctx);
}

void slr_shared_leave(void)
{
    CUcontext old;
    if (entered == 1 && again > 0) {
        again--;
        return;
    }
    if (--entered == 0)
        slr_swap_capture_mode(&outer_mode);
    slr_real.cuCtxPopCurrent(&old);
}
