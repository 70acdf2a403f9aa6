/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTGPU_CUBLAS_HANDLE_H
#define SOFTGPU_CUBLAS_HANDLE_H

#include "blas_types.h"
#include "driver_table.h"

#if CUBLAS_VER_MAJOR < 13 /* its headers do not have them */
__attribute__((visibility("default"))) cublasStatus_t
cublasGetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int **bits);
__attribute__((visibility("default"))) cublasStatus_t
cublasSetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int *bits);
#endif

struct cublasContext {
    struct lt_handle lt; /* first: a cublasHandle_t is a valid cublasLtHandle_t */
    CUcontext ctx;       /* the context that was current when the handle was made */
    CUdeviceptr own_workspace;
    void *workspace; /* the caller's, or NULL */
    size_t workspace_bytes;
    cudaStream_t stream;
    cublasPointerMode_t pointer_mode;
    cublasAtomicsMode_t atomics_mode;
    cublasMath_t math_mode;
    int sm_target;
    int *bits; /* device memory that emulated products of fp64 write; NULL: none */
};

/* The handle if it is a live one, else NULL. */
struct cublasContext *cublas_handle(cublasHandle_t handle);

#endif
