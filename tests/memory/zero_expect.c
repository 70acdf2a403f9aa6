/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that come to a call in turn, so that some copy from where they expect a peer's shard.
 *
 *   expect RANKS CASE [ROUNDS]
 *
 * steady: the same buffers every time. moving: each rank sends from one of three buffers, mostly the same one, which
 * its peers can not know; the others are written to meanwhile, behind the call and before it. behind: moving, and
 * `send` is overwritten behind the call. freed: moving, and the other buffers are freed and made anew. gemm: moving, and
 * a GEMM reads what was gathered. group: moving, and a second gather follows in the same group, of what moves as well.
 * walking: each call takes places of two large buffers that none has taken before, as far from the last one's on all
 * ranks. in_place: walking, in place. astray: walking, but each rank sends from elsewhere now and then.
 */
#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>
#include "zero.h"

#define SHARD ((size_t)96 << 10)
#define BUFFERS 3
#define STEP ((size_t)4352) /* of those that walk */
#define APART ((size_t)512) /* their ranks */

/* The GEMM: C (M x columns) = A (M x K) times what was gathered (K x columns), fp32 of small integers, so exact. */
enum { M = 8, K = 32, COLUMNS = SHARD / (K * sizeof(float)) }; /* of one shard */

struct product {
    cublasHandle_t blas;
    float *a, *c;      /* the device's */
    float *host, *got; /* a shard or A; C */
};

struct bench {
    struct rank *r;
    struct gather g;
    uint8_t *buffer[BUFFERS];
    uint64_t draw;
    bool moving, behind, freed;
    bool walking, in_place, astray;
    uint8_t *from, *to;      /* where those that walk begin */
    struct gather *second;   /* behind the first in a group, sent from the same buffer; NULL: no group */
    struct product *product; /* NULL: bytes are gathered */
};

static float element(int round, int rank, size_t i)
{
    return (float)((i * 7 + (size_t)rank * 3 + (size_t)round) % 5);
}

static float factor(int row, int k)
{
    return (float)((row + 2 * k) % 3 - 1);
}

static void product_open(struct product *x, int nranks)
{
    CUDA(cudaMalloc((void **)&x->a, sizeof(float) * M * K));
    CUDA(cudaMalloc((void **)&x->c, sizeof(float) * M * COLUMNS * (size_t)nranks));
    x->host = malloc(SHARD);
    x->got = malloc(sizeof(float) * M * COLUMNS * (size_t)nranks);
    for (int i = 0; i < M * K; i++)
        x->host[i] = factor(i % M, i / M);
    to_device(x->a, x->host, sizeof(float) * M * K);
    EXPECT(cublasCreate(&x->blas) == CUBLAS_STATUS_SUCCESS, "no cuBLAS");
}

static void product_close(struct product *x)
{
    cublasDestroy(x->blas);
    CUDA(cudaFree(x->a));
    CUDA(cudaFree(x->c));
    free(x->host);
    free(x->got);
}

static void product_load(struct bench *b, int round)
{
    for (size_t i = 0; i < SHARD / sizeof(float); i++)
        b->product->host[i] = element(round, b->r->rank, i);
    CUDA(cudaMemcpyAsync(b->g.send, b->product->host, SHARD, cudaMemcpyHostToDevice, b->r->stream));
}

static void multiply(const struct bench *b)
{
    struct product *x = b->product;
    const float one = 1, zero = 0;
    EXPECT(cublasSetStream(x->blas, b->r->stream) == CUBLAS_STATUS_SUCCESS, "no stream");
    EXPECT(cublasSgemm(x->blas, CUBLAS_OP_N, CUBLAS_OP_N, M, COLUMNS * b->r->nranks, K, &one, x->a, M,
                       (float *)b->g.recv, K, &zero, x->c, M) == CUBLAS_STATUS_SUCCESS,
           "the GEMM failed");
}

static void product_check(const struct bench *b, int round)
{
    struct product *x = b->product;
    size_t columns = (size_t)COLUMNS * (size_t)b->r->nranks;
    CUDA(cudaMemcpy(x->got, x->c, sizeof(float) * M * columns, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < M * columns; i++) {
        size_t column = i / M;
        float sum = 0;
        for (int k = 0; k < K; k++)
            sum += factor((int)(i % M), k) * element(round, (int)(column / COLUMNS), column % COLUMNS * K + (size_t)k);
        if (x->got[i] != sum) {
            EXPECT(false, "rank %d, round %d: C[%zu] is %g instead of %g", b->r->rank, round, i, (double)x->got[i],
                   (double)sum);
            return;
        }
    }
}

/* Each rank in turn comes first, with time enough for the others to come behind it. */
static void take_turn(const struct bench *b, int round)
{
    zero_barrier(b->r);
    sleep_ms((unsigned)(4 * ((b->r->rank + round) % b->r->nranks)));
}

static void walk(struct bench *b, int round)
{
    const size_t at = STEP * (size_t)round;
    b->draw = b->draw * 6364136223846793005u + 1442695040888963407u;
    const size_t aside = b->astray && (b->draw >> 33) % 8 == 0 ? at : 0;
    b->g.recv = b->to + at;
    b->g.send =
        b->in_place ? b->g.recv + SHARD * (size_t)b->r->rank : b->from + at + aside + APART * (size_t)b->r->rank;
}

/* Of each rank's own; a buffer stays for some rounds, so that peers come to trust it. */
static void choose(struct bench *b)
{
    b->draw = b->draw * 6364136223846793005u + 1442695040888963407u;
    if (b->moving && (b->draw >> 33) % 4 == 0)
        b->g.send = b->buffer[(b->draw >> 40) % BUFFERS];
}

static void disturb(struct bench *b, int round)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (b->buffer[i] == b->g.send)
            continue;
        if (b->freed && round % 5 == 0) {
            CUDA(cudaFree(b->buffer[i]));
            CUDA(cudaMalloc((void **)&b->buffer[i], SHARD));
        }
        CUDA(cudaMemsetAsync(b->buffer[i], 0x5a + round, SHARD, b->r->stream));
    }
}

static void one_round(struct bench *b, int round)
{
    choose(b);
    if (b->walking)
        walk(b, round);
    if (b->product)
        product_load(b, round);
    else
        gather_load(&b->g, (uint64_t)round + 1, b->r->stream);
    CUDA(cudaStreamSynchronize(b->r->stream));
    take_turn(b, round);
    if (b->moving)
        disturb(b, round);
    if (b->second)
        NCCL(ncclGroupStart());
    gather_call(&b->g, b->r->comm, b->r->stream);
    if (b->second) {
        struct gather second = *b->second;
        second.send = b->g.send;
        gather_call(&second, b->r->comm, b->r->stream);
        NCCL(ncclGroupEnd());
    }
    if (b->product)
        multiply(b);
    if (b->behind)
        CUDA(cudaMemsetAsync(b->g.send, 0xee, SHARD, b->r->stream));
    if (b->moving)
        disturb(b, round + 1);
    CUDA(cudaStreamSynchronize(b->r->stream));
    if (b->product) {
        product_check(b, round);
        return;
    }
    CUDA(cudaMemcpy(b->g.host, b->g.recv, SHARD * (size_t)b->r->nranks, cudaMemcpyDeviceToHost));
    bytes_check(&b->g, b->g.host, (uint64_t)round + 1, "expected");
    if (b->second) {
        CUDA(cudaMemcpy(b->g.host, b->second->recv, SHARD * (size_t)b->r->nranks, cudaMemcpyDeviceToHost));
        bytes_check(&b->g, b->g.host, (uint64_t)round + 1, "second");
    }
}

/* All gathers from places of these two buffers, which the peers map in the first ones. */
static void walk_all(struct bench *b, int rounds)
{
    const struct gather still = b->g;
    const size_t way = STEP * (size_t)rounds;
    CUDA(cudaMalloc((void **)&b->from, SHARD + 2 * way + APART * (size_t)b->r->nranks));
    CUDA(cudaMalloc((void **)&b->to, SHARD * (size_t)b->r->nranks + way));
    for (int i = 0; i < rounds; i++) {
        one_round(b, i);
        if (i < 10)
            sleep_ms(60);
    }
    CUDA(cudaFree(b->from));
    CUDA(cudaFree(b->to));
    b->g = still;
}

struct plan {
    const char *name;
    int rounds;
};

static void body(struct rank *r)
{
    const struct plan *p = r->arg;
    struct bench b = {.r = r, .draw = (uint64_t)r->rank * 977 + 5};
    b.behind = !strcmp(p->name, "behind");
    b.freed = !strcmp(p->name, "freed");
    struct product product;
    struct gather second;
    b.in_place = !strcmp(p->name, "in_place");
    b.astray = !strcmp(p->name, "astray");
    b.walking = b.in_place || b.astray || !strcmp(p->name, "walking");
    bool gemm = !strcmp(p->name, "gemm"), group = !strcmp(p->name, "group");
    b.moving = b.behind || b.freed || gemm || group || !strcmp(p->name, "moving");
    rank_open(r);
    if (gemm) {
        product_open(&product, r->nranks);
        b.product = &product;
    }
    gather_alloc(&b.g, r->rank, r->nranks, SHARD);
    if (group) {
        gather_alloc(&second, r->rank, r->nranks, SHARD);
        zero_warm_up(r, &second);
        b.second = &second;
    }
    b.buffer[0] = b.g.send;
    for (int i = 1; i < BUFFERS; i++)
        CUDA(cudaMalloc((void **)&b.buffer[i], SHARD));
    for (int i = 0; i < BUFFERS; i++) { /* until peers have mapped them all */
        b.g.send = b.buffer[i];
        zero_warm_up(r, &b.g);
    }
    if (b.walking)
        walk_all(&b, p->rounds);
    for (int i = 0; i < p->rounds && !b.walking; i++)
        one_round(&b, i);
    rank_close(r);
    if (gemm)
        product_close(&product);
    if (group)
        gather_free(&second);
    for (int i = 0; i < BUFFERS; i++)
        if (b.buffer[i] != b.g.send)
            CUDA(cudaFree(b.buffer[i]));
    gather_free(&b.g);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    struct plan plan = {.name = argv[2], .rounds = argc > 3 ? atoi(argv[3]) : 60};
    return zero_run(atoi(argv[1]), 90, argv, body, &plan);
}
