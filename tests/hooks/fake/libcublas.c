/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS that does nothing but note which GEMM function was called. */
#include <cublas_v2.h>

const char *fake_cublas_last(void);
static _Thread_local const char *last = "";

const char *fake_cublas_last(void)
{
    const char *name = last;
    last = "";
    return name;
}

#define FAKE(name)                                                                                                     \
    cublasStatus_t name##_called(void) __asm__(#name);                                                                 \
    cublasStatus_t name##_called(void)                                                                                 \
    {                                                                                                                  \
        last = #name;                                                                                                  \
        return CUBLAS_STATUS_NOT_SUPPORTED; /* a result that no wrapper makes up */                                    \
    }
FAKE(cublasGetStream_v2)
FAKE(cublasDestroy_v2)
FAKE(cublasGemmEx)
FAKE(cublasGemmEx_64)
FAKE(cublasSgemm_v2)
FAKE(cublasSgemm_v2_64)
FAKE(cublasDgemm_v2)
FAKE(cublasDgemm_v2_64)
FAKE(cublasHgemm)
FAKE(cublasHgemm_64)
FAKE(cublasGemmStridedBatchedEx)

/* These take every handle but NULL. */
#define FAKE_SET(name)                                                                                                 \
    cublasStatus_t name##_called(void *handle) __asm__(#name);                                                         \
    cublasStatus_t name##_called(void *handle)                                                                         \
    {                                                                                                                  \
        last = #name;                                                                                                  \
        return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;                                         \
    }
FAKE_SET(cublasSetWorkspace_v2)
FAKE_SET(cublasSetStream_v2)
