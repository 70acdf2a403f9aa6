/* SPDX-License-Identifier: Apache-2.0 */
/* The gathers of a program whose call sites change.
 *
 *   call_sites RANKS PHASE...      PHASE: [GROUP+]KIND[/COLS]:CALLS, e.g. gemm:200 one+alone/48:100
 *
 * A phase makes CALLS gathers of COLS (24) columns of K floats a rank, on one communicator. KIND says what is done
 * with them: alone; gemm: C = W X; between: likewise, with a gather of one column
 * less, on another stream, between the two; turned: C = W' X, of the same sizes; beside: another GEMM runs beside
 * it on another stream, and the host waits for one of BEHIND calls only; nothing is checked. All
 * elements are checked after each call; of unchecked, which is as alone, none, for where nothing is computed.
 * GROUP: each gather is in a group, one: of its own, two: with a broadcast.
 *
 * Two kinds are the step of a backward pass: in place of the gather an all-reduce in place, on another stream, beside
 * GEMMs that do not need it, and joined behind them. bucket: of what no GEMM has just computed, as DDP's; dgrad: a GEMM
 * has, as Megatron's; checked after the last call. Rank 0 writes what a step takes on the device. */
#include <string.h>
#include "ranks.h"

enum { COLS = 24, K = 64, M = 32, BEHIND = 8, GRADS = 4, MEASURED = 5 };

struct phase {
    char group[4], kind[16];
    int cols, calls;
};

struct memory {
    float *send, *recv, *w, *c, *other; /* on the device */
    cudaStream_t side;
    float *shards, *product; /* what is expected */
    float *host;
};

static float value(uint64_t seed, uint64_t i)
{
    return (float)(hash64(seed, i) % 5) - 2;
}

static bool multiplies(const struct phase *p)
{
    return strcmp(p->kind, "gemm") == 0 || strcmp(p->kind, "turned") == 0 || strcmp(p->kind, "between") == 0;
}

/* Element (row, inner) of W as it is multiplied. */
static size_t of_w(const struct phase *p, int row, int inner)
{
    return strcmp(p->kind, "turned") == 0 ? (size_t)(row * K + inner) : (size_t)(inner * M + row);
}

static void expect(const struct rank *r, const struct phase *p, struct memory *m)
{
    const int cols = p->cols * r->nranks;
    m->shards = malloc((size_t)(cols * K) * sizeof(float));
    m->product = calloc((size_t)(cols * M), sizeof(float));
    m->host = malloc((size_t)(cols * (K > M ? K : M)) * sizeof(float));
    CHECK(m->shards && m->product && m->host, "no memory");
    for (int i = 0; i < cols * K; i++)
        m->shards[i] = value((uint64_t)(i / (p->cols * K)), (uint64_t)(i % (p->cols * K)));
    for (int col = 0; col < cols; col++)
        for (int row = 0; row < M; row++)
            for (int k = 0; k < K; k++)
                m->product[col * M + row] += value(99, of_w(p, row, k)) * m->shards[col * K + k];
}

static void make(const struct rank *r, const struct phase *p, struct memory *m)
{
    const size_t shard = (size_t)(p->cols * K) * sizeof(float), w = (size_t)(M * K) * sizeof(float);
    float *host = malloc(w);
    CHECK(host, "no memory");
    CUDA(cudaMalloc((void **)&m->send, shard));
    CUDA(cudaMalloc((void **)&m->recv, shard * (size_t)r->nranks));
    CUDA(cudaMalloc((void **)&m->other, shard * (size_t)r->nranks));
    CUDA(cudaStreamCreateWithFlags(&m->side, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&m->w, w));
    CUDA(cudaMalloc((void **)&m->c, (size_t)(p->cols * r->nranks * M) * sizeof(float)));
    to_device(m->send, m->shards + p->cols * K * r->rank, shard);
    for (size_t i = 0; i < (size_t)(M * K); i++)
        host[i] = value(99, i);
    to_device(m->w, host, w);
    free(host);
}

static void destroy(struct memory *m)
{
    CUDA(cudaFree(m->send));
    CUDA(cudaFree(m->recv));
    CUDA(cudaFree(m->other));
    CUDA(cudaStreamDestroy(m->side));
    CUDA(cudaFree(m->w));
    CUDA(cudaFree(m->c));
    free(m->shards);
    free(m->product);
    free(m->host);
}

static void compare(const struct phase *p, int call, const float *device, const float *want, size_t n, float *host)
{
    CUDA(cudaMemcpy(host, device, n * sizeof *host, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++)
        CHECK(host[i] == want[i], "%s, call %d, element %zu: %g, not %g", p->kind, call, i, (double)host[i],
              (double)want[i]);
}

static void gather(const struct rank *r, const struct phase *p, const struct memory *m, const float *send)
{
    if (*p->group)
        NCCL(ncclGroupStart());
    NCCL(ncclAllGather(send, m->recv, (size_t)(p->cols * K), ncclFloat, r->comm, r->stream));
    if (strcmp(p->group, "two") == 0)
        NCCL(ncclBroadcast(m->send, m->other, 1, ncclFloat, 0, r->comm, r->stream));
    if (*p->group)
        NCCL(ncclGroupEnd());
}

static void order(cudaStream_t before, cudaStream_t behind)
{
    cudaEvent_t ev;
    CUDA(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
    CUDA(cudaEventRecord(ev, before));
    CUDA(cudaStreamWaitEvent(behind, ev, 0));
    CUDA(cudaEventDestroy(ev));
}

/* Both begin behind both of the call before. In place: a copy of the own shard would wait for the GEMM. */
static void beside(const struct rank *r, const struct phase *p, struct memory *m, cublasHandle_t h, int call)
{
    const float alpha = 1, beta = 0;
    order(r->stream, m->side);
    gather(r, p, m, m->recv + p->cols * K * r->rank);
    CHECK(cublasSetStream(h, m->side) == CUBLAS_STATUS_SUCCESS &&
              cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, M, p->cols * r->nranks, K, &alpha, m->w, M, m->other, K, &beta,
                          m->c, M) == CUBLAS_STATUS_SUCCESS &&
              cublasSetStream(h, r->stream) == CUBLAS_STATUS_SUCCESS,
          "cublasSgemm");
    order(m->side, r->stream);
    if (call % BEHIND == 0)
        CUDA(cudaStreamSynchronize(r->stream));
}

static bool is_computed(const struct phase *p)
{
    return strcmp(p->kind, "dgrad") == 0;
}

/* The GEMMs beside are of another form than the one before. */
static void step(const struct rank *r, const struct phase *p, const struct memory *m, cublasHandle_t h)
{
    const int n = p->cols * r->nranks;
    float *sum = is_computed(p) ? m->c : m->recv, *grad = is_computed(p) ? m->recv : m->c;
    const float alpha = 1, beta = 0;
    if (is_computed(p))
        BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, M, n, K, &alpha, m->w, M, m->other, K, &beta, sum, M));
    order(r->stream, m->side);
    NCCL(ncclAllReduce(sum, sum, (size_t)(n * M), ncclFloat, ncclSum, r->comm, m->side));
    for (int i = 0; i < GRADS; i++)
        BLAS(cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, M, n, K, &alpha, m->w, K, m->other, K, &beta, grad, M));
    order(m->side, r->stream);
}

/* All ranks multiply the same. */
static void check_sum(const struct rank *r, const struct phase *p, struct memory *m)
{
    const size_t n = (size_t)(p->cols * r->nranks * M);
    for (size_t i = 0; i < n; i++)
        m->product[i] *= (float)r->nranks;
    compare(p, p->calls, m->c, m->product, n, m->host);
}

/* The last steps are measured, when all has been tried, BEHIND of them in one. The least counts: the host may be held
 * up. */
static void backward(const struct rank *r, const struct phase *p, struct memory *m, cublasHandle_t h)
{
    const size_t bytes = (size_t)(p->cols * r->nranks * K) * sizeof(float);
    cudaEvent_t at[MEASURED + 1];
    float ms, least = 0;
    for (int i = 0; i <= MEASURED; i++)
        CUDA(cudaEventCreate(&at[i]));
    to_device(m->other, m->shards, bytes);
    CUDA(cudaMemset(m->recv, 0, bytes));
    for (int call = 0; call < p->calls; call++) {
        const int left = p->calls - call;
        if (left % BEHIND == 0 && left <= MEASURED * BEHIND)
            CUDA(cudaEventRecord(at[MEASURED - left / BEHIND], r->stream));
        step(r, p, m, h);
        if (left % BEHIND == 0)
            CUDA(cudaStreamSynchronize(r->stream));
    }
    CUDA(cudaEventRecord(at[MEASURED], r->stream));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < MEASURED; i++) {
        CUDA(cudaEventElapsedTime(&ms, at[i], at[i + 1]));
        least = i == 0 || ms < least ? ms : least;
    }
    if (r->rank == 0)
        printf("step %.3f ms\n", (double)(least / BEHIND));
    if (is_computed(p))
        check_sum(r, p, m);
    for (int i = 0; i <= MEASURED; i++)
        CUDA(cudaEventDestroy(at[i]));
}

static void one(const struct rank *r, const struct phase *p, struct memory *m, cublasHandle_t h, int call)
{
    const size_t n = (size_t)(p->cols * r->nranks);
    const cublasOperation_t op = strcmp(p->kind, "turned") == 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
    const float alpha = 1, beta = 0;
    CUDA(cudaMemsetAsync(m->recv, 0xff, n * K * sizeof(float), r->stream));
    CUDA(cudaMemsetAsync(m->c, 0xff, n * M * sizeof(float), r->stream));
    gather(r, p, m, m->send);
    if (strcmp(p->kind, "between") == 0)
        NCCL(ncclAllGather(m->send, m->other, (size_t)((p->cols - 1) * K), ncclFloat, r->comm, m->side));
    if (multiplies(p))
        CHECK(cublasSgemm(h, op, CUBLAS_OP_N, M, (int)n, K, &alpha, m->w, op == CUBLAS_OP_N ? M : K, m->recv, K, &beta,
                          m->c, M) == CUBLAS_STATUS_SUCCESS,
              "cublasSgemm");
    CUDA(cudaStreamSynchronize(r->stream));
    CUDA(cudaStreamSynchronize(m->side));
    if (strcmp(p->kind, "unchecked") == 0)
        return;
    compare(p, call, m->recv, m->shards, n * K, m->host);
    for (int rank = 0; rank < r->nranks && strcmp(p->kind, "between") == 0; rank++)
        compare(p, call, m->other + (p->cols - 1) * K * rank, m->shards + p->cols * K * rank,
                (size_t)((p->cols - 1) * K), m->host);
    if (multiplies(p))
        compare(p, call, m->c, m->product, n * M, m->host);
}

static void play(const struct rank *r, const struct phase *p, struct memory *m, cublasHandle_t h)
{
    if (is_computed(p) || strcmp(p->kind, "bucket") == 0) {
        backward(r, p, m, h);
        return;
    }
    for (int call = 0; call < p->calls; call++)
        if (strcmp(p->kind, "beside") == 0)
            beside(r, p, m, h, call);
        else
            one(r, p, m, h, call);
}

static bool parse(const char *word, struct phase *p)
{
    const char *kind = strchr(word, '+');
    if (kind && (kind - word != 3 || (strncmp(word, "one", 3) != 0 && strncmp(word, "two", 3) != 0)))
        return false;
    if (kind)
        memcpy(p->group, word, 3);
    kind = kind ? kind + 1 : word;
    return sscanf(kind, "%15[a-z]/%d:%d", p->kind, &p->cols, &p->calls) == 3 ||
           sscanf(kind, "%15[a-z]:%d", p->kind, &p->calls) == 2;
}

static void body(struct rank *r)
{
    char **words = r->arg;
    cublasHandle_t h;
    rank_open(r);
    CHECK(cublasCreate(&h) == CUBLAS_STATUS_SUCCESS && cublasSetStream(h, r->stream) == CUBLAS_STATUS_SUCCESS,
          "cublasCreate");
    for (; *words; words++) {
        struct phase p = {.cols = COLS};
        struct memory m = {0};
        CHECK(parse(*words, &p), "%s: not a phase", *words);
        expect(r, &p, &m);
        make(r, &p, &m);
        play(r, &p, &m, h);
        CUDA(cudaDeviceSynchronize());
        destroy(&m);
    }
    cublasDestroy(h);
    rank_close(r);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: call_sites RANKS PHASE...\n");
        return 2;
    }
    return ranks_run(atoi(argv[1]), 100, body, argv + 2);
}
