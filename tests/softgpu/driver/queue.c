/* Stream queues: which earlier work an operation follows, and host synchronisation. */
#include "sg.h"
#include <stdlib.h>

/* The legacy default stream follows all earlier work of the context's blocking streams; they follow its work. */
static void implicit_order_locked(struct sg_stream *s, struct sg_op *op)
{
    if (s->legacy) {
        for (struct sg_stream *t = s->ctx->streams; t; t = t->next)
            if (t != s && !(t->flags & CU_STREAM_NON_BLOCKING))
                sg_op_dep_locked(op, t->last);
    } else if (!(s->flags & CU_STREAM_NON_BLOCKING) && s->ctx->legacy) {
        sg_op_dep_locked(op, s->ctx->legacy->last);
    }
}

static void append_locked(struct sg_stream *s, struct sg_op *op)
{
    implicit_order_locked(s, op);
    op->fence = sg_fence_new_locked();
    op->fence->stream = s;
    op->enqueued = sg_now();
    sg_race_queued_locked(s, op);
    sg_fence_put_locked(s->last);
    s->last = sg_fence_ref_locked(op->fence);
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    sg_worker_start_locked(s);
    pthread_cond_signal(&s->cv);
}

CUresult sg_submit_locked(struct sg_stream *s, struct sg_op *op)
{
    CUresult rc;

    op->ctx = s->ctx;
    rc = s->ctx->sticky ? s->ctx->sticky : sg_ranges_check_locked(op, false);
    if (!rc && s->legacy && sg_capture_active_in_locked(s->ctx)) {
        sg_capture_invalidate_locked(s->ctx);
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (rc) {
        sg_op_free_locked(op);
        return rc;
    }
    if (s->capture)
        return sg_capture_op_locked(s, op);
    append_locked(s, op);
    return CUDA_SUCCESS;
}

static CUresult submit(CUstream stream, struct sg_op *op, bool wait)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(stream, &rc);
    if (s && wait && s->capture)
        rc = sg_capture_refuse_locked(s);
    else if (s && wait)
        rc = sg_capture_unsafe_locked();
    if (rc)
        sg_op_free_locked(op);
    else
        rc = sg_submit_locked(s, op);
    if (!rc && wait) {
        struct sg_ctx *ctx = s->ctx;
        sg_fence_sync_locked(s->last);
        rc = ctx->sticky;
    }
    sg_release();
    return rc;
}

CUresult sg_submit(CUstream stream, struct sg_op *op)
{
    return submit(stream, op, false);
}

CUresult sg_submit_wait(CUstream stream, struct sg_op *op)
{
    return submit(stream, op, true);
}

CUresult sg_stream_sync_locked(struct sg_stream *s)
{
    struct sg_ctx *ctx = s->ctx;

    if (s->capture)
        return sg_capture_refuse_locked(s);
    if (s->legacy) { /* waits for what work put there now would follow */
        CUresult rc = sg_submit_locked(s, sg_op_new(SG_OP_ORDER, "synchronisation of the legacy stream"));
        if (rc)
            return rc;
    }
    sg_fence_sync_locked(s->last);
    return ctx->sticky;
}

CUresult sg_ctx_sync_locked(struct sg_ctx *ctx)
{
    struct sg_fence **pending = NULL;
    size_t n = 0, i = 0;

    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        n += s->last && !s->last->done;
    pending = n ? malloc(n * sizeof(*pending)) : NULL;
    if (n && !pending)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->last && !s->last->done)
            pending[i++] = sg_fence_ref_locked(s->last);
    for (i = 0; i < n; i++) {
        sg_fence_sync_locked(pending[i]);
        sg_fence_put_locked(pending[i]);
    }
    free(pending);
    sg_race_saw_ctx_locked(ctx);
    return ctx->sticky;
}
