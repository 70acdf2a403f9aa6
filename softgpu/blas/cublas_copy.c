/* SPDX-License-Identifier: Apache-2.0 */
/* cublasSetVector, cublasGetMatrix and their kin: strided copies between host and device, one driver copy per element
 * or column unless both sides are packed. */
#include "cublas_handle.h"

enum direction { TO_DEVICE, TO_HOST };

struct copy {
    enum direction dir;
    int async;
    cudaStream_t stream;
};

static CUresult copy_bytes(const struct softdrv *drv, const struct copy *c, const char *src, char *dst, size_t bytes)
{
    if (c->dir == TO_DEVICE)
        return c->async ? drv->cuMemcpyHtoDAsync((CUdeviceptr)dst, src, bytes, c->stream)
                        : drv->cuMemcpyHtoD((CUdeviceptr)dst, src, bytes);
    return c->async ? drv->cuMemcpyDtoHAsync(dst, (CUdeviceptr)src, bytes, c->stream)
                    : drv->cuMemcpyDtoH(dst, (CUdeviceptr)src, bytes);
}

/* `cols` runs of `rows` elements, lds and ldd elements apart. */
static cublasStatus_t copy_matrix(const struct copy *c, int64_t rows, int64_t cols, int64_t esz, const void *src,
                                  int64_t lds, void *dst, int64_t ldd)
{
    if (rows < 0 || cols < 0 || esz <= 0 || lds <= 0 || ldd <= 0 || lds < rows || ldd < rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    const struct softdrv *drv = softdrv_get();
    CUcontext ctx;
    if (!drv || softdrv_need_context(drv, &ctx) != CUDA_SUCCESS)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (lds == rows && ldd == rows) {
        rows *= cols;
        cols = rows ? 1 : 0;
    }
    for (int64_t j = 0; rows && j < cols; j++)
        if (copy_bytes(drv, c, (const char *)src + j * lds * esz, (char *)dst + j * ldd * esz, (size_t)(rows * esz)) !=
            CUDA_SUCCESS)
            return CUBLAS_STATUS_MAPPING_ERROR;
    return CUBLAS_STATUS_SUCCESS;
}

/* A strided vector is a matrix with one row. */
#define VECTOR(name, direction, index)                                                                                 \
    cublasStatus_t name(index n, index esz, const void *x, index incx, void *y, index incy)                            \
    {                                                                                                                  \
        struct copy c = {.dir = direction};                                                                            \
        return n < 0 ? CUBLAS_STATUS_INVALID_VALUE : copy_matrix(&c, 1, n, esz, x, incx, y, incy);                     \
    }
#define VECTOR_ASYNC(name, direction, index)                                                                           \
    cublasStatus_t name(index n, index esz, const void *x, index incx, void *y, index incy, cudaStream_t stream)       \
    {                                                                                                                  \
        struct copy c = {.dir = direction, .async = 1, .stream = stream};                                              \
        return n < 0 ? CUBLAS_STATUS_INVALID_VALUE : copy_matrix(&c, 1, n, esz, x, incx, y, incy);                     \
    }
#define MATRIX(name, direction, index)                                                                                 \
    cublasStatus_t name(index rows, index cols, index esz, const void *A, index lda, void *B, index ldb)               \
    {                                                                                                                  \
        struct copy c = {.dir = direction};                                                                            \
        return copy_matrix(&c, rows, cols, esz, A, lda, B, ldb);                                                       \
    }
#define MATRIX_ASYNC(name, direction, index)                                                                           \
    cublasStatus_t name(index rows, index cols, index esz, const void *A, index lda, void *B, index ldb,               \
                        cudaStream_t stream)                                                                           \
    {                                                                                                                  \
        struct copy c = {.dir = direction, .async = 1, .stream = stream};                                              \
        return copy_matrix(&c, rows, cols, esz, A, lda, B, ldb);                                                       \
    }
#define BOTH_INDEX_TYPES(kind, name, direction) kind(name, direction, int) kind(name##_64, direction, int64_t)

BOTH_INDEX_TYPES(VECTOR, cublasSetVector, TO_DEVICE)
BOTH_INDEX_TYPES(VECTOR, cublasGetVector, TO_HOST)
BOTH_INDEX_TYPES(VECTOR_ASYNC, cublasSetVectorAsync, TO_DEVICE)
BOTH_INDEX_TYPES(VECTOR_ASYNC, cublasGetVectorAsync, TO_HOST)
BOTH_INDEX_TYPES(MATRIX, cublasSetMatrix, TO_DEVICE)
BOTH_INDEX_TYPES(MATRIX, cublasGetMatrix, TO_HOST)
BOTH_INDEX_TYPES(MATRIX_ASYNC, cublasSetMatrixAsync, TO_DEVICE)
BOTH_INDEX_TYPES(MATRIX_ASYNC, cublasGetMatrixAsync, TO_HOST)
