/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose buffers are allocated and freed in the order of streams, around every call.
 *
 *   ordered RANKS CASE [ROUNDS] [staged MOST]
 *
 * steady: one stream. pool: the memory of a pool of the program's. passed: allocated and freed on one stream, used on
 * another. elsewhere: freed on another stream than it was allocated on. freed: by cudaFree. three: three sizes in turn.
 * in_place. alike: beside the buffers the program has memory of their size that takes part in nothing. scatter:
 * reduce-scatters beside the gathers.
 *
 * After ten calls, with time for the peers to map what they use, the host does not wait any more; with elsewhere only
 * in every other call, and with ahead, which is as elsewhere, not. `staged`: from then on at most MOST shards of this
 * rank's go through staging slots, where slipring is there.
 */
#define SLIPRING_WEAK
#include <string.h>
#include "plugin/slipring.h"
#include "zero.h"

enum { WARM = 10, SIZES = 3, ALIKE = 3 };
#define SHARD ((size_t)64 << 10)

struct plan {
    const char *name;
    int rounds;
    long most; /* -1: not looked at */
};

struct bench {
    struct rank *r;
    const struct plan *p;
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaMemPool_t pool;
    uint8_t *in, *out; /* the host's, of each round */
    float *sums;
    size_t all;
};

static bool is(const struct bench *b, const char *name)
{
    return !strcmp(b->p->name, name);
}

static void *take(const struct bench *b, size_t bytes)
{
    void *p;
    if (b->pool)
        CUDA(cudaMallocFromPoolAsync(&p, bytes, b->pool, b->stream));
    else
        CUDA(cudaMallocAsync(&p, bytes, b->stream));
    return p;
}

/* What is put on `to` from here on comes behind all on `from`. */
static void pass(const struct bench *b, cudaStream_t from, cudaStream_t to)
{
    if (from == to)
        return;
    CUDA(cudaEventRecord(b->event, from));
    CUDA(cudaStreamWaitEvent(to, b->event, 0));
}

static size_t shard_of(const struct bench *b, int round)
{
    static const size_t sizes[SIZES] = {SHARD, SHARD / 2, SHARD / 4};
    return is(b, "three") ? sizes[round % SIZES] : SHARD;
}

static void give(const struct bench *b, void *p, cudaStream_t used_on)
{
    cudaStream_t on = is(b, "elsewhere") || is(b, "ahead") ? b->other : b->stream;
    if (is(b, "freed")) {
        CUDA(cudaStreamSynchronize(used_on));
        CUDA(cudaFree(p));
    } else {
        pass(b, used_on, on);
        CUDA(cudaFreeAsync(p, on));
    }
}

static float summand(int rank, int round, size_t i)
{
    return (float)((i * 3 + (size_t)round + 5 * (size_t)rank) % 7);
}

/* Of floats whose sums are exact. */
static void scatter(const struct bench *b, int round)
{
    const size_t count = SHARD / sizeof(float), n = (size_t)b->r->nranks;
    float *send = take(b, SHARD * n), *recv = take(b, SHARD), *host = b->sums + (size_t)round * count * (n + 1);
    for (size_t i = 0; i < count * n; i++)
        host[i] = summand(b->r->rank, round, i);
    CUDA(cudaMemcpyAsync(send, host, SHARD * n, cudaMemcpyHostToDevice, b->stream));
    NCCL(ncclReduceScatter(send, recv, count, ncclFloat, ncclSum, b->r->comm, b->stream));
    CUDA(cudaMemcpyAsync(host + count * n, recv, SHARD, cudaMemcpyDeviceToHost, b->stream));
    give(b, send, b->stream);
    give(b, recv, b->stream);
}

static void one_round(const struct bench *b, int round)
{
    const size_t shard = shard_of(b, round), n = (size_t)b->r->nranks, own = shard * (size_t)b->r->rank;
    cudaStream_t use = is(b, "passed") ? b->other : b->stream;
    uint8_t *alike[ALIKE] = {NULL}, *in = b->in + (size_t)round * SHARD;
    for (int i = 0; i < ALIKE && is(b, "alike"); i++)
        alike[i] = take(b, shard * n);
    uint8_t *recv = take(b, shard * n), *send = is(b, "in_place") ? recv + own : take(b, shard);
    pass(b, b->stream, use);
    CUDA(cudaMemsetAsync(recv, 0xa5, shard * n, use));
    CUDA(cudaMemcpyAsync(send, in, shard, cudaMemcpyHostToDevice, use));
    NCCL(ncclAllGather(send, recv, shard, ncclUint8, b->r->comm, use));
    CUDA(cudaMemcpyAsync(b->out + (size_t)round * b->all, recv, shard * n, cudaMemcpyDeviceToHost, use));
    if (send != recv + own)
        give(b, send, use);
    give(b, recv, use);
    for (int i = 0; i < ALIKE && alike[i]; i++) {
        CUDA(cudaMemsetAsync(alike[i], round, shard * n, use));
        give(b, alike[i], use);
    }
    if (is(b, "scatter"))
        scatter(b, round);
}

static void check_round(const struct bench *b, int round)
{
    struct gather g = {.rank = b->r->rank, .nranks = b->r->nranks, .shard = shard_of(b, round)};
    bytes_check(&g, b->out + (size_t)round * b->all, (uint64_t)round + 1, b->p->name);
}

static void check_sums(const struct bench *b, int round)
{
    const size_t count = SHARD / sizeof(float), n = (size_t)b->r->nranks, first = count * (size_t)b->r->rank;
    const float *got = b->sums + (size_t)round * count * (n + 1) + count * n;
    for (size_t i = 0; i < count; i++) {
        float want = 0;
        for (int p = 0; p < b->r->nranks; p++)
            want += summand(p, round, first + i);
        if (got[i] != want) {
            wrong("rank %d, round %d: sum %zu is %g instead of %g", b->r->rank, round, i, (double)got[i], (double)want);
            return;
        }
    }
}

static void open_bench(struct bench *b)
{
    const size_t rounds = (size_t)b->p->rounds, n = (size_t)b->r->nranks;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    CUDA(cudaGetDevice(&props.location.id));
    b->all = SHARD * n;
    b->stream = b->r->stream;
    CUDA(cudaStreamCreateWithFlags(&b->other, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&b->event, cudaEventDisableTiming));
    CUDA(cudaMallocHost((void **)&b->in, rounds * SHARD));
    CUDA(cudaMallocHost((void **)&b->out, rounds * b->all));
    CUDA(cudaMallocHost((void **)&b->sums, rounds * SHARD * (n + 1)));
    if (is(b, "pool"))
        CUDA(cudaMemPoolCreate(&b->pool, &props));
    for (int i = 0; i < b->p->rounds; i++)
        shard_fill(b->in + (size_t)i * SHARD, shard_of(b, i), (uint64_t)i + 1, b->r->rank, false);
}

static uint64_t staged(void)
{
    struct slipring_counters c = {.size = sizeof c};
    return slipring_loaded() && slipring_counters_read(&c) == 0 ? c.staged : 0;
}

/* Behind a call. `mapped`: gives the peers time to map what it used. */
static void rest(const struct bench *b, int round, bool mapped)
{
    if (round % 2 == 0 && is(b, "elsewhere"))
        return;
    CUDA(cudaDeviceSynchronize());
    if (mapped) {
        sleep_ms(60);
        zero_barrier(b->r);
    }
}

static void body(struct rank *r)
{
    struct bench b = {.r = r, .p = r->arg};
    uint64_t before = 0;
    rank_open(r);
    open_bench(&b);
    const int warm = WARM * (is(&b, "three") ? SIZES : 1);
    for (int i = 0; i < b.p->rounds; i++) {
        one_round(&b, i);
        if (i < warm || is(&b, "elsewhere"))
            rest(&b, i, i < warm);
        if (i < warm)
            before = staged();
    }
    CUDA(cudaDeviceSynchronize());
    const long late = (long)(staged() - before);
    EXPECT(b.p->most < 0 || late <= b.p->most, "rank %d: %ld shards were staged", r->rank, late);
    for (int i = 0; i < b.p->rounds; i++)
        check_round(&b, i);
    for (int i = 0; i < b.p->rounds && is(&b, "scatter"); i++)
        check_sums(&b, i);
    if (b.pool)
        CUDA(cudaMemPoolDestroy(b.pool));
    CUDA(cudaStreamDestroy(b.other));
    CUDA(cudaEventDestroy(b.event));
    rank_close(r);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    struct plan plan = {.name = argv[2], .rounds = argc > 3 ? atoi(argv[3]) : 60, .most = -1};
    if (argc > 5 && !strcmp(argv[4], "staged"))
        plan.most = atol(argv[5]);
    return zero_run(atoi(argv[1]), 90, argv, body, &plan);
}
