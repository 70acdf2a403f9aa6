/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. The kind chooses the driver function, as in the real runtime. */
#include "rt.h"

static cudaError_t copy(const struct rt_stream_fns *fns, void *to, const void *from, size_t bytes,
                        enum cudaMemcpyKind kind)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return rt_done(RT_DRIVER(fns->MemcpyHtoD, rt_ptr(to), from, bytes));
    case cudaMemcpyDeviceToHost:
        return rt_done(RT_DRIVER(fns->MemcpyDtoH, to, rt_ptr(from), bytes));
    case cudaMemcpyDeviceToDevice:
        return rt_done(RT_DRIVER(fns->MemcpyDtoD, rt_ptr(to), rt_ptr(from), bytes));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return rt_done(RT_DRIVER(fns->Memcpy, rt_ptr(to), rt_ptr(from), bytes));
    }
    return rt_fail(cudaErrorInvalidMemcpyDirection);
}

static cudaError_t copy_async(const struct rt_stream_fns *fns, void *to, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return rt_done(RT_DRIVER(fns->MemcpyHtoDAsync, rt_ptr(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost:
        return rt_done(RT_DRIVER(fns->MemcpyDtoHAsync, to, rt_ptr(from), bytes, stream));
    case cudaMemcpyDeviceToDevice:
        return rt_done(RT_DRIVER(fns->MemcpyDtoDAsync, rt_ptr(to), rt_ptr(from), bytes, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return rt_done(RT_DRIVER(fns->MemcpyAsync, rt_ptr(to), rt_ptr(from), bytes, stream));
    }
    return rt_fail(cudaErrorInvalidMemcpyDirection);
}

RT_BOTH(cudaMemcpy, ptds, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
        bytes ? copy(fns, to, from, bytes, kind) : cudaSuccess)
RT_BOTH(cudaMemcpyAsync, ptsz,
        (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
        bytes ? copy_async(fns, to, from, bytes, kind, stream) : cudaSuccess)

/* Peer copies have no per-thread twin in the runtime. */
RT_API cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    CUcontext to_context, from_context;
    RT_TRY(rt_enter());
    RT_TRY(rt_primary(to_device, &to_context));
    RT_TRY(rt_primary(from_device, &from_context));
    return rt_done(RT_DRIVER(rt_legacy.MemcpyPeer, rt_ptr(to), to_context, rt_ptr(from), from_context, bytes));
}

RT_API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                       cudaStream_t stream)
{
    CUcontext to_context, from_context;
    RT_TRY(rt_enter());
    RT_TRY(rt_primary(to_device, &to_context));
    RT_TRY(rt_primary(from_device, &from_context));
    return rt_done(
        RT_DRIVER(rt_legacy.MemcpyPeerAsync, rt_ptr(to), to_context, rt_ptr(from), from_context, bytes, stream));
}

struct plane {
    const void *base;
    size_t pitch;
};

static CUmemorytype side_of(enum cudaMemcpyKind kind, int is_source)
{
    if (kind == cudaMemcpyDefault)
        return CU_MEMORYTYPE_UNIFIED;
    const int host = is_source ? kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost
                               : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static cudaError_t describe_2d(CUDA_MEMCPY2D *copy2d, struct plane to, struct plane from, size_t width, size_t height,
                               enum cudaMemcpyKind kind)
{
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return rt_fail(cudaErrorInvalidMemcpyDirection);
    if (width > to.pitch || width > from.pitch)
        return rt_fail(cudaErrorInvalidPitchValue);
    *copy2d = (CUDA_MEMCPY2D){
        .srcMemoryType = side_of(kind, 1),
        .srcHost = from.base,
        .srcDevice = rt_ptr(from.base),
        .srcPitch = from.pitch,
        .dstMemoryType = side_of(kind, 0),
        .dstHost = (void *)(uintptr_t)to.base,
        .dstDevice = rt_ptr(to.base),
        .dstPitch = to.pitch,
        .WidthInBytes = width,
        .Height = height,
    };
    return cudaSuccess;
}

static cudaError_t copy_2d(const struct rt_stream_fns *fns, struct plane to, struct plane from, size_t width,
                           size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy2d;
    RT_TRY(describe_2d(&copy2d, to, from, width, height, kind));
    return width && height ? rt_done(RT_DRIVER(fns->Memcpy2DUnaligned, &copy2d)) : cudaSuccess;
}

static cudaError_t copy_2d_async(const struct rt_stream_fns *fns, struct plane to, struct plane from, size_t width,
                                 size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D copy2d;
    RT_TRY(describe_2d(&copy2d, to, from, width, height, kind));
    return width && height ? rt_done(RT_DRIVER(fns->Memcpy2DAsync, &copy2d, stream)) : cudaSuccess;
}

#define PLANE(base, pitch) ((struct plane){base, pitch})
RT_BOTH(cudaMemcpy2D, ptds,
        (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
         enum cudaMemcpyKind kind),
        copy_2d(fns, PLANE(to, to_pitch), PLANE(from, from_pitch), width, height, kind))
RT_BOTH(cudaMemcpy2DAsync, ptsz,
        (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
         enum cudaMemcpyKind kind, cudaStream_t stream),
        copy_2d_async(fns, PLANE(to, to_pitch), PLANE(from, from_pitch), width, height, kind, stream))

RT_BOTH(cudaMemset, ptds, (void *to, int value, size_t bytes),
        bytes ? rt_done(RT_DRIVER(fns->MemsetD8, rt_ptr(to), (unsigned char)value, bytes)) : cudaSuccess)
RT_BOTH(cudaMemsetAsync, ptsz, (void *to, int value, size_t bytes, cudaStream_t stream),
        bytes ? rt_done(RT_DRIVER(fns->MemsetD8Async, rt_ptr(to), (unsigned char)value, bytes, stream)) : cudaSuccess)
RT_STREAM(cudaMemset2D, ptds, (void *to, size_t pitch, int value, size_t width, size_t height), MemsetD2D8, rt_ptr(to),
          pitch, (unsigned char)value, width, height)
RT_STREAM(cudaMemset2DAsync, ptsz,
          (void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream), MemsetD2D8Async,
          rt_ptr(to), pitch, (unsigned char)value, width, height, stream)
