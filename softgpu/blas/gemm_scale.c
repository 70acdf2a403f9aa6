/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_scale.h"
#include "float8.h"

#include <stdlib.h>

enum {
    SCALAR = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
    VEC16 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3,
    VEC32 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
    OUTER = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
    VEC128 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
    BLK128 = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
};

int gemm_is_narrow(cudaDataType type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by * by;
}

static int64_t outer_of(const struct gemm_args *g, int operand)
{
    return operand ? g->n : g->m;
}

size_t gemm_scale_bytes(const struct gemm_args *g, int operand)
{
    const int64_t outer = outer_of(g, operand), blocks = (g->k + 127) / 128;
    switch (g->scale[operand].mode) {
    case OUTER:
        return (size_t)outer * sizeof(float);
    case VEC128:
        return (size_t)(outer * blocks) * sizeof(float);
    case BLK128:
        return (size_t)(up(blocks, 4) * ((outer + 127) / 128)) * sizeof(float);
    case VEC32:
        return (size_t)(up(outer, 128) * up((g->k + 31) / 32, 4));
    default:
        return sizeof(float);
    }
}

float gemm_block_scale(const struct gemm_args *g, int operand, int64_t outer, int64_t inner)
{
    const struct gemm_scale *s = &g->scale[operand];
    const float *at = s->at;
    const int64_t block = inner / 32, row = outer % 128;
    switch (s->mode) {
    case VEC128:
        return at[inner / 128 * outer_of(g, operand) + outer];
    case BLK128:
        return at[outer / 128 * up((g->k + 127) / 128, 4) + inner / 128];
    case VEC32: /* tiles of 128 x 4, row by row */
        return ue8m0_to_f32(((const uint8_t *)s->at)[(block / 4 * 4 + outer / 128 * up((g->k + 31) / 32, 4)) * 128 +
                                                     row % 32 * 16 + row / 32 * 4 + block % 4]);
    default:
        return 1;
    }
}

static float outer_scale(const struct gemm_scale *s, int64_t i)
{
    if (!s->at || (s->mode != SCALAR && s->mode != OUTER))
        return 1;
    return ((const float *)s->at)[s->mode == OUTER ? i : 0];
}

float gemm_outer_scale(const struct gemm_args *g, int64_t i, int64_t j)
{
    return outer_scale(&g->scale[0], i) * outer_scale(&g->scale[1], j);
}

float gemm_scalar_scale(const struct gemm_args *g, int matrix)
{
    return g->scale[matrix].at ? *(const float *)g->scale[matrix].at : 1;
}

/* ---- checks ---- */

static int capability(void)
{
    const char *set = getenv("SOFTGPU_LT_SM");
    return set ? atoi(set) : 90;
}

/* A and B both by tensors, both by rows, by blocks of 128 but not both by squares of it; or, on 10.0, by blocks of 32. */
static int modes_listed(int a, int b)
{
    if (capability() >= 100)
        return (a == SCALAR && b == SCALAR) || (a == VEC32 && b == VEC32);
    return (a == SCALAR && b == SCALAR) || (a == OUTER && b == OUTER) || (a == VEC128 && b == VEC128) ||
           (a == VEC128 && b == BLK128) || (a == BLK128 && b == VEC128);
}

static int aligned(const void *p, size_t to)
{
    return (uintptr_t)p % to == 0;
}

static cublasStatus_t check_modes(const struct gemm_args *g)
{
    const int a = g->scale[0].mode, b = g->scale[1].mode, by_tensor = a == SCALAR && b == SCALAR;
    if (!modes_listed(a, b))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (by_tensor)
        return CUBLAS_STATUS_SUCCESS;
    if (!g->scale[0].at || !g->scale[1].at)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (gemm_is_narrow(g->d.type)) /* with VEC32 it would take factors for D, which this library does not make */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a != OUTER && (!aligned(g->scale[0].at, 16) || !aligned(g->scale[1].at, 16)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return a != OUTER && (g->m % 4 || g->n % 4) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

/* "Tensor Core Usage": addresses, leading dimensions and the dimensions that lie along memory, in units of 16 bytes. */
static int suits_tensor_cores(const struct gemm_args *g)
{
    const struct gemm_mat *const all[] = {&g->a, &g->b, &g->c, &g->d};
    for (int i = 0; i < 4; i++) {
        const size_t elem = gemm_type_bytes(all[i]->type);
        if ((size_t)all[i]->rows * elem % 16 || (size_t)all[i]->ld * elem % 16 || !aligned(all[i]->ptr, 16))
            return 0;
    }
    return 1;
}

static cublasStatus_t check_narrow(const struct gemm_args *g)
{
    if (capability() < 100 && (!g->transa || g->transb))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!suits_tensor_cores(g))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* C's factor is the only one that another type may have; D's and what is measured of D are those of a narrow D. */
    if ((g->scale[3].at || g->amax_d) && !gemm_is_narrow(g->d.type))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((g->scale[4].at || g->amax_aux) && !(g->aux.ptr && gemm_is_narrow(g->aux.type)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return check_modes(g);
}

cublasStatus_t gemm_scales_check(const struct gemm_args *g)
{
    for (int i = 2; i < GEMM_SCALES; i++)
        if (g->scale[i].mode != SCALAR)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    if (gemm_is_narrow(g->a.type) || gemm_is_narrow(g->b.type))
        return check_narrow(g);
    for (int i = 0; i < GEMM_SCALES; i++)
        if (g->scale[i].at || g->scale[i].mode != SCALAR)
            return CUBLAS_STATUS_INVALID_VALUE;
    return g->amax_d || g->amax_aux ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
