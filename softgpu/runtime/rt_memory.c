/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, host memory, pointer attributes and IPC handles. */
#include "rt.h"

#include <string.h>

RT_API cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    CUdeviceptr device = 0;
    if (!pointer)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    if (bytes) /* the runtime answers 0 bytes with NULL; the driver would refuse */
        RT_TRY(rt_done(RT_DRIVER(rt_drv.MemAlloc, &device, bytes)));
    *pointer = (void *)device;
    return cudaSuccess;
}

RT_API cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    enum { ELEMENT_BYTES = 4 }; /* only chooses an alignment */
    CUdeviceptr device = 0;
    if (!pointer || !pitch)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.MemAllocPitch, &device, pitch, width, height, ELEMENT_BYTES)));
    *pointer = (void *)device;
    return cudaSuccess;
}

RT_API cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
    CUdeviceptr device = 0;
    if (!pointer || !bytes)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.MemAllocManaged, &device, bytes, flags)));
    *pointer = (void *)device;
    return cudaSuccess;
}

RT_API cudaError_t cudaFree(void *pointer)
{
    RT_TRY(rt_enter()); /* cudaFree(NULL) is the customary way to create the context */
    return pointer ? rt_done(RT_DRIVER(rt_drv.MemFree, rt_ptr(pointer))) : cudaSuccess;
}

static cudaError_t malloc_async(const struct rt_stream_fns *fns, void **pointer, size_t bytes, cudaStream_t stream)
{
    CUdeviceptr device = 0;
    if (!pointer)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_done(RT_DRIVER(fns->MemAllocAsync, &device, bytes, stream)));
    *pointer = (void *)device;
    return cudaSuccess;
}

RT_BOTH(cudaMallocAsync, ptsz, (void **pointer, size_t bytes, cudaStream_t stream),
        malloc_async(fns, pointer, bytes, stream))

static cudaError_t malloc_from_pool(const struct rt_stream_fns *fns, void **pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    CUdeviceptr device = 0;
    if (!pointer)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_done(RT_DRIVER(fns->MemAllocFromPoolAsync, &device, bytes, pool, stream)));
    *pointer = (void *)device;
    return cudaSuccess;
}

RT_BOTH(cudaMallocFromPoolAsync, ptsz, (void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
        malloc_from_pool(fns, pointer, bytes, pool, stream))
RT_STREAM(cudaFreeAsync, ptsz, (void *pointer, cudaStream_t stream), MemFreeAsync, rt_ptr(pointer), stream)

/* The structures of both are laid out alike. */
RT_PLAIN(cudaMemPoolCreate, (cudaMemPool_t * pool, const struct cudaMemPoolProps *props), MemPoolCreate, pool,
         (const CUmemPoolProps *)props)
RT_PLAIN(cudaMemPoolDestroy, (cudaMemPool_t pool), MemPoolDestroy, pool)
RT_PLAIN(cudaMemPoolSetAccess, (cudaMemPool_t pool, const struct cudaMemAccessDesc *map, size_t n), MemPoolSetAccess,
         pool, (const CUmemAccessDesc *)map, n)
RT_PLAIN(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), MemPoolTrimTo, pool, keep)
RT_PLAIN(cudaMemPoolSetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
         MemPoolSetAttribute, pool, (CUmemPool_attribute)attribute, value)
RT_PLAIN(cudaMemPoolGetAttribute, (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
         MemPoolGetAttribute, pool, (CUmemPool_attribute)attribute, value)
RT_PLAIN(cudaMemGetInfo, (size_t * available, size_t *total), MemGetInfo, available, total)

RT_API cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    if (!pointer)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    *pointer = NULL;
    return bytes ? rt_done(RT_DRIVER(rt_drv.MemHostAlloc, pointer, bytes, flags)) : cudaSuccess;
}

RT_API cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

RT_API cudaError_t cudaFreeHost(void *pointer)
{
    RT_TRY(rt_enter());
    return pointer ? rt_done(RT_DRIVER(rt_drv.MemFreeHost, pointer)) : cudaSuccess;
}

RT_PLAIN(cudaHostRegister, (void *pointer, size_t bytes, unsigned int flags), MemHostRegister, pointer, bytes, flags)
RT_PLAIN(cudaHostUnregister, (void *pointer), MemHostUnregister, pointer)
RT_PLAIN(cudaHostGetFlags, (unsigned int *flags, void *pointer), MemHostGetFlags, flags, pointer)

RT_API cudaError_t cudaHostGetDevicePointer(void **device, void *pointer, unsigned int flags)
{
    CUdeviceptr address = 0;
    if (!device)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.MemHostGetDevicePointer, &address, pointer, flags)));
    *device = (void *)address;
    return cudaSuccess;
}

/* What the driver says of a pointer; a pointer that it does not know leaves everything 0. */
struct pointer_facts {
    unsigned int memory_type, managed;
    int ordinal;
    CUdeviceptr device;
    void *host;
};

static CUresult ask(const void *pointer, struct pointer_facts *facts)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *where[] = {&facts->memory_type, &facts->managed, &facts->ordinal, &facts->device, &facts->host};
    memset(facts, 0, sizeof(*facts));
    return RT_DRIVER(rt_drv.PointerGetAttributes, sizeof(which) / sizeof(which[0]), which, where, rt_ptr(pointer));
}

static enum cudaMemoryType type_of(const struct pointer_facts *facts)
{
    if (facts->managed)
        return cudaMemoryTypeManaged;
    switch (facts->memory_type) {
    case CU_MEMORYTYPE_HOST:
        return cudaMemoryTypeHost;
    case CU_MEMORYTYPE_DEVICE:
        return cudaMemoryTypeDevice;
    default:
        return cudaMemoryTypeUnregistered;
    }
}

RT_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer)
{
    struct pointer_facts facts;
    if (!out || !pointer)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_enter());
    RT_TRY(rt_done(ask(pointer, &facts)));
    memset(out, 0, sizeof(*out));
    out->type = type_of(&facts);
    if (out->type == cudaMemoryTypeUnregistered) {
        out->device = cudaInvalidDeviceId;
        out->hostPointer = (void *)(uintptr_t)pointer;
        return cudaSuccess;
    }
    out->device = facts.ordinal;
    out->devicePointer = (void *)facts.device;
    out->hostPointer = facts.host;
    return cudaSuccess;
}

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "one handle, two names");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "one handle, two names");

RT_PLAIN(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *pointer), IpcGetMemHandle, (CUipcMemHandle *)handle,
         rt_ptr(pointer))
RT_PLAIN(cudaIpcCloseMemHandle, (void *pointer), IpcCloseMemHandle, rt_ptr(pointer))
RT_PLAIN(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * handle, cudaEvent_t event), IpcGetEventHandle,
         (CUipcEventHandle *)handle, event)

RT_API cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle driver_handle;
    CUdeviceptr device = 0;
    if (!pointer)
        return rt_fail(cudaErrorInvalidValue);
    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    RT_TRY(rt_enter());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.IpcOpenMemHandle, &device, driver_handle, flags)));
    *pointer = (void *)device;
    return cudaSuccess;
}

RT_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    RT_CALL(rt_drv.IpcOpenEventHandle, event, driver_handle);
}
