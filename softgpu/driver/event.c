/* SPDX-License-Identifier: Apache-2.0 */
/* Events: an event refers to the completion of its latest record; a wait refers to what it found at the call. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sg_event *sg_event_new_locked(struct sg_ctx *ctx, unsigned flags)
{
    struct sg_event *e = calloc(1, sizeof(*e));
    if (!e)
        abort();
    e->ctx = ctx;
    e->flags = flags;
    e->shared_fd = -1;
    e->handle = sg_handle_new_locked(SG_EVENT, e);
    return e;
}

static void event_free_locked(struct sg_event *e)
{
    sg_handle_drop_locked(e->handle);
    sg_tips_clear(&e->tips);
    sg_fence_put_locked(e->fence); /* queued waits hold their own reference */
    if (e->shared_fd >= 0)
        close(e->shared_fd);
    free(e);
}

CUresult CUDAAPI cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    CUresult rc;

    SG_ENTER(cuEventCreate);
    if (!phEvent || Flags & ~known || (Flags & CU_EVENT_INTERPROCESS && !(Flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx) {
        struct sg_event *e = sg_event_new_locked(ctx, Flags);
        if (Flags & CU_EVENT_INTERPROCESS)
            rc = sg_event_share_locked(e);
        if (rc)
            event_free_locked(e);
        else
            *phEvent = e->handle;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuEventDestroy_v2);
    sg_acquire();
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, hEvent);
    if (e)
        event_free_locked(e);
    else
        rc = CUDA_ERROR_INVALID_HANDLE;
    sg_release();
    return rc;
}

CUresult sg_event_recorded_locked(struct sg_stream *s, struct sg_event *e)
{
    e->capture = 0;
    sg_tips_clear(&e->tips);
    sg_fence_put_locked(e->fence);
    e->fence = sg_fence_ref_locked(s->last);
    return e->shared ? sg_event_shared_record_locked(s, e) : CUDA_SUCCESS;
}

static CUresult record_locked(struct sg_stream *s, struct sg_event *e, bool external)
{
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sg_same_events(e->ctx, s->ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return sg_capture_record_locked(s, e, external);
    if (external)
        return CUDA_ERROR_INVALID_VALUE; /* cuda.h: invalid outside of capture */
    CUresult rc = sg_submit_locked(s, sg_op_new(SG_OP_ORDER, "event record"));
    return rc ? rc : sg_event_recorded_locked(s, e);
}

CUresult sg_event_record(CUevent hEvent, CUstream hStream, bool external)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    if (s)
        rc = record_locked(s, sg_handle_get_locked(SG_EVENT, hEvent), external);
    sg_release();
    return rc;
}

static CUresult cuEventRecord_on(CUevent hEvent, CUstream hStream)
{
    return sg_event_record(hEvent, hStream, false);
}
SG_PAIR(cuEventRecord, _ptsz, (CUevent hEvent, CUstream hStream), (hEvent, hStream), (hEvent, SG_PT(hStream)))

static CUresult cuEventRecordWithFlags_on(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    return flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL
               ? CUDA_ERROR_INVALID_VALUE
               : sg_event_record(hEvent, hStream, flags & CU_EVENT_RECORD_EXTERNAL);
}
SG_PAIR(cuEventRecordWithFlags, _ptsz, (CUevent hEvent, CUstream hStream, unsigned int flags), (hEvent, hStream, flags),
        (hEvent, SG_PT(hStream), flags))

static CUresult wait_locked(struct sg_stream *s, struct sg_event *e, bool external)
{
    if (!e || e->ctx->dead)
        return CUDA_ERROR_INVALID_HANDLE;
    if (external && !s->capture)
        return CUDA_ERROR_INVALID_VALUE;
    if (e->capture || s->capture)
        return sg_capture_wait_locked(s, e, external);
    if (e->shared)
        return sg_event_shared_wait_locked(s, e);
    if (!e->fence || (e->fence->done && !s->legacy && !sg_race_on))
        return CUDA_SUCCESS;
    struct sg_op *op = sg_op_new(SG_OP_ORDER, "event wait");
    op->awaits = true;
    sg_op_dep_locked(op, e->fence);
    return sg_submit_locked(s, op);
}

static CUresult wait_event(CUstream hStream, CUevent hEvent, unsigned flags)
{
    CUresult rc;

    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    if (s)
        rc = wait_locked(s, sg_handle_get_locked(SG_EVENT, hEvent), flags & CU_EVENT_WAIT_EXTERNAL);
    sg_release();
    return rc;
}

static CUresult cuStreamWaitEvent_on(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    return wait_event(hStream, hEvent, Flags);
}
SG_PAIR(cuStreamWaitEvent, _ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags), (hStream, hEvent, Flags),
        (SG_PT(hStream), hEvent, Flags))

CUresult sg_event_for_launch(CUevent hEvent)
{
    CUresult rc = CUDA_SUCCESS;

    sg_acquire();
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, hEvent);
    if (!e)
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (!(e->flags & CU_EVENT_DISABLE_TIMING) || e->flags & CU_EVENT_INTERPROCESS)
        rc = CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

/* The event, unless asking the host about it is not allowed now. */
static struct sg_event *host_event_locked(CUevent hEvent, CUresult *rc)
{
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, hEvent);

    if (!e)
        *rc = CUDA_ERROR_INVALID_HANDLE;
    else if (!(*rc = sg_capture_refuse_event_locked(e)))
        *rc = sg_capture_unsafe_locked();
    return *rc ? NULL : e;
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
{
    CUresult rc;

    SG_ENTER(cuEventQuery);
    sg_acquire();
    struct sg_event *e = host_event_locked(hEvent, &rc);
    if (e && (e->shared ? !sg_event_shared_done(e) : e->fence && !e->fence->done))
        rc = CUDA_ERROR_NOT_READY;
    else if (e)
        rc = e->ctx->sticky;
    if (e && rc != CUDA_ERROR_NOT_READY)
        sg_race_saw_event_locked(e);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent)
{
    CUresult rc;

    SG_ENTER(cuEventSynchronize);
    sg_acquire();
    struct sg_event *e = host_event_locked(hEvent, &rc);
    if (e) {
        struct sg_ctx *ctx = e->ctx;
        sg_fence_sync_locked(e->fence);
        rc = ctx->sticky;
        while (!rc && (e = sg_handle_peek_locked(SG_EVENT, hEvent)) && e->shared && !sg_event_shared_done(e)) {
            sg_release(); /* another process completes it */
            usleep(50);
            sg_acquire();
        }
        if (!rc && e)
            sg_race_saw_event_locked(e);
    }
    sg_release();
    return rc;
}

static CUresult elapsed(float *ms, CUevent hStart, CUevent hEnd)
{
    CUresult rc = CUDA_SUCCESS;

    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_event *a = sg_handle_get_locked(SG_EVENT, hStart);
    struct sg_event *b = a ? sg_handle_get_locked(SG_EVENT, hEnd) : NULL;
    if (a && b && ((rc = sg_capture_refuse_event_locked(a)) || (rc = sg_capture_refuse_event_locked(b))))
        ;
    else if (!a || !b || a->ctx->dev != b->ctx->dev || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->fence ||
             !b->fence)
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (!a->fence->done || !b->fence->done)
        rc = CUDA_ERROR_NOT_READY;
    else
        *ms = (float)((double)(b->fence->t - a->fence->t) / 1e6 / (sg_cfg.timing ? sg_cfg.scale : 1));
    if (!rc) {
        sg_race_saw_event_locked(a);
        sg_race_saw_event_locked(b);
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    SG_ENTER(cuEventElapsedTime);
    return elapsed(pMilliseconds, hStart, hEnd);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    SG_ENTER(cuEventElapsedTime_v2);
    return elapsed(pMilliseconds, hStart, hEnd);
}
