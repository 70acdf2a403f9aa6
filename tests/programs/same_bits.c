/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks multiply the same gathered matrix by the same weights, as programs do that compute a decision on every rank
 * instead of sending it. The results must be the same bits on all ranks.
 *
 *   same_bits RANKS bn|at|bt|an gemm|lt COLUMNS K OTHER [NAME=VALUE]
 *
 * X has COLUMNS columns of K elements on each rank, fp32. bn: C = W' X, at: C = X' W; bt: C += W' X', an: C += X W, sums
 * over the gathered dimension. The ranks compare checksums of C. NAME=VALUE: in the environment of rank 1 alone.
 */
#include <cublasLt.h>
#include <string.h>
#include "ranks.h"

enum { ROUNDS = 3, WORKSPACE = 1 << 20 };

struct job {
    bool on_a, sums, lt; /* X is A, else B; what is summed over is its columns, else its rows */
    int64_t cols, k, other;
};

/* C is m x n; W has `inner` rows. */
struct sizes {
    int64_t m, n, inner;
};

static struct sizes sizes_of(const struct job *job, int nranks)
{
    const int64_t all = job->cols * nranks, along = job->sums ? job->k : all;
    return (struct sizes){
        .m = job->on_a ? along : job->other, .n = job->on_a ? job->other : along, .inner = job->sums ? all : job->k};
}

struct memory {
    float *send, *recv, *weight, *c;
    char *workspace;
    uint64_t *sum, *sums; /* checksums, on the device */
    size_t x, w, out;     /* elements */
};

static float *device(size_t elements)
{
    float *p;
    CUDA(cudaMalloc((void **)&p, elements * sizeof *p));
    return p;
}

static struct memory allocate(const struct job *job, int nranks)
{
    const struct sizes s = sizes_of(job, nranks);
    struct memory m = {.x = (size_t)(job->cols * job->k), .w = (size_t)(job->other * s.inner)};
    m.out = (size_t)(s.m * s.n);
    m.send = device(m.x);
    m.recv = device(m.x * (size_t)nranks);
    m.weight = device(m.w);
    m.c = device(m.out);
    CUDA(cudaMalloc((void **)&m.workspace, WORKSPACE));
    CUDA(cudaMalloc((void **)&m.sum, sizeof *m.sum));
    CUDA(cudaMalloc((void **)&m.sums, sizeof *m.sums * (size_t)nranks));
    return m;
}

static void release(struct memory *m)
{
    void *const all[] = {m->send, m->recv, m->weight, m->c, m->workspace, m->sum, m->sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CUDA(cudaFree(all[i]));
}

/* Values of either sign between 1/2 and 2, with every bit of the mantissa in use. */
static void fill(float *to, size_t elements, uint64_t seed)
{
    uint32_t *host = malloc(elements * sizeof *host);
    CHECK(host, "no memory");
    for (size_t i = 0; i < elements; i++)
        host[i] = ((uint32_t)hash64(seed, i) & 0x807fffff) | 0x3f000000;
    to_device(to, host, elements * sizeof *host);
    free(host);
}

static void multiply_lt(const struct job *job, const struct memory *m, cublasLtHandle_t h, const struct sizes *s,
                        cudaStream_t stream)
{
    const float one = 1, beta = job->sums;
    const int32_t ta = job->on_a && job->sums ? CUBLAS_OP_N : CUBLAS_OP_T,
                  tb = !job->on_a && job->sums ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t most = WORKSPACE, rows = (uint64_t)s->m, cols = (uint64_t)s->n, inner = (uint64_t)s->inner;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t la, lb, lc;
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    BLAS(cublasLtMatmulDescInit(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(&op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    BLAS(cublasLtMatmulDescSetAttribute(&op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    BLAS(cublasLtMatrixLayoutInit(&la, CUDA_R_32F, ta ? inner : rows, ta ? rows : inner, ta ? s->inner : s->m));
    BLAS(cublasLtMatrixLayoutInit(&lb, CUDA_R_32F, tb ? cols : inner, tb ? inner : cols, tb ? s->n : s->inner));
    BLAS(cublasLtMatrixLayoutInit(&lc, CUDA_R_32F, rows, cols, s->m));
    BLAS(cublasLtMatmulPreferenceInit(&pref));
    BLAS(cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    BLAS(cublasLtMatmulAlgoGetHeuristic(h, &op, &la, &lb, &lc, &lc, &pref, 1, &found, &count));
    CHECK(count == 1, "no algorithm");
    BLAS(cublasLtMatmul(h, &op, &one, job->on_a ? m->recv : m->weight, &la, job->on_a ? m->weight : m->recv, &lb, &beta,
                        m->c, &lc, m->c, &lc, &found.algo, m->workspace, WORKSPACE, stream));
}

static void multiply(const struct job *job, const struct memory *m, cublasHandle_t h, const struct rank *r)
{
    const float one = 1, beta = job->sums;
    const struct sizes s = sizes_of(job, r->nranks);
    const cublasOperation_t ta = job->on_a && job->sums ? CUBLAS_OP_N : CUBLAS_OP_T,
                            tb = !job->on_a && job->sums ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int ldx = (int)job->k, ldw = (int)s.inner;
    if (job->lt)
        multiply_lt(job, m, (cublasLtHandle_t)h, &s, r->stream);
    else
        BLAS(cublasSgemm(h, ta, tb, (int)s.m, (int)s.n, (int)s.inner, &one, job->on_a ? m->recv : m->weight,
                         job->on_a ? ldx : ldw, job->on_a ? m->weight : m->recv, job->on_a ? ldw : ldx, &beta, m->c,
                         (int)s.m));
}

static uint64_t checksum(const struct memory *m, const struct rank *r)
{
    uint32_t *host = malloc(m->out * sizeof *host);
    uint64_t sum = 0;
    CHECK(host, "no memory");
    CUDA(cudaMemcpyAsync(host, m->c, m->out * sizeof *host, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (size_t i = 0; i < m->out; i++)
        sum = hash64(sum, host[i]);
    free(host);
    return sum;
}

static void compare(const struct memory *m, const struct rank *r, int round)
{
    uint64_t own = checksum(m, r), sums[64];
    CUDA(cudaMemcpyAsync(m->sum, &own, sizeof own, cudaMemcpyHostToDevice, r->stream));
    NCCL(ncclAllGather(m->sum, m->sums, 1, ncclUint64, r->comm, r->stream));
    CUDA(cudaMemcpyAsync(sums, m->sums, sizeof *sums * (size_t)r->nranks, cudaMemcpyDeviceToHost, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
    for (int i = 0; i < r->nranks; i++)
        CHECK(sums[i] == own, "round %d: ranks %d and %d have other bits", round, r->rank, i);
}

static void body(struct rank *r)
{
    const struct job *job = r->arg;
    cublasHandle_t h;
    rank_open(r);
    struct memory m = allocate(job, r->nranks);
    BLAS(cublasCreate(&h));
    BLAS(cublasSetStream(h, r->stream));
    for (int round = 0; round < ROUNDS; round++) {
        fill(m.send, m.x, (uint64_t)(100 * round + r->rank));
        fill(m.weight, m.w, (uint64_t)(100 * round + 99));
        if (job->sums)
            fill(m.c, m.out, (uint64_t)(100 * round + 98));
        else
            CUDA(cudaMemsetAsync(m.c, 0xff, m.out * sizeof *m.c, r->stream));
        NCCL(ncclAllGather(m.send, m.recv, m.x, ncclFloat, r->comm, r->stream));
        multiply(job, &m, h, r);
        compare(&m, r, round);
    }
    BLAS(cublasDestroy(h));
    release(&m);
    rank_close(r);
}

static char *of_rank_1;

static void begin(int rank)
{
    if (rank == 1 && of_rank_1)
        putenv(of_rank_1);
}

int main(int argc, char **argv)
{
    struct job job;
    int n = argc == 7 || argc == 8 ? atoi(argv[1]) : 0;
    if (n < 1 || n > 64) {
        fprintf(stderr, "usage: same_bits RANKS bn|at|bt|an gemm|lt COLUMNS K OTHER [NAME=VALUE]\n");
        return 2;
    }
    of_rank_1 = argc == 8 ? argv[7] : NULL;
    ranks_begin = begin;
    job = (struct job){.on_a = argv[2][0] == 'a', .lt = !strcmp(argv[3], "lt"), .cols = atol(argv[4])};
    job.sums = !strcmp(argv[2], "an") || !strcmp(argv[2], "bt");
    job.k = atol(argv[5]);
    job.other = atol(argv[6]);
    return ranks_run(n, 60, body, &job);
}
