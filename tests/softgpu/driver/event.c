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

static void forget_capture(struct sg_event *e)
{
    e->capture = 0;
    e->tips.n = 0;
}

CUresult sg_event_record(CUevent hEvent, CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    struct sg_event *e = s ? sg_handle_get_locked(SG_EVENT, hEvent) : NULL;
    if (s && (!e || e->ctx->dev != s->ctx->dev)) {
        if (e)
            sg_misuse("event of device %d recorded on a stream of device %d", e->ctx->dev, s->ctx->dev);
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else if (s && s->capture) {
        rc = sg_capture_record_locked(s, e);
    } else if (s) {
        rc = sg_submit_locked(s, sg_op_new(SG_OP_ORDER, "event record"));
        if (!rc) {
            forget_capture(e);
            sg_fence_put_locked(e->fence);
            e->fence = sg_fence_ref_locked(s->last);
            if (e->shared)
                rc = sg_event_shared_record_locked(s, e);
        }
    }
    sg_release();
    return rc;
}

static CUresult cuEventRecord_on(CUevent hEvent, CUstream hStream)
{
    return sg_event_record(hEvent, hStream);
}
SG_PAIR(cuEventRecord, _ptsz, (CUevent hEvent, CUstream hStream), (hEvent, hStream), (hEvent, SG_PT(hStream)))

static CUresult cuEventRecordWithFlags_on(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    return flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE : sg_event_record(hEvent, hStream);
}
SG_PAIR(cuEventRecordWithFlags, _ptsz, (CUevent hEvent, CUstream hStream, unsigned int flags), (hEvent, hStream, flags),
        (hEvent, SG_PT(hStream), flags))

static CUresult wait_event(CUstream hStream, CUevent hEvent, unsigned flags)
{
    CUresult rc;

    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    struct sg_event *e = s ? sg_handle_get_locked(SG_EVENT, hEvent) : NULL;
    if (s && !e)
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (s && (e->capture || s->capture))
        rc = sg_capture_wait_locked(s, e);
    else if (s && e->shared)
        rc = sg_event_shared_wait_locked(s, e);
    else if (s && e->fence && (!e->fence->done || s->legacy || sg_race_on)) {
        struct sg_op *op = sg_op_new(SG_OP_ORDER, "event wait");
        sg_op_dep_locked(op, e->fence);
        rc = sg_submit_locked(s, op);
    }
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
    else if (sg_capture_has_event_locked(e))
        *rc = CUDA_ERROR_CAPTURED_EVENT;
    else
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
    if (!a || !b || a->ctx->dev != b->ctx->dev || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->fence ||
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
