/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul on 8-bit floats: what the manual allows, what it does not, and what comes out. D (M x N) = A' B. */
#include <criterion/criterion.h>
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>
#include "../float16.h"
#include "../float8.h"
#include "cu.h"

enum {
    M = 128,
    N = 64,
    K = 256,
    A_AT = 0,
    B_AT = 1 << 16,
    C_AT = 2 << 16,
    D_AT = 3 << 16,
    S_AT = 4 << 16,
    BYTES = 5 << 16
};
enum { TENSOR, OUTER = 3, LINES = 4, SQUARES = 5, BLOCKS32 = 2 };

struct call {
    cudaDataType a, b, c, d, bias;
    int64_t m, n, k;
    int32_t trans_a, trans_b, mode_a, mode_b, compute;
    uint32_t epilogue;
    size_t off_a, off_scale;
    bool a_scale, b_scale, c_scale, d_scale, amax;
};

static struct cu cu;
static cublasLtHandle_t handle;
static CUdeviceptr mem;

static void setup(void)
{
    cu = cu_load();
    cu_use(&cu, 0);
    cr_assert_eq(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuMemAlloc(&mem, BYTES), CUDA_SUCCESS);
}

TestSuite(narrow, .init = setup);

static struct call plain(void)
{
    return (struct call){.a = CUDA_R_8F_E4M3,
                         .b = CUDA_R_8F_E4M3,
                         .c = CUDA_R_16BF,
                         .d = CUDA_R_16BF,
                         .bias = CUDA_R_16BF,
                         .m = M,
                         .n = N,
                         .k = K,
                         .trans_a = CUBLAS_OP_T,
                         .trans_b = CUBLAS_OP_N,
                         .compute = CUBLAS_COMPUTE_32F,
                         .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
}

static cublasLtMatrixLayout_t layout(cudaDataType type, int64_t rows, int64_t cols)
{
    cublasLtMatrixLayout_t l;
    cr_assert_eq(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)rows, (uint64_t)cols, rows), CUBLAS_STATUS_SUCCESS);
    return l;
}

#define SET(id, value) cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_##id, &(value), sizeof(value))

static cublasLtMatmulDesc_t operation(const struct call *c)
{
    cublasLtMatmulDesc_t d;
    const CUdeviceptr factor = mem + S_AT, scale = mem + S_AT + 4096 + c->off_scale, amax = mem + S_AT + 64,
                      bias = mem + S_AT + 2048;
    const int32_t bias_type = c->bias;
    cublasLtMatmulDescCreate(&d, (cublasComputeType_t)c->compute, CUDA_R_32F);
    SET(TRANSA, c->trans_a);
    SET(TRANSB, c->trans_b);
    SET(EPILOGUE, c->epilogue);
    SET(BIAS_POINTER, bias);
    SET(BIAS_DATA_TYPE, bias_type);
    SET(A_SCALE_MODE, c->mode_a);
    SET(B_SCALE_MODE, c->mode_b);
    if (c->a_scale || c->mode_a)
        SET(A_SCALE_POINTER, scale);
    if (c->b_scale || c->mode_b)
        SET(B_SCALE_POINTER, scale);
    if (c->c_scale)
        SET(C_SCALE_POINTER, factor);
    if (c->d_scale)
        SET(D_SCALE_POINTER, factor);
    if (c->amax)
        SET(AMAX_D_POINTER, amax);
    return d;
}

static cublasStatus_t run(const struct call *c)
{
    const float one = 1, zero = 0;
    const bool ta = c->trans_a != CUBLAS_OP_N, tb = c->trans_b != CUBLAS_OP_N;
    char *p = (char *)mem;
    cublasLtMatrixLayout_t la = layout(c->a, ta ? c->k : c->m, ta ? c->m : c->k),
                           lb = layout(c->b, tb ? c->n : c->k, tb ? c->k : c->n), lc = layout(c->c, c->m, c->n),
                           ld = layout(c->d, c->m, c->n);
    cublasLtMatmulDesc_t d = operation(c);
    cublasStatus_t st = cublasLtMatmul(handle, d, &one, p + A_AT + c->off_a, la, p + B_AT, lb, &zero, p + C_AT, lc,
                                       p + D_AT, ld, NULL, NULL, 0, NULL);
    cr_assert_eq(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    cublasLtMatmulDescDestroy(d);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatrixLayoutDestroy(ld);
    return st;
}

#define ANSWERS(status, ...)                                                                                           \
    do {                                                                                                               \
        struct call c = plain();                                                                                       \
        __VA_ARGS__;                                                                                                   \
        cr_expect_eq(run(&c), CUBLAS_STATUS_##status, "%s", #__VA_ARGS__);                                             \
    } while (0)
#define YES(...) ANSWERS(SUCCESS, __VA_ARGS__)
#define NO(...) ANSWERS(NOT_SUPPORTED, __VA_ARGS__)
#define WRONG(...) ANSWERS(INVALID_VALUE, __VA_ARGS__)

Test(narrow, types)
{
    YES((void)0);
    YES(c.b = CUDA_R_8F_E5M2);
    YES(c.a = CUDA_R_8F_E5M2, c.d = CUDA_R_8F_E5M2);
    YES(c.d = CUDA_R_8F_E4M3);
    YES(c.c = c.d = c.bias = CUDA_R_16F);
    YES(c.c = c.d = CUDA_R_32F);
    NO(c.a = c.b = CUDA_R_8F_E5M2);
    NO(c.d = CUDA_R_8F_E5M2);
    NO(c.c = CUDA_R_16F);
    NO(c.b = CUDA_R_16BF);
    NO(c.c = c.d = CUDA_R_8F_E4M3);
    NO(c.compute = CUBLAS_COMPUTE_32F_FAST_TF32);
    YES(c.epilogue = CUBLASLT_EPILOGUE_BIAS);
    NO(c.epilogue = CUBLASLT_EPILOGUE_BIAS, c.bias = CUDA_R_32F);
}

Test(narrow, layouts)
{
    NO(c.trans_a = CUBLAS_OP_N);
    NO(c.trans_b = CUBLAS_OP_T);
    YES(c.n = 3);
    NO(c.k = 248);
    NO(c.m = 124);
    YES(c.m = 120);
    NO(c.m = 120, c.d = CUDA_R_8F_E4M3);
    NO(c.off_a = 8);
    YES(c.off_a = 16);
}

Test(narrow, scale_factors)
{
    YES(c.a_scale = c.b_scale = c.c_scale = true);
    YES(c.d_scale = c.amax = true, c.d = CUDA_R_8F_E4M3);
    WRONG(c.d_scale = true);
    WRONG(c.amax = true);
    YES(c.mode_a = c.mode_b = OUTER);
    NO(c.mode_a = OUTER);
    NO(c.mode_b = OUTER);
    NO(c.mode_a = c.mode_b = OUTER, c.d = CUDA_R_8F_E4M3);
    YES(c.mode_a = c.mode_b = OUTER, c.off_scale = 4);
    YES(c.mode_a = c.mode_b = LINES);
    YES(c.mode_a = SQUARES, c.mode_b = LINES);
    YES(c.mode_a = LINES, c.mode_b = SQUARES);
    NO(c.mode_a = c.mode_b = SQUARES);
    NO(c.mode_a = c.mode_b = LINES, c.n = 62);
    WRONG(c.mode_a = c.mode_b = LINES, c.off_scale = 4);
    NO(c.mode_a = c.mode_b = BLOCKS32);
    NO(c.mode_a = c.mode_b = 6);
    WRONG(c.a = c.b = CUDA_R_16BF, c.m = c.k = 64, c.a_scale = true);
    WRONG(c.a = c.b = CUDA_R_16BF, c.m = c.k = 64, c.c_scale = true);
}

Test(narrow, the_next_generation)
{
    setenv("SOFTGPU_LT_SM", "100", 1);
    YES(c.mode_a = c.mode_b = BLOCKS32);
    YES(c.trans_a = CUBLAS_OP_N);
    NO(c.mode_a = c.mode_b = OUTER);
    NO(c.mode_a = c.mode_b = LINES);
}

static void fill(uint8_t *host, size_t at, size_t n, float v)
{
    memset(host + at, f32_to_e4m3(v), n);
}

/* 0.5 (2 x 3 x K) = 768: D and the largest value before it is scaled and saturated. */
Test(narrow, results)
{
    uint8_t *host = calloc(1, BYTES);
    const float half = 0.5f, two = 2;
    struct call c = plain();
    fill(host, A_AT, M * K, 2);
    fill(host, B_AT, N * K, 3);
    memcpy(host + S_AT, &half, sizeof half);
    memcpy(host + S_AT + 4096, &half, sizeof half);
    cr_assert_eq(cu.cuMemcpyHtoD(mem, host, BYTES), CUDA_SUCCESS);
    cr_assert_eq(cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    c.a_scale = true;
    cr_assert_eq(run(&c), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuMemcpyDtoH(host, mem, BYTES), CUDA_SUCCESS);
    cr_expect_eq(bf16_to_f32(((uint16_t *)(void *)(host + D_AT))[5]), 768);
    c.d = CUDA_R_8F_E4M3;
    c.d_scale = c.amax = true;
    cr_assert_eq(run(&c), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuMemcpyDtoH(host, mem, BYTES), CUDA_SUCCESS);
    cr_expect_eq(e4m3_to_f32(host[D_AT + 5]), 384);
    cr_expect_eq(*(float *)(void *)(host + S_AT + 64), 768);
    memcpy(host + S_AT, &two, sizeof two);
    cr_assert_eq(cu.cuMemcpyHtoD(mem, host, BYTES), CUDA_SUCCESS);
    cr_assert_eq(cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    cr_assert_eq(run(&c), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuMemcpyDtoH(host, mem, BYTES), CUDA_SUCCESS);
    cr_expect_eq(e4m3_to_f32(host[D_AT + 5]), 448);
    cr_expect_eq(*(float *)(void *)(host + S_AT + 64), 768);
    free(host);
}
