/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that a GEMM uses by other ways than its operands: workspaces that the program gives to cuBLAS, scalars,
 * and where emulated products tell their bits. They lie in buffers that a gather uses, or a reduce-scatter receives in.
 *
 *   workspace RANKS CASE [M N K [ROUNDS]]        CASE is a name of the table below, "all", or "list"
 *
 * Each round is played twice with the same data: with a wait of the host between the two calls, and without. All
 * buffers have to hold the same bytes then, scratch memory too. Data are small integers, so that products are exact. One
 * rank comes late in turn, so that what is pending stays so for a while. The same on GPUs and on the software GPU; cuBLAS
 * uses a workspace for some shapes only, those with large K above all.
 */
#include "ranks.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

enum api { EX, SGEMM, LT, DGEMM };
enum used { WORKSPACE, RESET, SCALARS, BITS };
enum place { IN_RECV, IN_SEND, IN_OTHER };
enum call { GATHER, CONSUMED, SCATTER };

static const struct test {
    const char *name;
    enum api api;
    enum call call; /* CONSUMED: the GEMM reads what is gathered; SCATTER: it comes first, and its C is sent */
    enum used used;
    enum place place; /* IN_OTHER: the receive buffer of a gather of another communicator, on another stream */
} cases[] = {
    {"ex-recv", EX, GATHER, WORKSPACE, IN_RECV},
    {"ex-send", EX, GATHER, WORKSPACE, IN_SEND},
    {"ex-consumed-send", EX, CONSUMED, WORKSPACE, IN_SEND},
    {"ex-consumed-other", EX, CONSUMED, WORKSPACE, IN_OTHER},
    {"ex-scatter", EX, SCATTER, WORKSPACE, IN_RECV},
    {"ex-reset-recv", EX, GATHER, RESET, IN_RECV},
    {"ex-reset-send", EX, CONSUMED, RESET, IN_SEND},
    {"ex-scalars-recv", EX, GATHER, SCALARS, IN_RECV},
    {"sgemm-recv", SGEMM, GATHER, WORKSPACE, IN_RECV},
    {"sgemm-consumed-send", SGEMM, CONSUMED, WORKSPACE, IN_SEND},
    {"sgemm-scatter", SGEMM, SCATTER, WORKSPACE, IN_RECV},
    {"lt-recv", LT, GATHER, WORKSPACE, IN_RECV},
    {"lt-send", LT, GATHER, WORKSPACE, IN_SEND},
    {"lt-consumed-send", LT, CONSUMED, WORKSPACE, IN_SEND},
    {"lt-consumed-other", LT, CONSUMED, WORKSPACE, IN_OTHER},
    {"lt-scatter", LT, SCATTER, WORKSPACE, IN_RECV},
    {"bits-recv", DGEMM, GATHER, BITS, IN_RECV},
};

struct size {
    int m, n, k, rounds; /* n: of each rank */
};
static struct size size = {64, 32, 512, 6};
static const struct test *only;

enum { KEPT = 3 }; /* not `other`: what parts leave in a workspace is not what the whole does */

struct world {
    const struct rank *r;
    const struct test *t;
    ncclComm_t other_comm;
    cudaStream_t other_stream;
    cudaEvent_t told;
    cublasHandle_t blas;
    cublasLtHandle_t lt;
    size_t elem, shard, all; /* bytes of an element of A and B; of what is sent; of what is received */
    int n;                   /* the GEMM's */
    char *a, *b, *c, *send, *recv, *other_send, *other;
    size_t c_bytes;
    float *scalars; /* 1 and 0, on the device */
    char *kept[KEPT];
    uint64_t round;
};

/* ---- data ---- */

static int small(uint64_t seed, uint64_t i)
{
    return (int)(hash64(seed, i) % 5) - 2;
}

static void put(enum api api, char *host, size_t i, int value)
{
    const float f = (float)value;
    const double d = value;
    if (api == DGEMM)
        memcpy(host + 8 * i, &d, 8);
    else if (api == SGEMM)
        memcpy(host + 4 * i, &f, 4);
    else /* the upper half of a float that has no lower one */
        memcpy(host + 2 * i, (const char *)&f + 2, 2);
}

static void load(const struct world *w, char *to, size_t bytes, uint64_t seed)
{
    char *host = malloc(bytes);
    for (size_t i = 0; i < bytes / w->elem; i++)
        put(w->t->api, host, i, small(seed, i));
    to_device(to, host, bytes);
    free(host);
}

static char *device(size_t bytes)
{
    char *p;
    CUDA(cudaMalloc((void **)&p, bytes));
    CUDA(cudaMemset(p, 0, bytes));
    return p;
}

/* ---- what the calls are made of ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Where the memory in question lies, and how much there may be. */
static char *place(const struct world *w, size_t *bytes)
{
    const bool send = w->t->place == IN_SEND;
    *bytes = (send ? w->shard : w->all) & ~(size_t)255;
    *bytes = least(*bytes, (size_t)32 << 20);
    return send ? w->send : w->t->place == IN_OTHER ? w->other : w->recv;
}

static void layout(cublasLtMatrixLayout_t *l, cudaDataType type, int rows, int cols)
{
    BLAS(cublasLtMatrixLayoutCreate(l, type, (uint64_t)rows, (uint64_t)cols, rows));
}

static void matmul(const struct world *w, const char *b, char *space, size_t bytes)
{
    const float one = 1, zero = 0;
    const int32_t trans = CUBLAS_OP_T;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    BLAS(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans));
    layout(&la, CUDA_R_16BF, size.k, size.m);
    layout(&lb, CUDA_R_16BF, size.k, w->n);
    layout(&lc, CUDA_R_32F, size.m, w->n);
    BLAS(cublasLtMatmulPreferenceCreate(&pref));
    BLAS(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    BLAS(cublasLtMatmulAlgoGetHeuristic(w->lt, op, la, lb, lc, lc, pref, 1, &found, &count));
    CHECK(count == 1, "no algorithm");
    BLAS(cublasLtMatmul(w->lt, op, &one, w->a, la, b, lb, &zero, w->c, lc, w->c, lc, &found.algo, space, bytes,
                        w->r->stream));
    BLAS(cublasLtMatmulPreferenceDestroy(pref));
    BLAS(cublasLtMatrixLayoutDestroy(la));
    BLAS(cublasLtMatrixLayoutDestroy(lb));
    BLAS(cublasLtMatrixLayoutDestroy(lc));
    BLAS(cublasLtMatmulDescDestroy(op));
}

/* CUDA 13's; cuBLAS may lack it, or not write there. */
static void tell_bits(cublasHandle_t h, void *at)
{
    cublasStatus_t (*set)(cublasHandle_t, int *);
    *(void **)&set = dlsym(RTLD_DEFAULT, "cublasSetFixedPointEmulationMantissaBitCountPointer");
    if (set)
        BLAS(set(h, at));
}

/* As programs do, the stream is set for each call. */
static void prepare(const struct world *w, char *at, size_t bytes)
{
    const enum used used = w->t->used;
    BLAS(cublasSetStream(w->blas, w->r->stream));
    if (used == WORKSPACE || used == RESET)
        BLAS(cublasSetWorkspace(w->blas, at, bytes));
    if (used == RESET)
        BLAS(cublasSetStream(w->blas, w->r->stream));
    if (used == BITS)
        tell_bits(w->blas, at);
    BLAS(cublasSetPointerMode(w->blas, used == SCALARS ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST));
}

/* C (m x n) = A' B, in fp32 unless all is fp64. */
static void multiply(const struct world *w)
{
    const float one = 1, zero = 0;
    const double one_d = 1, zero_d = 0;
    const int m = size.m, n = w->n, k = size.k;
    const char *b = w->t->call == CONSUMED ? w->recv : w->b;
    size_t bytes;
    char *at = place(w, &bytes);
    const void *alpha = w->t->used == SCALARS ? (const void *)(at + w->all - 256) : &one,
               *beta = w->t->used == SCALARS ? (const void *)(w->scalars + 1) : &zero;
    if (w->t->api == LT) {
        matmul(w, b, at, bytes);
        return;
    }
    prepare(w, at, bytes);
    if (w->t->api == EX)
        BLAS(cublasGemmEx(w->blas, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, alpha, w->a, CUDA_R_16BF, k, b, CUDA_R_16BF, k,
                          beta, w->c, CUDA_R_32F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    else if (w->t->api == SGEMM)
        BLAS(cublasSgemm(w->blas, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, (const float *)(const void *)w->a, k,
                         (const float *)(const void *)b, k, &zero, (float *)(void *)w->c, m));
    else
        BLAS(cublasDgemm(w->blas, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one_d, (const double *)(const void *)w->a, k,
                         (const double *)(const void *)b, k, &zero_d, (double *)(void *)w->c, m));
}

/* ---- a round ---- */

static void fill(const struct world *w)
{
    const uint64_t seed = 100 * w->round, rank = (uint64_t)w->r->rank;
    load(w, w->a, (size_t)size.m * (size_t)size.k * w->elem, seed + 1);
    load(w, w->b, (size_t)w->n * (size_t)size.k * w->elem, seed + 2);
    load(w, w->send, w->shard, seed + 10 + rank);
    CUDA(cudaMemset(w->recv, 0x7b, w->all));
    CUDA(cudaMemset(w->c, 0x7b, w->c_bytes));
    if (w->other) {
        load(w, w->other_send, w->shard, seed + 50 + rank);
        CUDA(cudaMemset(w->other, 0x7b, w->all));
    }
    CUDA(cudaDeviceSynchronize());
}

static void gather(const struct world *w, bool apart)
{
    NCCL(ncclAllGather(w->send, w->recv, w->shard, ncclInt8, w->r->comm, w->r->stream));
    if (w->other) {
        NCCL(ncclAllGather(w->other_send, w->other, w->shard, ncclInt8, w->other_comm, w->other_stream));
        CUDA(cudaEventRecord(w->told, w->other_stream));
        CUDA(cudaStreamWaitEvent(w->r->stream, w->told, 0));
    }
    if (apart)
        CUDA(cudaStreamSynchronize(w->r->stream));
    multiply(w);
}

static void scatter(const struct world *w, bool apart)
{
    multiply(w);
    if (apart)
        CUDA(cudaStreamSynchronize(w->r->stream));
    NCCL(ncclReduceScatter(w->c, w->recv, (size_t)size.m * (size_t)size.n, ncclFloat32, ncclSum, w->r->comm,
                           w->r->stream));
}

static void play(const struct world *w, bool apart)
{
    fill(w);
    /* What peers export is mapped within some tens of milliseconds. */
    if (apart)
        usleep(w->round < 3 ? 70000 : 0);
    else if ((uint64_t)w->r->rank == w->round % (uint64_t)w->r->nranks)
        usleep(20000);
    (w->t->call == SCATTER ? scatter : gather)(w, apart);
    CUDA(cudaStreamSynchronize(w->r->stream));
}

struct buffer {
    const char *name, *at;
    size_t bytes;
};

static void compare(const struct world *w, bool keep)
{
    const struct buffer all[KEPT] = {{"C", w->c, w->c_bytes}, {"recv", w->recv, w->all}, {"send", w->send, w->shard}};
    for (int i = 0; i < KEPT; i++) {
        char *host = malloc(all[i].bytes + 1);
        if (all[i].bytes)
            CUDA(cudaMemcpy(host, all[i].at, all[i].bytes, cudaMemcpyDeviceToHost));
        for (size_t at = 0; !keep && at < all[i].bytes; at++)
            CHECK(host[at] == w->kept[i][at], "rank %d: %s: round %lu: %s differs at %zu of %zu", w->r->rank,
                  w->t->name, (unsigned long)w->round, all[i].name, at, all[i].bytes);
        if (keep)
            memcpy(w->kept[i], host, all[i].bytes);
        free(host);
    }
}

static void world_open(struct world *w)
{
    const size_t ranks = (size_t)w->r->nranks, k = (size_t)size.k, m = (size_t)size.m, n = (size_t)size.n;
    static const float scalars[2] = {1, 0};
    w->elem = w->t->api == DGEMM ? 8 : w->t->api == SGEMM ? 4 : 2;
    w->n = size.n * w->r->nranks;
    w->c_bytes = m * (size_t)w->n * (w->t->api == DGEMM ? 8 : 4);
    w->shard = k * n * w->elem;
    w->all = w->shard * ranks;
    if (w->t->call == SCATTER)
        w->all = m * n * 4;
    w->a = device(m * k * w->elem);
    w->b = device(k * (size_t)w->n * w->elem);
    w->c = device(w->c_bytes);
    w->send = device(w->shard);
    w->recv = device(w->all);
    if (w->t->place == IN_OTHER) {
        w->other_send = device(w->shard);
        w->other = device(w->all);
    }
    w->scalars = (float *)(void *)device(sizeof scalars);
    to_device(w->scalars, scalars, sizeof scalars);
    for (int i = 0; i < KEPT; i++)
        w->kept[i] = malloc(w->all + w->shard + w->c_bytes);
    CUDA(cudaStreamCreateWithFlags(&w->other_stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&w->told, cudaEventDisableTiming));
    BLAS(cublasCreate(&w->blas));
    BLAS(cublasLtCreate(&w->lt));
}

static void world_close(struct world *w)
{
    char *const all[] = {w->a, w->b, w->c, w->send, w->recv, w->other_send, w->other, (char *)w->scalars};
    BLAS(cublasDestroy(w->blas));
    BLAS(cublasLtDestroy(w->lt));
    CUDA(cudaEventDestroy(w->told));
    CUDA(cudaStreamDestroy(w->other_stream));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA(cudaFree(all[i]));
    for (int i = 0; i < KEPT; i++)
        free(w->kept[i]);
}

static void run(const struct rank *r, const struct test *t, ncclComm_t other)
{
    struct world w = {.r = r, .t = t, .other_comm = other};
    world_open(&w);
    for (w.round = 0; w.round < (uint64_t)size.rounds; w.round++) {
        play(&w, true);
        compare(&w, true);
        play(&w, false);
        compare(&w, false);
    }
    world_close(&w);
}

static void body(struct rank *r)
{
    ncclComm_t other;
    rank_open(r);
    NCCL(ncclCommSplit(r->comm, 0, r->rank, &other, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!only || only == &cases[i])
            run(r, &cases[i], other);
    NCCL(ncclCommDestroy(other));
    rank_close(r);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 0;
    bool known = argc > 2 && !strcmp(argv[2], "all");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc == 2 && !strcmp(argv[1], "list"))
            puts(cases[i].name);
        else if (argc > 2 && !strcmp(argv[2], cases[i].name))
            only = &cases[i];
    }
    if (argc == 2 && !strcmp(argv[1], "list"))
        return 0;
    if (argc >= 6)
        size = (struct size){atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), argc > 6 ? atoi(argv[6]) : size.rounds};
    if (n < 1 || n > 64 || (!known && !only)) {
        fprintf(stderr, "usage: workspace RANKS CASE|all [M N K [ROUNDS]] | workspace list\n");
        return 2;
    }
    return ranks_run(n, 300, body, NULL);
}
