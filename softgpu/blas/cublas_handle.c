/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS's handle: stream, pointer mode, math mode, workspace and the other settings. */
#include "cublas_handle.h"

#include <stdlib.h>

/* The real library allocates a workspace with the handle; whoever watches allocations should see one here too. */
#define DEFAULT_WORKSPACE_BYTES (4u << 20)

struct cublasContext *cublas_handle(cublasHandle_t handle)
{
    return handle && atomic_load(&handle->lt.magic) == LT_HANDLE_MAGIC ? handle : NULL;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct softdrv *drv = softdrv_get();
    CUcontext ctx;
    if (!drv || softdrv_need_context(drv, &ctx) != CUDA_SUCCESS)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct cublasContext *h = calloc(1, sizeof *h);
    if (!h)
        return CUBLAS_STATUS_ALLOC_FAILED;
    if (drv->cuMemAlloc(&h->own_workspace, DEFAULT_WORKSPACE_BYTES) != CUDA_SUCCESS) {
        free(h);
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    h->ctx = ctx;
    atomic_store(&h->lt.magic, LT_HANDLE_MAGIC);
    *handle = h;
    return CUBLAS_STATUS_SUCCESS;
}

/* Synchronizes the device, as the manual says of cublasDestroy. */
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    if (!cublas_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    const struct softdrv *drv = softdrv_get();
    CUcontext before = NULL;
    atomic_store(&handle->lt.magic, 0);
    drv->cuCtxGetCurrent(&before);
    drv->cuCtxSetCurrent(handle->ctx);
    drv->cuCtxSynchronize();
    drv->cuMemFree(handle->own_workspace);
    drv->cuCtxSetCurrent(before);
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    (void)handle; /* NULL is allowed */
    if (!version)
        return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    return blas_property(type, value);
}

size_t cublasGetCudartVersion(void)
{
    return CUDART_VERSION;
}

const char *cublasGetStatusName(cublasStatus_t status)
{
    return blas_status_name(status);
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return blas_status_text(status);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    if (!cublas_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    handle->workspace = NULL; /* the manual: cublasSetStream resets the workspace to the default one */
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    if (!cublas_handle(handle))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((bytes && !workspace) || ((uintptr_t)workspace & 255))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

#define GETTER(function, type, field)                                                                                  \
    cublasStatus_t function(cublasHandle_t handle, type *out)                                                          \
    {                                                                                                                  \
        if (!cublas_handle(handle))                                                                                    \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        if (!out)                                                                                                      \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        *out = handle->field;                                                                                          \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }

#define SETTER(function, type, field, valid)                                                                           \
    cublasStatus_t function(cublasHandle_t handle, type value)                                                         \
    {                                                                                                                  \
        if (!cublas_handle(handle))                                                                                    \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        if (!(valid))                                                                                                  \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        handle->field = value;                                                                                         \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }

static int math_mode_ok(unsigned mode)
{
    unsigned base = mode & ~(unsigned)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    return base <= CUBLAS_FP32_EMULATED_BF16X9_MATH || base == CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH;
}

GETTER(cublasGetStream_v2, cudaStream_t, stream)
GETTER(cublasGetPointerMode_v2, cublasPointerMode_t, pointer_mode)
GETTER(cublasGetAtomicsMode, cublasAtomicsMode_t, atomics_mode)
GETTER(cublasGetMathMode, cublasMath_t, math_mode)
GETTER(cublasGetSmCountTarget, int, sm_target)
GETTER(cublasGetFixedPointEmulationMantissaBitCountPointer, int *, bits)
SETTER(cublasSetPointerMode_v2, cublasPointerMode_t, pointer_mode, (unsigned)value <= CUBLAS_POINTER_MODE_DEVICE)
SETTER(cublasSetAtomicsMode, cublasAtomicsMode_t, atomics_mode, (unsigned)value <= CUBLAS_ATOMICS_ALLOWED)
SETTER(cublasSetMathMode, cublasMath_t, math_mode, math_mode_ok(value))
SETTER(cublasSetSmCountTarget, int, sm_target, value >= 0)
SETTER(cublasSetFixedPointEmulationMantissaBitCountPointer, int *, bits, 1)
