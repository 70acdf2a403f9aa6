/* SPDX-License-Identifier: Apache-2.0 */
/* Two GEMMs behind a gather of X, k x total: the gradient of a weight, C1 = W1 X', a sum over what is gathered, in 16 bits;
 * and behind it C2 = W2' X, which can be computed part by part. Whatever else the program does between and behind the two
 * must not notice that the second may begin before the first (kernels/gemm.h).
 *
 *   aside RANKS CASE        CASE is a name of the table below, or "list"
 *
 * Rounds with new data on the same buffers, in which one rank comes late in turn. Data are small integers, so that
 * products are exact. As PyTorch does, the program gives cuBLAS its stream and workspace for each call.
 */
#include "fuse.h"

#include <cublasLt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum what {
    BOTH,
    ALONE,          /* the first GEMM, and a copy of C1 */
    READS_RESULT,   /* C2 = C1 X */
    WRITES_OPERAND, /* C2 lies where W1 does */
    THIRD,          /* between the two a GEMM of other memory than the gather's reads C1 */
    OTHER,          /* and one that touches nothing of both */
    FREED,          /* W1 is freed behind the first, in the stream's order, and another stream writes to such memory */
    TOLD,           /* an event behind the first tells another stream, which copies C1 */
    ASKED,          /* the stream is asked until it is ready, then another one copies C1 */
    IN_SEND,        /* C1 lies where this rank's shard was sent from */
    CAPTURED,       /* another stream is being captured, in the mode that other calls may break */
    SHARED,         /* another thread makes GEMMs with the handle; it got its workspace often, long ago */
    ONCE,           /* cuBLAS has got its workspace once for all */
    NEVER           /* or none */
};

static const struct test {
    const char *name;
    enum what what;
    bool event; /* GEMMs are on another stream than the gather, which an event tells */
    bool lt;
} cases[] = {
    {"both", BOTH, false, false},
    {"both-event", BOTH, true, false},
    {"both-lt", BOTH, false, true},
    {"both-event-lt", BOTH, true, true},
    {"alone", ALONE, false, false},
    {"alone-event", ALONE, true, false},
    {"reads-result", READS_RESULT, false, false},
    {"reads-result-event", READS_RESULT, true, false},
    {"writes-operand", WRITES_OPERAND, false, false},
    {"writes-operand-event", WRITES_OPERAND, true, false},
    {"third", THIRD, false, false},
    {"third-event", THIRD, true, false},
    {"other", OTHER, false, false},
    {"freed", FREED, true, false},
    {"told", TOLD, false, false},
    {"told-event", TOLD, true, false},
    {"asked", ASKED, false, false},
    {"asked-event", ASKED, true, false},
    {"in-send", IN_SEND, false, false},
    {"in-send-event", IN_SEND, true, false},
    {"in-send-lt", IN_SEND, false, true},
    {"captured", CAPTURED, false, false},
    {"captured-lt", CAPTURED, false, true},
    {"shared", SHARED, false, false},
    {"once", ONCE, true, false},
    {"never", NEVER, true, false},
};

enum { K = 64, COLS = 24, M = 40, ROUNDS = 6, LATE_US = 30000 };
enum { WORKSPACE = 1 << 20, OFTEN = 1000 };

struct world {
    const struct rank *r;
    const struct test *t;
    int total;
    cudaStream_t compute, side;
    cublasHandle_t blas;
    cublasLtHandle_t lt;
    uint16_t *send, *x, *w1, *fresh, *w2, *c1, *ones;
    float *c2, *c3, *other, *others;
    void *workspace;
    uint64_t seed;
};

static size_t w1_size(const struct world *w)
{
    return (size_t)(M * w->total);
}

static void upload(uint16_t *to, size_t n, uint64_t seed)
{
    uint16_t *host = malloc(n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        put(API_H, host, i, small(seed, i), false);
    to_device(to, host, n * sizeof *host);
    free(host);
}

/* ---- the calls ---- */

static void place(const struct world *w)
{
    if (w->t->what == SHARED || w->t->what == ONCE || w->t->what == NEVER)
        return;
    BLAS(cublasSetStream(w->blas, w->compute));
    BLAS(cublasSetWorkspace(w->blas, w->workspace, WORKSPACE));
}

/* C, m x n, in fp16 or fp32; A is m x k, or transposed, B likewise. */
static void gemm_ex(const struct world *w, bool ta, bool tb, int m, int n, int k, const uint16_t *a, const uint16_t *b,
                    void *c, cudaDataType type)
{
    const float one = 1, zero = 0;
    place(w);
    BLAS(cublasGemmEx(w->blas, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, &one, a,
                      CUDA_R_16F, ta ? k : m, b, CUDA_R_16F, tb ? n : k, &zero, c, type, m, CUBLAS_COMPUTE_32F,
                      CUBLAS_GEMM_DEFAULT));
}

static void gemm_lt(const struct world *w, bool ta, bool tb, int m, int n, int k, const uint16_t *a, const uint16_t *b,
                    void *c, cudaDataType type)
{
    const float one = 1, zero = 0;
    const cublasOperation_t ops[] = {ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N};
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc;
    BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ops[0], sizeof ops[0]));
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &ops[1], sizeof ops[1]));
    BLAS(cublasLtMatrixLayoutCreate(&la, CUDA_R_16F, (uint64_t)(ta ? k : m), (uint64_t)(ta ? m : k), ta ? k : m));
    BLAS(cublasLtMatrixLayoutCreate(&lb, CUDA_R_16F, (uint64_t)(tb ? n : k), (uint64_t)(tb ? k : n), tb ? n : k));
    BLAS(cublasLtMatrixLayoutCreate(&lc, type, (uint64_t)m, (uint64_t)n, m));
    BLAS(cublasLtMatmul(w->lt, desc, &one, a, la, b, lb, &zero, c, lc, c, lc, NULL, w->workspace, WORKSPACE,
                        w->compute));
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatmulDescDestroy(desc));
}

static void first(const struct world *w)
{
    (w->t->lt ? gemm_lt : gemm_ex)(w, false, true, M, K, w->total, w->w1, w->x, w->c1, CUDA_R_16F);
}

static void second(const struct world *w)
{
    const bool result = w->t->what == READS_RESULT;
    void *c = w->t->what == WRITES_OPERAND ? (void *)w->w1 : w->c2;
    (w->t->lt ? gemm_lt : gemm_ex)(w, !result, false, M, w->total, K, result ? w->c1 : w->w2, w->x, c, CUDA_R_32F);
}

/* ---- what is expected ---- */

UNWATCHED static double x_at(const struct world *w, int row, int col)
{
    return small(w->seed + (uint64_t)(col / COLS), (uint64_t)((col % COLS) * K + row));
}

UNWATCHED static double c1_at(const struct world *w, int row, int col)
{
    double sum = 0;
    for (int p = 0; p < w->total; p++)
        sum += small(w->seed + 77, (uint64_t)(p * M + row)) * x_at(w, col, p);
    return sum;
}

static void check_c1(const struct world *w, const uint16_t *host)
{
    for (int col = 0; col < K; col++)
        for (int row = 0; row < M; row++)
            CHECK(get(API_H, host, (size_t)(col * M + row)) == c1_at(w, row, col),
                  "rank %d: %s: C1(%d,%d) is %g, expected %g", w->r->rank, w->t->name, row, col,
                  get(API_H, host, (size_t)(col * M + row)), c1_at(w, row, col));
}

UNWATCHED static void check_c2(const struct world *w, const float *host)
{
    double left[M][K];
    for (int row = 0; row < M; row++)
        for (int p = 0; p < K; p++)
            left[row][p] = w->t->what == READS_RESULT ? c1_at(w, row, p) : small(w->seed + 88, (uint64_t)(row * K + p));
    for (int col = 0; col < w->total; col++)
        for (int row = 0; row < M; row++) {
            double sum = 0;
            for (int p = 0; p < K; p++)
                sum += left[row][p] * x_at(w, p, col);
            CHECK(host[col * M + row] == sum, "rank %d: %s: C2(%d,%d) is %g, expected %g", w->r->rank, w->t->name, row,
                  col, host[col * M + row], sum);
        }
}

static void check_c3(const struct world *w, const float *host)
{
    for (int i = 0; i < M; i++) {
        double sum = 0;
        for (int p = 0; p < K; p++)
            sum += c1_at(w, i, p) * c1_at(w, 0, p);
        CHECK(host[i] == sum, "rank %d: %s: C3(%d,0) is %g, expected %g", w->r->rank, w->t->name, i, host[i], sum);
    }
}

/* ---- a round ---- */

static void between(struct world *w, uint16_t *seen)
{
    const size_t bytes = M * K * sizeof *seen;
    cudaEvent_t told;
    void *memory;
    switch (w->t->what) {
    case THIRD:
        gemm_ex(w, false, true, M, M, K, w->c1, w->c1, w->c3, CUDA_R_32F);
        break;
    case OTHER:
        gemm_ex(w, true, false, M, M, K, w->w2, w->w2, w->other, CUDA_R_32F);
        break;
    case FREED:
        CUDA(cudaFreeAsync(w->w1, w->compute));
        CUDA(cudaMallocAsync(&memory, w1_size(w) * sizeof *w->w1, w->side));
        CUDA(cudaMemsetAsync(memory, 0x7f, w1_size(w) * sizeof *w->w1, w->side));
        CUDA(cudaFreeAsync(memory, w->side));
        break;
    case TOLD:
        CUDA(cudaEventCreateWithFlags(&told, cudaEventDisableTiming));
        CUDA(cudaEventRecord(told, w->compute));
        CUDA(cudaStreamWaitEvent(w->side, told, 0));
        CUDA(cudaMemcpyAsync(seen, w->c1, bytes, cudaMemcpyDeviceToHost, w->side));
        CUDA(cudaStreamSynchronize(w->side));
        CUDA(cudaEventDestroy(told));
        break;
    case ASKED:
        while (cudaStreamQuery(w->compute) == cudaErrorNotReady)
            usleep(100);
        CUDA(cudaMemcpyAsync(seen, w->c1, bytes, cudaMemcpyDeviceToHost, w->side));
        CUDA(cudaStreamSynchronize(w->side));
        break;
    default:
        break;
    }
}

static void gather(const struct world *w)
{
    cudaEvent_t told;
    NCCL(ncclAllGather(w->send, w->x, COLS * K, ncclFloat16, w->r->comm, w->r->stream));
    if (!w->t->event)
        return;
    CUDA(cudaEventCreateWithFlags(&told, cudaEventDisableTiming));
    CUDA(cudaEventRecord(told, w->r->stream));
    /* What the first GEMM reads besides comes on its own stream. */
    CUDA(cudaMemcpyAsync(w->w1, w->fresh, w1_size(w) * sizeof *w->w1, cudaMemcpyDeviceToDevice, w->compute));
    CUDA(cudaStreamWaitEvent(w->compute, told, 0));
    CUDA(cudaEventDestroy(told));
}

static void load(struct world *w)
{
    if (w->t->what == FREED)
        CUDA(cudaMallocAsync((void **)&w->w1, w1_size(w) * sizeof *w->w1, w->compute));
    upload(w->send, COLS * K, w->seed + (uint64_t)w->r->rank);
    upload(w->fresh, w1_size(w), w->seed + 77);
    upload(w->w2, K * M, w->seed + 88);
    CUDA(cudaMemsetAsync(w->x, 0x7f, (size_t)(K * w->total) * sizeof *w->x, w->r->stream));
    if (w->t->what != IN_SEND)
        CUDA(cudaMemsetAsync(w->c1, 0x7f, M * K * sizeof *w->c1, w->r->stream));
    if (!w->t->event)
        CUDA(cudaMemcpyAsync(w->w1, w->fresh, w1_size(w) * sizeof *w->w1, cudaMemcpyDeviceToDevice, w->compute));
    CUDA(cudaStreamSynchronize(w->r->stream));
}

/* Behind the first round, in which the ring and cuBLAS make what they need. */
static bool captures(const struct world *w, int round)
{
    return w->t->what == CAPTURED && round > 0;
}

static void begin_capture(const struct world *w)
{
    CUDA(cudaStreamBeginCapture(w->side, cudaStreamCaptureModeGlobal));
    CUDA(cudaMemsetAsync(w->other, 0, M * M * sizeof *w->other, w->side));
}

static void end_capture(const struct world *w)
{
    cudaGraph_t graph;
    CUDA(cudaStreamEndCapture(w->side, &graph));
    CUDA(cudaGraphDestroy(graph));
}

/* A thread that makes GEMMs with the same handle, in memory of its own, and looks at each, until the rounds are over. */
struct second_thread {
    const struct world *w;
    pthread_t thread;
    atomic_bool over;
};

static void *multiply(void *second_thread)
{
    struct second_thread *t = second_thread;
    const size_t bytes = M * M * sizeof(float);
    float *host = malloc(bytes);
    CUDA(cudaSetDevice(rank_device(t->w->r->rank)));
    while (!atomic_load(&t->over)) {
        gemm_ex(t->w, true, false, M, M, M, t->w->ones, t->w->ones, t->w->others, CUDA_R_32F);
        CUDA(cudaMemcpyAsync(host, t->w->others, bytes, cudaMemcpyDeviceToHost, t->w->compute));
        usleep(200);
    }
    CUDA(cudaStreamSynchronize(t->w->compute));
    free(host);
    return NULL;
}

/* `seen`: the first GEMM's result as another stream saw it. All is over before anything is looked at, so
 * that the software GPU sees what raced, too. */
static void round_of(struct world *w, int round)
{
    uint16_t *c1 = malloc(M * K * sizeof *c1), *seen = malloc(M * K * sizeof *seen);
    float *c2 = malloc((size_t)(M * w->total) * sizeof *c2), *c3 = malloc(M * M * sizeof *c3);
    const bool alone = w->t->what == ALONE, written = w->t->what == WRITES_OPERAND;
    w->seed = 1000 + 500 * (uint64_t)round;
    load(w);
    if (round % w->r->nranks == w->r->rank)
        usleep(LATE_US);
    gather(w);
    if (captures(w, round))
        begin_capture(w);
    first(w);
    between(w, seen);
    if (!alone)
        second(w);
    if (captures(w, round))
        end_capture(w);
    CUDA(cudaMemcpyAsync(c1, w->c1, M * K * sizeof *c1, cudaMemcpyDeviceToHost, w->compute));
    CUDA(cudaMemcpyAsync(c3, w->c3, M * M * sizeof *c3, cudaMemcpyDeviceToHost, w->compute));
    CUDA(cudaMemcpyAsync(c2, written ? (void *)w->w1 : w->c2, (size_t)(M * w->total) * sizeof *c2,
                         cudaMemcpyDeviceToHost, w->compute));
    CUDA(cudaDeviceSynchronize());
    check_c1(w, c1);
    if (w->t->what == TOLD || w->t->what == ASKED)
        check_c1(w, seen);
    if (!alone)
        check_c2(w, c2);
    if (w->t->what == THIRD)
        check_c3(w, c3);
    free(c1);
    free(seen);
    free(c2);
    free(c3);
}

/* ---- */

static void body(struct rank *r)
{
    rank_open(r);
    struct world w = {.r = r, .t = r->arg, .total = COLS * r->nranks, .compute = r->stream};
    if (w.t->event)
        CUDA(cudaStreamCreateWithFlags(&w.compute, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&w.side, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&w.send, M * K * sizeof *w.send)); /* more than a shard: C1 may lie there */
    CUDA(cudaMalloc((void **)&w.x, (size_t)(K * w.total) * sizeof *w.x));
    CUDA(cudaMalloc((void **)&w.w1, w1_size(&w) * sizeof(float))); /* or C2 */
    CUDA(cudaMalloc((void **)&w.fresh, w1_size(&w) * sizeof *w.fresh));
    CUDA(cudaMalloc((void **)&w.w2, K * M * sizeof *w.w2));
    if (w.t->what == IN_SEND)
        w.c1 = w.send;
    else
        CUDA(cudaMalloc((void **)&w.c1, M * K * sizeof *w.c1));
    CUDA(cudaMalloc((void **)&w.c2, w1_size(&w) * sizeof *w.c2));
    CUDA(cudaMalloc((void **)&w.c3, M * M * sizeof *w.c3));
    CUDA(cudaMalloc((void **)&w.other, M * M * sizeof *w.other));
    CUDA(cudaMalloc((void **)&w.others, M * M * sizeof *w.others));
    CUDA(cudaMalloc((void **)&w.ones, M * M * sizeof *w.ones));
    CUDA(cudaMemset(w.ones, 0, M * M * sizeof *w.ones));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMalloc(&w.workspace, WORKSPACE));
    BLAS(cublasCreate(&w.blas));
    BLAS(cublasLtCreate(&w.lt));
    BLAS(cublasSetStream(w.blas, w.compute));
    if (w.t->what == ONCE)
        BLAS(cublasSetWorkspace(w.blas, w.workspace, WORKSPACE));
    place(&w); /* for a call before the first gather */
    struct second_thread other = {.w = &w};
    for (int i = 0; i < OFTEN && w.t->what == SHARED; i++)
        BLAS(cublasSetWorkspace(w.blas, w.workspace, WORKSPACE));
    if (w.t->what == SHARED)
        CHECK(!pthread_create(&other.thread, NULL, multiply, &other), "no thread");
    for (int round = 0; round < ROUNDS; round++)
        round_of(&w, round);
    atomic_store(&other.over, true);
    if (w.t->what == SHARED)
        pthread_join(other.thread, NULL);
    BLAS(cublasDestroy(w.blas));
    BLAS(cublasLtDestroy(w.lt));
    rank_close(r); /* the rest goes with the process */
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc == 2 && !strcmp(argv[1], "list"))
            puts(cases[i].name);
        else if (argc == 3 && atoi(argv[1]) > 0 && !strcmp(argv[2], cases[i].name))
            return ranks_run(atoi(argv[1]), 60, body, (void *)(uintptr_t)&cases[i]);
    }
    if (argc == 2 && !strcmp(argv[1], "list"))
        return 0;
    fprintf(stderr, "usage: aside RANKS CASE | aside list\n");
    return 2;
}
