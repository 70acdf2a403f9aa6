/* SPDX-License-Identifier: Apache-2.0 */
#include "blas_types.h"

#define STATUS_CODES(X)                                                                                                \
    X(CUBLAS_STATUS_SUCCESS, "success")                                                                                \
    X(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized")                                                \
    X(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed")                                                    \
    X(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function")                     \
    X(CUBLAS_STATUS_ARCH_MISMATCH, "the function requires an architectural feature absent from the architecture")      \
    X(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed")                                             \
    X(CUBLAS_STATUS_EXECUTION_FAILED, "the GPU program failed to execute")                                             \
    X(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed")                                                    \
    X(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality requested is not supported")                                     \
    X(CUBLAS_STATUS_LICENSE_ERROR, "the functionality requested requires some license")

const char *blas_status_name(cublasStatus_t status)
{
    switch (status) {
#define NAME(code, text)                                                                                               \
    case code:                                                                                                         \
        return #code;
        STATUS_CODES(NAME)
#undef NAME
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

const char *blas_status_text(cublasStatus_t status)
{
    switch (status) {
#define TEXT(code, text)                                                                                               \
    case code:                                                                                                         \
        return text;
        STATUS_CODES(TEXT)
#undef TEXT
    }
    return "unknown status";
}

cublasStatus_t blas_property(libraryPropertyType type, int *value)
{
    if (!value)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (type) {
    case MAJOR_VERSION:
        *value = CUBLAS_VER_MAJOR;
        return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
        *value = CUBLAS_VER_MINOR;
        return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
        *value = CUBLAS_VER_PATCH;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
