/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts, and the settings of contexts that have no effect here but must be answered. */
#include "sg.h"

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuDevicePrimaryCtxRetain);
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    struct sg_device *d = sg_device(dev);
    if (!d->primary)
        d->primary = sg_ctx_new_locked(dev, d->primary_flags, true);
    if (d->primary) {
        d->primary_refs++;
        *pctx = d->primary->handle;
    } else {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_release();
    return rc;
}

static void reset_locked(struct sg_device *d)
{
    struct sg_ctx *ctx = d->primary;
    d->primary = NULL;
    if (ctx)
        sg_ctx_destroy_locked(ctx);
}

static CUresult release_primary(CUdevice dev)
{
    struct sg_device *d = sg_device(dev);
    CUresult rc = CUDA_SUCCESS;

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    if (!d->primary_refs) {
        sg_misuse("primary context of device %d released more often than retained", dev);
        rc = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--d->primary_refs == 0) {
        reset_locked(d);
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
    SG_ENTER(cuDevicePrimaryCtxRelease);
    return release_primary(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    SG_ENTER(cuDevicePrimaryCtxRelease_v2);
    return release_primary(dev);
}

static CUresult reset_primary(CUdevice dev)
{
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    reset_locked(sg_device(dev));
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev)
{
    SG_ENTER(cuDevicePrimaryCtxReset);
    return reset_primary(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    SG_ENTER(cuDevicePrimaryCtxReset_v2);
    return reset_primary(dev);
}

static CUresult set_flags(CUdevice dev, unsigned int flags)
{
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    sg_device(dev)->primary_flags = flags;
    if (sg_device(dev)->primary)
        sg_device(dev)->primary->flags = flags;
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    SG_ENTER(cuDevicePrimaryCtxSetFlags);
    return set_flags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    SG_ENTER(cuDevicePrimaryCtxSetFlags_v2);
    return set_flags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    SG_ENTER(cuDevicePrimaryCtxGetState);
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    *flags = sg_device(dev)->primary_flags;
    *active = sg_device(dev)->primary != NULL;
    sg_release();
    return CUDA_SUCCESS;
}

static CUresult need_context(void)
{
    CUresult rc;
    sg_acquire();
    sg_current_locked(&rc);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    SG_ENTER(cuCtxGetStreamPriorityRange);
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    return need_context();
}

static size_t limits[CU_LIMIT_MAX] = {1024, 1 << 20, 8 << 20};

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
    SG_ENTER(cuCtxSetLimit);
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    sg_acquire();
    limits[limit] = value;
    sg_release();
    return need_context();
}

CUresult CUDAAPI cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    SG_ENTER(cuCtxGetLimit);
    if (!pvalue)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    sg_acquire();
    *pvalue = limits[limit];
    sg_release();
    return need_context();
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    SG_ENTER(cuCtxGetCacheConfig);
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return need_context();
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
    SG_ENTER(cuCtxSetCacheConfig);
    (void)config;
    return need_context();
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    SG_ENTER(cuCtxGetSharedMemConfig);
    if (!pConfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return need_context();
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    SG_ENTER(cuCtxSetSharedMemConfig);
    (void)config;
    return need_context();
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    SG_ENTER(cuCtxGetApiVersion);
    (void)ctx;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
    SG_ENTER(cuCtxResetPersistingL2Cache);
    return need_context();
}
