/* SPDX-License-Identifier: Apache-2.0 */
/* One gather that several GEMMs consume in turn: q, k, v of an attention layer, gate and up of an MLP, or a layer and
 * the gradient of its weight.
 *
 *   turns RANKS CASE        CASE is a name of the table below, or "list"
 *
 * X has COLS columns of K elements on each rank, fp32. Each GEMM computes C = W' X with a W and a C of its own; the
 * gradient adds X Y to its C. All elements are checked. From the second round on rank 1 makes its call only when rank 0
 * has seen what the first GEMM makes of the own shard: a GEMM that were joined would never get there.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "ranks.h"

enum { COLS = 24, K = 64, ROUNDS = 4, MOST = 3, STREAMS = 3 };

struct turn {
    int other;  /* columns of W; 0: no GEMM */
    bool sums;  /* C += X Y */
    int stream; /* 0: that of the gather; others are told by an event */
};

static const struct row {
    const char *name;
    struct turn turn[MOST];
} cases[] = {
    {"gate-up", {{40, false, 0}, {40, false, 0}, {0, false, 0}}},
    {"qkv", {{40, false, 0}, {8, false, 0}, {8, false, 0}}},
    {"small-first", {{3, false, 0}, {40, false, 0}, {0, false, 0}}},
    {"by-event", {{40, false, 1}, {8, false, 1}, {8, false, 1}}},
    {"two-streams", {{40, false, 1}, {8, false, 2}, {0, false, 0}}},
    {"with-gradient", {{40, false, 1}, {16, true, 1}, {0, false, 0}}},
};

/* Shared by the ranks' processes: how many rounds rank 0 has seen begin. */
static volatile int *seen;

struct memory {
    float *send, *recv, *w[MOST], *c[MOST];
    float *host; /* page-locked */
};

static int small(uint64_t seed, uint64_t i)
{
    return (int)(hash64(seed, i) % 5) - 2;
}

static size_t w_count(const struct turn *t, int nranks)
{
    return (size_t)t->other * (size_t)(t->sums ? COLS * nranks : K);
}

static size_t c_count(const struct turn *t, int nranks)
{
    return (size_t)t->other * (size_t)(t->sums ? K : COLS * nranks);
}

static void upload(float *to, size_t n, uint64_t seed)
{
    float *host = malloc(n * sizeof *host);
    CHECK(host, "no memory");
    for (size_t i = 0; i < n; i++)
        host[i] = (float)small(seed, i);
    to_device(to, host, n * sizeof *host);
    free(host);
}

/* Seeds of a round: of rank r's shard, of W and of C. */
enum { SEED_W = 100, SEED_C = 200 };

static float expected(const struct turn *t, int index, uint64_t seed, int nranks, int row, int col)
{
    const uint64_t w = seed + SEED_W + (uint64_t)index, c = seed + SEED_C + (uint64_t)index;
    int sum = t->sums ? small(c, (uint64_t)(col * K + row)) : 0;
    const int inner = t->sums ? COLS * nranks : K;
    for (int p = 0; p < inner; p++) {
        /* Column and row of X; W is inner x other. */
        const int x_col = t->sums ? p : col, x_row = t->sums ? row : p, of_w = t->sums ? col : row;
        sum += small(seed + (uint64_t)(x_col / COLS), (uint64_t)(x_col % COLS * K + x_row)) *
               small(w, (uint64_t)(of_w * inner + p));
    }
    return (float)sum;
}

static bool right(const struct turn *t, int index, uint64_t seed, int nranks, int cols, const float *c)
{
    const int rows = t->sums ? K : t->other;
    for (int col = 0; col < cols; col++)
        for (int row = 0; row < rows; row++)
            if (c[col * rows + row] != expected(t, index, seed, nranks, row, col))
                return false;
    return true;
}

/* Rank 0 sees the columns that its own shard makes of the first GEMM's C; the others wait for that. */
static void meet(const struct rank *r, const struct turn *t, const struct memory *m, int round, uint64_t seed)
{
    const size_t own = (size_t)(COLS * t->other) * sizeof(float);
    cudaStream_t eye;
    if (r->rank != 0)
        return;
    CUDA(cudaStreamCreateWithFlags(&eye, cudaStreamNonBlocking));
    do {
        usleep(5000); /* not while it is written, as a rule: ThreadSanitizer would report that */
        CUDA(cudaMemcpyAsync(m->host, m->c[0], own, cudaMemcpyDeviceToHost, eye));
        CUDA(cudaStreamSynchronize(eye));
    } while (!right(t, 0, seed, r->nranks, COLS, m->host));
    CUDA(cudaStreamDestroy(eye));
    *seen = round;
}

static void gather(const struct rank *r, const struct memory *m, int round)
{
    while (r->rank == 1 && *seen < round)
        usleep(1000);
    NCCL(ncclAllGather(m->send, m->recv, (size_t)COLS * K, ncclFloat, r->comm, r->stream));
}

static void multiply(const struct turn *t, const struct memory *m, int index, int nranks, cublasHandle_t h,
                     cudaStream_t stream)
{
    const float one = 1, zero = 0;
    const int all = COLS * nranks;
    BLAS(cublasSetStream(h, stream));
    if (t->sums)
        BLAS(cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, K, t->other, all, &one, m->recv, K, m->w[index], all, &one,
                         m->c[index], K));
    else
        BLAS(cublasSgemm(h, CUBLAS_OP_T, CUBLAS_OP_N, t->other, all, K, &one, m->w[index], K, m->recv, K, &zero,
                         m->c[index], t->other));
}

static void round_of(const struct rank *r, const struct row *c, const struct memory *m, cublasHandle_t h,
                     const cudaStream_t *stream, int round)
{
    const uint64_t seed = 1000 * (uint64_t)round;
    cudaEvent_t ev;
    upload(m->send, (size_t)COLS * K, seed + (uint64_t)r->rank);
    CUDA(cudaMemset(m->recv, 0x7f, (size_t)COLS * K * sizeof(float) * (size_t)r->nranks));
    for (int i = 0; i < MOST && c->turn[i].other; i++) {
        upload(m->w[i], w_count(&c->turn[i], r->nranks), seed + SEED_W + (uint64_t)i);
        upload(m->c[i], c_count(&c->turn[i], r->nranks), seed + SEED_C + (uint64_t)i);
    }
    CUDA(cudaDeviceSynchronize());
    gather(r, m, round);
    CUDA(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
    if (c->turn[0].stream)
        CUDA(cudaEventRecord(ev, r->stream));
    for (int i = 0; i < MOST && c->turn[i].other; i++)
        if (c->turn[i].stream && (i == 0 || c->turn[i].stream != c->turn[i - 1].stream))
            CUDA(cudaStreamWaitEvent(stream[c->turn[i].stream], ev, 0));
    for (int i = 0; i < MOST && c->turn[i].other; i++)
        multiply(&c->turn[i], m, i, r->nranks, h, stream[c->turn[i].stream]);
    if (round > 0) /* the ranks connect at the first gather */
        meet(r, &c->turn[0], m, round, seed);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaEventDestroy(ev));
    for (int i = 0; i < MOST && c->turn[i].other; i++) {
        const struct turn *t = &c->turn[i];
        CUDA(cudaMemcpy(m->host, m->c[i], c_count(t, r->nranks) * sizeof(float), cudaMemcpyDeviceToHost));
        CHECK(right(t, i, seed, r->nranks, t->sums ? t->other : COLS * r->nranks, m->host),
              "rank %d, round %d: %s: GEMM %d is wrong", r->rank, round, c->name, i);
    }
}

static struct memory allocate(const struct row *c, int nranks)
{
    struct memory m;
    size_t most = 0;
    CUDA(cudaMalloc((void **)&m.send, (size_t)COLS * K * sizeof(float)));
    CUDA(cudaMalloc((void **)&m.recv, (size_t)COLS * K * sizeof(float) * (size_t)nranks));
    for (int i = 0; i < MOST && c->turn[i].other; i++) {
        const size_t n = c_count(&c->turn[i], nranks) * sizeof(float);
        CUDA(cudaMalloc((void **)&m.w[i], w_count(&c->turn[i], nranks) * sizeof(float)));
        CUDA(cudaMalloc((void **)&m.c[i], n));
        most = n > most ? n : most;
    }
    CUDA(cudaMallocHost((void **)&m.host, most));
    return m;
}

static void body(struct rank *r)
{
    const struct row *c = r->arg;
    cublasHandle_t h;
    cudaStream_t stream[STREAMS];
    rank_open(r);
    stream[0] = r->stream;
    for (int i = 1; i < STREAMS; i++)
        CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    BLAS(cublasCreate(&h));
    struct memory m = allocate(c, r->nranks);
    for (int round = 0; round < ROUNDS; round++)
        round_of(r, c, &m, h, stream, round);
    BLAS(cublasDestroy(h));
    CUDA(cudaFree(m.send));
    CUDA(cudaFree(m.recv));
    for (int i = 0; i < MOST && c->turn[i].other; i++) {
        CUDA(cudaFree(m.w[i]));
        CUDA(cudaFree(m.c[i]));
    }
    CUDA(cudaFreeHost(m.host));
    for (int i = 1; i < STREAMS; i++)
        CUDA(cudaStreamDestroy(stream[i]));
    rank_close(r);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 0;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc == 2 && !strcmp(argv[1], "list"))
            puts(cases[i].name);
        else if (argc == 3 && n >= 1 && n <= 64 && !strcmp(argv[2], cases[i].name))
            return ranks_run(n, 60, body, (void *)(uintptr_t)&cases[i]);
    }
    if (argc == 2 && !strcmp(argv[1], "list"))
        return 0;
    fprintf(stderr, "usage: turns RANKS CASE | turns list\n");
    return 2;
}
