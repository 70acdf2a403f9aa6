/* SPDX-License-Identifier: Apache-2.0 */
/* Regions on the software GPU: what goes to NCCL, what stays whole, what the counters say, and that the data is right.
 * Linked to libslipring, so that it needs no preload.
 *
 *   region gathers|gemms RANKS
 */
#include "slipring.h"

#include <string.h>
#include "../order/forms.h"

#define COLS 24
#define K 64
#define M 16
#define SHARD ((size_t)COLS * K * sizeof(float))

struct setup {
    struct rank *r;
    struct gather g;
    ncclComm_t comm;
    cudaStream_t stream;
    cublasHandle_t blas;
    float *weight, *result; /* device */
};

static struct slipring_counters counters(void)
{
    struct slipring_counters c = {.size = sizeof c};
    CHECK(slipring_counters_read(&c) == 0, "the counters can not be read");
    return c;
}

static void round_of(struct setup *s, uint64_t seed, const char *what)
{
    gather_load(&s->g, seed, s->stream);
    gather_call(&s->g, s->comm, s->stream);
    gather_check(&s->g, seed, s->stream, what);
}

/* Runs one round, and expects it to be moved by the ring or by NCCL. */
static void round_goes(struct setup *s, uint64_t seed, bool ring, const char *what)
{
    struct slipring_counters before = counters();
    round_of(s, seed, what);
    struct slipring_counters after = counters();
    EXPECT(after.calls == before.calls + 1, "%s: %llu calls", what, (unsigned long long)(after.calls - before.calls));
    EXPECT(after.substituted == before.substituted + ring, "%s: substituted %d", what, ring);
    EXPECT(after.passed == before.passed + !ring, "%s: passed %d", what, !ring);
    EXPECT(after.bytes == before.bytes + SHARD * (size_t)s->r->nranks, "%s: bytes", what);
}

static void begin(unsigned flags)
{
    CHECK(slipring_region_begin(flags) == 0, "a region does not begin");
}

static void end(void)
{
    CHECK(slipring_region_end() == 0, "a region does not end");
}

/* Where ncclAllGather is called counts, and some ranks group their calls and some do not: between the two calls of
 * those, watchdogs have the time to look. */
static void grouped(struct setup *s, uint64_t seed, unsigned between_ms)
{
    bool group = s->r->rank % 2 == 0;
    struct gather other;
    gather_alloc(&other, s->r->rank, s->r->nranks, SHARD);
    gather_load(&s->g, seed, s->stream);
    gather_load(&other, seed + 1, s->stream);
    if (group)
        NCCL(ncclGroupStart());
    gather_call(&s->g, s->comm, s->stream);
    if (!group)
        sleep_ms(between_ms);
    begin(SLIPRING_REGION_GATHERS);
    gather_call(&other, s->comm, s->stream);
    end();
    if (group)
        NCCL(ncclGroupEnd());
    gather_check(&s->g, seed, s->stream, "grouped, outside of the region");
    gather_check(&other, seed + 1, s->stream, "grouped, in the region");
    gather_free(&other);
}

static void gathers(struct setup *s)
{
    round_goes(s, 0, true, "before");
    begin(SLIPRING_REGION_GATHERS);
    round_goes(s, 1, false, "in a region");
    begin(0);
    round_goes(s, 2, false, "in an inner region");
    end();
    end();
    begin(SLIPRING_REGION_GEMMS);
    round_goes(s, 3, true, "in a region for GEMMs");
    begin(SLIPRING_REGION_GATHERS | SLIPRING_REGION_GEMMS);
    round_goes(s, 4, false, "in an inner region for all");
    end();
    round_goes(s, 5, true, "after the inner region");
    end();
    round_goes(s, 6, true, "after");
    for (uint64_t i = 0; i < 10; i++)
        grouped(s, 10 + 2 * i, i == 5 ? 200 : 0);
}

/* C (M x columns) = W (M x K) X (K x columns), X as gathered; W is W(i, p) = i - p % 3. */
static void check_product(struct setup *s, uint64_t seed, const char *what)
{
    int columns = COLS * s->r->nranks, bad = 0;
    float *x = malloc(SHARD), *c = malloc((size_t)(M * columns) * sizeof *c);
    CUDA(cudaMemcpyAsync(c, s->result, (size_t)(M * columns) * sizeof *c, cudaMemcpyDeviceToHost, s->stream));
    CUDA(cudaStreamSynchronize(s->stream));
    for (int col = 0; col < columns; col++) {
        if (col % COLS == 0)
            shard_fill((uint8_t *)x, SHARD, seed, col / COLS, true);
        for (int i = 0; i < M; i++) {
            float sum = 0;
            for (int p = 0; p < K; p++)
                sum += (float)(i - p % 3) * x[col % COLS * K + p];
            bad += sum != c[col * M + i];
        }
    }
    EXPECT(bad == 0, "%s: rank %d: %d elements of the product are wrong", what, s->r->rank, bad);
    free(x);
    free(c);
}

static void product(struct setup *s, uint64_t seed, bool fused, const char *what)
{
    const float one = 1, zero = 0;
    struct slipring_counters before = counters();
    gather_load(&s->g, seed, s->stream);
    gather_call(&s->g, s->comm, s->stream);
    BLAS(cublasSgemm(s->blas, CUBLAS_OP_N, CUBLAS_OP_N, M, COLS * s->r->nranks, K, &one, s->weight, M,
                     (const float *)(const void *)s->g.recv, K, &zero, s->result, M));
    check_product(s, seed, what);
    struct slipring_counters after = counters();
    EXPECT(after.fused == before.fused + fused, "%s: fused %d", what, fused);
    EXPECT(after.joined == before.joined + !fused, "%s: joined %d", what, !fused);
}

static void gemms(struct setup *s)
{
    float weight[M * K];
    for (int p = 0; p < K; p++)
        for (int i = 0; i < M; i++)
            weight[p * M + i] = (float)(i - p % 3);
    to_device(s->weight, weight, sizeof weight);
    s->g.floats = true;
    product(s, 0, true, "before");
    if (s->r->rank == 0) /* the others go on with theirs in parts */
        begin(SLIPRING_REGION_GEMMS);
    product(s, 1, s->r->rank != 0, "some ranks in a region");
    if (s->r->rank == 0)
        end();
    product(s, 2, true, "after");
}

static void body(struct rank *r)
{
    struct setup s = {.r = r};
    NCCL(ncclCommInitRank(&s.comm, r->nranks, r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
    gather_alloc(&s.g, r->rank, r->nranks, SHARD);
    CUDA(cudaMalloc((void **)&s.weight, M * K * sizeof(float)));
    CUDA(cudaMalloc((void **)&s.result, (size_t)M * COLS * (size_t)r->nranks * sizeof(float)));
    BLAS(cublasCreate(&s.blas));
    BLAS(cublasSetStream(s.blas, s.stream));
    (strcmp(r->arg, "gemms") == 0 ? gemms : gathers)(&s);
    BLAS(cublasDestroy(s.blas));
    CUDA(cudaFree(s.weight));
    CUDA(cudaFree(s.result));
    gather_free(&s.g);
    CUDA(cudaStreamDestroy(s.stream));
    NCCL(ncclCommDestroy(s.comm));
}

int main(int argc, char **argv)
{
    return argc == 3 ? forms_run(atoi(argv[2]), 60, body, argv[1]) : 2;
}
