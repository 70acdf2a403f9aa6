/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, primary contexts and the thread's current device. */
#include "rt.h"

#include <pthread.h>

enum { RT_MAX_DEVICES = 64 };

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[RT_MAX_DEVICES];
static _Thread_local int thread_device;

static cudaError_t device_of(int ordinal, CUdevice *device)
{
    int count = 0;
    RT_TRY(rt_load());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceGetCount, &count)));
    if (count == 0)
        return rt_fail(cudaErrorNoDevice);
    if (ordinal < 0 || ordinal >= count || ordinal >= RT_MAX_DEVICES)
        return rt_fail(cudaErrorInvalidDevice);
    return rt_done(RT_DRIVER(rt_drv.DeviceGet, device, ordinal));
}

cudaError_t rt_primary(int ordinal, CUcontext *out)
{
    CUdevice device;
    RT_TRY(device_of(ordinal, &device));
    pthread_mutex_lock(&primary_lock);
    CUresult result = CUDA_SUCCESS;
    if (!primary[ordinal])
        result = RT_DRIVER(rt_drv.DevicePrimaryCtxRetain, &primary[ordinal], device);
    *out = primary[ordinal];
    pthread_mutex_unlock(&primary_lock);
    return rt_done(result);
}

static CUcontext current_context(void)
{
    CUcontext current = NULL;
    return RT_DRIVER(rt_drv.CtxGetCurrent, &current) == CUDA_SUCCESS ? current : NULL;
}

static cudaError_t use_device(int ordinal)
{
    CUcontext context;
    RT_TRY(rt_primary(ordinal, &context));
    return rt_done(RT_DRIVER(rt_drv.CtxSetCurrent, context));
}

cudaError_t rt_enter(void)
{
    RT_TRY(rt_load());
    return current_context() ? cudaSuccess : use_device(thread_device);
}

RT_API cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count)
        return rt_fail(cudaErrorInvalidValue);
    *count = 0;
    RT_TRY(rt_load());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceGetCount, count)));
    return *count ? cudaSuccess : rt_fail(cudaErrorNoDevice);
}

RT_API cudaError_t cudaSetDevice(int ordinal)
{
    RT_TRY(use_device(ordinal));
    thread_device = ordinal;
    return cudaSuccess;
}

/* A driver context that the application made current itself decides, as with the real runtime. */
RT_API cudaError_t cudaGetDevice(int *ordinal)
{
    CUdevice device;
    if (!ordinal)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_load());
    *ordinal = thread_device;
    if (current_context() && RT_DRIVER(rt_drv.CtxGetDevice, &device) == CUDA_SUCCESS)
        *ordinal = device;
    return cudaSuccess;
}

RT_API cudaError_t cudaInitDevice(int ordinal, unsigned int device_flags, unsigned int flags)
{
    CUcontext context;
    (void)device_flags;
    if (flags & ~(unsigned)cudaInitDeviceFlagsAreValid)
        return rt_fail(cudaErrorInvalidValue);
    return rt_primary(ordinal, &context);
}

RT_API cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    CUdevice device;
    int ordinal;
    RT_TRY(cudaGetDevice(&ordinal));
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DevicePrimaryCtxSetFlags, device, flags));
}

RT_API cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    CUdevice device;
    int ordinal, active;
    if (!flags)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(cudaGetDevice(&ordinal));
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DevicePrimaryCtxGetState, device, flags, &active));
}

RT_API cudaError_t cudaDeviceReset(void)
{
    CUdevice device;
    int ordinal;
    RT_TRY(cudaGetDevice(&ordinal));
    RT_TRY(device_of(ordinal, &device));
    RT_DRIVER(rt_drv.CtxSetCurrent, NULL);
    pthread_mutex_lock(&primary_lock);
    CUresult result = RT_DRIVER(rt_drv.DevicePrimaryCtxReset, device);
    primary[ordinal] = NULL;
    pthread_mutex_unlock(&primary_lock);
    return rt_done(result);
}

RT_API cudaError_t cudaDeviceSynchronize(void)
{
    RT_TRY(rt_enter());
    return rt_done(rt_drv.CtxSynchronize ? rt_drv.CtxSynchronize() : RT_MISSING);
}

RT_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
    CUdevice device;
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DeviceGetAttribute, value, (CUdevice_attribute)attribute, device));
}

RT_API cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int ordinal)
{
    CUdevice device;
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DeviceGetPCIBusId, id, length, device));
}

RT_API cudaError_t cudaDeviceGetByPCIBusId(int *ordinal, const char *id)
{
    CUdevice device = 0;
    if (!ordinal || !id)
        return rt_fail(cudaErrorInvalidValue);
    RT_TRY(rt_load());
    RT_TRY(rt_done(RT_DRIVER(rt_drv.DeviceGetByPCIBusId, &device, id)));
    *ordinal = device;
    return cudaSuccess;
}

RT_API cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int source, int destination)
{
    CUdevice from, to;
    RT_TRY(device_of(source, &from));
    RT_TRY(device_of(destination, &to));
    return rt_done(RT_DRIVER(rt_drv.DeviceGetP2PAttribute, value, (CUdevice_P2PAttribute)attribute, from, to));
}

RT_API cudaError_t cudaDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
    CUdevice from, to;
    RT_TRY(device_of(ordinal, &from));
    RT_TRY(device_of(peer, &to));
    return rt_done(RT_DRIVER(rt_drv.DeviceCanAccessPeer, can, from, to));
}

RT_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context;
    RT_TRY(rt_enter());
    RT_TRY(rt_primary(peer, &context));
    return rt_done(RT_DRIVER(rt_drv.CtxEnablePeerAccess, context, flags));
}

RT_API cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext context;
    RT_TRY(rt_enter());
    RT_TRY(rt_primary(peer, &context));
    return rt_done(RT_DRIVER(rt_drv.CtxDisablePeerAccess, context));
}

RT_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal)
{
    CUdevice device;
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DeviceGetDefaultMemPool, pool, device));
}

RT_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal)
{
    CUdevice device;
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DeviceGetMemPool, pool, device));
}

RT_API cudaError_t cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool)
{
    CUdevice device;
    RT_TRY(device_of(ordinal, &device));
    return rt_done(RT_DRIVER(rt_drv.DeviceSetMemPool, device, pool));
}

RT_API cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version)
        return rt_fail(cudaErrorInvalidValue);
    *version = 0; /* what the real runtime reports where there is no driver */
    const cudaError_t error = rt_load();
    if (error == cudaErrorInsufficientDriver && !rt_drv.DriverGetVersion)
        return cudaGetLastError(), cudaSuccess;
    return rt_done(RT_DRIVER(rt_drv.DriverGetVersion, version));
}

RT_API cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return rt_fail(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

RT_PLAIN(cudaDeviceGetLimit, (size_t * value, enum cudaLimit limit), CtxGetLimit, value, (CUlimit)limit)
RT_PLAIN(cudaDeviceSetLimit, (enum cudaLimit limit, size_t value), CtxSetLimit, (CUlimit)limit, value)
RT_PLAIN(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), CtxGetStreamPriorityRange, least, greatest)

RT_API cudaError_t cudaProfilerStart(void)
{
    RT_TRY(rt_enter());
    return rt_done(rt_drv.ProfilerStart ? rt_drv.ProfilerStart() : RT_MISSING);
}

RT_API cudaError_t cudaProfilerStop(void)
{
    RT_TRY(rt_enter());
    return rt_done(rt_drv.ProfilerStop ? rt_drv.ProfilerStop() : RT_MISSING);
}
