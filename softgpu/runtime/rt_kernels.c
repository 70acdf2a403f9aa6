/* SPDX-License-Identifier: Apache-2.0 */
/* What nvcc's host code calls. The software GPU executes no device code, so programs with kernels load and start, and
 * each launch says that there is no kernel image for the device. */
#include "rt.h"

struct launch_config {
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
};

enum { MAX_NESTED_LAUNCHES = 8 };
static _Thread_local struct launch_config configs[MAX_NESTED_LAUNCHES];
static _Thread_local unsigned config_count;

RT_API void **__cudaRegisterFatBinary(void *image);
RT_API void __cudaRegisterFatBinaryEnd(void **handle);
RT_API void __cudaUnregisterFatBinary(void **handle);
RT_API char __cudaInitModule(void **handle);
RT_API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                                   uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
RT_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
                              int constant, int global);
RT_API void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external,
                                     size_t bytes, int constant, int global);
RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream);
RT_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
RT_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
RT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                      cudaStream_t stream);
RT_API __typeof__(__cudaLaunchKernel) __cudaLaunchKernel_ptsz;

RT_API void **__cudaRegisterFatBinary(void *image)
{
    static void *registered;
    (void)image;
    return &registered;
}

RT_API void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

RT_API void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

RT_API char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

RT_API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
                                   uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    (void)handle, (void)host, (void)device, (void)name, (void)thread_limit;
    (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
}

RT_API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
                              int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)external, (void)bytes, (void)constant, (void)global;
}

RT_API void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external,
                                     size_t bytes, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)external, (void)bytes, (void)constant, (void)global;
}

RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream)
{
    if (config_count == MAX_NESTED_LAUNCHES)
        return 1;
    configs[config_count++] = (struct launch_config){grid, block, shared_bytes, stream};
    return 0;
}

RT_API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (config_count == 0)
        return rt_fail(cudaErrorMissingConfiguration);
    const struct launch_config *config = &configs[--config_count];
    *grid = config->grid;
    *block = config->block;
    *shared_bytes = config->shared_bytes;
    *(void **)stream = config->stream;
    return cudaSuccess;
}

RT_API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = (cudaKernel_t)(uintptr_t)function; /* only passed back to __cudaLaunchKernel */
    return cudaSuccess;
}

#define LAUNCH(name, params) RT_BOTH(name, ptsz, params, ((void)fns, rt_fail(cudaErrorNoKernelImageForDevice)))

#pragma GCC diagnostic ignored "-Wunused-parameter"
LAUNCH(__cudaLaunchKernel,
       (cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream))
LAUNCH(cudaLaunchKernel,
       (const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream))
LAUNCH(cudaLaunchCooperativeKernel,
       (const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream))
LAUNCH(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *function, void **args))

RT_API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function)
{
    return rt_fail(cudaErrorNoKernelImageForDevice);
}

RT_API cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    return rt_fail(cudaErrorNoKernelImageForDevice);
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                                 size_t shared_bytes)
{
    return rt_fail(cudaErrorNoKernelImageForDevice);
}

RT_API cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol)
{
    return rt_fail(cudaErrorInvalidSymbol);
}
