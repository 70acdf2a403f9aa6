/* SPDX-License-Identifier: Apache-2.0 */
/* The GEMM kernel of the stand-in cuBLAS: D = epilogue(alpha * op(A) * op(B) + beta * C + bias), column-major. */
#ifndef SOFTGPU_GEMM_H
#define SOFTGPU_GEMM_H

#include "blas_types.h"
#include "driver_table.h"

struct gemm_mat {
    void *ptr;
    cudaDataType type;
    int64_t rows, cols; /* as stored */
    int64_t ld, stride; /* elements; `stride` from one batch entry to the next */
};

/* Whose scale factors, as in struct lt_desc. */
enum { GEMM_SCALE_A, GEMM_SCALE_B, GEMM_SCALE_C, GEMM_SCALE_D, GEMM_SCALE_AUX, GEMM_SCALES };

struct gemm_scale {
    const void *at; /* device memory; NULL: 1 */
    int mode;       /* cublasLtMatmulMatrixScale_t */
};

/* Which sums an epilogue writes to a vector: of D's rows, op(A)'s rows or op(B)'s columns. */
enum gemm_gradient { GEMM_GRADIENT_NONE, GEMM_GRADIENT_D, GEMM_GRADIENT_A, GEMM_GRADIENT_B };

struct gemm_args {
    struct gemm_mat a, b, c, d;
    int64_t m, n, k;
    int batch;
    int sm_target;      /* multiprocessors; 0: all */
    int transa, transb; /* 0: N, 1: T (C is T for real types) */
    cublasComputeType_t compute;
    cudaDataType scale_type;
    double alpha, beta;               /* host pointer mode */
    const void *alpha_dev, *beta_dev; /* device pointer mode: read when the kernel runs */
    uint32_t epilogue;
    const void *bias; /* m elements of bias_type, `bias_stride` elements between batch entries; or NULL */
    cudaDataType bias_type;
    int64_t bias_stride;
    struct gemm_mat aux; /* what the activation is applied to is written here, or read; ptr NULL: nowhere */
    int aux_in;          /* it is read */
    int aux_bits;        /* a bit for each element; ld in bits */
    void *vector;        /* where the gradient goes, of bias_type */
    enum gemm_gradient gradient;
    struct gemm_scale scale[GEMM_SCALES];
    float *amax_d, *amax_aux; /* are overwritten with the largest absolute values; or NULL */
    void *workspace;          /* `workspace_bytes` of it are written, as by a kernel that keeps partial sums there */
    size_t workspace_bytes;
};

/* Is this combination of types one that the cuBLAS manual lists? */
int gemm_types_supported(cublasComputeType_t compute, cudaDataType scale, cudaDataType a, cudaDataType b,
                         cudaDataType c);
int gemm_narrow_types_supported(cublasComputeType_t compute, cudaDataType scale, cudaDataType a, cudaDataType b,
                                cudaDataType c, cudaDataType d);
cudaDataType gemm_narrow_bias_type(cudaDataType c);
size_t gemm_type_bytes(cudaDataType type);
double gemm_read_scalar(cudaDataType type, const void *p);

/* Launches on `stream` in the current context. */
CUresult gemm_launch(const struct softdrv *drv, const struct gemm_args *args, CUstream stream);

/* refuse.c: the status that the test wants this GEMM to be answered with, or success. Counts the calls. */
cublasStatus_t gemm_refused(void);

/* The kernel's work, on whichever thread calls. */
void gemm_compute(const struct gemm_args *args);

#endif
