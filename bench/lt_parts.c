/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs to compute a bf16 cublasLtMatmul in parts, with nothing to wait for between them,
 * by where the algorithm comes from: the heuristic's for the whole, the one that slipring takes
 * (kernels/gemm_lt.h), or none given. Also counts the elements of D in which slipring's parts
 * differ from the whole.
 *
 * usage: lt_parts {bn|at} M N K PARTS [{bn|at} M N K PARTS]... */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <string.h>
#include "bench/linked.h"
#include "kernels/gemm_lt.h"

enum { WARM = 3, TIMED = 20, ROUNDS = 5 };
static const size_t workspace_bytes = (size_t)32 << 20;
static const float one = 1, zero = 0;

/* A problem, its matrices on the device, and its descriptors. */
struct problem {
    bool at; /* A is cut, else B */
    int64_t m, n, k, parts;
    char *a, *b, *d, *whole, *workspace;
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t la, lb, ld;
    cublasLtMatmulHeuristicResult_t found;
};

static void layouts(struct problem *p, int64_t m, int64_t n)
{
    OK(cublasLtMatrixLayoutInit(&p->la, CUDA_R_16BF, (uint64_t)p->k, (uint64_t)m, p->k));
    OK(cublasLtMatrixLayoutInit(&p->lb, CUDA_R_16BF, (uint64_t)p->k, (uint64_t)n, p->k));
    OK(cublasLtMatrixLayoutInit(&p->ld, CUDA_R_16BF, (uint64_t)m, (uint64_t)n, p->m));
}

/* Values of either sign between 1/2 and 2. */
static char *matrix(int64_t elements, bool fill)
{
    void *device;
    OK(cudaMalloc(&device, (size_t)elements * 2));
    if (fill) {
        uint16_t *host = malloc((size_t)elements * 2);
        uint32_t x = 1;
        for (int64_t i = 0; host && i < elements; i++) {
            x = x * 1664525 + 1013904223;
            host[i] = (uint16_t)((x >> 16 & 0x80ff) | 0x3f00);
        }
        OK(!host || cudaMemcpy(device, host, (size_t)elements * 2, cudaMemcpyHostToDevice));
        free(host);
    }
    return device;
}

static void make(struct problem *p)
{
    const int32_t trans = CUBLAS_OP_T;
    const uint64_t most = workspace_bytes;
    cublasLtMatmulPreferenceOpaque_t pref;
    int count = 0;
    p->a = matrix(p->m * p->k, true);
    p->b = matrix(p->n * p->k, true);
    p->d = matrix(p->m * p->n, false);
    p->whole = matrix(p->m * p->n, false);
    OK(cudaMalloc((void **)&p->workspace, workspace_bytes));
    OK(cublasLtCreate(&p->handle));
    OK(cublasLtMatmulDescInit(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans));
    OK(cublasLtMatmulPreferenceInit(&pref));
    OK(cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    layouts(p, p->m, p->n);
    OK(cublasLtMatmulAlgoGetHeuristic(p->handle, &p->op, &p->la, &p->lb, &p->ld, &p->ld, &pref, 1, &p->found, &count));
    OK(count != 1);
}

static void destroy(struct problem *p)
{
    OK(cublasLtDestroy(p->handle));
    OK(cudaFree(p->a) | cudaFree(p->b) | cudaFree(p->d) | cudaFree(p->whole) | cudaFree(p->workspace));
}

/* Columns [col, col + cols) of the cut operand. False when the library does not take it. */
static bool plain_part(struct problem *p, int64_t col, int64_t cols, char *d, const cublasLtMatmulAlgo_t *algo)
{
    layouts(p, p->at ? cols : p->m, p->at ? p->n : cols);
    return cublasLtMatmul(p->handle, &p->op, &one, p->a + (p->at ? col * p->k * 2 : 0), &p->la,
                          p->b + (p->at ? 0 : col * p->k * 2), &p->lb, &zero, d + 2 * col * (p->at ? 1 : p->m), &p->ld,
                          d + 2 * col * (p->at ? 1 : p->m), &p->ld, algo, p->workspace, workspace_bytes,
                          NULL) == CUBLAS_STATUS_SUCCESS;
}

enum way { WHOLE, WHOLES_ALGORITHM, SLIPRING, NONE, WAYS };

static bool run(struct problem *p, enum way way)
{
    const int64_t outer = p->at ? p->m : p->n, cols = outer / p->parts;
    bool ok = true;
    if (way == WHOLE)
        return plain_part(p, 0, outer, p->whole, &p->found.algo);
    layouts(p, p->m, p->n);
    struct slr_lt lt = {.handle = p->handle,
                        .desc = &p->op,
                        .la = &p->la,
                        .lb = &p->lb,
                        .lc = &p->ld,
                        .ld = &p->ld,
                        .c = p->d,
                        .algo = &p->found.algo,
                        .workspace = p->workspace,
                        .workspace_bytes = workspace_bytes};
    struct slr_gemm gemm = {
        .api = SLR_GEMM_LT, .lt = &lt, .alpha = &one, .beta = &zero, .a = p->a, .b = p->b, .c = p->d};
    const struct slr_gemm_split split = {.on_a = p->at, .shard_cols = cols, .col_bytes = (size_t)p->k * 2};
    if (way == SLIPRING)
        OK(slr_gemm_describe(&gemm) != SLR_R_FUSED);
    for (int64_t i = 0; ok && i < p->parts; i++)
        ok = way == SLIPRING ? slr_gemm_part(&gemm, &split, i * cols, cols) == CUBLAS_STATUS_SUCCESS
                             : plain_part(p, i * cols, cols, p->d, way == NONE ? NULL : &p->found.algo);
    return ok;
}

/* Microseconds of one run, the median of several rounds; negative when the library does not take
 * it. */
static float timed(struct problem *p, enum way way)
{
    float us[ROUNDS];
    cudaEvent_t begin, end;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    bool ok = run(p, way);
    for (int round = 0; ok && round < ROUNDS; round++) {
        for (int i = -WARM; i < TIMED; i++) {
            if (i == 0)
                OK(cudaEventRecord(begin, NULL));
            run(p, way);
        }
        OK(cudaEventRecord(end, NULL));
        OK(cudaEventSynchronize(end));
        OK(cudaEventElapsedTime(&us[round], begin, end));
        us[round] *= 1e3f / TIMED;
    }
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    qsort(us, ok ? ROUNDS : 0, sizeof *us, ascending);
    return ok ? us[ROUNDS / 2] : -1;
}

static int64_t differing(struct problem *p)
{
    const size_t elements = (size_t)(p->m * p->n);
    uint16_t *x = malloc(elements * 2), *y = malloc(elements * 2);
    int64_t count = 0;
    OK(cudaMemset(p->d, 0, elements * 2));
    OK(!run(p, WHOLE) || !run(p, SLIPRING) || !x || !y);
    OK(cudaMemcpy(x, p->whole, elements * 2, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(y, p->d, elements * 2, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < elements; i++)
        count += x[i] != y[i];
    free(x);
    free(y);
    return count;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc % 5 != 1) {
        fprintf(stderr, "usage: lt_parts {bn|at} M N K PARTS...\n");
        return 2;
    }
    use_linked_functions();
    printf("| form | m | n | k | parts | whole us | parts, whole's algorithm | parts, slipring's | parts, none given | "
           "differ |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 1; i < argc; i += 5) {
        struct problem p = {.at = !strcmp(argv[i], "at"), .m = atol(argv[i + 1]), .n = atol(argv[i + 2])};
        p.k = atol(argv[i + 3]);
        p.parts = atol(argv[i + 4]);
        if (p.parts < 1 || (p.at ? p.m : p.n) % p.parts != 0)
            return 2;
        make(&p);
        printf("| %s | %ld | %ld | %ld | %ld |", argv[i], (long)p.m, (long)p.n, (long)p.k, (long)p.parts);
        for (enum way way = WHOLE; way < WAYS; way++)
            printf(" %.0f |", (double)timed(&p, way));
        printf(" %ld |\n", (long)differing(&p));
        destroy(&p);
    }
    return 0;
}
