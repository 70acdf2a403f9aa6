/* SPDX-License-Identifier: Apache-2.0 */
/* One GEMM against a plain double-precision reference. Operands are small integers, so every type's result is exact. */
#ifndef SOFTGPU_TEST_GEMM_CASE_H
#define SOFTGPU_TEST_GEMM_CASE_H

#include "cu.h"
#include <cublas_v2.h>
#include <stddef.h>
#include <stdint.h>

struct matrix {
    cudaDataType type;
    int64_t rows, cols, ld, stride;
    int batch;
    double *host; /* what is on the device, as doubles; [stride * batch] */
    CUdeviceptr dev;
    size_t count; /* elements of the whole allocation */
};

struct gemm_case {
    cublasOperation_t ta, tb;
    int64_t m, n, k, pad; /* pad: added to each leading dimension and to the space between batch entries */
    int batch;
    double alpha, beta;
    cudaDataType ab, c;
};

size_t type_size(cudaDataType type);
double get(cudaDataType type, const void *base, size_t i);
void put(cudaDataType type, void *base, size_t i, double v);

struct matrix matrix_new(const struct cu *cu, cudaDataType type, int64_t rows, int64_t cols, int64_t pad, int batch,
                         unsigned seed);
void matrix_upload(const struct cu *cu, struct matrix *m);
void matrix_free(const struct cu *cu, struct matrix *m);

/* C as it must be after the call: entries outside of the matrix keep their value. `bias` (m values) or NULL. */
double *reference(const struct gemm_case *g, const struct matrix *a, const struct matrix *b, const struct matrix *c,
                  const double *bias);
/* The number of entries of the device's C that differ from `want`; the first one is printed. */
size_t differences(const struct cu *cu, const struct gemm_case *g, const struct matrix *c, const double *want);

#endif
