/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the stand-in CUDA runtime (libcudart of the software GPU).
 *
 * Like the real runtime it is not linked to the driver: the first call opens libcuda.so.1 and takes every driver
 * function from cuGetProcAddress_v2, so a library that interposes the driver sees here what it sees in production.
 */
#ifndef RT_H
#define RT_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cudaProfilerTypedefs.h>
#include <cuda_runtime_api.h>
#include <cuda_profiler_api.h>
#include "rt_driver_table.h"

/* CUDA 12's runtime has the forms with edge data under names of their own. Those without are not here. */
#if CUDART_VERSION < 13000
#undef cudaStreamGetCaptureInfo
#define cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v3
#undef cudaStreamUpdateCaptureDependencies
#define cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_v2
#define cudaGraphGetEdges cudaGraphGetEdges_v2
#define cudaGraphNodeGetDependencies cudaGraphNodeGetDependencies_v2
#define cudaGraphNodeGetDependentNodes cudaGraphNodeGetDependentNodes_v2
#define cudaGraphAddDependencies cudaGraphAddDependencies_v2
#define cudaGraphRemoveDependencies cudaGraphRemoveDependencies_v2
#define cudaGraphAddNode cudaGraphAddNode_v2
#endif

/* The real libcudart_static.a keeps its symbols out of the program's dynamic symbol table; so does this one. */
#ifdef RT_STATIC
#define RT_API __attribute__((visibility("hidden")))
#else
#define RT_API __attribute__((visibility("default")))
#endif

/* The runtime asks for these versions, whose types the header shows only to the driver itself; they did not change. */
typedef PFN_cuDevicePrimaryCtxReset_v11000 PFN_cuDevicePrimaryCtxReset_v7000;

/* Driver functions without a stream argument. A field is NULL when the driver does not have the function. */
struct rt_driver {
#define RT_FIELD(name, version) PFN_cu##name##_v##version name;
#define RT_NONE(...)
    RT_DRIVER_TABLE(RT_FIELD, RT_NONE)
#undef RT_FIELD
};

/* Driver functions whose meaning depends on which stream NULL is. */
struct rt_stream_fns {
#define RT_FIELD(name, version, version_ptsz) PFN_cu##name##_v##version name;
    RT_DRIVER_TABLE(RT_NONE, RT_FIELD)
#undef RT_FIELD
#undef RT_NONE
};

extern struct rt_driver rt_drv;
extern struct rt_stream_fns rt_legacy, rt_per_thread;

/* Loads and initialises the driver, once per process. Does not touch a device. Errors are recorded. */
cudaError_t rt_load(void);

/* rt_load(), then makes sure that the calling thread has a current context: the one it has, else the primary context of
 * its device. Errors are recorded. */
cudaError_t rt_enter(void);

/* The primary context of `ordinal`, retained on first use and kept until cudaDeviceReset. */
cudaError_t rt_primary(int ordinal, CUcontext *out);

/* Records `error` as the thread's last error unless it is cudaSuccess, and returns it. */
cudaError_t rt_fail(cudaError_t error);
/* The same for a driver status. */
cudaError_t rt_done(CUresult result);
/* The runtime's error for a driver status: the same number where the runtime names it, else cudaErrorUnknown. */
cudaError_t rt_map(CUresult result);

/* What a call of a function that the driver lacks returns. */
#define RT_MISSING ((CUresult)cudaErrorCallRequiresNewerDriver)

#define RT_TRY(expression)                                                                                             \
    do {                                                                                                               \
        cudaError_t rt_error_ = (expression);                                                                          \
        if (rt_error_ != cudaSuccess)                                                                                  \
            return rt_error_;                                                                                          \
    } while (0)

/* One driver call, as an expression of type CUresult. */
#define RT_DRIVER(fn, ...) ((fn) ? (fn)(__VA_ARGS__) : RT_MISSING)

/* The body of an entry point that is one driver call. */
#define RT_CALL(fn, ...)                                                                                               \
    do {                                                                                                               \
        RT_TRY(rt_enter());                                                                                            \
        return rt_done(RT_DRIVER(fn, __VA_ARGS__));                                                                    \
    } while (0)

/* An entry point that is one driver call. `params` is parenthesised; the rest are the driver's arguments. */
#define RT_PLAIN(name, params, fn, ...)                                                                                \
    RT_API cudaError_t name params                                                                                     \
    {                                                                                                                  \
        RT_CALL(rt_drv.fn, __VA_ARGS__);                                                                               \
    }

/* An entry point and its per-thread twin (suffix ptsz or ptds). `expression` may use `fns`, the functions of the
 * flavour, and is returned. */
#define RT_BOTH(name, suffix, params, expression)                                                                      \
    RT_API cudaError_t name params                                                                                     \
    {                                                                                                                  \
        const struct rt_stream_fns *const fns = &rt_legacy;                                                            \
        RT_TRY(rt_enter());                                                                                            \
        return expression;                                                                                             \
    }                                                                                                                  \
    RT_API __typeof__(name) name##_##suffix;                                                                           \
    RT_API cudaError_t name##_##suffix params                                                                          \
    {                                                                                                                  \
        const struct rt_stream_fns *const fns = &rt_per_thread;                                                        \
        RT_TRY(rt_enter());                                                                                            \
        return expression;                                                                                             \
    }

/* RT_BOTH where the expression is one driver call. */
#define RT_STREAM(name, suffix, params, fn, ...) RT_BOTH(name, suffix, params, rt_done(RT_DRIVER(fns->fn, __VA_ARGS__)))

static inline CUdeviceptr rt_ptr(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

#endif
