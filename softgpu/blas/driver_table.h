/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as the stand-in libraries see it: a table of functions, each looked up by name with cuGetProcAddress, as
 * the real libraries do, so that whatever interposes the look-up sees every call. Shared by cuBLASLt, cuBLAS and NCCL;
 * each library has its own copy of the table. */
#ifndef SOFTGPU_DRIVER_TABLE_H
#define SOFTGPU_DRIVER_TABLE_H

#include <cuda.h>
#include "../softgpu.h"

/* CUDA 12's header has these forms under names of their own. */
#if CUDA_VERSION < 13000
#undef cuDeviceGetUuid
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#undef cuGraphAddDependencies
#define cuGraphAddDependencies cuGraphAddDependencies_v2
#undef cuStreamGetCaptureInfo
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v3
#undef cuStreamUpdateCaptureDependencies
#define cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2
#endif

#define SOFTDRV_FUNCTIONS(X)                                                                                           \
    X(cuInit)                                                                                                          \
    X(cuCtxEnablePeerAccess)                                                                                           \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxGetDevice)                                                                                                  \
    X(cuCtxSynchronize)                                                                                                \
    X(cuDeviceCanAccessPeer)                                                                                           \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGetUuid)                                                                                                 \
    X(cuDeviceGetPCIBusId)                                                                                             \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy)                                                                                                  \
    X(cuEventRecord)                                                                                                   \
    X(cuGraphAddDependencies)                                                                                          \
    X(cuGraphAddEventRecordNode)                                                                                       \
    X(cuGraphRetainUserObject)                                                                                         \
    X(cuLaunchKernel)                                                                                                  \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemCreate)                                                                                                     \
    X(cuMemFree)                                                                                                       \
    X(cuMemGetAddressRange)                                                                                            \
    X(cuMemGetAllocationGranularity)                                                                                   \
    X(cuMemMap)                                                                                                        \
    X(cuMemRelease)                                                                                                    \
    X(cuMemRetainAllocationHandle)                                                                                     \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemcpyDtoH)                                                                                                    \
    X(cuMemcpyDtoHAsync)                                                                                               \
    X(cuMemcpyHtoD)                                                                                                    \
    X(cuMemcpyHtoDAsync)                                                                                               \
    X(cuMemsetD32Async)                                                                                                \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamDestroy)                                                                                                 \
    X(cuStreamGetCaptureInfo)                                                                                          \
    X(cuStreamUpdateCaptureDependencies)                                                                               \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuUserObjectCreate)

struct softdrv {
#define SOFTDRV_FIELD(name) __typeof__(name) *name;
    SOFTDRV_FUNCTIONS(SOFTDRV_FIELD)
#undef SOFTDRV_FIELD
    softgpuKernelRegister_t kernel_register;
    softgpuComputeOff_t compute_off;
    softgpuNcclBlind_t nccl_blind;
    softgpuCaptureForbids_t capture_forbids;
    softgpuMisuse_t misuse;
};

/* The table, or NULL when there is no driver or a function is missing (said once on stderr). Thread safe. */
const struct softdrv *softdrv_get(void);

/* Makes sure that the calling thread has a current context: the one that is current, else device 0's primary context,
 * as a library with its own CUDA runtime would do. */
CUresult softdrv_need_context(const struct softdrv *drv, CUcontext *ctx);

#endif
