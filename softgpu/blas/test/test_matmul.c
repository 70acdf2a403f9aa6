/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_case.h"

#include <criterion/criterion.h>
#include <cublasLt.h>
#include <math.h>

static struct cu cu;
static cublasLtHandle_t handle;

static void setup(void)
{
    cu = cu_load();
    cu_use(&cu, 0);
    cr_assert_eq(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
}

static void teardown(void)
{
    cr_assert_eq(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

TestSuite(matmul, .init = setup, .fini = teardown);

static cublasLtMatrixLayout_t layout_of(const struct matrix *m)
{
    cublasLtMatrixLayout_t l;
    int32_t batch = m->batch;
    cublasLtMatrixLayoutCreate(&l, m->type, (uint64_t)m->rows, (uint64_t)m->cols, m->ld);
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->stride, sizeof m->stride);
    return l;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * pow(x, 3))));
}

struct epilogue_case {
    cublasLtEpilogue_t epilogue;
    int bias, relu, gelu;
};

static const struct epilogue_case epilogues[] = {
    {CUBLASLT_EPILOGUE_DEFAULT, 0, 0, 0},   {CUBLASLT_EPILOGUE_BIAS, 1, 0, 0}, {CUBLASLT_EPILOGUE_RELU, 0, 1, 0},
    {CUBLASLT_EPILOGUE_RELU_BIAS, 1, 1, 0}, {CUBLASLT_EPILOGUE_GELU, 0, 0, 1}, {CUBLASLT_EPILOGUE_GELU_BIAS, 1, 0, 1},
};

static void apply(const struct epilogue_case *e, const struct matrix *c, double *want)
{
    for (int b = 0; b < c->batch; b++)
        for (int64_t j = 0; j < c->cols; j++)
            for (int64_t i = 0; i < c->rows; i++) {
                double *v = &want[b * c->stride + i + j * c->ld];
                double activated = e->relu ? fmax(*v, 0) : e->gelu ? gelu(*v) : *v;
                char raw[8];
                put(c->type, raw, 0, activated); /* round as the device's type does */
                *v = get(c->type, raw, 0);
            }
}

static void check(cudaDataType ab, cudaDataType c, const struct epilogue_case *e, int batch)
{
    struct gemm_case g = {CUBLAS_OP_T, CUBLAS_OP_N, 7, 11, 5, 2, batch, 2, 1, ab, c};
    struct matrix a = matrix_new(&cu, ab, 5, 7, 2, batch, 1), b = matrix_new(&cu, ab, 5, 11, 2, batch, 2);
    struct matrix m = matrix_new(&cu, c, 7, 11, 2, batch, 3), bias = matrix_new(&cu, c, 7, 1, 0, 1, 4);
    cublasLtMatrixLayout_t la = layout_of(&a), lb = layout_of(&b), lc = layout_of(&m);
    cublasLtMatmulDesc_t desc;
    int32_t op = CUBLAS_OP_T;
    const float alpha = 2, beta = 1;
    cr_assert_eq(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e->epilogue, sizeof e->epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.dev, sizeof bias.dev);
    double *want = reference(&g, &a, &b, &m, e->bias ? bias.host : NULL);
    apply(e, &m, want);
    cr_assert_eq(cublasLtMatmul(handle, desc, &alpha, (void *)a.dev, la, (void *)b.dev, lb, &beta, (void *)m.dev, lc,
                                (void *)m.dev, lc, NULL, NULL, 0, NULL),
                 CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(differences(&cu, &g, &m, want), 0, "epilogue %d", e->epilogue);
    free(want);
    cublasLtMatmulDescDestroy(desc);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(lc);
    matrix_free(&cu, &a);
    matrix_free(&cu, &b);
    matrix_free(&cu, &m);
    matrix_free(&cu, &bias);
}

Test(matmul, epilogues)
{
    for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++)
        for (int batch = 1; batch <= 2; batch++) {
            check(CUDA_R_32F, CUDA_R_32F, &epilogues[i], batch);
            check(CUDA_R_16BF, CUDA_R_16BF, &epilogues[i], batch);
            check(CUDA_R_16F, CUDA_R_16F, &epilogues[i], batch);
        }
}

/* With beta == 0 C is not read: neither NaN in it shows, nor is it an error that there is no C. */
static void check_unread_c(cudaDataType type, cublasComputeType_t compute, cublasLtEpilogue_t epilogue, int c_is)
{
    struct gemm_case g = {CUBLAS_OP_N, CUBLAS_OP_N, 7, 11, 5, 2, 1, 2, 0, type, type};
    cudaDataType scale = type == CUDA_R_64F ? type : CUDA_R_32F;
    struct matrix a = matrix_new(&cu, type, 7, 5, 2, 1, 1), b = matrix_new(&cu, type, 5, 11, 2, 1, 2);
    struct matrix c = matrix_new(&cu, type, 7, 11, 2, 1, 3), d = matrix_new(&cu, type, 7, 11, 2, 1, 4);
    struct epilogue_case e = {epilogue, 0, epilogue == CUBLASLT_EPILOGUE_RELU, 0};
    cublasLtMatrixLayout_t la = layout_of(&a), lb = layout_of(&b), lc = layout_of(&c);
    cublasLtMatmulDesc_t desc;
    char alpha[8], beta[8];
    put(scale, alpha, 0, 2);
    put(scale, beta, 0, 0);
    for (size_t i = 0; i < c.count; i++)
        c.host[i] = NAN;
    matrix_upload(&cu, &c);
    double *want = reference(&g, &a, &b, &d, NULL);
    apply(&e, &d, want);
    for (size_t i = 0; i < d.count; i++) /* what lies between the columns is left alone */
        want[i] = (int64_t)i % d.ld < d.rows && (int64_t)i < d.ld * d.cols ? want[i] : d.host[i];
    cr_assert_eq(cublasLtMatmulDescCreate(&desc, compute, scale), CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    const void *source = c_is == 0 ? (void *)c.dev : c_is == 1 ? (void *)d.dev : NULL;
    cr_assert_eq(cublasLtMatmul(handle, desc, alpha, (void *)a.dev, la, (void *)b.dev, lb, beta, source, lc,
                                (void *)d.dev, lc, NULL, NULL, 0, NULL),
                 CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(differences(&cu, &g, &d, want), 0, "type %d, epilogue %d, C %d", type, epilogue, c_is);
    free(want);
    cublasLtMatmulDescDestroy(desc);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(lc);
    matrix_free(&cu, &a);
    matrix_free(&cu, &b);
    matrix_free(&cu, &c);
    matrix_free(&cu, &d);
}

Test(matmul, c_is_not_read_when_beta_is_zero)
{
    for (int relu = 0; relu < 2; relu++)
        for (int c_is = 0; c_is < 3; c_is++) {
            cublasLtEpilogue_t e = relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
            check_unread_c(CUDA_R_32F, CUBLAS_COMPUTE_32F, e, c_is);
            check_unread_c(CUDA_R_16F, CUBLAS_COMPUTE_32F, e, c_is);
            check_unread_c(CUDA_R_16BF, CUBLAS_COMPUTE_32F, e, c_is);
            check_unread_c(CUDA_R_64F, CUBLAS_COMPUTE_64F, e, c_is);
        }
}

struct small {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    CUdeviceptr mem;
};

static struct small small_new(void)
{
    struct small s;
    cublasLtMatmulDescCreate(&s.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&s.a, CUDA_R_32F, 4, 4, 4);
    cublasLtMatrixLayoutCreate(&s.b, CUDA_R_32F, 4, 4, 4);
    cublasLtMatrixLayoutCreate(&s.c, CUDA_R_32F, 4, 4, 4);
    cr_assert_eq(cu.cuMemAlloc(&s.mem, 4096), CUDA_SUCCESS);
    return s;
}

static void small_free(struct small *s)
{
    cr_assert_eq(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    cublasLtMatmulDescDestroy(s->desc);
    cublasLtMatrixLayoutDestroy(s->a);
    cublasLtMatrixLayoutDestroy(s->b);
    cublasLtMatrixLayoutDestroy(s->c);
    cr_assert_eq(cu.cuMemFree(s->mem), CUDA_SUCCESS);
}

static cublasStatus_t small_run(const struct small *s, const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1;
    char *p = (char *)s->mem;
    return cublasLtMatmul(handle, s->desc, &one, p, s->a, p + 256, s->b, &one, p + 512, s->c, p + 512, s->c, algo, NULL,
                          0, NULL);
}

Test(matmul, heuristic_gives_a_usable_algorithm)
{
    struct small s = small_new();
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t junk = {{1, 2, 3}};
    int got = 0;
    cr_assert_eq(cublasLtMatmulPreferenceCreate(&pref), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasLtMatmulAlgoGetHeuristic(handle, s.desc, s.a, s.b, s.c, s.c, pref, 1, &result, &got),
                 CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(got, 1);
    cr_expect_eq(small_run(&s, &result.algo), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(small_run(&s, &junk), CUBLAS_STATUS_INVALID_VALUE);
    cublasLtMatmulPreferenceDestroy(pref);
    small_free(&s);
}

/* A 16 x 16 x 32 problem: every algorithm takes it. */
struct wide {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t pref;
    CUdeviceptr mem;
};
enum { WIDE = 16, WIDE_K = 32, WIDE_NEEDS = WIDE * WIDE * 4, WIDE_SPACE = 3 << 14 };

static struct wide wide_new(void)
{
    struct wide w;
    cublasLtMatmulDescCreate(&w.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&w.a, CUDA_R_32F, WIDE, WIDE_K, WIDE);
    cublasLtMatrixLayoutCreate(&w.b, CUDA_R_32F, WIDE_K, WIDE, WIDE_K);
    cublasLtMatrixLayoutCreate(&w.c, CUDA_R_32F, WIDE, WIDE, WIDE);
    cublasLtMatmulPreferenceCreate(&w.pref);
    cr_assert_eq(cu.cuMemAlloc(&w.mem, 1 << 16), CUDA_SUCCESS);
    return w;
}

static void wide_free(struct wide *w)
{
    cr_assert_eq(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    cublasLtMatmulDescDestroy(w->desc);
    cublasLtMatrixLayoutDestroy(w->a);
    cublasLtMatrixLayoutDestroy(w->b);
    cublasLtMatrixLayoutDestroy(w->c);
    cublasLtMatmulPreferenceDestroy(w->pref);
    cr_assert_eq(cu.cuMemFree(w->mem), CUDA_SUCCESS);
}

static int wide_asks(const struct wide *w, cublasLtMatmulHeuristicResult_t found[4])
{
    int count = -1;
    cr_assert_eq(cublasLtMatmulAlgoGetHeuristic(handle, w->desc, w->a, w->b, w->c, w->c, w->pref, 4, found, &count),
                 CUBLAS_STATUS_SUCCESS);
    return count;
}

static int id_of(const cublasLtMatmulAlgo_t *algo)
{
    int32_t id = -1;
    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, NULL);
    return id;
}

static cublasStatus_t wide_run(const struct wide *w, const cublasLtMatmulAlgo_t *algo, size_t off_b, size_t workspace)
{
    const float one = 1, zero = 0;
    char *p = (char *)w->mem;
    return cublasLtMatmul(handle, w->desc, &one, p, w->a, p + 8192 + off_b, w->b, &zero, p + 16384, w->c, p + 16384,
                          w->c, algo, workspace ? p + WIDE_SPACE : NULL, workspace, NULL);
}

Test(matmul, heuristic_follows_the_preferences)
{
    struct wide w = wide_new();
    cublasLtMatmulHeuristicResult_t found[4];
    const uint64_t enough = WIDE_NEEDS;
    const uint32_t align = 16, none = CUBLASLT_REDUCTION_SCHEME_NONE;
    cr_expect_eq(wide_asks(&w, found), 2, "without workspace");
    cr_expect(id_of(&found[0].algo) == 1 && id_of(&found[1].algo) == 0);
    cublasLtMatmulPreferenceSetAttribute(w.pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &enough, sizeof enough);
    cr_expect_eq(wide_asks(&w, found), 3);
    cr_expect(id_of(&found[0].algo) == 2 && found[0].workspaceSize == WIDE_NEEDS);
    cublasLtMatmulPreferenceSetAttribute(w.pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof none);
    cr_expect_eq(wide_asks(&w, found), 2, "partial sums are not wanted");
    cublasLtMatmulPreferenceSetAttribute(w.pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align);
    cr_expect(wide_asks(&w, found) == 1 && id_of(&found[0].algo) == 0);
    wide_free(&w);
}

Test(matmul, algorithms_refuse_what_they_do_not_take)
{
    struct wide w = wide_new();
    struct small s = small_new();
    cublasLtMatmulAlgo_t algo[3];
    cublasLtMatmulHeuristicResult_t result;
    uint32_t align = 0;
    for (int id = 0; id < 3; id++)
        cr_assert_eq(cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                                            CUDA_R_32F, id, &algo[id]),
                     CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulAlgoCapGetAttribute(&algo[1], CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES, &align, sizeof align, NULL);
    cr_expect_eq(align, 32);
    cr_expect_eq(wide_run(&w, &algo[1], 0, 0), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(wide_run(&w, &algo[1], 16, 0), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(wide_run(&w, &algo[0], 16, 0), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(wide_run(&w, &algo[2], 0, WIDE_NEEDS), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(wide_run(&w, &algo[2], 0, WIDE_NEEDS - 4), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(small_run(&s, &algo[1]), CUBLAS_STATUS_NOT_SUPPORTED);
    cr_expect_eq(cublasLtMatmulAlgoCheck(handle, s.desc, s.a, s.b, s.c, s.c, &algo[1], &result),
                 CUBLAS_STATUS_NOT_SUPPORTED);
    cr_expect_eq(cublasLtMatmulAlgoCheck(handle, w.desc, w.a, w.b, w.c, w.c, &algo[2], &result), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(result.workspaceSize, WIDE_NEEDS);
    unsigned char space[WIDE_NEEDS];
    cr_assert_eq(cu.cuMemcpyDtoH(space, w.mem + WIDE_SPACE, sizeof space), CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof space; i++)
        cr_assert_eq(space[i], 0x5a, "the workspace is written");
    small_free(&s);
    wide_free(&w);
}

/* x * 1 for x = -2 .. 1: GELU of it in D, and x itself in the auxiliary matrix, which has a leading dimension of its
 * own. */
Test(matmul, gelu_keeps_its_input)
{
    struct small s = small_new();
    const uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    const void *aux = (char *)s.mem + 1024;
    const int64_t aux_ld = 8, odd_ld = 4;
    float host[256] = {0};
    for (int i = 0; i < 4; i++) {
        host[i] = (float)(i - 2);
        host[64 + 4 * i] = 1;
    }
    cr_assert_eq(cu.cuMemcpyHtoD(s.mem, host, sizeof host), CUDA_SUCCESS);
    cr_assert_eq(cu.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
    cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &odd_ld, sizeof odd_ld);
    cr_expect_eq(small_run(&s, NULL), CUBLAS_STATUS_INVALID_VALUE);
    cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld);
    cr_expect_eq(small_run(&s, NULL), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cu.cuCtxSynchronize(), CUDA_SUCCESS);
    cr_assert_eq(cu.cuMemcpyDtoH(host, s.mem + 512, 192 * sizeof *host), CUDA_SUCCESS);
    for (int64_t j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            cr_expect_eq(host[128 + j * aux_ld + i], (float)(i - 2));
            cr_expect(fabs(host[4 * j + i] - gelu(i - 2)) < 1e-6);
        }
    small_free(&s);
}

Test(matmul, what_is_not_supported_is_refused)
{
    struct small s = small_new();
    uint32_t epilogue = 1024;
    int32_t order = CUBLASLT_ORDER_ROW;
    uint64_t rows = 5;
    cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cr_expect_eq(small_run(&s, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    cublasLtMatmulDescSetAttribute(s.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatrixLayoutSetAttribute(s.a, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
    cr_expect_eq(small_run(&s, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    order = CUBLASLT_ORDER_COL;
    cublasLtMatrixLayoutSetAttribute(s.a, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
    cublasLtMatrixLayoutSetAttribute(s.a, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows);
    cr_expect_eq(small_run(&s, NULL), CUBLAS_STATUS_INVALID_VALUE);
    small_free(&s);
}

Test(matmul, attributes)
{
    cublasLtMatrixLayoutOpaque_t l;
    int64_t ld = 0;
    size_t wrote = 0;
    cr_assert_eq(cublasLtMatrixLayoutInit(&l, CUDA_R_32F, 4, 4, 9), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(cublasLtMatrixLayoutGetAttribute(&l, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld, &wrote),
                 CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(ld, 9);
    cr_expect_eq(wrote, sizeof ld);
    cr_expect_eq(cublasLtMatrixLayoutGetAttribute(&l, CUBLASLT_MATRIX_LAYOUT_LD, NULL, 0, &wrote),
                 CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(wrote, sizeof ld);
    cr_expect_eq(cublasLtMatrixLayoutSetAttribute(&l, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 4), CUBLAS_STATUS_INVALID_VALUE);
    cr_expect_eq(cublasLtMatrixLayoutGetAttribute(&l, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 4, NULL),
                 CUBLAS_STATUS_INVALID_VALUE);
}
