/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include "base/real.h"
#include "base/settings.h"
#include "cache/blocks.h"
#include "cache/handles.h"
#include "cache/pools.h"
#include "cache/virtual.h"
#include "plugin/comm/stream.h"

/* cuda.h turns them into the second forms. */
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset

/* Requests below this go to the driver at once. */
static size_t threshold;

/* What is kept of the current device's memory goes back; whether an attempt that failed is worth
 * repeating. */
static bool out_of_memory(CUresult r, int device)
{
    return __builtin_expect(r == CUDA_ERROR_OUT_OF_MEMORY, 0) && slr_block_trim(device, SIZE_MAX) > 0;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);

/* Apart, so that the common way saves no more registers than it must. */
__attribute__((noinline, cold)) static CUresult alloc_again(CUdeviceptr *out, size_t bytes)
{
    return slr_block_trim(-1, SIZE_MAX) > 0 ? SLR_FOUND(cuMemAlloc_v2)(out, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    if (__builtin_expect(bytes >= threshold, 0))
        return slr_block_alloc(out, bytes);
    CUresult r = SLR_FOUND(cuMemAlloc_v2)(out, bytes);
    return __builtin_expect(r == CUDA_ERROR_OUT_OF_MEMORY, 0) ? alloc_again(out, bytes) : r;
}

static CUresult hook_cuMemFree_v2(CUdeviceptr p)
{
    return slr_block_free(p);
}

static CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    return slr_block_mem_info(free_bytes, total);
}

static CUresult hook_cuMemFreeAsync(CUdeviceptr p, CUstream stream)
{
    return slr_block_free_async(p, stream, SLR_FOUND(cuMemFreeAsync));
}

static CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream)
{
    return slr_block_free_async(p, stream ? stream : CU_STREAM_PER_THREAD, SLR_FOUND(cuMemFreeAsync_ptsz));
}

static CUresult hook_cuMemUnmap(CUdeviceptr p, size_t bytes)
{
    slr_external_unmap_begin(p, bytes);
    slr_retain_shut();
    CUresult r = SLR_FOUND(cuMemUnmap)(p, bytes);
    slr_retain_open();
    slr_external_unmap_end(p, bytes);
    return r;
}

static CUresult hook_cuMemRelease(CUmemGenericAllocationHandle memory)
{
    slr_retain_shut();
    CUresult r = SLR_FOUND(cuMemRelease)(memory);
    slr_retain_open();
    return r;
}

static CUresult hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return slr_access_take(peer, flags, SLR_FOUND(cuCtxEnablePeerAccess));
}

static CUresult hook_cuCtxDisablePeerAccess(CUcontext peer)
{
    return slr_access_give_back(peer, SLR_FOUND(cuCtxDisablePeerAccess));
}

/* Known before it happens: from then on nothing of the context is freed by its address any more. */
#define RESET(sym)                                                                                                     \
    static CUresult hook_##sym(CUdevice device)                                                                        \
    {                                                                                                                  \
        slr_stream_ends();                                                                                             \
        slr_device_reset(device);                                                                                      \
        CUresult r = SLR_FOUND(sym)(device);                                                                           \
        if (r == CUDA_SUCCESS)                                                                                         \
            slr_device_forget(device);                                                                                 \
        return r;                                                                                                      \
    }
RESET(cuDevicePrimaryCtxReset)
RESET(cuDevicePrimaryCtxReset_v2)

/* The last one destroys it; what slipring holds counts as well, so then slipring holds nothing
 * there. */
#define RELEASE(sym)                                                                                                   \
    static CUresult hook_##sym(CUdevice device)                                                                        \
    {                                                                                                                  \
        slr_stream_ends();                                                                                             \
        CUresult r = SLR_FOUND(sym)(device);                                                                           \
        if (r == CUDA_SUCCESS && !slr_block_device_active(device))                                                     \
            slr_device_reset(device);                                                                                  \
        if (r == CUDA_SUCCESS)                                                                                         \
            slr_device_forget_released(device);                                                                        \
        return r;                                                                                                      \
    }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)

#define RETRY(sym, device, params, args)                                                                               \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        CUresult r = SLR_FOUND(sym) args;                                                                              \
        return out_of_memory(r, device) ? SLR_FOUND(sym) args : r;                                                     \
    }
RETRY(cuMemAllocManaged, -1, (CUdeviceptr * out, size_t bytes, unsigned flags), (out, bytes, flags))
RETRY(cuMemAllocPitch_v2, -1, (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned element),
      (out, pitch, width, height, element))

/* Memory that no other process can be given is staged, so it is made such that it can be (vLLM's sleep mode asks for
 * no type of handle). On an H200 with driver 580 that takes no longer and has the same granularity. Compressible
 * memory stays as it is. */
static bool could_be_given(const CUmemAllocationProp *prop)
{
    return prop && slr_get(SLR_S_ZERO_COPY) && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !prop->allocFlags.compressionType &&
           !(prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                                 unsigned long long flags);

/* What the driver refuses with the type more is made as the program wants it. */
static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    if (could_be_given(prop)) {
        CUmemAllocationProp more = *prop;
        more.requestedHandleTypes =
            (CUmemAllocationHandleType)(prop->requestedHandleTypes | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        const CUresult r = SLR_FOUND(cuMemCreate)(out, bytes, &more, flags);
        if (r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY)
            return r;
    }
    return SLR_FOUND(cuMemCreate)(out, bytes, prop, flags);
}

static CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                                 unsigned long long flags)
{
    const int device = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : -1;
    const CUresult r = create(out, bytes, prop, flags);
    return out_of_memory(r, device) ? create(out, bytes, prop, flags) : r;
}

/* In the order of a stream. `given`: the driver does not refuse it for the pool's sake. `own`: the stream as without
 * _ptsz. */
#define IN_ORDER(sym, given, pool, own, params, args)                                                                  \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        if (slr_pools_any() && bytes >= threshold && (given) && slr_pool_serve(out, bytes, pool, own))                 \
            return CUDA_SUCCESS;                                                                                       \
        CUresult r = SLR_FOUND(sym) args;                                                                              \
        return out_of_memory(r, -1) ? SLR_FOUND(sym) args : r;                                                         \
    }
#define OWN(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
IN_ORDER(cuMemAllocAsync, true, NULL, stream, (CUdeviceptr * out, size_t bytes, CUstream stream), (out, bytes, stream))
IN_ORDER(cuMemAllocAsync_ptsz, true, NULL, OWN(stream), (CUdeviceptr * out, size_t bytes, CUstream stream),
         (out, bytes, stream))
IN_ORDER(cuMemAllocFromPoolAsync, pool, pool, stream,
         (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream), (out, bytes, pool, stream))
IN_ORDER(cuMemAllocFromPoolAsync_ptsz, pool, pool, OWN(stream),
         (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream), (out, bytes, pool, stream))

/* ---- pools (cache/pools.h) ---- */

static CUresult hook_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    CUresult r = SLR_FOUND(cuMemPoolCreate)(out, props);
    if (r == CUDA_SUCCESS)
        slr_pool_made(*out, props);
    return r;
}

/* Told first: the next pool may get the handle. One that the driver refuses to destroy is served no more. */
static CUresult hook_cuMemPoolDestroy(CUmemoryPool pool)
{
    slr_pool_gone(pool);
    return SLR_FOUND(cuMemPoolDestroy)(pool);
}

static CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n)
{
    slr_pool_access(pool, map, n);
    CUresult r = SLR_FOUND(cuMemPoolSetAccess)(pool, map, n);
    if (r == CUDA_SUCCESS)
        slr_pool_access_given(pool, map, n);
    return r;
}

static CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult r = SLR_FOUND(cuMemPoolGetAttribute)(pool, attribute, value);
    if (r == CUDA_SUCCESS)
        slr_pool_attribute(pool, attribute, value);
    return r;
}

static CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult r = SLR_FOUND(cuMemPoolSetAttribute)(pool, attribute, value);
    if (r == CUDA_SUCCESS)
        slr_pool_attribute_set(pool, attribute);
    return r;
}

/* Of a block that serves a pool's request. */
static void tell_pool(void *out, CUpointer_attribute attribute, CUdeviceptr p)
{
    CUmemoryPool pool = attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ? slr_pool_of(p) : NULL;
    if (pool)
        *(CUmemoryPool *)out = pool;
}

static CUresult hook_cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr p)
{
    if (!slr_pools_any())
        return SLR_FOUND(cuPointerGetAttribute)(out, attribute, p);
    CUresult r = SLR_FOUND(cuPointerGetAttribute)(out, attribute, p);
    if (r == CUDA_SUCCESS)
        tell_pool(out, attribute, p);
    return r;
}

static CUresult hook_cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **out, CUdeviceptr p)
{
    if (!slr_pools_any())
        return SLR_FOUND(cuPointerGetAttributes)(n, attributes, out, p);
    CUresult r = SLR_FOUND(cuPointerGetAttributes)(n, attributes, out, p);
    for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++)
        tell_pool(out[i], attributes[i], p);
    return r;
}

static bool driver_has_all(void)
{
    return slr_real.cuCtxSynchronize && slr_real.cuDevicePrimaryCtxGetState && slr_real.cuDevicePrimaryCtxRetain &&
           slr_real.cuDevicePrimaryCtxRelease_v2 && slr_real.cuDeviceTotalMem && slr_real.cuMemGetInfo &&
           slr_real.cuMemAlloc && slr_real.cuMemFree && slr_real.cuCtxGetCurrent && slr_real.cuCtxGetDevice &&
           slr_real.cuCtxPushCurrent && slr_real.cuCtxPopCurrent && slr_real.cuThreadExchangeStreamCaptureMode;
}

/* What the cache stands in front of. cuCtxDestroy is not here: only memory of primary contexts is cached,
 * which it can not destroy. Nor is the first form of cuMemAlloc and cuMemFree: they have 32-bit
 * addresses. */
static void install_cache(void)
{
    /* Read once: the hook compares with it at every allocation. */
    threshold = slr_get(SLR_S_ALLOC_MIN);
    slr_pools_install();
    SLR_INSTALL(cuMemAlloc_v2);
    SLR_INSTALL(cuMemFree_v2);
    SLR_INSTALL(cuMemGetInfo_v2);
    SLR_INSTALL(cuMemFreeAsync);
    SLR_INSTALL(cuMemFreeAsync_ptsz);
    SLR_INSTALL(cuMemUnmap);
    SLR_INSTALL(cuMemRelease);
    /* Other allocators: what the cache keeps goes back before they run out of memory. Pools: its blocks may serve
     * them. */
    SLR_INSTALL(cuMemAllocAsync);
    SLR_INSTALL(cuMemAllocAsync_ptsz);
    SLR_INSTALL(cuMemAllocFromPoolAsync);
    SLR_INSTALL(cuMemAllocFromPoolAsync_ptsz);
    SLR_INSTALL(cuMemAllocManaged);
    SLR_INSTALL(cuMemAllocPitch_v2);
    SLR_INSTALL(cuMemCreate);
    SLR_INSTALL(cuMemPoolCreate);
    SLR_INSTALL(cuMemPoolDestroy);
    SLR_INSTALL(cuMemPoolSetAccess);
    SLR_INSTALL(cuMemPoolGetAttribute);
    SLR_INSTALL(cuMemPoolSetAttribute);
    SLR_INSTALL(cuPointerGetAttribute);
    SLR_INSTALL(cuPointerGetAttributes);
}

void slr_alloc_install(void)
{
    if (!slr_get(SLR_S_ENABLE))
        return;
    /* They end what gathers may know of the range (cache/external.c). Also with SLIPRING_ALLOC=off: gathers
     * may use virtual memory that the cache did not make. */
    if (slr_get(SLR_S_ZERO_COPY) && slr_gate_found[SLR_GATE_IX_cuMemUnmap] &&
        slr_gate_found[SLR_GATE_IX_cuMemRelease]) {
        SLR_INSTALL(cuMemUnmap);
        SLR_INSTALL(cuMemRelease);
    }
    if (slr_real.cuDevicePrimaryCtxGetState) { /* these free all of a context's memory */
        SLR_INSTALL(cuDevicePrimaryCtxReset);
        SLR_INSTALL(cuDevicePrimaryCtxReset_v2);
        SLR_INSTALL(cuDevicePrimaryCtxRelease);
        SLR_INSTALL(cuDevicePrimaryCtxRelease_v2);
    }
    /* Ranks of one process may read each other's memory where both are followed. */
    if (slr_real.cuDevicePrimaryCtxGetState && slr_gate_found[SLR_GATE_IX_cuCtxDisablePeerAccess]) {
        SLR_INSTALL(cuCtxDisablePeerAccess);
        SLR_INSTALL(cuCtxEnablePeerAccess);
    }
    if (slr_get(SLR_S_ALLOC) && driver_has_all())
        install_cache();
}
