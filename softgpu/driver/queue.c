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

/* ---- copies between devices ---- */

/* The context of a side's device memory; NULL: it is no memory of a context of this process. */
static struct sg_ctx *owner_locked(CUcontext named, uintptr_t at)
{
    struct sg_mem *m = sg_mem_find_locked(at);

    if (named)
        return sg_handle_peek_locked(SG_CTX, named);
    return m && (m->kind == SG_MEM_DEVICE || m->kind == SG_MEM_POOL) ? m->ctx : NULL;
}

/* In the implicit default stream such a copy begins when all that either device was given is complete, and what either
 * is given later begins behind it (Programming Guide, peer-to-peer memory copy). Streams that are not ordered with a
 * default stream are taken to be left out, as by any other operation of one. */
static void between_devices_locked(struct sg_stream *s, struct sg_op *op, struct sg_ctx *side[2])
{
    side[0] = side[1] = NULL;
    if (!s->legacy || op->kind != SG_OP_COPY || !op->u.copy.implicit)
        return;
    side[0] = owner_locked(op->u.copy.dctx, op->u.copy.dst);
    side[1] = owner_locked(op->u.copy.sctx, op->u.copy.src);
    if (!side[0] || !side[1] || side[0]->dev == side[1]->dev)
        side[0] = side[1] = NULL;
    for (int i = 0; i < 2 && side[i]; i++)
        for (struct sg_stream *t = side[i]->streams; t; t = t->next)
            if (t != s && !(t->flags & CU_STREAM_NON_BLOCKING))
                sg_op_dep_locked(op, t->last);
}

static void later_is_behind_locked(struct sg_op *op, struct sg_ctx *side[2])
{
    for (int i = 0; i < 2 && side[i]; i++) {
        sg_fence_put_locked(side[i]->between);
        side[i]->between = sg_fence_ref_locked(op->fence);
    }
}

/* ---- a full queue ---- */

static pthread_cond_t room = PTHREAD_COND_INITIALIZER; /* an entry of some queue is done */
static unsigned waiting;

static unsigned launching[SG_MAX_DEVICES]; /* launches that wait, by the device of their streams */

static void await_room_locked(void)
{
    waiting++;
    pthread_cond_wait(&room, &sg_lock);
    waiting--;
}

static bool many_launches(const struct sg_stream *s)
{
    return sg_cfg.launches && s->launches >= sg_cfg.launches;
}

static bool full(const struct sg_stream *s, bool launch)
{
    return !s->capture && ((sg_cfg.queue && s->entries >= sg_cfg.queue) || (launch && many_launches(s)));
}

static struct sg_stream *enter_locked(CUstream handle, bool launch, CUresult *rc)
{
    struct sg_stream *s = sg_stream_get_locked(handle, rc);

    while (s && full(s, launch)) {
        unsigned none, *held = launch && many_launches(s) ? &launching[s->ctx->dev] : &none;
        ++*held;
        await_room_locked();
        --*held;
        s = sg_stream_get_locked(handle, rc);
    }
    return s;
}

struct sg_stream *sg_stream_enter_locked(CUstream handle, CUresult *rc)
{
    return enter_locked(handle, false, rc);
}

struct sg_stream *sg_stream_launch_locked(CUstream handle, CUresult *rc)
{
    return enter_locked(handle, true, rc);
}

struct sg_stream *sg_stream_query_locked(CUstream handle, CUresult *rc)
{
    struct sg_stream *s = sg_stream_get_locked(handle, rc);

    while (s && launching[s->ctx->dev]) {
        await_room_locked();
        s = sg_stream_get_locked(handle, rc);
    }
    return s;
}

static bool is_launch(const struct sg_op *op)
{
    return op->launch && !op->part;
}

void sg_entry_done_locked(struct sg_stream *s, const struct sg_op *op)
{
    s->entries -= !op->part;
    s->launches -= is_launch(op);
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
    struct sg_ctx *side[2];

    implicit_order_locked(s, op);
    if (!(s->flags & CU_STREAM_NON_BLOCKING))
        sg_op_dep_locked(op, s->ctx->between);
    sg_op_dep_locked(op, s->ctx->gate);
    if (s->ctx->of)
        sg_op_dep_locked(op, s->ctx->of->gate);
    between_devices_locked(s, op, side);
    tie_contexts_locked(op);
    op->fence = sg_fence_new_locked();
    later_is_behind_locked(op, side);
    op->fence->stream = s;
    op->enqueued = sg_now();
    if (op->kind == SG_OP_KERNEL && op->u.kernel.desc->queued)
        op->u.kernel.desc->queued(op->u.kernel.args);
    sg_race_queued_locked(s, op);
    sg_fence_put_locked(s->last);
    s->last = sg_fence_ref_locked(op->fence);
    s->awaits = op->kind == SG_OP_ORDER && (s->awaits || op->awaits);
    if (!s->awaits) {
        sg_fence_put_locked(s->work);
        s->work = sg_fence_ref_locked(op->fence);
    }
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    sg_connection_enter_locked(s, op);
    s->entries += !op->part;
    s->launches += is_launch(op);
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
    struct sg_stream *s = enter_locked(stream, op->launch, &rc);
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
        op->part = op->aside = true; /* it waits anyway, and is no work */
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

    for (struct sg_ctx *c = sg_ctx_list_locked(); c; c = c->next)
        for (struct sg_stream *s = c == ctx || c->of == ctx ? c->streams : NULL; s; s = s->next)
            add_pending_locked(&pending, sg_stream_end_of(s, ctx));
    if (sg_cfg.ties)
        add_tied_locked(&pending, ctx);
    for (size_t i = 0; i < pending.n; i++) {
        sg_fence_sync_locked(pending.fences[i]);
        sg_fence_put_locked(pending.fences[i]);
    }
    free(pending.fences);
    for (struct sg_ctx *c = sg_ctx_list_locked(); c; c = c->next)
        if (c == ctx || c->of == ctx)
            sg_race_saw_ctx_locked(c);
    return ctx->sticky;
}
