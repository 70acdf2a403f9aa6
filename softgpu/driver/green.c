/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts, and what records or waits for all of a context. A green context has streams and default streams of its
 * own; memory, modules, peer access and events are those of its device's primary context. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

#define SMS 132u
#define LEAST_SMS 8u /* of a partition, and its granularity: compute capability 9.0 */

/* ---- resources ---- */

static CUresult resource(CUdevResource *out, CUdevResourceType type, unsigned sms)
{
    if (!out || type != CU_DEV_RESOURCE_TYPE_SM)
        return out ? CUDA_ERROR_INVALID_RESOURCE_TYPE : CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof(*out));
    out->type = type;
    out->sm.smCount = sms;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type)
{
    SG_ENTER(cuDeviceGetDevResource);
    return sg_device(device) ? resource(out, type, SMS) : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult resource_of(enum sg_kind kind, const void *handle, CUdevResource *out, CUdevResourceType type)
{
    sg_acquire();
    const struct sg_ctx *ctx = sg_handle_get_locked(kind, handle);
    const unsigned sms = ctx && ctx->of ? ctx->sms : SMS;
    sg_release();
    return ctx ? resource(out, type, sms) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext hCtx, CUdevResource *out, CUdevResourceType type)
{
    SG_ENTER(cuCtxGetDevResource);
    return resource_of(SG_CTX, hCtx, out, type);
}

CUresult CUDAAPI cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *out, CUdevResourceType type)
{
    SG_ENTER(cuGreenCtxGetDevResource);
    return resource_of(SG_GREEN, hCtx, out, type);
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups, const CUdevResource *input,
                                             CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
    SG_ENTER(cuDevSmResourceSplitByCount);
    if (!nbGroups || !input || useFlags || minCount > input->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    const unsigned wanted = minCount < LEAST_SMS ? LEAST_SMS : minCount;
    const unsigned each = (wanted + LEAST_SMS - 1) / LEAST_SMS * LEAST_SMS, most = input->sm.smCount / each;
    if (!result || *nbGroups > most)
        *nbGroups = most;
    for (unsigned i = 0; result && i < *nbGroups; i++)
        resource(&result[i], CU_DEV_RESOURCE_TYPE_SM, each);
    if (remaining)
        resource(remaining, CU_DEV_RESOURCE_TYPE_SM, input->sm.smCount - *nbGroups * each);
    return CUDA_SUCCESS;
}

struct resources {
    unsigned sms;
};

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                           unsigned int nbResources)
{
    struct resources all = {0};

    SG_ENTER(cuDevResourceGenerateDesc);
    if (!phDesc || !resources || !nbResources)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < nbResources; i++) {
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        all.sms += resources[i].sm.smCount;
    }
    struct resources *kept = malloc(sizeof(*kept)); /* nothing in cuda.h ends one */
    if (!kept)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *kept = all;
    sg_acquire();
    *phDesc = sg_handle_new_locked(SG_RESOURCES, kept);
    sg_release();
    return CUDA_SUCCESS;
}

/* ---- green contexts ---- */

/* Their begin and end retain and release the primary context. */
static CUresult green_new(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice dev)
{
    CUcontext primary;
    CUresult rc = cuDevicePrimaryCtxRetain(&primary, dev);

    if (rc)
        return rc;
    sg_acquire();
    const struct resources *r = sg_handle_get_locked(SG_RESOURCES, desc);
    struct sg_ctx *ctx = r && r->sms ? sg_ctx_new_locked(dev, 0, false) : NULL;
    if (ctx) {
        ctx->of = sg_devices[dev].primary;
        ctx->sms = r->sms;
        *out = ctx->green = sg_handle_new_locked(SG_GREEN, ctx);
    }
    rc = ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    if (rc)
        cuDevicePrimaryCtxRelease_v2(dev);
    return rc;
}

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    SG_ENTER(cuGreenCtxCreate);
    if (!phCtx || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    return sg_device(dev) ? green_new(phCtx, desc, dev) : CUDA_ERROR_INVALID_DEVICE;
}

static void destroy_locked(struct sg_ctx *ctx)
{
    for (const struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s != ctx->legacy && s != ctx->whole && !s->per_thread && !s->destroyed)
            sg_misuse("green context %p destroyed before its stream %p", (void *)ctx->green, (void *)s->handle);
    sg_handle_drop_locked(ctx->green);
    sg_ctx_destroy_locked(ctx);
}

CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    SG_ENTER(cuGreenCtxDestroy);
    sg_acquire();
    struct sg_ctx *ctx = sg_handle_get_locked(SG_GREEN, hCtx);
    const CUdevice dev = ctx ? ctx->dev : -1;
    if (ctx)
        destroy_locked(ctx);
    sg_release();
    return ctx ? cuDevicePrimaryCtxRelease_v2(dev) : CUDA_ERROR_INVALID_CONTEXT;
}

/* The primary context ends under them. */
void sg_green_destroy_all_locked(struct sg_ctx *primary)
{
    for (struct sg_ctx *c = sg_ctx_list_locked(); c; c = c->next)
        if (c->of == primary && !c->dead) {
            sg_handle_drop_locked(c->green);
            sg_ctx_destroy_locked(c);
        }
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    SG_ENTER(cuCtxFromGreenCtx);
    if (!pContext)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    const struct sg_ctx *ctx = sg_handle_get_locked(SG_GREEN, hCtx);
    if (ctx)
        *pContext = ctx->handle;
    sg_release();
    return ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    SG_ENTER(cuGreenCtxStreamCreate);
    if (!phStream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_handle_get_locked(SG_GREEN, greenCtx);
    if (ctx)
        *phStream = sg_stream_new_locked(ctx, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority)->handle;
    sg_release();
    return ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    CUresult rc;

    SG_ENTER(cuStreamGetGreenCtx);
    if (!phCtx)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    const struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s)
        *phCtx = s->ctx->green;
    sg_release();
    return rc;
}

/* ---- events and whole contexts ---- */

/* cuda.h: from the same context. Of cuGreenCtxRecordEvent it says the same primary context; whether cuEventRecord means
 * that as well it leaves open (SOFTGPU_GREEN_EVENTS). */
bool sg_same_events(struct sg_ctx *event, struct sg_ctx *stream)
{
    if (event->dev != stream->dev)
        sg_misuse("event of device %d recorded on a stream of device %d", event->dev, stream->dev);
    return sg_cfg.green_events ? sg_root(event) == sg_root(stream) : event == stream;
}

/* A stream of the driver's own, on which stands what concerns all others. */
static struct sg_stream *whole_locked(struct sg_ctx *ctx)
{
    if (!ctx->whole) {
        ctx->whole = sg_stream_new_locked(ctx, CU_STREAM_NON_BLOCKING, 0);
        ctx->whole->aside = true;
    }
    return ctx->whole;
}

static CUresult refuse_captures_locked(struct sg_ctx *ctx)
{
    CUresult rc = CUDA_SUCCESS;

    for (struct sg_ctx *c = sg_ctx_list_locked(); c; c = c->next)
        for (struct sg_stream *s = c == ctx || c->of == ctx ? c->streams : NULL; s; s = s->next)
            if (s->capture) {
                s->capture->invalid = true;
                rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
    return rc;
}

static CUresult record_locked(struct sg_ctx *ctx, CUevent hEvent)
{
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, hEvent);

    if (!e || sg_root(e->ctx) != sg_root(ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult rc = refuse_captures_locked(ctx);
    if (rc)
        return rc;
    struct sg_stream *whole = whole_locked(ctx);
    struct sg_op *op = sg_op_new(SG_OP_ORDER, "event record of a context");
    for (struct sg_ctx *c = sg_ctx_list_locked(); c; c = c->next)
        for (struct sg_stream *s = c == ctx || c->of == ctx ? c->streams : NULL; s; s = s->next)
            if (s != whole)
                sg_op_dep_locked(op, sg_stream_end_of(s, ctx));
    rc = sg_submit_locked(whole, op);
    return rc ? rc : sg_event_recorded_locked(whole, e);
}

static CUresult wait_locked(struct sg_ctx *ctx, CUevent hEvent)
{
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, hEvent);

    if (!e || e->ctx->dead)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult rc = e->capture ? sg_capture_refuse_event_locked(e) : refuse_captures_locked(ctx);
    if (rc || !e->fence)
        return rc;
    struct sg_stream *whole = whole_locked(ctx);
    struct sg_op *op = sg_op_new(SG_OP_ORDER, "event wait of a context");
    sg_op_dep_locked(op, e->fence);
    rc = sg_submit_locked(whole, op);
    if (rc)
        return rc;
    sg_fence_put_locked(ctx->gate);
    ctx->gate = sg_fence_ref_locked(whole->last);
    return CUDA_SUCCESS;
}

static CUresult on_whole(enum sg_kind kind, const void *handle, CUevent e, CUresult (*what)(struct sg_ctx *, CUevent))
{
    sg_acquire();
    struct sg_ctx *ctx = sg_handle_get_locked(kind, handle);
    const CUresult rc = ctx ? what(ctx, e) : CUDA_ERROR_INVALID_CONTEXT;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    SG_ENTER(cuCtxRecordEvent);
    return on_whole(SG_CTX, hCtx, hEvent, record_locked);
}

CUresult CUDAAPI cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    SG_ENTER(cuCtxWaitEvent);
    return on_whole(SG_CTX, hCtx, hEvent, wait_locked);
}

CUresult CUDAAPI cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    SG_ENTER(cuGreenCtxRecordEvent);
    return on_whole(SG_GREEN, hCtx, hEvent, record_locked);
}

CUresult CUDAAPI cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    SG_ENTER(cuGreenCtxWaitEvent);
    return on_whole(SG_GREEN, hCtx, hEvent, wait_locked);
}
