/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's handle and its small queries. */
#include "blas_types.h"
#include "driver_table.h"

#include <stdlib.h>

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct softdrv *drv = softdrv_get();
    CUcontext ctx;
    if (!drv || softdrv_need_context(drv, &ctx) != CUDA_SUCCESS)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct lt_handle *h = calloc(1, sizeof *h);
    if (!h)
        return CUBLAS_STATUS_ALLOC_FAILED;
    atomic_store(&h->magic, LT_HANDLE_MAGIC);
    *handle = (cublasLtHandle_t)h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    struct lt_handle *h = (struct lt_handle *)handle;
    if (!h || atomic_exchange(&h->magic, 0) != LT_HANDLE_MAGIC)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return blas_status_name(status);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return blas_status_text(status);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value)
{
    return blas_property(type, value);
}
