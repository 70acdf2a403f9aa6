/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the driver and its functions. */
#include "rt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

struct rt_driver rt_drv;
struct rt_stream_fns rt_legacy, rt_per_thread;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static cudaError_t load_error;

static void *look_up(PFN_cuGetProcAddress_v12000 get, const char *symbol, int version, cuuint64_t flags)
{
    void *function = NULL;
    return get(symbol, &function, version, flags, NULL) == CUDA_SUCCESS ? function : NULL;
}

static void look_up_all(PFN_cuGetProcAddress_v12000 get)
{
    const cuuint64_t plain = CU_GET_PROC_ADDRESS_DEFAULT;
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

    /* The real runtime starts with these three. Their results are not used here, but an interposer has to cope. */
    look_up(get, "", 0, plain);
    look_up(get, "cuGetProcAddress", 11030, plain);
    look_up(get, "cuGetProcAddress", 12000, plain);
#define RT_PLAIN_LOOK_UP(name, version)                                                                                \
    rt_drv.name = (PFN_cu##name##_v##version)(uintptr_t)look_up(get, "cu" #name, version, plain);
#define RT_STREAM_LOOK_UP(name, version, version_ptsz)                                                                 \
    rt_legacy.name = (PFN_cu##name##_v##version)(uintptr_t)look_up(get, "cu" #name, version, plain);                   \
    rt_per_thread.name = (PFN_cu##name##_v##version)(uintptr_t)look_up(get, "cu" #name, version_ptsz, per_thread);
    RT_DRIVER_TABLE(RT_PLAIN_LOOK_UP, RT_STREAM_LOOK_UP)
}

static cudaError_t load(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return cudaErrorInsufficientDriver;
    void *get = dlsym(driver, "cuGetProcAddress_v2");
    if (!get)
        return cudaErrorInsufficientDriver;
    look_up_all((PFN_cuGetProcAddress_v12000)(uintptr_t)get);

    int version = 0;
    if (RT_DRIVER(rt_drv.DriverGetVersion, &version) != CUDA_SUCCESS || version / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return rt_map(RT_DRIVER(rt_drv.Init, 0));
}

static void load_and_keep(void)
{
    load_error = load();
}

cudaError_t rt_load(void)
{
    pthread_once(&load_once, load_and_keep);
    return rt_fail(load_error);
}
