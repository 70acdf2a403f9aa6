/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads describe and compute cublasLtMatmul calls at once. The descriptors are the stand-in cuBLASLt's; an
 * algorithm of the fake library is its part's width, so that a wrong one shows. A call into the library may wait: the
 * tests hold one thread there while others go on. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include "kernels/gemm_lt.h"

enum { M = 8, K = 16, N = 4096, THREADS = 4, WIDTHS = 400 };
static _Alignas(256) char matrix[1 << 20];
static const float one = 1, zero = 0;
static atomic_int wrong;

/* One call of its own, D (M x N) = A' B, with an algorithm. */
struct call {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t la, lb, ld;
    cublasLtMatmulAlgo_t algo;
    struct slr_lt lt;
    struct slr_gemm gemm;
};

static void make(struct call *call)
{
    const int32_t trans = CUBLAS_OP_T;
    memset(call, 0, sizeof *call);
    cublasLtMatmulDescInit(&call->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(&call->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans);
    cublasLtMatrixLayoutInit(&call->la, CUDA_R_32F, K, M, K);
    cublasLtMatrixLayoutInit(&call->lb, CUDA_R_32F, K, N, K);
    cublasLtMatrixLayoutInit(&call->ld, CUDA_R_32F, M, N, M);
    call->lt = (struct slr_lt){.handle = (cublasLtHandle_t)(uintptr_t)&one,
                               .desc = &call->desc,
                               .la = &call->la,
                               .lb = &call->lb,
                               .lc = &call->ld,
                               .ld = &call->ld,
                               .algo = &call->algo};
    call->gemm = (struct slr_gemm){
        .api = SLR_GEMM_LT, .lt = &call->lt, .alpha = &one, .beta = &zero, .a = matrix, .b = matrix, .c = matrix};
}

static uint64_t width_of(cublasLtMatrixLayout_t layout)
{
    uint64_t cols = 0;
    cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols, NULL);
    return cols;
}

/* The width for which the heuristic does not answer before it may. */
static uint64_t held_width;
static sem_t held, go;

static void hold(void)
{
    sem_post(&held);
    while (sem_wait(&go) != 0)
        ;
}

static void wait_held(void)
{
    while (sem_wait(&held) != 0)
        ;
}

static cublasStatus_t fake_heuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la,
                                     cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
                                     cublasLtMatmulPreference_t pref, int requested,
                                     cublasLtMatmulHeuristicResult_t *results, int *returned)
{
    (void)h, (void)desc, (void)la, (void)lb, (void)lc, (void)pref, (void)requested;
    uint64_t width = width_of(ld);
    if (width == held_width)
        hold();
    results[0] = (cublasLtMatmulHeuristicResult_t){.algo = {{width}}, .state = CUBLAS_STATUS_SUCCESS};
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *at_a,
                                  cublasLtMatrixLayout_t la, const void *at_b, cublasLtMatrixLayout_t lb,
                                  const void *beta, const void *at_c, cublasLtMatrixLayout_t lc, void *at_d,
                                  cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *space,
                                  size_t bytes, cudaStream_t stream)
{
    (void)h, (void)desc, (void)alpha, (void)at_a, (void)la, (void)at_b, (void)lb, (void)beta, (void)at_c, (void)lc;
    (void)at_d, (void)space, (void)bytes, (void)stream;
    if (!algo || algo->data[0] != width_of(ld))
        atomic_fetch_add(&wrong, 1);
    return CUBLAS_STATUS_SUCCESS;
}

/* All algorithms sum alike. */
static cublasStatus_t fake_config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t id, void *buf,
                                  size_t size, size_t *written)
{
    (void)algo, (void)id, (void)written;
    memset(buf, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_cap(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t id, void *buf,
                               size_t size, size_t *written)
{
    (void)algo, (void)id, (void)written;
    memset(buf, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* The thread that is held, while it learns what the library knows, when it asks for the size of this attribute and of
 * the one before. */
enum { SCALE = CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER };
static _Thread_local bool learner;

static cublasStatus_t get_attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t id, void *buf,
                                    size_t size, size_t *written)
{
    if (learner && size == 0 && ((int)id == SCALE - 1 || (int)id == SCALE))
        hold();
    return cublasLtMatmulDescGetAttribute(desc, id, buf, size, written);
}

static CUresult fake_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static void setup(void)
{
    slr_real.cublasLtMatrixLayoutInit_internal = cublasLtMatrixLayoutInit_internal;
    slr_real.cublasLtMatrixLayoutGetAttribute = cublasLtMatrixLayoutGetAttribute;
    slr_real.cublasLtMatmulDescInit_internal = cublasLtMatmulDescInit_internal;
    slr_real.cublasLtMatmulDescGetAttribute = get_attribute;
    slr_real.cublasLtMatmulDescSetAttribute = cublasLtMatmulDescSetAttribute;
    slr_real.cublasLtMatmulPreferenceInit_internal = cublasLtMatmulPreferenceInit_internal;
    slr_real.cublasLtMatmulPreferenceSetAttribute = cublasLtMatmulPreferenceSetAttribute;
    slr_real.cublasLtMatmulAlgoCapGetAttribute = fake_cap;
    slr_real.cublasLtMatmulAlgoConfigGetAttribute = fake_config;
    slr_real.cublasLtMatmulAlgoGetHeuristic = fake_heuristic;
    slr_real.cublasLtMatmul = fake_matmul;
    slr_real.cuCtxGetDevice = fake_device;
    cr_assert(sem_init(&held, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
}
TestSuite(gemm_threads, .init = setup);

static const struct slr_gemm_split on_b = {.shard_cols = 6, .col_bytes = K * 4};

static void part(struct slr_gemm *gemm, int64_t width)
{
    if (slr_gemm_part(gemm, &on_b, 0, width) != CUBLAS_STATUS_SUCCESS)
        atomic_fetch_add(&wrong, 1);
}

static void *all_widths(void *first)
{
    struct call call;
    make(&call);
    if (slr_gemm_describe(&call.gemm) != SLR_R_FUSED)
        atomic_fetch_add(&wrong, 1);
    for (int round = 0; round < 3; round++)
        for (int64_t i = 0; i < WIDTHS; i++)
            part(&call.gemm, 1 + (i + (int64_t)(intptr_t)first) % WIDTHS);
    return NULL;
}

/* More shapes than are kept, by several threads at once. TSan looks on. */
Test(gemm_threads, each_part_has_its_own_algorithm)
{
    pthread_t thread[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, all_widths, (void *)(i * 100)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(atomic_load(&wrong), 0);
}

static void *one_width(void *width)
{
    struct call call;
    make(&call);
    slr_gemm_describe(&call.gemm);
    part(&call.gemm, (int64_t)(intptr_t)width);
    return NULL;
}

/* A thread that waits in the library stops nobody, and what it brings back later is filed under its own shape. */
Test(gemm_threads, an_answer_that_comes_late, .timeout = 60)
{
    pthread_t late;
    struct call call;
    held_width = 3000;
    make(&call);
    cr_assert_eq(slr_gemm_describe(&call.gemm), SLR_R_FUSED);
    cr_assert_eq(pthread_create(&late, NULL, one_width, (void *)(intptr_t)held_width), 0);
    wait_held();
    all_widths(NULL);
    for (int64_t width = 1; width <= 2 * WIDTHS; width++)
        part(&call.gemm, width);
    sem_post(&go);
    pthread_join(late, NULL);
    for (int64_t width = 2 * WIDTHS; width >= 1; width--)
        part(&call.gemm, width);
    cr_assert_eq(atomic_load(&wrong), 0);
}

static void *learn(void *unused)
{
    struct call call;
    (void)unused;
    learner = true;
    make(&call);
    slr_gemm_describe(&call.gemm);
    return NULL;
}

static enum slr_reason described(cublasLtMatmulDesc_t desc)
{
    struct call call;
    make(&call);
    if (desc)
        call.lt.desc = desc;
    return slr_gemm_describe(&call.gemm);
}

/* While a thread learns what the library knows, another that has learnt it already overlooks nothing. */
Test(gemm_threads, learning_twice_at_once, .timeout = 60)
{
    pthread_t late;
    struct call call;
    const void *scale = matrix;
    make(&call);
    cublasLtMatmulDescSetAttribute(&call.desc, (cublasLtMatmulDescAttributes_t)SCALE, &scale, sizeof scale);
    cr_assert_eq(pthread_create(&late, NULL, learn, NULL), 0);
    wait_held();
    cr_expect_eq(described(NULL), SLR_R_FUSED);
    sem_post(&go);
    wait_held();
    cr_expect_eq(described(&call.desc), SLR_R_JOIN_ATTRIBUTE);
    sem_post(&go);
    pthread_join(late, NULL);
}
