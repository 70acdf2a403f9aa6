/* SPDX-License-Identifier: Apache-2.0 */
/* Stream objects and the calls that ask about them. */
#include "sg.h"
#include <stdlib.h>

static uint64_t next_id = 3; /* 1 and 2 stand for the default streams */
static pthread_key_t per_thread_key;
static pthread_once_t per_thread_once = PTHREAD_ONCE_INIT;

struct per_thread {
    uint64_t ctx; /* its id: a handle may name several contexts in turn */
    CUstream stream;
    struct per_thread *next;
};

struct sg_stream *sg_stream_new_locked(struct sg_ctx *ctx, unsigned flags, int priority)
{
    struct sg_stream *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    s->ctx = ctx;
    s->flags = flags;
    s->priority = priority;
    s->id = next_id++;
    s->handle = sg_handle_new_locked(SG_STREAM, s);
    pthread_cond_init(&s->cv, NULL);
    s->next = ctx->streams;
    ctx->streams = s;
    return s;
}

void sg_stream_free_locked(struct sg_stream *s)
{
    struct sg_stream **p = &s->ctx->streams;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    sg_race_stream_ends_locked(s);
    sg_tips_clear(&s->tips);
    sg_fence_put_locked(s->last);
    sg_fence_put_locked(s->work);
    pthread_cond_destroy(&s->cv);
    free(s);
}

/* The handle is gone at once; the object goes when its queue is empty. */
void sg_stream_retire_locked(struct sg_stream *s)
{
    if (s->destroyed)
        return;
    s->destroyed = true;
    sg_handle_drop_locked(s->handle);
    if (s->has_worker)
        pthread_cond_signal(&s->cv);
    else
        sg_stream_free_locked(s);
}

static void thread_ends(void *list)
{
    for (struct per_thread *p = list, *next; p; p = next) {
        next = p->next;
        sg_acquire();
        struct sg_stream *s = sg_handle_peek_locked(SG_STREAM, p->stream);
        if (s)
            sg_stream_retire_locked(s);
        sg_release();
        free(p);
    }
}

static void make_key(void)
{
    pthread_key_create(&per_thread_key, thread_ends);
}

static struct sg_stream *per_thread_locked(struct sg_ctx *ctx)
{
    struct per_thread *list, *p;

    pthread_once(&per_thread_once, make_key);
    list = pthread_getspecific(per_thread_key);
    for (p = list; p; p = p->next)
        if (p->ctx == ctx->id)
            return sg_handle_peek_locked(SG_STREAM, p->stream);
    p = malloc(sizeof(*p));
    if (!p)
        abort();
    struct sg_stream *s = sg_stream_new_locked(ctx, CU_STREAM_DEFAULT, 0);
    s->per_thread = true;
    *p = (struct per_thread){ctx->id, s->handle, list};
    pthread_setspecific(per_thread_key, p);
    return s;
}

struct sg_stream *sg_stream_get_locked(CUstream handle, CUresult *rc)
{
    *rc = CUDA_SUCCESS;
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct sg_ctx *ctx = sg_current_locked(rc);
        if (!ctx)
            return NULL;
        return handle == CU_STREAM_PER_THREAD ? per_thread_locked(ctx) : ctx->legacy;
    }
    struct sg_stream *s = sg_handle_get_locked(SG_STREAM, handle);
    if (!s)
        *rc = CUDA_ERROR_INVALID_HANDLE;
    else if (s->ctx->sticky)
        *rc = s->ctx->sticky;
    return *rc ? NULL : s;
}

static CUresult create(CUstream *phStream, unsigned flags, int priority)
{
    CUresult rc;

    if (!phStream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx)
        *phStream = sg_stream_new_locked(ctx, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority)->handle;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    SG_ENTER(cuStreamCreate);
    return create(phStream, Flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    SG_ENTER(cuStreamCreateWithPriority);
    return create(phStream, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuStreamDestroy_v2);
    if (!hStream || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    sg_acquire();
    struct sg_stream *s = sg_handle_get_locked(SG_STREAM, hStream);
    if (!s || s->per_thread || s->legacy) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    } else {
        if (s->capture)
            sg_capture_leave_locked(s);
        sg_stream_retire_locked(s);
    }
    sg_release();
    return rc;
}

bool sg_stream_idle_locked(struct sg_stream *s)
{
    if (s->last && !s->last->done)
        return false;
    if (s->legacy)
        for (struct sg_stream *t = s->ctx->streams; t; t = t->next)
            if (!(t->flags & CU_STREAM_NON_BLOCKING) && t->last && !t->last->done)
                return false;
    return true;
}

static CUresult cuStreamQuery_on(CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_query_locked(hStream, &rc);
    if (s && s->capture)
        rc = sg_capture_refuse_locked(s);
    else if (s && s->legacy && sg_capture_active_in_locked(s->ctx))
        rc = sg_capture_implicit_locked(s->ctx);
    else if (s && !(rc = sg_capture_unsafe_locked()) && !sg_stream_idle_locked(s))
        rc = CUDA_ERROR_NOT_READY;
    else if (s && !rc)
        sg_race_saw_stream_locked(s);
    sg_release();
    return rc;
}
SG_PAIR(cuStreamQuery, _ptsz, (CUstream hStream), (hStream), (SG_PT(hStream)))

static CUresult cuStreamSynchronize_on(CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s)
        rc = sg_stream_sync_locked(s);
    sg_release();
    return rc;
}
SG_PAIR(cuStreamSynchronize, _ptsz, (CUstream hStream), (hStream), (SG_PT(hStream)))

struct facts {
    unsigned flags;
    int priority;
    unsigned long long id;
    CUcontext ctx;
    CUdevice dev;
};

/* Flags and ids are not asked for while a stream captures, in any mode: that breaks the capture (seen with driver 580). */
static CUresult ask(CUstream hStream, const void *out, bool may_capture, struct facts *f)
{
    CUresult rc;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && s->capture && !may_capture)
        rc = sg_capture_refuse_locked(s);
    else if (s)
        *f = (struct facts){s->flags, s->priority, s->legacy ? 1 : s->id, s->ctx->handle, s->ctx->dev};
    sg_release();
    return rc;
}

#define SG_STREAM_QUESTION(name, type, field, may_capture)                                                             \
    static CUresult name##_on(CUstream hStream, type *out)                                                             \
    {                                                                                                                  \
        struct facts f;                                                                                                \
        CUresult rc = ask(hStream, out, may_capture, &f);                                                              \
        if (!rc)                                                                                                       \
            *out = f.field;                                                                                            \
        return rc;                                                                                                     \
    }                                                                                                                  \
    SG_PAIR(name, _ptsz, (CUstream hStream, type * out), (hStream, out), (SG_PT(hStream), out))

SG_STREAM_QUESTION(cuStreamGetFlags, unsigned int, flags, false)
SG_STREAM_QUESTION(cuStreamGetPriority, int, priority, true)
SG_STREAM_QUESTION(cuStreamGetId, unsigned long long, id, false)
SG_STREAM_QUESTION(cuStreamGetCtx, CUcontext, ctx, true)
SG_STREAM_QUESTION(cuStreamGetDevice, CUdevice, dev, true)

static CUresult cuStreamGetCtx_v2_on(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    CUresult rc = CUDA_SUCCESS;

    if (!pCtx)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    const struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && s->ctx->of && hStream == CU_STREAM_PER_THREAD)
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (s && pGreenCtx)
        *pGreenCtx = s->ctx->green;
    if (s && !rc)
        *pCtx = sg_root(s->ctx)->handle;
    sg_release();
    return rc;
}
SG_PAIR(cuStreamGetCtx_v2, _ptsz, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx),
        (hStream, pCtx, pGreenCtx), (SG_PT(hStream), pCtx, pGreenCtx))

/* Work that graphs have no node for: a capturing stream refuses it. */
static CUresult submit_uncaptured(CUstream stream, struct sg_op *op)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(stream, &rc);
    if (s && s->capture)
        rc = sg_capture_refuse_locked(s);
    if (rc)
        sg_op_free_locked(op);
    else
        rc = sg_submit_locked(s, op);
    sg_release();
    return rc;
}

static CUresult cuStreamAttachMemAsync_on(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    (void)length;
    (void)flags;
    sg_acquire();
    struct sg_mem *m = sg_mem_find_locked(dptr);
    bool ok = m && m->kind == SG_MEM_MANAGED;
    sg_release();
    return ok ? submit_uncaptured(hStream, sg_op_new(SG_OP_ORDER, "cuStreamAttachMemAsync")) : CUDA_ERROR_INVALID_VALUE;
}
SG_PAIR(cuStreamAttachMemAsync, _ptsz, (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
        (hStream, dptr, length, flags), (SG_PT(hStream), dptr, length, flags))

static struct sg_op *host_op(CUhostFn fn, CUstreamCallback callback, CUstream stream, void *user)
{
    struct sg_op *op = sg_op_new(SG_OP_HOST, fn ? "host function" : "stream callback");
    op->u.host.fn = fn;
    op->u.host.callback = callback;
    op->u.host.stream = stream;
    op->u.host.user = user;
    return op;
}

struct sg_op *sg_host_op(CUhostFn fn, void *user)
{
    return host_op(fn, NULL, NULL, user);
}

static CUresult cuLaunchHostFunc_on(CUstream hStream, CUhostFn fn, void *userData)
{
    return fn ? sg_submit(hStream, host_op(fn, NULL, hStream, userData)) : CUDA_ERROR_INVALID_VALUE;
}
SG_PAIR(cuLaunchHostFunc, _ptsz, (CUstream hStream, CUhostFn fn, void *userData), (hStream, fn, userData),
        (SG_PT(hStream), fn, userData))

static CUresult cuStreamAddCallback_on(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return submit_uncaptured(hStream, host_op(NULL, callback, hStream, userData));
}
SG_PAIR(cuStreamAddCallback, _ptsz, (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
        (hStream, callback, userData, flags), (SG_PT(hStream), callback, userData, flags))
