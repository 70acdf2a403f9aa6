/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a communicator that its peers use as well: its context, and whether the peers'
 * processes live. */
#include "base/status.h"
#include "cache/blocks.h"
#include "plugin/comm/comm.h"
#include "plugin/comm/control.h"

bool slr_shared_gone(const struct slr_shared *s)
{
    return s->resets != slr_device_resets(s->device);
}

bool slr_shared_same_process(const struct slr_shared *s, int peer)
{
    return s->control->post[peer].pid == s->control->post[s->rank].pid;
}

bool slr_shared_any_in_one_process(const struct slr_shared *s)
{
    const struct slr_post *post = s->control->post;
    for (int r = 1; r < s->nranks; r++)
        for (int other = 0; other < r; other++)
            if (post[r].pid == post[other].pid)
                return true;
    return false;
}

void slr_shared_open_watches(struct slr_shared *s)
{
    for (int r = 0; r < s->nranks; r++)
        if (r != s->rank && !slr_shared_same_process(s, r))
            s->peer_watch[r] = slr_peer_process_watch(s->control->post[r].pid, s->control->post[r].process);
}

bool slr_shared_may_be_written(const struct slr_shared *s, int peer)
{
    const struct slr_post *post = &s->control->post[peer];
    return peer != s->rank && !s->peer_dead[peer] && atomic_load(&post->state) != SLR_RANK_LEFT &&
           !atomic_load(&post->drained);
}

/* A process that is gone stays gone (shared.h), so several threads may do this at once: at
 * worst one of them sees the end one look later. */
void slr_shared_watch_peers(struct slr_shared *s)
{
    for (int r = 0; r < s->nranks; r++)
        if (r != s->rank && !s->peer_dead[r] && !slr_shared_same_process(s, r))
            s->peer_dead[r] = slr_peer_process_gone(s->peer_watch[r]);
}

/* The context of the outermost entry, and how often it was entered again right behind that: then it
 * is current already, and calls of the driver are saved. */
static _Thread_local CUcontext first __attribute__((tls_model("initial-exec")));
static _Thread_local int entered __attribute__((tls_model("initial-exec")));
static _Thread_local int again __attribute__((tls_model("initial-exec")));
static _Thread_local bool pushed __attribute__((tls_model("initial-exec"))); /* by the outermost entry */

static enum slr_status enter(CUcontext ctx)
{
    CUcontext current = NULL;
    if (entered == 1 && ctx == first) {
        again++;
        return SLR_OK;
    }
    if (entered == 0) {
        first = ctx;
        pushed = slr_real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != ctx;
    }
    if (entered > 0 || pushed)
        SLR_TRY(SLR_CU(cuCtxPushCurrent, ctx));
    entered++;
    return SLR_OK;
}

static void leave(void)
{
    CUcontext old;
    if (entered == 1 && again > 0)
        again--;
    else if (--entered > 0 || pushed)
        slr_real.cuCtxPopCurrent(&old);
}

/* While a thread captures a stream in the global mode, the driver refuses calls that it calls
 * unsafe, such as cuMemAlloc, on all threads, and ends the capture in error. The relaxed mode lifts
 * that for this thread. Entering nests, so only the outermost swaps. */
static _Thread_local CUstreamCaptureMode outer_mode __attribute__((tls_model("initial-exec")));
static _Thread_local int relaxed __attribute__((tls_model("initial-exec")));

static void relax(void)
{
    if (relaxed++ > 0)
        return;
    outer_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    slr_swap_capture_mode(&outer_mode);
}

static void end_relax(void)
{
    if (--relaxed == 0)
        slr_swap_capture_mode(&outer_mode);
}

enum slr_status slr_context_enter(CUcontext ctx)
{
    SLR_TRY(enter(ctx));
    relax();
    return SLR_OK;
}

enum slr_status slr_shared_enter(const struct slr_shared *s)
{
    return slr_shared_gone(s) ? SLR_ABSENT : slr_context_enter(s->ctx);
}

void slr_shared_leave(void)
{
    end_relax();
    leave();
}

enum slr_status slr_shared_work_begin(const struct slr_shared *s)
{
    /* Right behind an entry it is as it was then. */
    bool inside = entered == 1 && first == s->ctx;
    return !inside && slr_shared_gone(s) ? SLR_ABSENT : enter(s->ctx);
}

void slr_shared_work_end(void)
{
    leave();
}
