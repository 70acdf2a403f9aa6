/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS refuses a part of a fused GEMM after others have run. The fake library computes at once, on the host. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/gemm_lt.h"
#include "kernels/gemm_parts.h"

enum { NRANKS = 3, SHARD = 4, COLS = NRANKS * SHARD, K = 5, OTHER = 6, LDC = 14, CHUNKS = 2, PARTS = NRANKS * CHUNKS };
#define STREAM ((CUstream)(uintptr_t)0x1234)
#define FINISHED ((CUevent)(uintptr_t)0x77)

/* The two forms: B is gathered, or A. */
static float gathered[COLS * K], other[OTHER * K], c[LDC * COLS];
static float alpha = 3, beta;

static struct {
    int calls, wholes; /* GEMMs that were asked for */
    int refuse;        /* the number of the call that is refused, from 0; and all after it if `on` */
    bool on;
    cublasStatus_t with, whole_with; /* the status for a part, for the whole */
    cublasPointerMode_t mode;
    bool no_memory, joined;
    int allocated, freed;
    CUdeviceptr memory;
    unsigned beside;
    int target, of_parts, of_whole; /* multiprocessors for cuBLAS: now; as the parts, and the whole, had them */
} fake;

static bool is_whole(int m, int n)
{
    return m * n == COLS * OTHER;
}

static void multiply(int m, int n, const float *a, const float *b, float *out)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int p = 0; p < K; p++)
                sum += a[i * K + p] * b[j * K + p];
            out[j * LDC + i] = alpha * sum + (beta != 0 ? beta * out[j * LDC + i] : 0);
        }
}

static cublasStatus_t fake_sgemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                 const float *al, const float *a, int lda, const float *b, int ldb, const float *be,
                                 float *out, int ldc)
{
    (void)h;
    cr_assert(ta == CUBLAS_OP_T && tb == CUBLAS_OP_N && k == K && lda == K && ldb == K && ldc == LDC);
    cr_assert(al == &alpha && be == &beta);
    int call = fake.calls++;
    *(is_whole(m, n) ? &fake.of_whole : &fake.of_parts) = fake.target;
    fake.wholes += is_whole(m, n);
    cr_assert(!is_whole(m, n) || fake.joined, "the whole runs behind the gather");
    if (is_whole(m, n) && fake.whole_with != CUBLAS_STATUS_SUCCESS)
        return fake.whole_with;
    if (call == fake.refuse)
        return fake.with;
    multiply(m, n, a, b, out);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_mode(cublasHandle_t h, cublasPointerMode_t *mode)
{
    (void)h;
    *mode = fake.mode;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_get_target(cublasHandle_t h, int *target)
{
    (void)h;
    *target = fake.target;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_set_target(cublasHandle_t h, int target)
{
    (void)h;
    fake.target = target;
    return CUBLAS_STATUS_SUCCESS;
}

static CUresult fake_device(CUdevice *device)
{
    *device = 3;
    return CUDA_SUCCESS;
}

static CUresult fake_attribute(int *value, CUdevice_attribute what, CUdevice device)
{
    cr_assert(what == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && device == 3);
    *value = 132;
    return CUDA_SUCCESS;
}

static CUresult fake_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    cr_assert_eq(stream, STREAM);
    fake.joined |= event == FINISHED;
    return CUDA_SUCCESS;
}

static CUresult fake_alloc(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    cr_assert(stream == STREAM && bytes > 0 && fake.joined);
    if (fake.no_memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake.allocated++;
    *out = fake.memory = (CUdeviceptr)(uintptr_t)malloc(bytes); /* a sanitizer sees a copy beyond it */
    return CUDA_SUCCESS;
}

static CUresult fake_free(CUdeviceptr p, CUstream stream)
{
    cr_assert(stream == STREAM && p == fake.memory);
    fake.freed++;
    free((void *)(uintptr_t)p);
    return CUDA_SUCCESS;
}

static CUresult fake_copy(const CUDA_MEMCPY2D *p, CUstream stream)
{
    cr_assert(stream == STREAM && p->srcMemoryType == CU_MEMORYTYPE_DEVICE && p->dstMemoryType == CU_MEMORYTYPE_DEVICE);
    for (size_t row = 0; row < p->Height; row++)
        memcpy((char *)(uintptr_t)p->dstDevice + row * p->dstPitch,
               (const char *)(uintptr_t)p->srcDevice + row * p->srcPitch, p->WidthInBytes);
    return CUDA_SUCCESS;
}

static void setup(void)
{
    memset(&fake, 0, sizeof fake);
    fake.refuse = -1;
    slr_real.cublasSgemm = fake_sgemm;
    slr_real.cublasGetPointerMode = fake_mode;
    slr_real.cublasGetSmCountTarget = fake_get_target;
    slr_real.cublasSetSmCountTarget = fake_set_target;
    slr_real.cuCtxGetDevice = fake_device;
    slr_real.cuDeviceGetAttribute = fake_attribute;
    slr_real.cuStreamWaitEvent = fake_wait;
    slr_real.cuMemAllocAsync = fake_alloc;
    slr_real.cuMemFreeAsync = fake_free;
    slr_real.cuMemcpy2DAsync = fake_copy;
    for (int i = 0; i < COLS * K; i++)
        gathered[i] = (float)(i * 7 % 11 - 5);
    for (int i = 0; i < OTHER * K; i++)
        other[i] = (float)(i * 5 % 13 - 6);
}
TestSuite(gemm_redo, .init = setup);

static struct slr_gemm gemm_of(bool on_a)
{
    return (struct slr_gemm){.api = SLR_GEMM_S,
                             .transa = CUBLAS_OP_T,
                             .transb = CUBLAS_OP_N,
                             .m = on_a ? COLS : OTHER,
                             .n = on_a ? OTHER : COLS,
                             .k = K,
                             .alpha = &alpha,
                             .beta = &beta,
                             .a = on_a ? gathered : other,
                             .b = on_a ? other : gathered,
                             .c = c,
                             .atype = CUDA_R_32F,
                             .btype = CUDA_R_32F,
                             .ctype = CUDA_R_32F,
                             .lda = K,
                             .ldb = K,
                             .ldc = LDC,
                             .batch = 1};
}

/* What C holds before: garbage that must not be read if beta is 0. */
static float old(int i)
{
    return beta != 0 ? (float)(i % 9) : __builtin_nanf("");
}

static bool right(bool on_a)
{
    static float want[LDC * COLS];
    const int m = on_a ? COLS : OTHER, n = on_a ? OTHER : COLS;
    for (int i = 0; i < LDC * COLS; i++)
        want[i] = old(i);
    multiply(m, n, on_a ? gathered : other, on_a ? other : gathered, want);
    return memcmp(c, want, sizeof want) == 0;
}

static cublasStatus_t run(bool on_a, unsigned *parts)
{
    static CUevent events[PARTS];
    struct slr_ring ring = {
        .rank = 1, .nranks = NRANKS, .now.finished = FINISHED, .now.chunk_event = events, .now.chunk_events = PARTS};
    const struct slr_gemm gemm = gemm_of(on_a);
    const size_t shard = SHARD * K * sizeof(float);
    const struct slr_gather gather = {
        .recv = (uintptr_t)gathered,
        .stream = STREAM,
        .beside = fake.beside,
        .plan = {.shard = shard, .piece = shard / CHUNKS, .pieces = CHUNKS, .group = 1, .chunks = CHUNKS}};
    struct slr_gemm_split split = {0};
    cr_assert_eq(slr_gemm_split_find(&gemm, &gather, NRANKS, &split), SLR_R_FUSED);
    for (int i = 0; i < LDC * COLS; i++)
        c[i] = old(i);
    fake.calls = fake.wholes = fake.allocated = fake.freed = 0;
    fake.joined = false;
    return slr_gemm_fused(&ring, &gather, &gemm, &split, parts);
}

/* Every later part refused in turn; forms, beta 0 and not, scalars on the host and on the device. */
static void each_part(cublasPointerMode_t mode, float b, bool kept)
{
    unsigned parts;
    fake.mode = mode;
    fake.with = CUBLAS_STATUS_NOT_SUPPORTED;
    beta = b;
    for (int on_a = 0; on_a < 2; on_a++)
        for (fake.refuse = 1; fake.refuse < PARTS; fake.refuse++) {
            cublasStatus_t r = run(on_a, &parts);
            cr_expect(r == CUBLAS_STATUS_SUCCESS && parts == SLR_GEMM_REDONE && right(on_a),
                      "form %d, part %d: status %d, %u parts, %s", on_a, fake.refuse, (int)r, parts,
                      right(on_a) ? "right" : "wrong");
            cr_expect(fake.wholes == 1 && fake.calls == fake.refuse + 2);
            cr_expect(fake.allocated == kept && fake.freed == kept);
        }
}

Test(gemm_redo, beta_0_costs_no_copy)
{
    each_part(CUBLAS_POINTER_MODE_HOST, 0, false);
}

Test(gemm_redo, beta_2)
{
    each_part(CUBLAS_POINTER_MODE_HOST, 2, true);
}

Test(gemm_redo, scalars_on_the_device)
{
    each_part(CUBLAS_POINTER_MODE_DEVICE, 0, true);
    each_part(CUBLAS_POINTER_MODE_DEVICE, 2, true);
}

Test(gemm_redo, nothing_is_done_when_nothing_is_refused)
{
    unsigned parts;
    beta = 2;
    for (int on_a = 0; on_a < 2; on_a++) {
        cr_expect(run(on_a, &parts) == CUBLAS_STATUS_SUCCESS && parts == PARTS && right(on_a));
        cr_expect(fake.wholes == 0 && fake.allocated == 0 && fake.joined);
    }
}

Test(gemm_redo, the_first_part_is_left_to_the_caller)
{
    unsigned parts;
    beta = 2;
    fake.refuse = 0;
    fake.with = CUBLAS_STATUS_NOT_SUPPORTED;
    cr_expect_eq(run(false, &parts), CUBLAS_STATUS_NOT_SUPPORTED);
    cr_expect(parts == 0 && fake.calls == 1 && !fake.joined);
}

/* The program gets the whole's status, whatever the part's was. */
Test(gemm_redo, the_whole_is_refused_too)
{
    unsigned parts;
    fake.refuse = 2;
    fake.with = CUBLAS_STATUS_ALLOC_FAILED;
    fake.whole_with = CUBLAS_STATUS_ARCH_MISMATCH;
    for (int b = 0; b <= 2; b += 2) {
        beta = (float)b;
        cr_expect_eq(run(true, &parts), CUBLAS_STATUS_ARCH_MISMATCH);
        cr_expect(parts == SLR_GEMM_REDONE && fake.wholes == 1 && fake.freed == fake.allocated);
    }
}

/* A part that may have begun to write: right when it is overwritten, else the program is told. */
Test(gemm_redo, a_part_that_failed_in_the_middle)
{
    unsigned parts;
    fake.refuse = 3;
    fake.with = CUBLAS_STATUS_EXECUTION_FAILED;
    beta = 0;
    cr_expect(run(false, &parts) == CUBLAS_STATUS_SUCCESS && parts == SLR_GEMM_REDONE && right(false));
    beta = 2;
    cr_expect(run(false, &parts) == CUBLAS_STATUS_EXECUTION_FAILED && parts == SLR_GEMM_REDONE);
    cr_expect(fake.wholes == 0 && fake.allocated == 0 && fake.joined);
}

Test(gemm_redo, no_memory_to_keep_results)
{
    unsigned parts;
    fake.refuse = 3;
    fake.with = CUBLAS_STATUS_ALLOC_FAILED;
    fake.no_memory = true;
    beta = 2;
    cr_expect(run(true, &parts) == CUBLAS_STATUS_ALLOC_FAILED && parts == SLR_GEMM_REDONE && fake.wholes == 0);
    fake.no_memory = false;
    slr_real.cuMemAllocAsync = NULL;
    cr_expect(run(true, &parts) == CUBLAS_STATUS_ALLOC_FAILED && fake.wholes == 0);
    beta = 0;
    cr_expect(run(true, &parts) == CUBLAS_STATUS_SUCCESS && right(true), "needs none");
}

/* Whether C is read: only what is certain counts. */
Test(gemm_redo, what_reads_c)
{
    const double none = 0, minus = -0.0;
    struct slr_gemm g = gemm_of(false);
    struct slr_lt lt = {.op = {.scale = CUDA_R_32F, .pointer_mode = CUBLASLT_POINTER_MODE_HOST}};
    g.beta = &none;
    cr_expect(!slr_gemm_reads_output(&g));
    fake.mode = CUBLAS_POINTER_MODE_DEVICE;
    cr_expect(slr_gemm_reads_output(&g));
    fake.mode = CUBLAS_POINTER_MODE_HOST;
    slr_real.cublasGetPointerMode = NULL;
    cr_expect(slr_gemm_reads_output(&g), "not known");
    slr_real.cublasGetPointerMode = fake_mode;
    g.api = SLR_GEMM_EX;
    g.compute = CUBLAS_COMPUTE_64F;
    cr_expect(!slr_gemm_reads_output(&g));
    g.beta = &minus;
    cr_expect(slr_gemm_reads_output(&g));
    g.beta = &none;
    g.compute = (cublasComputeType_t)12345;
    cr_expect(slr_gemm_reads_output(&g), "a type of scalar that is not known");

    g.api = SLR_GEMM_LT;
    g.lt = &lt;
    g.read[0] = slr_gemm_extent(c, OTHER, COLS, LDC, sizeof(float));
    cr_expect(!slr_gemm_reads_output(&g));
    lt.op.pointer_mode = CUBLASLT_POINTER_MODE_DEVICE;
    cr_expect(slr_gemm_reads_output(&g));
    g.read[0] = slr_gemm_extent(gathered, OTHER, COLS, OTHER, sizeof(float));
    cr_expect(!slr_gemm_reads_output(&g), "C is another matrix than D");
}

/* Parts leave NCCL's kernels the multiprocessors that they need, and the program has its own target behind them. */
static void room(unsigned beside, int target, int of_parts)
{
    unsigned parts;
    fake.mode = CUBLAS_POINTER_MODE_HOST;
    beta = 0;
    fake.beside = beside;
    fake.target = target;
    fake.refuse = -1;
    cr_expect(run(false, &parts) == CUBLAS_STATUS_SUCCESS && fake.of_parts == of_parts && fake.target == target,
              "of %d: parts %d, and %d behind them", target, fake.of_parts, fake.target);
    fake.refuse = 1;
    fake.with = CUBLAS_STATUS_NOT_SUPPORTED;
    cr_expect(run(false, &parts) == CUBLAS_STATUS_SUCCESS && fake.of_whole == target && fake.target == target);
}

Test(gemm_redo, room_for_kernels_between_hosts)
{
    room(0, 0, 0);
    room(2, 0, 130);
    room(2, 100, 100);
    room(2, 131, 130);
    room(200, 0, 0);
    slr_real.cublasSetSmCountTarget = NULL;
    room(2, 0, 0);
}
