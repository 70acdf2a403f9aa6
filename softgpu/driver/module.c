/* SPDX-License-Identifier: Apache-2.0 */
/* There is no device code here but what module_ptx.c knows: loading other modules, or a library, says that no image fits
 * this device. Also the remaining calls that have a trivial but true answer. */
#include "sg.h"
#include <cudaProfiler.h>
#include <string.h>

#define SG_NO_IMAGE(symbol, params, need)                                                                              \
    CUresult CUDAAPI symbol params                                                                                     \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        return (need) ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_VALUE;                                       \
    }

SG_NO_IMAGE(cuModuleLoad, (CUmodule * module, const char *fname), module &&fname)
SG_NO_IMAGE(cuModuleLoadFatBinary, (CUmodule * module, const void *fatCubin), module &&fatCubin)
SG_NO_IMAGE(cuLibraryLoadData,
            (CUlibrary * library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
             unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
             unsigned int numLibraryOptions),
            library &&code && (!numJitOptions || (jitOptions && jitOptionsValues)) &&
                (!numLibraryOptions || libraryOptions || libraryOptionValues))
SG_NO_IMAGE(cuLibraryLoadFromFile,
            (CUlibrary * library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
             unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
             unsigned int numLibraryOptions),
            library &&fileName && (!numJitOptions || (jitOptions && jitOptionsValues)) &&
                (!numLibraryOptions || libraryOptions || libraryOptionValues))

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    SG_ENTER(cuModuleGetLoadingMode);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuProfilerStart(void)
{
    SG_ENTER(cuProfilerStart);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuProfilerStop(void)
{
    SG_ENTER(cuProfilerStop);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                            CUflushGPUDirectRDMAWritesScope scope)
{
    SG_ENTER(cuFlushGPUDirectRDMAWrites);
    (void)target;
    (void)scope;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult known_memory(CUdeviceptr p)
{
    sg_acquire();
    bool ok = sg_mem_find_locked(p);
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    SG_ENTER(cuMemAdvise_v2);
    (void)count;
    (void)advice;
    (void)location;
    return known_memory(devPtr);
}

static CUresult cuMemPrefetchAsync_v2_on(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                         CUstream hStream)
{
    CUresult rc = flags || !count || location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                                                   : known_memory(devPtr);
    return rc ? rc : sg_submit(hStream, sg_op_new(SG_OP_ORDER, "cuMemPrefetchAsync"));
}
SG_PAIR(cuMemPrefetchAsync_v2, _ptsz,
        (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream),
        (devPtr, count, location, flags, hStream), (devPtr, count, location, flags, SG_PT(hStream)))
