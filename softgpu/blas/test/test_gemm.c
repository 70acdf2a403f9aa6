/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_case.h"

#include <criterion/criterion.h>
#include <math.h>

static struct cu cu;
static cublasHandle_t handle;

static void setup(void)
{
    cu = cu_load();
    cu_use(&cu, 0);
    cr_assert_eq(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
}

static void teardown(void)
{
    cr_assert_eq(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

TestSuite(gemm, .init = setup, .fini = teardown);

static const struct kind {
    cudaDataType ab, c, scale;
    cublasComputeType_t compute;
} kinds[] = {
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F},
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I},
    {CUDA_R_8I, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
};
#define NKINDS (sizeof kinds / sizeof *kinds)

struct operands {
    struct matrix a, b, c;
};

static struct operands make_operands(const struct gemm_case *g)
{
    int na = g->ta == CUBLAS_OP_N, nb = g->tb == CUBLAS_OP_N;
    struct operands o;
    o.a = matrix_new(&cu, g->ab, na ? g->m : g->k, na ? g->k : g->m, g->pad, g->batch, 1);
    o.b = matrix_new(&cu, g->ab, nb ? g->k : g->n, nb ? g->n : g->k, g->pad, g->batch, 2);
    o.c = matrix_new(&cu, g->c, g->m, g->n, g->pad, g->batch, 3);
    return o;
}

static void free_operands(struct operands *o)
{
    matrix_free(&cu, &o->a);
    matrix_free(&cu, &o->b);
    matrix_free(&cu, &o->c);
}

/* With beta == 0 the old C is NaN, which must not show. */
static void poison(struct operands *o)
{
    for (size_t i = 0; i < o->c.count; i++)
        o->c.host[i] = NAN;
    matrix_upload(&cu, &o->c);
}

static cublasStatus_t call(const struct gemm_case *g, const struct kind *kind, const struct operands *o,
                           const void *alpha, const void *beta)
{
    const void *a = (const void *)o->a.dev, *b = (const void *)o->b.dev;
    void *c = (void *)o->c.dev;
    if (g->batch == 1)
        return cublasGemmEx(handle, g->ta, g->tb, (int)g->m, (int)g->n, (int)g->k, alpha, a, g->ab, (int)o->a.ld, b,
                            g->ab, (int)o->b.ld, beta, c, g->c, (int)o->c.ld, kind->compute, CUBLAS_GEMM_DEFAULT);
    return cublasGemmStridedBatchedEx_64(handle, g->ta, g->tb, g->m, g->n, g->k, alpha, a, g->ab, o->a.ld, o->a.stride,
                                         b, g->ab, o->b.ld, o->b.stride, beta, c, g->c, o->c.ld, o->c.stride, g->batch,
                                         kind->compute, CUBLAS_GEMM_DEFAULT);
}

static void check_case(struct gemm_case g, const struct kind *kind)
{
    char alpha[8], beta[8];
    g.ab = kind->ab;
    g.c = kind->c;
    put(kind->scale, alpha, 0, g.alpha);
    put(kind->scale, beta, 0, g.beta);
    struct operands o = make_operands(&g);
    if (g.beta == 0 && g.c != CUDA_R_32I)
        poison(&o);
    cr_assert_eq(call(&g, kind, &o, alpha, beta), CUBLAS_STATUS_SUCCESS);
    double *want = reference(&g, &o.a, &o.b, &o.c, NULL);
    cr_assert_eq(differences(&cu, &g, &o.c, want), 0);
    free(want);
    free_operands(&o);
}

Test(gemm, every_type_transpose_padding_and_batch)
{
    static const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
    for (size_t t = 0; t < NKINDS; t++)
        for (int i = 0; i < 9; i++)
            for (int pad = 0; pad <= 5; pad += 5)
                for (int beta = 0; beta <= 2; beta += 2)
                    for (int batch = 1; batch <= 3; batch += 2)
                        check_case((struct gemm_case){ops[i / 3], ops[i % 3], 7, 13, 9, pad, batch, 2, beta, 0, 0},
                                   &kinds[t]);
}

Test(gemm, more_columns_than_one_panel)
{
    for (size_t t = 0; t < NKINDS; t++)
        for (int i = 0; i < 4; i++)
            check_case((struct gemm_case){i & 1, i >> 1, 5, 1031, 3, 2, 1, 1, 1, 0, 0}, &kinds[t]);
}

Test(gemm, empty_inner_dimension_scales_c)
{
    for (size_t t = 0; t < NKINDS; t++) {
        check_case((struct gemm_case){0, 0, 5, 3, 0, 1, 1, 1, 2, 0, 0}, &kinds[t]);
        check_case((struct gemm_case){0, 0, 5, 3, 0, 1, 1, 1, 0, 0, 0}, &kinds[t]);
        check_case((struct gemm_case){0, 0, 0, 3, 4, 1, 1, 1, 0, 0, 0}, &kinds[t]);
        check_case((struct gemm_case){0, 0, 5, 0, 4, 1, 1, 1, 0, 0, 0}, &kinds[t]);
    }
}

Test(gemm, typed_entry_points)
{
    struct gemm_case g = {CUBLAS_OP_T, CUBLAS_OP_N, 6, 5, 4, 2, 1, 2, 1, CUDA_R_32F, CUDA_R_32F};
    struct operands o = make_operands(&g);
    const float alpha = 2, beta = 1;
    double *want = reference(&g, &o.a, &o.b, &o.c, NULL);
    cr_assert_eq(cublasSgemm(handle, g.ta, g.tb, 6, 5, 4, &alpha, (float *)o.a.dev, (int)o.a.ld, (float *)o.b.dev,
                             (int)o.b.ld, &beta, (float *)o.c.dev, (int)o.c.ld),
                 CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(differences(&cu, &g, &o.c, want), 0);
    matrix_upload(&cu, &o.c);
    cr_assert_eq(cublasSgemm_64(handle, g.ta, g.tb, 6, 5, 4, &alpha, (float *)o.a.dev, o.a.ld, (float *)o.b.dev, o.b.ld,
                                &beta, (float *)o.c.dev, o.c.ld),
                 CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(differences(&cu, &g, &o.c, want), 0);
    free(want);
    free_operands(&o);
}

Test(gemm, dgemm_strided_batched)
{
    struct gemm_case g = {CUBLAS_OP_N, CUBLAS_OP_T, 6, 5, 4, 2, 3, 2, 1, CUDA_R_64F, CUDA_R_64F};
    struct operands o = make_operands(&g);
    const double alpha = 2, beta = 1;
    double *want = reference(&g, &o.a, &o.b, &o.c, NULL);
    cr_assert_eq(cublasDgemmStridedBatched(handle, g.ta, g.tb, 6, 5, 4, &alpha, (double *)o.a.dev, (int)o.a.ld,
                                           o.a.stride, (double *)o.b.dev, (int)o.b.ld, o.b.stride, &beta,
                                           (double *)o.c.dev, (int)o.c.ld, o.c.stride, 3),
                 CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(differences(&cu, &g, &o.c, want), 0);
    free(want);
    free_operands(&o);
}

/* Device scalars are read when the kernel runs: they are written on the same stream after nothing but the enqueue. */
Test(gemm, device_scalars_are_read_in_stream_order)
{
    struct gemm_case g = {CUBLAS_OP_N, CUBLAS_OP_N, 6, 5, 4, 0, 1, 3, 2, CUDA_R_32F, CUDA_R_32F};
    struct operands o = make_operands(&g);
    CUstream stream;
    CUdeviceptr scalars, gate;
    static const float early[2] = {100, 100}, late[2] = {3, 2};
    uint32_t zero = 0, one = 1;
    cr_assert_eq(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    cr_assert_eq(cu.cuMemAlloc(&scalars, sizeof late), CUDA_SUCCESS);
    cr_assert_eq(cu.cuMemAlloc(&gate, sizeof zero), CUDA_SUCCESS);
    cu.cuMemcpyHtoD(scalars, early, sizeof early);
    cu.cuMemcpyHtoD(gate, &zero, sizeof zero);
    cublasSetStream(handle, stream);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
    double *want = reference(&g, &o.a, &o.b, &o.c, NULL);
    cr_assert_eq(call(&g, &kinds[0], &o, (void *)scalars, (void *)(scalars + 4)), CUBLAS_STATUS_SUCCESS); /* loads it */
    cr_assert_eq(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    matrix_upload(&cu, &o.c);
    cr_assert_eq(cu.cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    cr_assert_eq(call(&g, &kinds[0], &o, (void *)scalars, (void *)(scalars + 4)), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    cu.cuMemcpyHtoD(scalars, late, sizeof late);
    cu.cuMemcpyHtoD(gate, &one, sizeof one);
    cr_assert_eq(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert_eq(differences(&cu, &g, &o.c, want), 0);
    free(want);
    free_operands(&o);
    cublasSetStream(handle, NULL);
    cu.cuStreamDestroy(stream);
}

Test(gemm, argument_errors)
{
    float one = 1;
    float *p;
    CUdeviceptr mem;
    cr_assert_eq(cu.cuMemAlloc(&mem, 4096), CUDA_SUCCESS);
    p = (float *)mem;
#define SGEMM(ta, m, n, k, lda, ldb, ldc)                                                                              \
    cublasSgemm(handle, ta, CUBLAS_OP_N, m, n, k, &one, p, lda, p, ldb, &one, p + 512, ldc)
    cr_expect_eq(SGEMM(CUBLAS_OP_N, -1, 1, 1, 1, 1, 1), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(SGEMM(CUBLAS_OP_N, 4, 1, 1, 3, 1, 4), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(SGEMM(CUBLAS_OP_T, 1, 1, 4, 3, 4, 1), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(SGEMM(CUBLAS_OP_N, 1, 1, 4, 1, 3, 1), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(SGEMM(CUBLAS_OP_N, 4, 1, 1, 4, 1, 3), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(SGEMM((cublasOperation_t)7, 1, 1, 1, 1, 1, 1), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(SGEMM(CUBLAS_OP_N, 0, 1, 1, 1, 1, 1), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(cublasSgemm(NULL, 0, 0, 1, 1, 1, &one, p, 1, p, 1, &one, p, 1), CUBLAS_STATUS_NOT_INITIALIZED);
    cr_expect_eq(cublasSgemm(handle, 0, 0, 1, 1, 1, NULL, p, 1, p, 1, &one, p, 1), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(cublasGemmEx(handle, 0, 0, 1, 1, 1, &one, p, CUDA_R_16F, 1, p, CUDA_R_16BF, 1, &one, p, CUDA_R_32F, 1,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 CUBLAS_STATUS_NOT_SUPPORTED);
    cr_expect_eq(cublasGemmEx(handle, 0, 0, 1, 1, 1, &one, p, CUDA_R_32F, 1, p, CUDA_R_32F, 1, &one, p, CUDA_R_16F, 1,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 CUBLAS_STATUS_NOT_SUPPORTED);
    cu.cuMemFree(mem);
}

Test(gemm, handle_settings)
{
    cudaStream_t stream = (cudaStream_t)1;
    cublasPointerMode_t mode;
    cublasMath_t math;
    int value;
    cr_expect_eq(cublasGetStream(handle, &stream), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(stream, NULL);
    cr_expect_eq(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(cublasGetPointerMode(handle, &mode), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(mode, CUBLAS_POINTER_MODE_DEVICE);
    cr_expect_eq(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(cublasGetMathMode(handle, &math), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(math, CUBLAS_TF32_TENSOR_OP_MATH);
    cr_expect_eq(cublasSetMathMode(handle, (cublasMath_t)7), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(cublasSetSmCountTarget(handle, 8), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(cublasGetSmCountTarget(handle, &value), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(value, 8);
    cr_expect_eq(cublasGetVersion(handle, &value), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(value, CUBLAS_VERSION);
    cr_expect_str_eq(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

Test(gemm, copies_matrices)
{
    static const float src[12] = {1, 2, 3, -1, 4, 5, 6, -1, 7, 8, 9, -1};
    float back[9] = {0};
    CUdeviceptr mem;
    cr_assert_eq(cu.cuMemAlloc(&mem, sizeof src), CUDA_SUCCESS);
    cr_assert_eq(cublasSetMatrix(3, 3, 4, src, 4, (void *)mem, 3), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasGetMatrix(3, 3, 4, (void *)mem, 3, back, 3), CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < 9; i++)
        cr_expect_eq(back[i], i + 1);
    cr_assert_eq(cublasGetVector(3, 4, (void *)mem, 3, back, 1), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(back[1], 4);
    cr_expect_eq(cublasSetMatrix(3, 3, 4, src, 2, (void *)mem, 3), CUBLAS_STATUS_INVALID_VALUE);
    cu.cuMemFree(mem);
}
