/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "moved.h"

enum { ROWS = 64, INNER = 4 };

static float *device(int a, int b)
{
    float *p;
    CUDA(cudaMalloc((void **)&p, (size_t)a * (size_t)b * sizeof *p));
    return p;
}

void moved_make(struct moved *v, const struct rank *r, size_t shard, const char *what)
{
    *v = (struct moved){.m = ROWS, .k = INNER};
    v->in_place = what && !strcmp(what, "reduce-in-place");
    v->all = v->in_place || (what && !strcmp(what, "reduce"));
    v->scatter = v->all || (what && !strcmp(what, "scatter"));
    if (!v->scatter) {
        buffers_make(&v->b, r, shard);
        return;
    }
    const int cols = (int)(shard / sizeof(float) / ROWS);
    v->n = cols * r->nranks;
    v->got = v->all ? v->n : cols;
    v->a = device(v->m, v->k);
    v->weight = device(v->k, v->n);
    v->c = device(v->m, v->n);
    v->spare = device(v->m, v->n);
    CUDA(cudaMemset(v->spare, 0x7b, (size_t)v->m * (size_t)v->n * sizeof *v->spare));
    v->recv = v->in_place ? v->c : device(v->m, v->got);
    v->host = malloc((size_t)v->m * (size_t)v->n * sizeof *v->host);
    CHECK(v->host, "no memory");
    BLAS(cublasCreate(&v->blas));
}

UNWATCHED static int value(int rank, unsigned round, int what, int i)
{
    return (int)(hash64(((uint64_t)round * BOARD_RANKS + (uint64_t)rank) * 2 + (uint64_t)what, (uint64_t)i) % 7) - 3;
}

static void load(const struct moved *v, const struct rank *r, unsigned round, int what, int n, float *to)
{
    for (int i = 0; i < n; i++)
        v->host[i] = (float)value(r->rank, round, what, i);
    CUDA(cudaMemcpyAsync(to, v->host, (size_t)n * sizeof *to, cudaMemcpyHostToDevice, r->stream));
    CUDA(cudaStreamSynchronize(r->stream));
}

void moved_fill(struct moved *v, const struct rank *r, unsigned round)
{
    if (!v->scatter) {
        buffers_fill(&v->b, r, round);
        return;
    }
    CUDA(cudaMemsetAsync(v->c, 0x7b, (size_t)v->m * (size_t)v->n * sizeof *v->c, r->stream));
    CUDA(cudaMemsetAsync(v->recv, 0x7b, (size_t)v->m * (size_t)v->got * sizeof *v->c, r->stream));
    load(v, r, round, 0, v->m * v->k, v->a);
    load(v, r, round, 1, v->k * v->n, v->weight);
}

void moved_produce(struct moved *v, cudaStream_t stream)
{
    const float one = 1, zero = 0;
    if (!v->scatter)
        return;
    BLAS(cublasSetStream(v->blas, stream));
    BLAS(cublasSgemm(v->blas, CUBLAS_OP_N, CUBLAS_OP_N, v->m, v->n, v->k, &one, v->a, v->m, v->weight, v->k, &zero,
                     v->c, v->m));
}

ncclResult_t moved_call(struct moved *v, const struct rank *r)
{
    if (!v->scatter)
        return ncclAllGather(v->b.send, v->b.recv, v->b.shard, ncclInt8, r->comm, r->stream);
    const size_t count = (size_t)v->m * (size_t)v->got;
    return (v->all ? ncclAllReduce : ncclReduceScatter)(v->c, v->recv, count, ncclFloat32, ncclSum, r->comm, r->stream);
}

ncclResult_t moved_again(const struct moved *v, const struct rank *r)
{
    const size_t count = (size_t)v->m * (size_t)v->got;
    if (v->all)
        return ncclAllReduce(v->spare, v->spare, count, ncclFloat32, ncclSum, r->comm, r->stream);
    return ncclReduceScatter(v->spare, v->spare + (size_t)r->rank * count, count, ncclFloat32, ncclSum, r->comm,
                             r->stream);
}

/* Element (row, col) of what the rank's GEMM makes. */
UNWATCHED static int produced(const struct moved *v, int rank, unsigned round, int row, int col)
{
    int sum = 0;
    for (int l = 0; l < v->k; l++)
        sum += value(rank, round, 0, l * v->m + row) * value(rank, round, 1, col * v->k + l);
    return sum;
}

static int expected(const struct moved *v, const struct rank *r, unsigned round, int row, int col)
{
    int sum = 0;
    for (int p = 0; p < r->nranks; p++)
        sum += produced(v, p, round, row, (v->all ? 0 : r->rank * v->got) + col);
    return sum;
}

void moved_check(struct moved *v, const struct rank *r, unsigned round)
{
    if (!v->scatter) {
        buffers_check(&v->b, r, round);
        return;
    }
    CUDA(cudaMemcpy(v->host, v->recv, (size_t)v->m * (size_t)v->got * sizeof(float), cudaMemcpyDeviceToHost));
    for (int col = 0; col < v->got; col++)
        for (int row = 0; row < v->m; row++)
            CHECK(v->host[col * v->m + row] == (float)expected(v, r, round, row, col),
                  "rank %d: round %u: element (%d, %d) of the sum is %g, expected %d", r->rank, round, row, col,
                  (double)v->host[col * v->m + row], expected(v, r, round, row, col));
}

void moved_check_produced(struct moved *v, const struct rank *r, unsigned round)
{
    if (!v->scatter || v->in_place)
        return;
    CUDA(cudaMemcpy(v->host, v->c, (size_t)v->m * (size_t)v->n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int col = 0; col < v->n; col++)
        for (int row = 0; row < v->m; row++)
            CHECK(v->host[col * v->m + row] == (float)produced(v, r->rank, round, row, col),
                  "rank %d: round %u: C(%d, %d) is %g, expected %d", r->rank, round, row, col,
                  (double)v->host[col * v->m + row], produced(v, r->rank, round, row, col));
}

void *moved_sent(const struct moved *v)
{
    return v->scatter ? (void *)v->c : (void *)v->b.send;
}
