/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver has since CUDA 13, for a build with CUDA 12's header: a program that was built for CUDA 12 runs on the
 * newer driver. */
#ifndef SOFTGPU_CUDA13_H
#define SOFTGPU_CUDA13_H

#include <cuda.h>

#if CUDA_VERSION < 13000
#define CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER ((CUresult)36)

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext context);
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context);
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream stream);
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                            CUstream stream);

/* Not supported, so their arguments do not matter (unsupported.def). */
CUresult CUDAAPI cuDeviceGetHostAtomicCapabilities(void);
CUresult CUDAAPI cuGreenCtxGetId(void);
CUresult CUDAAPI cuDeviceGetP2PAtomicCapabilities(void);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(void);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync_ptsz(void);
CUresult CUDAAPI cuMemDiscardBatchAsync(void);
CUresult CUDAAPI cuMemDiscardBatchAsync_ptsz(void);
CUresult CUDAAPI cuMemGetDefaultMemPool(void);
CUresult CUDAAPI cuMemGetMemPool(void);
CUresult CUDAAPI cuMemPrefetchBatchAsync(void);
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(void);
CUresult CUDAAPI cuMemSetMemPool(void);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(void);
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(void);
#endif

#endif
