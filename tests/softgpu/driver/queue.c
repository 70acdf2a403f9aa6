/* SPDX-License-Identifier: Apache-2.0 */
/* Stream queues: which earlier work an operation follows, and host synchronisation. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

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

/* ---- a full queue ---- */

static pthread_cond_t room = PTHREAD_COND_INITIALIZER; /* an entry of some queue is done */
static unsigned waiting;

struct sg_stream *sg_stream_enter_locked(CUstream handle, CUresult *rc)
{
    struct sg_stream *s = sg_stream_get_locked(handle, rc);

    while (s && sg_cfg.queue && s->entries >= sg_cfg.queue && !s->capture) {
        waiting++;
        pthread_cond_wait(&room, &sg_lock);
        waiting--;
        s = sg_stream_get_locked(handle, rc);
    }
    return s;
}

void sg_entry_done_locked(struct sg_stream *s, const struct sg_op *op)
{
    s->entries -= !op->part;
    if (waiting)
        pthread_cond_broadcast(&room);
}

/* ---- enqueueing ---- */

/* CUDA counts a queued copy as work of another device's context as well when it knows the memory as that context's, or
 * when the call names it. Memory of cuMemCreate belongs to no context, and an import's owner is another process. */
static void tie_locked(struct sg_op *op, struct sg_ctx *ctx)
{
    unsigned i = 0;

    if (!ctx || ctx->dev == op->ctx->dev)
        return;
    while (i < SG_TIES && op->ties[i] && op->ties[i] != ctx)
        i++;
    op->ties[i] = ctx;
}

static void tie_contexts_locked(struct sg_op *op)
{
    memset(op->ties, 0, sizeof(op->ties));
    if (!sg_cfg.ties || op->kind != SG_OP_COPY)
        return;
    tie_locked(op, sg_handle_peek_locked(SG_CTX, op->u.copy.dctx));
    tie_locked(op, sg_handle_peek_locked(SG_CTX, op->u.copy.sctx));
    for (unsigned i = 0; i < op->nranges; i++) {
        struct sg_mem *m = sg_mem_find_locked(op->ranges[i].ptr);
        if (m && (m->kind == SG_MEM_DEVICE || m->kind == SG_MEM_POOL))
            tie_locked(op, m->ctx);
    }
}

void sg_queue_locked(struct sg_stream *s, struct sg_op *op)
{
    implicit_order_locked(s, op);
    tie_contexts_locked(op);
    op->fence = sg_fence_new_locked();
    op->fence->stream = s;
    op->enqueued = sg_now();
    if (op->kind == SG_OP_KERNEL && op->u.kernel.desc->queued)
        op->u.kernel.desc->queued(op->u.kernel.args);
    sg_race_queued_locked(s, op);
    sg_fence_put_locked(s->last);
    s->last = sg_fence_ref_locked(op->fence);
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    s->entries += !op->part;
    sg_worker_start_locked(s);
    pthread_cond_signal(&s->cv);
}

CUresult sg_submit_locked(struct sg_stream *s, struct sg_op *op)
{
    CUresult rc;

    op->ctx = s->ctx;
    op->recorded = s->capture != NULL;
    rc = s->ctx->sticky ? s->ctx->sticky : sg_ranges_check_locked(op, false);
    if (!rc && s->legacy && sg_capture_active_in_locked(s->ctx))
        rc = sg_capture_implicit_locked(s->ctx);
    if (rc) {
        sg_op_free_locked(op);
        return rc;
    }
    if (s->capture)
        return sg_capture_op_locked(s, op);
    sg_queue_locked(s, op);
    return CUDA_SUCCESS;
}

static CUresult submit(CUstream stream, struct sg_op *op, bool wait)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(stream, &rc);
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
        struct sg_op *op = sg_op_new(SG_OP_ORDER, "synchronisation of the legacy stream");
        op->part = true; /* it waits anyway */
        CUresult rc = sg_submit_locked(s, op);
        if (rc)
            return rc;
    }
    sg_fence_sync_locked(s->last);
    return ctx->sticky;
}

struct pending {
    struct sg_fence **fences;
    size_t n;
};

static void add_pending_locked(struct pending *p, struct sg_fence *f)
{
    if (!f || f->done)
        return;
    p->fences = realloc(p->fences, (p->n + 1) * sizeof(*p->fences));
    if (!p->fences)
        abort();
    p->fences[p->n++] = sg_fence_ref_locked(f);
}

static bool is_tied_to(const struct sg_op *op, const struct sg_ctx *ctx)
{
    for (unsigned i = 0; i < SG_TIES && op->ties[i]; i++)
        if (op->ties[i] == ctx)
            return true;
    return false;
}

/* The last operation of each stream of other contexts that is tied to this one. */
static void add_tied_locked(struct pending *p, const struct sg_ctx *ctx)
{
    for (struct sg_ctx *other = sg_ctx_list_locked(); other; other = other->next)
        for (struct sg_stream *s = other == ctx ? NULL : other->streams; s; s = s->next) {
            struct sg_op *last = NULL;
            for (struct sg_op *op = s->head; op; op = op->next)
                last = is_tied_to(op, ctx) ? op : last;
            add_pending_locked(p, last ? last->fence : NULL);
        }
}

CUresult sg_ctx_sync_locked(struct sg_ctx *ctx)
{
    struct pending pending = {NULL, 0};

    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        add_pending_locked(&pending, s->last);
    if (sg_cfg.ties)
        add_tied_locked(&pending, ctx);
    for (size_t i = 0; i < pending.n; i++) {
        sg_fence_sync_locked(pending.fences[i]);
        sg_fence_put_locked(pending.fences[i]);
    }
    free(pending.fences);
    sg_race_saw_ctx_locked(ctx);
    return ctx->sticky;
}
