/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs that sum over the gathered dimension: which are split, and what becomes of C, also when cuBLAS refuses a part.
 * The fake library computes at once, on the host. */
#include <criterion/criterion.h>
#include <string.h>
#include "kernels/gemm.h"
#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"

enum { NRANKS = 3, SHARD = 4, K = NRANKS * SHARD, ROWS = 5, OTHER = 6, LDC = 8, CHUNKS = 2, PARTS = NRANKS * CHUNKS };
#define STREAM ((CUstream)(uintptr_t)0x1234)
#define FINISHED ((CUevent)(uintptr_t)0x77)
#define OWNED ((CUevent)(uintptr_t)0x78)
#define RANK 1
#define CHUNK_EVENTS (CHUNKS * (NRANKS - 1))

/* gathered: ROWS x K; the other operand: K x OTHER or OTHER x K. */
static float gathered[ROWS * K], other[OTHER * K], c[LDC * OTHER], want[LDC * OTHER];
static float alpha = 3, beta;
static cublasPointerMode_t mode;

static struct {
    int calls, wholes;
    int refuse;       /* the number of the call that is refused, from 0 */
    int64_t refuse_k; /* or a part of so many columns */
    cublasStatus_t with;
    bool joined;
    int64_t summed;                /* columns of the last call */
    bool chunk[CHUNK_EVENTS], own; /* what the stream has waited for */
} fake;
static CUevent events[CHUNK_EVENTS];

/* Whether the stream has waited for column `col` of the gathered matrix. */
static bool is_there(int col)
{
    const int step = (col / SHARD - RANK + NRANKS) % NRANKS, needed = col % SHARD * CHUNKS / SHARD;
    bool there = fake.own && step == 0;
    /* A later chunk of the same peer will do. */
    for (int q = needed; step > 0 && q < CHUNKS; q++)
        there |= fake.chunk[q * (NRANKS - 1) + step - 1];
    return there || fake.joined;
}

static void reads(const float *x, int cols)
{
    for (int i = 0; i < cols; i++) {
        const int col = (int)(x - gathered) / ROWS + i;
        cr_expect(is_there(col), "column %d of %d is read before it is there", col, K);
    }
}

static float at(const float *x, int ld, bool trans, int row, int col)
{
    return trans ? x[row * ld + col] : x[col * ld + row];
}

static cublasStatus_t fake_sgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                 const float *al, const float *a, int lda, const float *b, int ldb, const float *be,
                                 float *out, int ldc)
{
    (void)h;
    int call = fake.calls++;
    fake.wholes += k == K;
    fake.summed = k;
    cr_assert(k < K || fake.joined, "the whole runs behind the gather");
    if (call == fake.refuse || k == fake.refuse_k)
        return fake.with;
    reads(m == ROWS ? a : b, k);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int p = 0; p < k; p++)
                sum += at(a, lda, ta != CUBLAS_OP_N, i, p) * at(b, ldb, tb != CUBLAS_OP_N, p, j);
            out[j * ldc + i] = *al * sum + (*be != 0 ? *be * out[j * ldc + i] : 0);
        }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_mode(cublasHandle_t h, cublasPointerMode_t *out)
{
    (void)h;
    *out = mode;
    return CUBLAS_STATUS_SUCCESS;
}

static CUresult fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    cr_assert_eq(stream, STREAM);
    fake.joined |= event == FINISHED;
    fake.own |= event == OWNED;
    for (int i = 0; i < CHUNK_EVENTS; i++)
        fake.chunk[i] |= event == events[i];
    return CUDA_SUCCESS;
}

static void setup(void)
{
    memset(&fake, 0, sizeof fake);
    for (int i = 0; i < CHUNK_EVENTS; i++)
        events[i] = (CUevent)(uintptr_t)(0x100 + i);
    fake.refuse = -1;
    mode = CUBLAS_POINTER_MODE_HOST;
    slr_real.cublasSgemm = fake_sgemm;
    slr_real.cublasGetPointerMode = fake_mode;
    slr_real.cuStreamWaitEvent = fake_wait;
    for (int i = 0; i < ROWS * K; i++)
        gathered[i] = (float)(i * 7 % 11 - 5);
    for (int i = 0; i < OTHER * K; i++)
        other[i] = (float)(i * 5 % 13 - 6);
}
TestSuite(gemm_sum, .init = setup);

/* The gathered operand is A (op N) or B (op T); `across`: the other one is stored with its outer size as rows. */
static struct slr_gemm gemm_of(bool on_a, bool across)
{
    return (struct slr_gemm){.api = SLR_GEMM_S,
                             .transa = on_a || across ? CUBLAS_OP_N : CUBLAS_OP_T,
                             .transb = on_a && !across ? CUBLAS_OP_N : CUBLAS_OP_T,
                             .m = on_a ? ROWS : OTHER,
                             .n = on_a ? OTHER : ROWS,
                             .k = K,
                             .alpha = &alpha,
                             .beta = &beta,
                             .a = on_a ? gathered : other,
                             .b = on_a ? other : gathered,
                             .c = c,
                             .atype = CUDA_R_32F,
                             .btype = CUDA_R_32F,
                             .ctype = CUDA_R_32F,
                             .lda = on_a     ? ROWS
                                    : across ? OTHER
                                             : K,
                             .ldb = on_a ? across ? OTHER : K : ROWS,
                             .ldc = LDC,
                             .batch = 1};
}

static struct slr_gather gather_of(void)
{
    const size_t shard = SHARD * ROWS * sizeof(float);
    return (struct slr_gather){
        .recv = (uintptr_t)gathered,
        .stream = STREAM,
        .plan = {.shard = shard, .piece = shard / CHUNKS, .pieces = CHUNKS, .group = 1, .chunks = CHUNKS}};
}

/* What C holds before: garbage that must not be read if beta is 0. */
static void fill(float *to)
{
    for (int i = 0; i < LDC * OTHER; i++)
        to[i] = beta != 0 || i % LDC >= OTHER ? (float)(i % 9) : __builtin_nanf("");
}

static bool right(const struct slr_gemm *gemm)
{
    fill(want);
    const __typeof__(fake) before = fake;
    fake.joined = true;
    fake.refuse = -1;
    fake.refuse_k = 0;
    fake_sgemm(NULL, gemm->transa, gemm->transb, (int)gemm->m, (int)gemm->n, K, &alpha, gemm->a, (int)gemm->lda,
               gemm->b, (int)gemm->ldb, &beta, want, LDC);
    fake = before;
    for (int j = 0; j < gemm->n; j++)
        if (memcmp(c + j * LDC, want + j * LDC, (size_t)gemm->m * sizeof *c) != 0)
            return false;
    return true;
}

static double pace;

static cublasStatus_t run(const struct slr_gemm *gemm, unsigned *parts)
{
    struct slr_ring ring = {.rank = RANK,
                            .nranks = NRANKS,
                            .now.finished = FINISHED,
                            .now.owned = OWNED,
                            .now.own_copied = OWNED,
                            .now.chunk_event = events,
                            .now.chunk_events = CHUNK_EVENTS};
    const struct slr_gather gather = gather_of();
    struct slr_gemm_split split = {.pace = pace};
    cr_assert_eq(slr_gemm_split_find(gemm, &gather, NRANKS, &split), SLR_R_FUSED);
    cr_assert(split.sums && split.shard_cols == SHARD && split.rows == ROWS && split.other == OTHER);
    fill(c);
    fake.calls = fake.wholes = 0;
    fake.joined = fake.own = false;
    memset(fake.chunk, 0, sizeof fake.chunk);
    return slr_gemm_fused(&ring, &gather, gemm, &split, parts);
}

#define EACH_FORM(gemm)                                                                                                \
    for (int form = 0; form < 4; form++)                                                                               \
        for (struct slr_gemm gemm = gemm_of(form & 1, form & 2), *once = &gemm; once; once = NULL)

Test(gemm_sum, each_form_and_beta)
{
    unsigned parts;
    for (int b = 0; b < 3; b++) {
        beta = (float)b;
        EACH_FORM(gemm)
        {
            cr_expect(run(&gemm, &parts) == CUBLAS_STATUS_SUCCESS && parts == PARTS && right(&gemm), "form %d, beta %d",
                      form, b);
            cr_expect(fake.calls == PARTS && fake.wholes == 0);
        }
    }
}

/* The last part lies in several shards: it waits for all of them. */
Test(gemm_sum, over_several_shards)
{
    unsigned parts;
    pace = 1e9;
    beta = 1;
    EACH_FORM(gemm)
    {
        cr_expect(run(&gemm, &parts) == CUBLAS_STATUS_SUCCESS && parts == 2 && right(&gemm));
        cr_expect(fake.summed > 2 * SHARD);
    }
}

/* Every later part refused in turn: the rest of the sum is added by one call, or the whole runs where C is not read. */
Test(gemm_sum, refused)
{
    unsigned parts;
    fake.with = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int b = 0; b < 3; b++) {
        beta = (float)b;
        EACH_FORM(gemm)
        for (fake.refuse = 1; fake.refuse < PARTS; fake.refuse++) {
            cr_expect(run(&gemm, &parts) == CUBLAS_STATUS_SUCCESS && parts == SLR_GEMM_REDONE && right(&gemm),
                      "form %d, beta %d, part %d", form, b, fake.refuse);
            cr_expect(fake.joined && fake.calls == fake.refuse + 2 && fake.wholes == (b == 0));
            cr_expect_eq(fake.summed, b == 0 ? K : K - fake.refuse * SHARD / CHUNKS);
        }
    }
}

Test(gemm_sum, refused_for_good)
{
    unsigned parts;
    struct slr_gemm gemm = gemm_of(true, true);
    beta = 1;
    fake.with = CUBLAS_STATUS_NOT_SUPPORTED;
    fake.refuse = 2;
    fake.refuse_k = K - 2 * SHARD / CHUNKS; /* the rest, too */
    cr_expect(run(&gemm, &parts) == CUBLAS_STATUS_NOT_SUPPORTED && parts == SLR_GEMM_REDONE && fake.calls == 4);
    fake.refuse = 0;
    cr_expect(run(&gemm, &parts) == CUBLAS_STATUS_NOT_SUPPORTED && parts == 0 && fake.calls == 1, "left to the caller");
    fake.refuse = 2;
    fake.refuse_k = 0;
    fake.with = CUBLAS_STATUS_EXECUTION_FAILED; /* it may have begun to write */
    cr_expect(run(&gemm, &parts) == CUBLAS_STATUS_EXECUTION_FAILED && fake.calls == 3);
}

#define MAY(why, which) cr_expect_eq(slr_gemm_may_sum(&gemm, which), SLR_R_##why)

Test(gemm_sum, which_are_split)
{
    struct slr_gemm gemm = gemm_of(true, true);
    beta = 1;
    MAY(FUSED, SLR_SUMS_ACCUMULATE);
    MAY(JOIN_TRANS, SLR_SUMS_OFF);
    beta = 0;
    MAY(JOIN_TRANS, SLR_SUMS_ACCUMULATE);
    MAY(FUSED, SLR_SUMS_ALL);
    beta = 1;
    mode = CUBLAS_POINTER_MODE_DEVICE;
    MAY(JOIN_SUM_SCALARS, SLR_SUMS_ALL);
    slr_real.cublasGetPointerMode = NULL;
    MAY(JOIN_SUM_SCALARS, SLR_SUMS_ALL);
}

Test(gemm_sum, only_into_what_keeps_the_sum)
{
    const double wide = 1;
    struct slr_gemm gemm = gemm_of(true, true);
    beta = 1;
    gemm.api = SLR_GEMM_EX;
    gemm.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    MAY(FUSED, SLR_SUMS_ACCUMULATE);
    gemm.ctype = CUDA_R_16BF;
    MAY(JOIN_SUM_TYPE, SLR_SUMS_ALL);
    gemm.ctype = CUDA_R_64F; /* another type than that of the scalars */
    MAY(JOIN_SUM_TYPE, SLR_SUMS_ALL);
    gemm.compute = CUBLAS_COMPUTE_64F;
    gemm.beta = &wide;
    MAY(FUSED, SLR_SUMS_ACCUMULATE);
    gemm.compute = (cublasComputeType_t)12345;
    MAY(JOIN_SUM_TYPE, SLR_SUMS_ALL);
    gemm.compute = CUBLAS_COMPUTE_32I;
    gemm.ctype = CUDA_R_32I;
    MAY(JOIN_SUM_TYPE, SLR_SUMS_ALL);
    gemm = gemm_of(true, true);
    gemm.api = SLR_GEMM_H;
    gemm.ctype = CUDA_R_16F;
    MAY(JOIN_SUM_TYPE, SLR_SUMS_ALL);
}

Test(gemm_sum, lt)
{
    struct slr_lt own, lt = {.c = gathered,
                             .ctype = CUDA_R_16BF,
                             .ldc = 99,
                             .op = {.scale = CUDA_R_32F,
                                    .pointer_mode = CUBLASLT_POINTER_MODE_HOST,
                                    .epilogue = CUBLASLT_EPILOGUE_DEFAULT}};
    struct slr_gemm gemm = gemm_of(true, true);
    gemm.api = SLR_GEMM_LT;
    gemm.lt = &lt;
    beta = 1;
    MAY(FUSED, SLR_SUMS_ACCUMULATE);
    lt.op.epilogue = CUBLASLT_EPILOGUE_BIAS;
    MAY(JOIN_EPILOGUE, SLR_SUMS_ALL);
    const struct slr_gemm adding = slr_gemm_adding(&gemm, &own);
    cr_expect(adding.lt == &own && own.c == c && own.ctype == CUDA_R_32F && own.ldc == LDC);
    cr_expect(*(const float *)adding.beta == 1 && adding.alpha == &alpha);
    cr_expect(lt.c == gathered && lt.ldc == 99, "the program's call is only read");
}
