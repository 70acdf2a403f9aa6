/* SPDX-License-Identifier: Apache-2.0 */
/* A random program that makes the same calls in each iteration, as training does.
 *
 *   iterations RANKS KIND SEED ITERATIONS
 *
 * KIND says what is special; what else there is follows from SEED, the same on all ranks.
 *
 *   forms    1 to 16 all-gathers of one size, each for a GEMM of one of three forms, or for none
 *   sites    of one size some forward, for a GEMM, and as many backward, for another or for none; reduce-scatters that
 *            GEMMs make, or none does
 *   differ   forward all-gathers for a GEMM, as many backward of that size for none; the reduce-scatters between them
 *            are of two sizes
 *   groups   the same as sites, calls in groups of one to four
 *   evaluate the same as sites; each fifth iteration has the first half of its calls only
 *   hiccups  the same as sites; rank 1 is sometimes late
 *
 * All results of the last iteration are checked: small integers, exact. */
#include <string.h>
#include <unistd.h>
#include "ranks.h"

enum { K = 64, COLS = 24, MOST = 16, SYNC = 4 };
enum { NONE, NN, TN, WIDE, GEMMS }; /* the GEMM: W X, W' X, or W X of twice as many rows */

struct call {
    bool scatter;
    int gemm;
    int group; /* so many calls from here on are a group; 0: none begins */
    float *in, *out, *c;
};

struct program {
    const char *kind;
    uint64_t seed, drawn;
    int iterations, calls;
    struct call call[MOST];
    float *w;
    cublasHandle_t blas;
};

static int draw(struct program *p, int from, int to)
{
    return from + (int)(hash64(p->seed, p->drawn++) % (uint64_t)(to - from));
}

static bool is(const struct program *p, const char *kind)
{
    return strcmp(p->kind, kind) == 0;
}

static void draw_calls(struct program *p)
{
    const bool differ = is(p, "differ"), forms = is(p, "forms");
    p->calls = differ ? 8 : draw(p, forms ? 1 : 4, MOST + 1);
    const int forward = differ ? WIDE : draw(p, NN, GEMMS), backward = differ ? NONE : draw(p, NONE, GEMMS);
    for (int i = 0; i < p->calls; i++) {
        struct call *c = &p->call[i];
        c->scatter = !forms && i % 2;
        c->gemm = forms ? draw(p, NONE, GEMMS) : (i < p->calls / 2) != (differ && c->scatter) ? forward : backward;
    }
    for (int i = 0, n; is(p, "groups") && i < p->calls; i += n) {
        n = draw(p, 1, 5);
        n = n < p->calls - i ? n : p->calls - i;
        p->call[i].group = n;
    }
}

/* ---- data ---- */

static float value(uint64_t seed, int i)
{
    return (float)(hash64(seed, (uint64_t)i) % 5) - 2;
}

static int rows_of(const struct call *c)
{
    return c->gemm == WIDE ? 2 * K : K;
}

static float *filled(uint64_t seed, int count)
{
    float *host = malloc((size_t)count * sizeof *host), *device;
    CHECK(host, "no memory");
    for (int i = 0; i < count; i++)
        host[i] = value(seed, i);
    CUDA(cudaMalloc((void **)&device, (size_t)count * sizeof *host));
    to_device(device, host, (size_t)count * sizeof *host);
    free(host);
    return device;
}

/* What a gather sends, or a reduce-scatter's GEMM multiplies; of rank `rank`. */
static uint64_t seed_of(const struct program *p, int call, int rank)
{
    return p->seed * 1000 + (uint64_t)call * 10 + (uint64_t)rank + 100;
}

static void make(struct program *p, const struct rank *r)
{
    const int all = COLS * r->nranks;
    p->w = filled(1, 2 * K * K);
    BLAS(cublasCreate(&p->blas));
    BLAS(cublasSetStream(p->blas, r->stream));
    for (int i = 0; i < p->calls; i++) {
        struct call *c = &p->call[i];
        c->in = filled(seed_of(p, i, r->rank), K * (c->scatter ? all : COLS));
        c->out = filled(2, K * (c->scatter ? COLS : all) * 2);
        c->c = filled(3, 2 * K * all);
    }
}

/* ---- an iteration ---- */

static void multiply(struct program *p, const struct rank *r, const struct call *c, const float *x)
{
    const float one = 1, zero = 0;
    if (c->gemm != NONE)
        BLAS(cublasSgemm(p->blas, c->gemm == TN ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, rows_of(c), COLS * r->nranks,
                         K, &one, p->w, c->gemm == TN ? K : rows_of(c), x, K, &zero, c->c, rows_of(c)));
}

static void collective(struct program *p, const struct rank *r, const struct call *c)
{
    if (is(p, "hiccups") && r->rank == 1 && draw(p, 0, 37) == 0)
        usleep(3000);
    const size_t count = (size_t)(COLS * (c->scatter && c->gemm != NONE ? rows_of(c) : K));
    if (c->scatter)
        NCCL(ncclReduceScatter(c->gemm == NONE ? c->in : c->c, c->out, count, ncclFloat, ncclSum, r->comm, r->stream));
    else
        NCCL(ncclAllGather(c->in, c->out, count, ncclFloat, r->comm, r->stream));
}

/* Calls from..from+n, which are a group if `grouped`. */
static void calls(struct program *p, const struct rank *r, int from, int n, bool grouped)
{
    for (int i = from; i < from + n; i++)
        if (p->call[i].scatter)
            multiply(p, r, &p->call[i], p->call[i].in);
    if (grouped)
        NCCL(ncclGroupStart());
    for (int i = from; i < from + n; i++)
        collective(p, r, &p->call[i]);
    if (grouped)
        NCCL(ncclGroupEnd());
    for (int i = from; i < from + n; i++)
        if (!p->call[i].scatter)
            multiply(p, r, &p->call[i], p->call[i].out);
}

static void iteration(struct program *p, const struct rank *r, int number)
{
    const bool half = is(p, "evaluate") && number % 5 == 4 && number < p->iterations - 1;
    for (int i = 0; i < (half ? p->calls / 2 : p->calls);) {
        const int n = p->call[i].group ? p->call[i].group : 1;
        calls(p, r, i, n, p->call[i].group > 0);
        i += n;
    }
    if (number % SYNC == 0)
        CUDA(cudaStreamSynchronize(r->stream));
}

/* ---- what is expected ---- */

/* Element (row, col) of W X, X having the columns of `seed`. */
static UNWATCHED float product(const struct call *c, uint64_t seed, int row, int col)
{
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += value(1, c->gemm == TN ? row * K + k : k * rows_of(c) + row) * value(seed, col * K + k);
    return sum;
}

static UNWATCHED float expected(const struct program *p, int call, int nranks, bool of_c, int rank, int row, int col)
{
    const struct call *c = &p->call[call];
    float sum = 0;
    if (!c->scatter && !of_c)
        return value(seed_of(p, call, col / COLS), col % COLS * K + row);
    if (!c->scatter)
        return product(c, seed_of(p, call, col / COLS), row, col % COLS);
    for (int r = 0; r < nranks; r++)
        sum += c->gemm == NONE ? value(seed_of(p, call, r), (rank * COLS + col) * K + row)
                               : product(c, seed_of(p, call, r), row, rank * COLS + col);
    return sum;
}

static void compare(const struct program *p, const struct rank *r, int call, bool of_c)
{
    const struct call *c = &p->call[call];
    const int rows = of_c || (c->scatter && c->gemm != NONE) ? rows_of(c) : K,
              cols = COLS * (c->scatter ? 1 : r->nranks);
    float *host = malloc((size_t)(rows * cols) * sizeof *host);
    CHECK(host, "no memory");
    CUDA(cudaMemcpy(host, of_c ? c->c : c->out, (size_t)(rows * cols) * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < rows * cols; i++) {
        const float want = expected(p, call, r->nranks, of_c, r->rank, i % rows, i / rows);
        CHECK(host[i] == want, "call %d, element %d: %g, not %g", call, i, (double)host[i], (double)want);
    }
    free(host);
}

static void body(struct rank *r)
{
    struct program p = *(const struct program *)r->arg;
    rank_open(r);
    draw_calls(&p);
    make(&p, r);
    for (int i = 0; i < p.iterations; i++)
        iteration(&p, r, i);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < p.calls; i++) {
        compare(&p, r, i, false);
        if (!p.call[i].scatter && p.call[i].gemm != NONE)
            compare(&p, r, i, true);
    }
    BLAS(cublasDestroy(p.blas));
    rank_close(r);
}

int main(int argc, char **argv)
{
    struct program p = {0};
    if (argc != 5) {
        fprintf(stderr, "usage: iterations RANKS forms|sites|differ|groups|evaluate|hiccups SEED ITERATIONS\n");
        return 2;
    }
    p.kind = argv[2];
    p.seed = strtoull(argv[3], NULL, 10);
    p.iterations = atoi(argv[4]);
    return ranks_run(atoi(argv[1]), 100, body, &p);
}
