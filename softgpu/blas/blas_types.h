/* SPDX-License-Identifier: Apache-2.0 */
/* What libcublas and libcublasLt share: the handle and the layout of cuBLASLt's opaque descriptors. */
#ifndef SOFTGPU_BLAS_TYPES_H
#define SOFTGPU_BLAS_TYPES_H

/* The build hides everything by default; what the vendor's headers declare is what these libraries export. */
#pragma GCC visibility push(default)
#include <cublas_v2.h>
#include <cublasLt.h>
#pragma GCC visibility pop

/* What cuBLAS 12's headers do not have. */
#if CUBLAS_VER_MAJOR < 13
#define CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT ((cublasComputeType_t)79)
#define CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH 8
#define CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR 38
#endif

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LT_HANDLE_MAGIC 0x6c744c54u

/* A cublasHandle_t may be used as a cublasLtHandle_t by a cast (cuBLAS manual, cublasLtHandle_t), hence this struct is
 * the first member of both. */
struct lt_handle {
    _Atomic uint32_t magic; /* cleared by destroy, so that a use after it is refused while the memory still shows it */
};

static inline int lt_handle_ok(cublasLtHandle_t handle)
{
    return handle && atomic_load(&((struct lt_handle *)handle)->magic) == LT_HANDLE_MAGIC;
}

struct lt_layout {
    int64_t ld, stride, plane;
    uint64_t rows, cols;
    uint32_t type, batch_mode;
    int32_t order, batch;
};
_Static_assert(sizeof(struct lt_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "must fit the caller's storage");

struct lt_desc {
    int32_t compute, scale, pointer_mode, transa, transb, transc, fill, sm_target;
    uint32_t epilogue;
    int32_t aux_type, bias_type;
    int8_t fast_accum;
    const void *bias, *aux;
    int64_t bias_stride, aux_ld, aux_stride, alpha_stride;
    const void *scale_ptr[6]; /* A, B, C, D, aux, D out */
    int32_t scale_mode[6];
    const void *amax_d, *amax_aux, *emulation;
};
_Static_assert(sizeof(struct lt_desc) <= sizeof(cublasLtMatmulDescOpaque_t), "must fit the caller's storage");

struct lt_pref {
    uint64_t max_workspace, impl_mask;
    uint32_t search, reduction_mask, align[4];
    float max_waves;
};
_Static_assert(sizeof(struct lt_pref) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "must fit the caller's storage");

const char *blas_status_name(cublasStatus_t status);
const char *blas_status_text(cublasStatus_t status);
cublasStatus_t blas_property(libraryPropertyType type, int *value);

#endif
