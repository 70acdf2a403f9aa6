/* SPDX-License-Identifier: Apache-2.0 */
/* Whether ranks that compute the same GEMM behind a gather get the same bits, and what the way to
 * cut it costs.
 *
 * One process on one device plays all ranks in turn: it computes the parts of each, in that rank's
 * order, through the same functions as slipring does (kernels/gemm_parts.h, slr_gemm_part), with
 * nothing to wait for. "old" is the cut of earlier versions, where each rank made parts of its own;
 * "new" the one that is the same on all ranks.
 *
 * One line for each GEMM and number of ranks: the time of the whole in microseconds; for each cut
 * its number of parts (of the middle rank), the elements of C in which some rank differs most from
 * rank 0 and in which rank 0 differs from the whole, and the time of the parts as a multiple of the
 * whole's, medians of alternating rounds. */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include "replicas.h"

#define OPTIONS_FILE "bench/replicas.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { ROUNDS = 5, MOST_REPEATS = 50, THREADS = 8, FILL = (1 << 23) - 1 };
static const size_t workspace_bytes = (size_t)32 << 20;
static const float one = 1, zero = 0;

static const struct type types[] = {
    {"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2},
    {"fp16", CUDA_R_16F, CUBLAS_COMPUTE_32F, 2},
    {"fp32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4},
    {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
};
enum { BF16 = 1, FP16 = 2, EVERY = 15 }; /* sets of types */

/* Gathered columns (or rows of C), k, the other size; which types. The first are those of the
 * measurements. */
static const struct shape {
    int64_t cols, inner, other;
    int types;
} shapes[] = {
    {8192, 8192, 8192, BF16},  {8192, 8192, 7168, BF16},   {16384, 8192, 1280, BF16}, {32768, 8192, 1024, BF16},
    {16384, 4096, 4096, BF16}, {4096, 4096, 4096, EVERY},  {2048, 8192, 1024, EVERY}, {1024, 1024, 1024, EVERY},
    {2048, 2048, 2048, EVERY}, {4088, 4095, 1023, EVERY},  {3000, 1001, 502, EVERY},  {8184, 2056, 1544, EVERY},
    {8192, 4096, 1536, BF16},  {16384, 4096, 14336, BF16}, {8192, 8192, 8192, FP16},  {1000, 520, 264, EVERY},
};

static struct {
    cublasHandle_t blas;
    cublasLtHandle_t lt;
    char *a, *b, *c, *workspace;
    char *whole, *first, *here; /* host: results of the whole, of rank 0, of another rank */
    size_t a_bytes, b_bytes;
    int64_t divide;
} my;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- memory and values ---- */

static size_t c_bytes(const struct problem *p)
{
    return (size_t)(p->cols * p->other) * p->type->bytes;
}

/* Values of either sign between 1/2 and 2, with every bit of the mantissa in use. */
static void fill(char *device, size_t bytes, const struct type *type, uint32_t x)
{
    uint32_t *host = malloc((size_t)FILL * sizeof *host);
    OK(!host);
    for (size_t i = 0; i < FILL; i++) {
        x = x * 1664525 + 1013904223;
        uint32_t half = type->type == CUDA_R_16F ? (x >> 8 & 0x83ff83ff) | 0x38003800 : (x & 0x80ff80ff) | 0x3f003f00;
        host[i] = type->bytes == 4 ? (x & 0x807fffff) | 0x3f000000 : half;
    }
    for (size_t at = 0, some = (size_t)FILL * sizeof *host; at < bytes; at += some)
        OK(cudaMemcpy(device + at, host, bytes - at < some ? bytes - at : some, cudaMemcpyHostToDevice));
    free(host);
}

static size_t larger(size_t x, size_t y)
{
    return x > y ? x : y;
}

static void allocate(const struct shape *all, size_t count)
{
    size_t c = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t elem = all[i].types & (4 | 8) ? 4 : 2;
        my.a_bytes = larger(my.a_bytes, (size_t)(all[i].cols * all[i].inner) * elem);
        my.b_bytes = larger(my.b_bytes, (size_t)(all[i].other * all[i].inner) * elem);
        c = larger(c, (size_t)(all[i].cols * all[i].other) * elem);
    }
    if (my.divide > 1) { /* a little more than that is read, as sizes are rounded up */
        my.a_bytes /= (size_t)my.divide;
        my.b_bytes /= (size_t)my.divide;
        c /= (size_t)my.divide;
    }
    OK(cudaMalloc((void **)&my.a, my.a_bytes) | cudaMalloc((void **)&my.b, my.b_bytes));
    OK(cudaMalloc((void **)&my.c, c) | cudaMalloc((void **)&my.workspace, workspace_bytes));
    OK(cudaMallocHost((void **)&my.whole, c) | cudaMallocHost((void **)&my.first, c) |
       cudaMallocHost((void **)&my.here, c));
}

/* ---- the GEMM ---- */

static void describe_lt(struct problem *p)
{
    const int32_t trans = CUBLAS_OP_T;
    const uint64_t most = workspace_bytes, k = (uint64_t)p->inner;
    const uint64_t m = (uint64_t)(p->at ? p->cols : p->other), n = (uint64_t)(p->at ? p->other : p->cols);
    cublasLtMatmulPreferenceOpaque_t pref;
    int count = 0;
    OK(cublasLtMatmulDescInit(&p->op, p->type->compute, CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans));
    OK(cublasLtMatrixLayoutInit(&p->la, p->type->type, k, m, p->inner));
    OK(cublasLtMatrixLayoutInit(&p->lb, p->type->type, k, n, p->inner));
    OK(cublasLtMatrixLayoutInit(&p->lc, p->type->type, m, n, (int64_t)m));
    OK(cublasLtMatmulPreferenceInit(&pref));
    OK(cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    OK(cublasLtMatmulAlgoGetHeuristic(my.lt, &p->op, &p->la, &p->lb, &p->lc, &p->lc, &pref, 1, &p->found, &count));
    OK(count != 1);
    p->rest = (struct slr_lt){.handle = my.lt,
                              .desc = &p->op,
                              .la = &p->la,
                              .lb = &p->lb,
                              .lc = &p->lc,
                              .ld = &p->lc,
                              .c = my.c,
                              .algo = &p->found.algo,
                              .workspace = my.workspace,
                              .workspace_bytes = workspace_bytes};
}

static void describe(struct problem *p)
{
    p->gemm = (struct slr_gemm){.api = p->lt ? SLR_GEMM_LT : SLR_GEMM_EX,
                                .handle = my.blas,
                                .transa = CUBLAS_OP_T,
                                .m = p->at ? p->cols : p->other,
                                .n = p->at ? p->other : p->cols,
                                .k = p->inner,
                                .alpha = &one,
                                .beta = &zero,
                                .a = p->at ? my.a : my.b,
                                .b = p->at ? my.b : my.a,
                                .c = my.c,
                                .lda = p->inner,
                                .ldb = p->inner,
                                .ldc = p->at ? p->cols : p->other,
                                .atype = p->type->type,
                                .btype = p->type->type,
                                .ctype = p->type->type,
                                .compute = p->type->compute,
                                .algo = CUBLAS_GEMM_DEFAULT,
                                .batch = 1,
                                .lt = p->lt ? &p->rest : NULL};
    if (p->lt)
        describe_lt(p);
    OK(slr_gemm_describe(&p->gemm) != SLR_R_FUSED);
}

static void run_whole(const struct problem *p)
{
    OK(slr_gemm_whole(&p->gemm));
}

static void run_parts(const struct problem *p, const struct parts *parts)
{
    const struct slr_gemm_split split = {.on_a = p->at, .col_bytes = (size_t)p->inner * p->type->bytes};
    for (unsigned i = 0; i < parts->count; i++)
        OK(slr_gemm_part(&p->gemm, &split, parts->part[i].col, parts->part[i].cols));
}

/* ---- equality ---- */

struct slice {
    const char *x, *y;
    size_t bytes, elem;
    int64_t differing;
};

static void *compare_slice(void *slice)
{
    struct slice *s = slice;
    if (memcmp(s->x, s->y, s->bytes) == 0)
        return NULL;
    for (size_t i = 0; i < s->bytes; i += s->elem)
        s->differing += memcmp(s->x + i, s->y + i, s->elem) != 0;
    return NULL;
}

static int64_t differing(const char *x, const char *y, size_t bytes, size_t elem)
{
    pthread_t thread[THREADS];
    struct slice slice[THREADS];
    const size_t each = (bytes / elem + THREADS - 1) / THREADS * elem;
    int64_t count = 0;
    for (size_t i = 0; i < THREADS; i++) {
        size_t begin = i * each < bytes ? i * each : bytes;
        slice[i] = (struct slice){x + begin, y + begin, bytes - begin < each ? bytes - begin : each, elem, 0};
        OK(pthread_create(&thread[i], NULL, compare_slice, &slice[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        count += slice[i].differing;
    }
    return count;
}

static void result_of(const struct problem *p, const struct parts *parts, char *host)
{
    OK(cudaMemset(my.c, 0xff, c_bytes(p)));
    if (parts)
        run_parts(p, parts);
    else
        run_whole(p);
    OK(cudaMemcpy(host, my.c, c_bytes(p), cudaMemcpyDeviceToHost));
}

typedef void (*cut_fn)(const struct problem *p, int rank, int nranks, struct parts *out);

struct equality {
    int64_t ranks; /* elements in which the rank that differs most differs from rank 0 */
    int64_t whole; /* in which rank 0 differs from the whole GEMM */
};

/* The result of the whole is in my.whole. */
static struct equality compare(const struct problem *p, cut_fn cut, int nranks)
{
    static struct parts parts;
    struct equality e = {0, 0};
    cut(p, 0, nranks, &parts);
    result_of(p, &parts, my.first);
    e.whole = differing(my.first, my.whole, c_bytes(p), p->type->bytes);
    for (int rank = 1; rank < nranks; rank++) {
        cut(p, rank, nranks, &parts);
        result_of(p, &parts, my.here);
        int64_t here = differing(my.first, my.here, c_bytes(p), p->type->bytes);
        e.ranks = here > e.ranks ? here : e.ranks;
    }
    return e;
}

/* ---- time ---- */

enum way { WHOLE, OLD, NEW, WAYS };

static float timed(const struct problem *p, const struct parts *parts, int repeats)
{
    static cudaEvent_t begin, end;
    float ms = 0;
    if (!begin)
        OK(cudaEventCreate(&begin) | cudaEventCreate(&end));
    for (int i = -1; i < repeats; i++) {
        if (i == 0)
            OK(cudaEventRecord(begin, NULL));
        if (parts)
            run_parts(p, parts);
        else
            run_whole(p);
    }
    OK(cudaEventRecord(end, NULL));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1e3f / (float)repeats;
}

/* Microseconds of each way: medians of rounds in which the ways take turns. */
static void time_ways(const struct problem *p, const struct parts *cuts, float us[WAYS])
{
    float round[WAYS][ROUNDS];
    float first = timed(p, NULL, 2);
    int repeats = first > 0 ? (int)(2500 / first) + 1 : 1;
    repeats = my.divide > 1 ? 1 : repeats > MOST_REPEATS ? MOST_REPEATS : repeats;
    for (int i = 0; i < ROUNDS; i++)
        for (enum way way = WHOLE; way < WAYS; way++)
            round[way][i] = timed(p, way == WHOLE ? NULL : &cuts[way - OLD], repeats);
    for (enum way way = WHOLE; way < WAYS; way++) {
        qsort(round[way], ROUNDS, sizeof *round[way], ascending);
        us[way] = round[way][ROUNDS / 2];
    }
}

/* ---- lines and summary ---- */

static struct {
    int lines, old_differ, new_differ, late;
    float ratio[WAYS][1024]; /* [way][line]: of the whole's time */
} sum;

static void line(const struct problem *p, int nranks)
{
    static struct parts cuts[2];
    float us[WAYS];
    replicas_old_cut(p, nranks / 2, nranks, &cuts[0]);
    replicas_cut(p, nranks / 2, nranks, &cuts[1]);
    struct equality old = compare(p, replicas_old_cut, nranks), new = compare(p, replicas_cut, nranks);
    time_ways(p, cuts, us);
    printf("| %d | %s | %s | %s | %ld | %ld | %ld | %.1f | %u | %ld | %ld | %.3f | %u | %ld | %ld | %.3f |\n", nranks,
           p->lt ? "Lt" : "Ex", p->at ? "A/T" : "B/N", p->type->name, (long)p->cols, (long)p->inner, (long)p->other,
           (double)us[WHOLE], cuts[0].count, (long)old.ranks, (long)old.whole, (double)(us[OLD] / us[WHOLE]),
           cuts[1].count, (long)new.ranks, (long)new.whole, (double)(us[NEW] / us[WHOLE]));
    sum.old_differ += old.ranks != 0;
    sum.new_differ += new.ranks != 0;
    for (enum way way = WHOLE; way < WAYS && sum.lines < 1024; way++)
        sum.ratio[way][sum.lines] = us[way] / us[WHOLE];
    sum.lines++;
}

static void report(void)
{
    int n = sum.lines < 1024 ? sum.lines : 1024;
    printf("lines %d, not run for want of time %d\n", sum.lines, sum.late);
    printf("ranks differ: old cut in %d, new cut in %d\n", sum.old_differ, sum.new_differ);
    for (enum way way = OLD; way < WAYS && n > 0; way++) {
        qsort(sum.ratio[way], (size_t)n, sizeof(float), ascending);
        printf("time of the %s cut's parts over the whole: median %.3f, 90%% %.3f, most %.3f\n",
               way == OLD ? "old" : "new", (double)sum.ratio[way][n / 2], (double)sum.ratio[way][n * 9 / 10],
               (double)sum.ratio[way][n - 1]);
    }
}

/* All ranks, forms and functions for one GEMM. */
static void all_of(const struct shape *s, const struct type *type, double until)
{
    static struct problem p;
    for (int variant = 0; variant < 4; variant++) {
        p = (struct problem){.type = type,
                             .at = variant & 1,
                             .lt = variant & 2,
                             .cols = (s->cols / my.divide + 7) / 8 * 8,
                             .inner = s->inner / my.divide + 1 - (my.divide == 1),
                             .other = s->other / my.divide + 1 - (my.divide == 1)};
        if (seconds() > until) {
            sum.late += 3;
            continue;
        }
        describe(&p);
        result_of(&p, NULL, my.whole);
        for (int nranks = 2; nranks <= 8; nranks *= 2)
            line(&p, nranks);
    }
}

int main(int argc, char **argv)
{
    const double begin = seconds();
    struct options o = {0};
    int rest = options_parse(option_rows, OPTIONS_FIRST, &o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    my.divide = o.divide;
    replicas_flop_per_byte = o.flop_per_byte;
    setvbuf(stdout, NULL, _IOLBF, 0);
    use_linked_functions();
    allocate(shapes, sizeof shapes / sizeof *shapes);
    OK(cublasCreate(&my.blas) | cublasLtCreate(&my.lt));
    printf(
        "| ranks | function | form | type | columns | k | other | whole us | old: parts | ranks differ | from whole | "
        "time | new: parts | ranks differ | from whole | time |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- "
        "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        fill(my.a, my.a_bytes, &types[t], 1);
        fill(my.b, my.b_bytes, &types[t], 2);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (shapes[i].types >> t & 1)
                all_of(&shapes[i], &types[t], begin + o.seconds);
    }
    report();
    return sum.new_differ != 0;
}
