/* SPDX-License-Identifier: Apache-2.0 */
/* cudaGetDriverEntryPoint*: how NCCL and PyTorch find driver functions. */
#include "rt.h"

#include <dlfcn.h>
#include <stdint.h>

/* Looked up anew each time, like the real runtime: an interposer that was loaded meanwhile is seen. */
static PFN_cuGetProcAddress_v12000 get_proc_address(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *get = driver ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (driver)
        dlclose(driver);
    return (PFN_cuGetProcAddress_v12000)(uintptr_t)get;
}

static cudaError_t entry_point(const char *symbol, void **function, int version, cuuint64_t flags,
                               enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult driver_status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (!symbol || !function)
        return rt_fail(cudaErrorInvalidValue);
    const PFN_cuGetProcAddress_v12000 get = get_proc_address();
    CUresult result = RT_DRIVER(get, symbol, function, version, flags, &driver_status);
    if (result != CUDA_SUCCESS)
        *function = NULL;
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)driver_status;
    /* A caller that takes the status learns "not found" from it, not from the error. */
    return result == CUDA_ERROR_NOT_FOUND && status ? cudaSuccess : rt_done(result);
}

static cuuint64_t flavour(const struct rt_stream_fns *fns, unsigned long long flags)
{
    if (flags == cudaEnableDefault && fns == &rt_per_thread)
        return CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    return flags;
}

RT_BOTH(cudaGetDriverEntryPointByVersion, ptsz,
        (const char *symbol, void **function, unsigned int version, unsigned long long flags,
         enum cudaDriverEntryPointQueryResult *status),
        entry_point(symbol, function, (int)version, flavour(fns, flags), status))

/* The header marks the next one as deprecated, which its twin's declaration would trip over. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
RT_BOTH(cudaGetDriverEntryPoint, ptsz,
        (const char *symbol, void **function, unsigned long long flags, enum cudaDriverEntryPointQueryResult *status),
        entry_point(symbol, function, CUDART_VERSION, flavour(fns, flags), status))
