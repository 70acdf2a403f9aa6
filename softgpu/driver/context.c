/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: created ones, primary ones, and each thread's stack of current contexts. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

#define STACK_DEPTH 64
static __thread CUcontext stack[STACK_DEPTH];
static __thread int depth;
static struct sg_ctx *contexts; /* destroyed ones stay: reports still name them */
static uint64_t next_id;

struct sg_ctx *sg_ctx_list_locked(void)
{
    return contexts;
}

static CUcontext top(void)
{
    return depth ? stack[depth - 1] : NULL;
}

static void set_top(CUcontext ctx)
{
    if (!ctx)
        depth -= depth > 0;
    else if (depth)
        stack[depth - 1] = ctx;
    else
        stack[depth++] = ctx;
}

struct sg_ctx *sg_current_locked(CUresult *rc)
{
    CUcontext handle = top();
    struct sg_ctx *ctx = handle ? sg_handle_peek_locked(SG_CTX, handle) : NULL;

    *rc = CUDA_SUCCESS;
    if (!handle) {
        *rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!ctx) {
        sg_misuse("the current context %p was destroyed", (void *)handle);
        *rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    } else if (ctx->sticky) {
        *rc = ctx->sticky;
        return NULL;
    }
    return ctx;
}

/* A device's primary contexts, one after another, may all have one handle. */
static CUcontext handle_locked(struct sg_ctx *ctx)
{
    CUcontext *primary = &sg_devices[ctx->dev].primary_handle;

    if (!ctx->primary)
        return sg_handle_new_locked(SG_CTX, ctx); /* of a green context, what it is converted to */
    if (sg_cfg.same_primary && *primary)
        sg_handle_renew_locked(*primary, ctx);
    else
        *primary = sg_handle_new_locked(SG_CTX, ctx);
    return *primary;
}

struct sg_ctx *sg_ctx_new_locked(CUdevice dev, unsigned flags, bool primary)
{
    struct sg_ctx *ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return NULL;
    ctx->dev = dev;
    ctx->flags = flags;
    ctx->primary = primary;
    ctx->id = ++next_id;
    ctx->handle = handle_locked(ctx);
    ctx->legacy = sg_stream_new_locked(ctx, CU_STREAM_DEFAULT, 0);
    ctx->legacy->legacy = true;
    ctx->next = contexts;
    contexts = ctx;
    return ctx;
}

void sg_ctx_destroy_locked(struct sg_ctx *ctx)
{
    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->head) {
            sg_misuse("context %p of device %d destroyed while stream %p has work queued", (void *)ctx->handle,
                      ctx->dev, (void *)s->handle);
            break;
        }
    sg_green_destroy_all_locked(ctx);
    sg_ctx_sync_locked(ctx); /* drops the lock while it waits */
    if (ctx->dead)
        return;
    ctx->dead = true;
    for (struct sg_stream *s = ctx->streams, *next; s; s = next) {
        next = s->next;
        sg_stream_retire_locked(s);
    }
    ctx->legacy = ctx->whole = NULL;
    sg_fence_put_locked(ctx->between);
    sg_fence_put_locked(ctx->gate);
    ctx->between = ctx->gate = NULL;
    sg_mem_drop_context_locked(ctx);
    if (sg_handle_peek_locked(SG_CTX, ctx->handle) == ctx) /* and not its successor */
        sg_handle_drop_locked(ctx->handle);
}

static CUresult create(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    CUresult rc = CUDA_SUCCESS;

    if (!pctx || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_acquire();
    struct sg_ctx *ctx = sg_ctx_new_locked(dev, flags, false);
    if (ctx)
        *pctx = stack[depth++] = ctx->handle;
    else
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    SG_ENTER(cuCtxCreate_v2);
    return create(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                                CUdevice dev)
{
    SG_ENTER(cuCtxCreate_v3);
    return paramsArray && numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    SG_ENTER(cuCtxCreate_v4);
    return ctxCreateParams && ctxCreateParams->numExecAffinityParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                                     : create(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext handle)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuCtxDestroy_v2);
    sg_acquire();
    struct sg_ctx *ctx = sg_handle_get_locked(SG_CTX, handle);
    if (!ctx || ctx->primary || ctx->of)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    else
        sg_ctx_destroy_locked(ctx);
    sg_release();
    if (!rc && top() == handle)
        depth--;
    return rc;
}

static bool known(CUcontext handle)
{
    sg_acquire();
    bool ok = sg_handle_get_locked(SG_CTX, handle);
    sg_release();
    return ok;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle)
{
    SG_ENTER(cuCtxPushCurrent_v2);
    if (!handle || depth == STACK_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    if (!known(handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *pctx)
{
    SG_ENTER(cuCtxPopCurrent_v2);
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext handle = stack[--depth];
    if (pctx)
        *pctx = handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle)
{
    SG_ENTER(cuCtxSetCurrent);
    if (handle && !known(handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    set_top(handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *pctx)
{
    SG_ENTER(cuCtxGetCurrent);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = top();
    return CUDA_SUCCESS;
}

/* The named context, or the current one; NULL with *rc set. */
static struct sg_ctx *named_locked(CUcontext handle, CUresult *rc)
{
    if (!handle)
        return sg_current_locked(rc);
    struct sg_ctx *ctx = sg_handle_get_locked(SG_CTX, handle);
    *rc = ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    return ctx;
}

static CUresult get_device(CUdevice *device, CUcontext handle)
{
    CUresult rc;

    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = named_locked(handle, &rc);
    if (ctx)
        *device = ctx->dev;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    SG_ENTER(cuCtxGetDevice);
    return get_device(device, NULL);
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    SG_ENTER(cuCtxGetDevice_v2);
    return get_device(device, handle);
}

static CUresult synchronize(CUcontext handle)
{
    CUresult rc;

    sg_acquire();
    struct sg_ctx *ctx = named_locked(handle, &rc);
    if (ctx)
        rc = sg_capture_unsafe_locked();
    if (ctx && !rc)
        rc = sg_capture_sync_locked(ctx);
    if (ctx && !rc)
        rc = sg_ctx_sync_locked(ctx);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    SG_ENTER(cuCtxSynchronize);
    return synchronize(NULL);
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle)
{
    SG_ENTER(cuCtxSynchronize_v2);
    return synchronize(handle);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
    CUresult rc;

    SG_ENTER(cuCtxGetFlags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx)
        *flags = ctx->flags;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags)
{
    CUresult rc;

    SG_ENTER(cuCtxSetFlags);
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx)
        ctx->flags = flags;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *ctxId)
{
    CUresult rc;

    SG_ENTER(cuCtxGetId);
    if (!ctxId)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = named_locked(handle, &rc);
    if (ctx)
        *ctxId = ctx->id;
    sg_release();
    return rc == CUDA_ERROR_INVALID_CONTEXT ? CUDA_ERROR_CONTEXT_IS_DESTROYED : rc;
}

static CUresult peer_access(CUcontext peer, bool enable)
{
    CUresult rc;

    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    struct sg_ctx *other = ctx ? sg_handle_get_locked(SG_CTX, peer) : NULL;
    ctx = ctx ? sg_root(ctx) : NULL;
    if (ctx && (!other || other == ctx)) {
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (ctx && !(enable && (rc = sg_capture_unsafe_locked()))) {
        uint64_t bit = 1ull << other->dev;
        if (enable && other->dev == ctx->dev)
            rc = CUDA_ERROR_INVALID_DEVICE;
        else if (enable && ctx->peers & bit)
            rc = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        else if (!enable && !(ctx->peers & bit))
            rc = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        else
            ctx->peers ^= bit;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    SG_ENTER(cuCtxEnablePeerAccess);
    return Flags ? CUDA_ERROR_INVALID_VALUE : peer_access(peerContext, true);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext)
{
    SG_ENTER(cuCtxDisablePeerAccess);
    return peer_access(peerContext, false);
}
