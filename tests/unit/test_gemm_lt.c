/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul's descriptors, parts and algorithms. The descriptors are the stand-in cuBLASLt's; what would compute
 * or choose is faked. */
#include <criterion/criterion.h>
#include <string.h>
#include "kernels/gemm_lt.h"
#include "kernels/ring.h"

enum { M = 8, N = 24, K = 10, LDC = 16, WORKSPACE = 4096 };
static char a[M * K * 4], b[K * N * 4], bias[N * 4], workspace[WORKSPACE];
static _Alignas(256) char aligned[4096], c[LDC * N * 4], d[M * N * 4];
static const float one = 1, zero = 0;
static const char *refused_name; /* of an attribute that is not understood */
#define HANDLE ((cublasLtHandle_t)(uintptr_t)&one)
#define STREAM ((cudaStream_t)(uintptr_t)&zero)

/* One call: D (M x N) = A' (M x K) B (K x N) + C. */
struct call {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t la, lb, lc, ld;
    cublasLtMatmulAlgo_t algo;
    struct slr_lt lt;
    struct slr_gemm gemm;
};

static void set(struct call *call, cublasLtMatmulDescAttributes_t id, const void *value, size_t size)
{
    cr_assert_eq(cublasLtMatmulDescSetAttribute(&call->desc, id, value, size), CUBLAS_STATUS_SUCCESS);
}
#define SET(call, id, type, value) set(call, CUBLASLT_MATMUL_DESC_##id, &(type){value}, sizeof(type))
#define SET_LAYOUT(l, id, type, value)                                                                                 \
    cr_assert_eq(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_##id, &(type){value}, sizeof(type)),       \
                 CUBLAS_STATUS_SUCCESS)

static void make(struct call *call)
{
    memset(call, 0, sizeof *call);
    cublasLtMatmulDescInit(&call->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    SET(call, TRANSA, int32_t, CUBLAS_OP_T);
    cublasLtMatrixLayoutInit(&call->la, CUDA_R_32F, K, M, K);
    cublasLtMatrixLayoutInit(&call->lb, CUDA_R_32F, K, N, K);
    cublasLtMatrixLayoutInit(&call->lc, CUDA_R_32F, M, N, LDC);
    cublasLtMatrixLayoutInit(&call->ld, CUDA_R_32F, M, N, M);
    call->lt = (struct slr_lt){.handle = HANDLE,
                               .stream = STREAM,
                               .desc = &call->desc,
                               .la = &call->la,
                               .lb = &call->lb,
                               .lc = &call->lc,
                               .ld = &call->ld,
                               .c = c,
                               .workspace = workspace,
                               .workspace_bytes = WORKSPACE};
    call->gemm =
        (struct slr_gemm){.api = SLR_GEMM_LT, .lt = &call->lt, .alpha = &one, .beta = &zero, .a = a, .b = b, .c = d};
}

/* The library: what each fake was asked, and what it is to answer. */
static struct {
    cublasStatus_t check;
    size_t check_workspace;
    uint32_t align; /* that the application's algorithm needs */
    int found;      /* algorithms that the heuristic knows */
    cublasLtMatmulAlgo_t algos[8];
    uint64_t width; /* not 0: the application's algorithm takes only so many columns of D */
    int checks, asked, matmuls;
    uint64_t pref_workspace;
    uint32_t pref_align[4], pref_schemes;
    /* Of the latest matmul. */
    cublasLtMatmulAlgo_t algo;
    bool with_algo;
    cublasLtMatmulDesc_t desc;
    const void *bias, *at[4];
    struct slr_lt_matrix matrix[4];
} fake;

static cublasStatus_t fake_check(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la,
                                 cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
                                 const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    struct slr_lt_matrix m;
    (void)h, (void)desc, (void)la, (void)lb, (void)lc, (void)algo;
    fake.checks++;
    result->workspaceSize = fake.check_workspace;
    slr_lt_read_matrix(ld, &m);
    return fake.width && m.cols != fake.width ? CUBLAS_STATUS_NOT_SUPPORTED : fake.check;
}

/* An algorithm is {its name, implementation, splits, reduction scheme, numerics}. */
static cublasLtMatmulAlgo_t algo_of(uint64_t name, uint64_t id, uint64_t splits, uint64_t scheme, uint64_t numerics)
{
    return (cublasLtMatmulAlgo_t){.data = {name, id, splits, scheme, numerics}};
}

static cublasStatus_t fake_cap(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t id, void *buf,
                               size_t size, size_t *written)
{
    (void)written;
    if (id == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS)
        memcpy(buf, &algo->data[4], sizeof(uint64_t));
    else
        memcpy(buf, &fake.align, sizeof fake.align);
    return size == (id == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS ? 8 : 4) ? CUBLAS_STATUS_SUCCESS
                                                                          : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t fake_config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t id, void *buf,
                                  size_t size, size_t *written)
{
    static const int word[] = {[CUBLASLT_ALGO_CONFIG_ID] = 1,
                               [CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 2,
                               [CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] = 3};
    const uint32_t value = (uint32_t)algo->data[word[id]];
    (void)written;
    cr_assert_eq(size, sizeof value);
    memcpy(buf, &value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_heuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la,
                                     cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
                                     cublasLtMatmulPreference_t pref, int requested,
                                     cublasLtMatmulHeuristicResult_t *results, int *returned)
{
    (void)h, (void)desc, (void)la, (void)lb, (void)lc, (void)ld;
    cr_assert_geq(requested, fake.found);
    fake.asked++;
    cublasLtMatmulPreferenceGetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &fake.pref_workspace, 8, NULL);
    cublasLtMatmulPreferenceGetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &fake.pref_schemes, 4, NULL);
    for (int i = 0; i < 4; i++)
        cublasLtMatmulPreferenceGetAttribute(
            pref, (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
            &fake.pref_align[i], 4, NULL);
    for (int i = 0; i < fake.found; i++)
        results[i] = (cublasLtMatmulHeuristicResult_t){.algo = fake.algos[i], .state = CUBLAS_STATUS_SUCCESS};
    *returned = fake.found;
    return fake.found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t fake_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *at_a,
                                  cublasLtMatrixLayout_t la, const void *at_b, cublasLtMatrixLayout_t lb,
                                  const void *beta, const void *at_c, cublasLtMatrixLayout_t lc, void *at_d,
                                  cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *space,
                                  size_t space_bytes, cudaStream_t stream)
{
    const cublasLtMatrixLayout_t layout[] = {la, lb, lc, ld};
    const void *const at[] = {at_a, at_b, at_c, at_d};
    cr_assert(h == HANDLE && stream == STREAM);
    cr_assert(alpha == &one && beta == &zero && space == workspace && space_bytes == WORKSPACE);
    fake.matmuls++;
    fake.with_algo = algo != NULL;
    if (algo)
        fake.algo = *algo;
    fake.desc = desc;
    memcpy(fake.at, at, sizeof at);
    cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &fake.bias, sizeof fake.bias, NULL);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(slr_lt_read_matrix(layout[i], &fake.matrix[i]), SLR_R_FUSED);
    return CUBLAS_STATUS_SUCCESS;
}

static CUresult fake_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static void setup(void)
{
    memset(&fake, 0, sizeof fake);
    slr_real.cublasLtMatrixLayoutInit_internal = cublasLtMatrixLayoutInit_internal;
    slr_real.cublasLtMatrixLayoutGetAttribute = cublasLtMatrixLayoutGetAttribute;
    slr_real.cublasLtMatmulDescInit_internal = cublasLtMatmulDescInit_internal;
    slr_real.cublasLtMatmulDescGetAttribute = cublasLtMatmulDescGetAttribute;
    slr_real.cublasLtMatmulDescSetAttribute = cublasLtMatmulDescSetAttribute;
    slr_real.cublasLtMatmulPreferenceInit_internal = cublasLtMatmulPreferenceInit_internal;
    slr_real.cublasLtMatmulPreferenceSetAttribute = cublasLtMatmulPreferenceSetAttribute;
    slr_real.cublasLtMatmulAlgoCheck = fake_check;
    slr_real.cublasLtMatmulAlgoCapGetAttribute = fake_cap;
    slr_real.cublasLtMatmulAlgoConfigGetAttribute = fake_config;
    slr_real.cublasLtMatmulAlgoGetHeuristic = fake_heuristic;
    slr_real.cublasLtMatmul = fake_matmul;
    slr_real.cuCtxGetDevice = fake_device;
}
TestSuite(gemm_lt, .init = setup);

static bool one_of(const struct slr_extent *list, int n, const void *p, size_t bytes)
{
    bool found = false;
    for (int i = 0; i < n; i++)
        found = found || (list[i].begin == (uintptr_t)p && list[i].end == (uintptr_t)p + bytes);
    return found;
}

static bool reads(const struct slr_gemm *g, const void *p, size_t bytes)
{
    return one_of(g->read, SLR_GEMM_READS, p, bytes);
}

static bool writes(const struct slr_gemm *g, const void *p, size_t bytes)
{
    return one_of(g->written, SLR_GEMM_WRITES, p, bytes);
}

Test(gemm_lt, describes)
{
    struct call call;
    make(&call);
    SET(&call, EPILOGUE, uint32_t, CUBLASLT_EPILOGUE_GELU_BIAS);
    SET(&call, BIAS_POINTER, const void *, bias);
    SET_LAYOUT(&call.lb, STRIDED_BATCH_OFFSET, int64_t, 999); /* of one matrix: says nothing */
    const struct slr_gemm *g = &call.gemm;
    cr_expect_eq(slr_gemm_describe(&call.gemm), SLR_R_FUSED);
    cr_expect(g->m == M && g->n == N && g->k == K && g->lda == K && g->ldb == K && g->ldc == M && g->batch == 1);
    cr_expect(g->transa == CUBLAS_OP_T && g->transb == CUBLAS_OP_N && g->atype == CUDA_R_32F);
    cr_expect(g->read[0].begin == (uintptr_t)c && g->read[0].end == (uintptr_t)c + (LDC * (N - 1) + M) * 4);
    cr_expect(reads(g, bias, M * 4));
    cr_expect(writes(g, workspace, WORKSPACE));
}

/* Each variation is refused for its own reason. */
#define REFUSED(why, change)                                                                                           \
    do {                                                                                                               \
        struct call call;                                                                                              \
        make(&call);                                                                                                   \
        change;                                                                                                        \
        cr_expect_eq(slr_gemm_describe(&call.gemm), SLR_R_##why, "%s", #change);                                       \
    } while (0)

/* For an attribute, which is named. */
#define REFUSED_FOR(name, change)                                                                                      \
    do {                                                                                                               \
        struct call call;                                                                                              \
        make(&call);                                                                                                   \
        change;                                                                                                        \
        cr_expect_eq(slr_gemm_describe(&call.gemm), SLR_R_JOIN_ATTRIBUTE, "%s", #change);                              \
        cr_expect_str_eq(call.gemm.attribute, name);                                                                   \
    } while (0)

Test(gemm_lt, refusals)
{
    REFUSED(JOIN_LAYOUT, SET_LAYOUT(&call.lb, ORDER, int32_t, CUBLASLT_ORDER_ROW));
    REFUSED(JOIN_LAYOUT, SET_LAYOUT(&call.la, PLANE_OFFSET, int64_t, 64));
    REFUSED(JOIN_LAYOUT, SET_LAYOUT(&call.ld, BATCH_MODE, uint32_t, CUBLASLT_BATCH_MODE_POINTER_ARRAY));
    REFUSED(JOIN_LAYOUT, call.lt.lc = NULL);
    REFUSED(JOIN_BATCH, SET_LAYOUT(&call.lb, BATCH_COUNT, int32_t, 2));
    REFUSED(JOIN_SHAPE, SET_LAYOUT(&call.lb, ROWS, uint64_t, K + 1));
    REFUSED(JOIN_SHAPE, SET_LAYOUT(&call.lc, COLS, uint64_t, N - 1));
    REFUSED(JOIN_SHAPE, SET_LAYOUT(&call.la, COLS, uint64_t, M + 1));
    REFUSED(JOIN_TYPE, SET_LAYOUT(&call.la, TYPE, uint32_t, CUDA_R_4F_E2M1));
    REFUSED(JOIN_TYPE, SET_LAYOUT(&call.ld, TYPE, uint32_t, CUDA_R_8I));
    REFUSED(JOIN_EPILOGUE, SET(&call, EPILOGUE, uint32_t, 1024));
    REFUSED(JOIN_TYPE, SET(&call, EPILOGUE_AUX_DATA_TYPE, int32_t, CUDA_R_8I));
    REFUSED(JOIN_ATTRIBUTE, SET(&call, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_DEVICE_VECTOR));
    REFUSED(JOIN_ATTRIBUTE, SET(&call, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST));
    REFUSED(JOIN_ATTRIBUTE, SET(&call, FILL_MODE, int32_t, CUBLAS_FILL_MODE_LOWER));
    REFUSED_FOR("TRANSC", SET(&call, TRANSC, int32_t, CUBLAS_OP_T));
    REFUSED_FOR("FILL_MODE", SET(&call, FILL_MODE, int32_t, CUBLAS_FILL_MODE_UPPER));
    REFUSED_FOR("POINTER_MODE", SET(&call, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_DEVICE_VECTOR));
    REFUSED_FOR("D_OUT_SCALE_POINTER", SET(&call, D_OUT_SCALE_POINTER, void *, d));
    REFUSED_FOR("D_OUT_SCALE_MODE", SET(&call, D_OUT_SCALE_MODE, int32_t, 2));
    REFUSED_FOR("EMULATION_DESCRIPTOR", SET(&call, EMULATION_DESCRIPTOR, const void *, d));
    REFUSED_FOR("B_SCALE_MODE", SET(&call, B_SCALE_MODE, int32_t, 6));
    REFUSED_FOR("C_SCALE_MODE", SET(&call, C_SCALE_MODE, int32_t, 3));
    REFUSED_FOR("D_SCALE_MODE", SET(&call, D_SCALE_MODE, int32_t, 3));
    REFUSED(JOIN_ATTRIBUTE, call.lt.desc = NULL);
}

/* An attribute that this header does not know, 4 bytes; `newer` is its value in all but the first descriptor asked. */
static int32_t newer;
static int newer_asked;

static cublasStatus_t newer_get(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t id, void *buf, size_t size,
                                size_t *written)
{
    const int32_t value = newer_asked > 1 ? newer : 5;
    if ((int)id != 60)
        return cublasLtMatmulDescGetAttribute(desc, id, buf, size, written);
    newer_asked++;
    if (size)
        memcpy(buf, &value, sizeof value);
    if (written)
        *written = sizeof value;
    return CUBLAS_STATUS_SUCCESS;
}

Test(gemm_lt, unknown_attributes_keep_it_whole)
{
    slr_real.cublasLtMatmulDescGetAttribute = newer_get;
    newer = 5;
    REFUSED(FUSED, (void)0);
    cr_expect_eq(newer_asked, 3); /* size and value of the fresh one, value of the call's */
    newer = 6;
    REFUSED(JOIN_ATTRIBUTE, (void)0);
}

static const struct slr_gemm_split on_b = {.shard_cols = 6, .col_bytes = K * 4},
                                   on_a = {.on_a = true, .shard_cols = 2, .col_bytes = K * 4};

static bool is(int i, uint64_t rows, uint64_t cols, int64_t ld, const void *at)
{
    const struct slr_lt_matrix *m = &fake.matrix[i];
    return m->type == CUDA_R_32F && m->rows == rows && m->cols == cols && m->ld == ld && fake.at[i] == at;
}

Test(gemm_lt, parts)
{
    struct call call, before;
    make(&call);
    SET(&call, EPILOGUE, uint32_t, CUBLASLT_EPILOGUE_RELU_BIAS);
    SET(&call, BIAS_POINTER, const void *, bias);
    SET(&call, SM_COUNT_TARGET, int32_t, 100);
    before = call;
    cr_assert_eq(slr_gemm_describe(&call.gemm), SLR_R_FUSED);

    cr_expect_eq(slr_gemm_part(&call.gemm, &on_b, 6, 5), CUBLAS_STATUS_SUCCESS);
    cr_expect(fake.desc == &call.desc && !fake.with_algo);
    cr_expect(is(SLR_LT_A, K, M, K, a) && is(SLR_LT_B, K, 5, K, b + 6 * K * 4));
    cr_expect(is(SLR_LT_C, M, 5, LDC, c + 6 * LDC * 4) && is(SLR_LT_D, M, 5, M, d + 6 * M * 4));

    cr_expect_eq(slr_gemm_part(&call.gemm, &on_a, 2, 3), CUBLAS_STATUS_SUCCESS);
    cr_expect(is(SLR_LT_A, K, 3, K, a + 2 * K * 4) && is(SLR_LT_B, K, N, K, b));
    cr_expect(is(SLR_LT_C, 3, N, LDC, c + 2 * 4) && is(SLR_LT_D, 3, N, M, d + 2 * 4));
    cr_expect(fake.desc != &call.desc && fake.bias == bias + 2 * 4);
    struct slr_lt_op whole, part;
    cr_expect(slr_lt_read_op(&before.desc, &whole, &refused_name) == SLR_R_FUSED);
    cr_expect(slr_lt_read_op(&call.desc, &part, &refused_name) == SLR_R_FUSED && part.bias == bias);

    cr_expect(memcmp(&call.desc, &before.desc, sizeof call.desc) == 0);
    cr_expect(memcmp(&call.la, &before.la, sizeof call.la) == 0 && memcmp(&call.ld, &before.ld, sizeof call.ld) == 0);
}

static cublasStatus_t keep_op(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *at_a,
                              cublasLtMatrixLayout_t la, const void *at_b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *at_c, cublasLtMatrixLayout_t lc, void *at_d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *space, size_t bytes, cudaStream_t stream)
{
    struct slr_lt_op op;
    (void)h, (void)alpha, (void)at_a, (void)la, (void)at_b, (void)lb, (void)beta, (void)at_c, (void)lc, (void)at_d;
    (void)ld, (void)algo, (void)space, (void)bytes, (void)stream;
    cr_expect_eq(slr_lt_read_op(desc, &op, &refused_name), SLR_R_FUSED);
    cr_expect(op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && op.scale == CUDA_R_32F && op.transa == CUBLAS_OP_T);
    cr_expect(op.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE && op.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS);
    cr_expect(op.sm_count == 100 && op.fast_accum == 1 && op.bias_type == CUDA_R_16F && op.bias == bias + 2 * 2);
    fake.matmuls++;
    return CUBLAS_STATUS_SUCCESS;
}

Test(gemm_lt, a_moved_bias_changes_nothing_else)
{
    struct call call;
    make(&call);
    SET(&call, COMPUTE_TYPE, int32_t, CUBLAS_COMPUTE_32F_FAST_TF32);
    SET(&call, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_DEVICE);
    SET(&call, EPILOGUE, uint32_t, CUBLASLT_EPILOGUE_GELU_BIAS);
    SET(&call, BIAS_POINTER, const void *, bias);
    SET(&call, BIAS_DATA_TYPE, int32_t, CUDA_R_16F);
    SET(&call, SM_COUNT_TARGET, int32_t, 100);
    SET(&call, FAST_ACCUM, int8_t, 1);
    slr_real.cublasLtMatmul = keep_op;
    cr_assert_eq(slr_gemm_describe(&call.gemm), SLR_R_FUSED);
    cr_expect_eq(slr_gemm_part(&call.gemm, &on_a, 2, 3), CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(fake.matmuls, 1);
}

/* The application's algorithm. */
enum { ITS = 3, ID = 66, SPLITS = 2, SCHEME = CUBLASLT_REDUCTION_SCHEME_INPLACE, NUMERICS = 0x20 };

static void with_algo(struct call *call)
{
    make(call);
    call->algo = algo_of(ITS, ID, SPLITS, SCHEME, NUMERICS);
    call->lt.algo = &call->algo;
    call->gemm.a = call->gemm.b = aligned;
    cr_assert_eq(slr_gemm_describe(&call->gemm), SLR_R_FUSED);
}

/* The name of the algorithm of a part of `cols` columns from `col`; 0: it was not computed. */
static uint64_t algo_for(const struct call *call, int64_t col, int64_t cols)
{
    fake.algo.data[0] = 0;
    cublasStatus_t r = slr_gemm_part(&call->gemm, &on_b, col, cols);
    cr_expect((r == CUBLAS_STATUS_SUCCESS) == (fake.algo.data[0] != 0));
    return fake.algo.data[0];
}

Test(gemm_lt, an_algorithm_that_sums_alike_comes_first)
{
    struct call call;
    with_algo(&call);
    fake.algos[0] = algo_of(10, ID + 1, SPLITS, SCHEME, NUMERICS);
    fake.algos[1] = algo_of(11, ID, SPLITS + 1, SCHEME, NUMERICS);
    fake.algos[2] = algo_of(12, ID, SPLITS, CUBLASLT_REDUCTION_SCHEME_NONE, NUMERICS);
    fake.algos[3] = algo_of(13, ID, SPLITS, SCHEME, NUMERICS + 1);
    fake.algos[4] = algo_of(14, ID, SPLITS, SCHEME, NUMERICS);
    fake.algos[5] = algo_of(15, ID, SPLITS, SCHEME, NUMERICS);
    fake.found = 6;
    for (int i = 0; i < 3; i++)
        cr_expect_eq(algo_for(&call, 6, 6), 14);
    cr_expect(fake.asked == 1 && fake.checks == 0, "the answer is kept");
    fake.found = 4;
    cr_expect_eq(algo_for(&call, 6, 5), ITS);
    cr_expect_eq(fake.checks, 1);
    fake.check = CUBLAS_STATUS_NOT_SUPPORTED;
    cr_expect_eq(algo_for(&call, 6, 4), 10);
    fake.found = 0;
    cr_expect_eq(algo_for(&call, 6, 3), 0);
}

Test(gemm_lt, what_the_heuristic_is_asked)
{
    struct call call;
    with_algo(&call);
    fake.algos[0] = algo_of(10, ID, SPLITS, SCHEME, NUMERICS);
    fake.found = 1;
    cr_expect_eq(algo_for(&call, 4, 6), 10);
    cr_expect_eq(fake.pref_workspace, WORKSPACE);
    cr_expect_eq(fake.pref_schemes, SCHEME | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    cr_expect(fake.pref_align[0] == 256 && fake.pref_align[1] == 32, "%u %u", fake.pref_align[0], fake.pref_align[1]);
    /* Another width, another alignment, another workspace, another algorithm: another problem. */
    algo_for(&call, 4, 5);
    algo_for(&call, 5, 5);
    cr_expect_eq(fake.asked, 3);
    call.algo.data[0] = ITS + 1;
    algo_for(&call, 5, 5);
    cr_expect_eq(fake.asked, 4);
    call.lt.workspace_bytes = 0;
    struct slr_gemm part = call.gemm;
    part.n = 5;
    part.b = aligned + 5 * K * 4;
    cr_expect(slr_lt_ready(&part, false, 5));
    cr_expect(fake.asked == 5 && fake.pref_workspace == 0);
}

Test(gemm_lt, the_applications_algorithm_has_to_fit)
{
    struct call call;
    with_algo(&call);
    fake.algos[0] = algo_of(10, ID + 1, SPLITS, SCHEME, NUMERICS);
    fake.found = 1;
    fake.check_workspace = WORKSPACE;
    cr_expect_eq(algo_for(&call, 0, 6), ITS);
    fake.check_workspace = WORKSPACE + 1;
    cr_expect_eq(algo_for(&call, 0, 5), 10);
    fake.check_workspace = 0;
    fake.align = 32;
    cr_expect_eq(algo_for(&call, 4, 4), ITS, "B is aligned to 32 bytes");
    fake.align = 64;
    cr_expect_eq(algo_for(&call, 4, 3), 10, "and not to 64");
}

/* Nothing is started when there is no algorithm for a later part. */
Test(gemm_lt, ready_before_the_first_part)
{
    struct call call;
    struct slr_ring ring = {.rank = 1, .nranks = 4};
    const size_t shard = on_b.col_bytes * 6;
    struct slr_gather gather = {.recv = (uintptr_t)aligned,
                                .plan = {.shard = shard, .piece = shard * 4 / 6, .pieces = 2, .group = 1, .chunks = 2}};
    unsigned parts = 9;
    with_algo(&call);
    fake.width = 4; /* the first range of each shard, not the second of 2 */
    cr_expect_neq(slr_gemm_fused(&ring, &gather, &call.gemm, &on_b, &parts), CUBLAS_STATUS_SUCCESS);
    cr_expect(parts == 0 && fake.matmuls == 0 && fake.asked == 2);
}
