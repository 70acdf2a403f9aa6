/* SPDX-License-Identifier: Apache-2.0 */
/* Group calls: everything between ncclGroupStart and ncclGroupEnd is exact, and ends, however the ranks group.
 *
 *   groups CASE [RANKS [SHARD_BYTES]]
 */
#include "forms.h"

#include <dlfcn.h>
#include <string.h>

#define LATE_MS 40
#define N 3 /* gathers, streams and communicators of each rank */

static size_t shard = 100000; /* bytes */

struct world {
    const struct rank *r;
    ncclComm_t comm[N];
    cudaStream_t stream[N];
    struct gather g[N];
    uint64_t seed;
};

static void start(void)
{
    NCCL(ncclGroupStart());
}

static void end(void)
{
    NCCL(ncclGroupEnd());
}

static void load(struct world *w)
{
    w->seed += N;
    for (int i = 0; i < N; i++)
        gather_load(&w->g[i], w->seed + (uint64_t)i, w->stream[i]);
    CUDA(cudaDeviceSynchronize());
}

/* Gather i on stream i ... */
static void check(struct world *w, int i, cudaStream_t stream, const char *what)
{
    gather_check(&w->g[i], w->seed + (uint64_t)i, stream, what);
}

static void check_all(struct world *w, const char *what)
{
    for (int i = 0; i < N; i++)
        check(w, i, w->stream[i], what);
}

static void expect_untouched(struct world *w, int i, const char *what)
{
    struct gather *g = &w->g[i];
    size_t all = g->shard * (size_t)g->nranks;
    CUDA(cudaMemcpy(g->host, g->recv, all, cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < all; k++)
        if (g->host[k] != 0xa5) {
            wrong("rank %d: %s: byte %zu was gathered", g->rank, what, k);
            return;
        }
}

/* ---- several gathers ---- */

static void one_stream(struct world *w)
{
    start();
    for (int i = 0; i < N; i++)
        gather_call(&w->g[i], w->comm[0], w->stream[0]);
    end();
    for (int i = 0; i < N; i++)
        check(w, i, w->stream[0], "one stream");
}

/* What is sent is there only when the stream comes to it. */
static void made_late(struct world *w)
{
    uint8_t *made;
    CUDA(cudaMalloc((void **)&made, N * shard));
    for (int i = 0; i < N; i++) {
        CUDA(cudaMemcpy(made + (size_t)i * shard, w->g[i].send, shard, cudaMemcpyDeviceToDevice));
        CUDA(cudaMemset(w->g[i].send, 0xee, shard));
    }
    CUDA(cudaDeviceSynchronize());
    hold(w->stream[0], LATE_MS);
    for (int i = 0; i < N; i++)
        CUDA(cudaMemcpyAsync(w->g[i].send, made + (size_t)i * shard, shard, cudaMemcpyDeviceToDevice, w->stream[0]));
    one_stream(w);
    CUDA(cudaFree(made));
}

/* The streams of a group wait for each other: before it, and after it. */
static void several_streams(struct world *w)
{
    if (w->seed / N % 2 == (unsigned)w->r->rank % 2)
        hold(w->stream[0], LATE_MS);
    w->seed += 50;
    for (int i = 0; i < N; i++) { /* what every gather sends is made on the first stream */
        shard_fill(w->g[i].host, shard, w->seed + (uint64_t)i, w->r->rank, false);
        CUDA(cudaMemcpyAsync(w->g[i].send, w->g[i].host, shard, cudaMemcpyHostToDevice, w->stream[0]));
    }
    start();
    for (int i = 0; i < N; i++)
        gather_call(&w->g[i], w->comm[0], w->stream[i]);
    end();
    for (int i = N - 1; i >= 0; i--) /* the last gather first, on the stream of the first */
        check(w, i, w->stream[(i + 1) % N], "several streams");
}

/* The same without the first stream holding anything: each gather's own stream. */
static void own_streams(struct world *w)
{
    if (w->r->rank == (int)(w->seed / N) % w->r->nranks)
        hold(w->stream[1], LATE_MS);
    start();
    for (int i = 0; i < N; i++)
        gather_call(&w->g[i], w->comm[0], w->stream[i]);
    end();
    for (int i = 0; i < N; i++)
        CUDA(cudaMemsetAsync(w->g[i].send, 0xee, shard, w->stream[(i + 1) % N]));
    check_all(w, "a stream for each");
}

static void several_comms(struct world *w)
{
    start();
    for (int i = 0; i < N; i++)
        gather_call(&w->g[i], w->comm[i], w->stream[i]);
    end();
    check_all(w, "several communicators");
    load(w);
    start();
    for (int i = 0; i < N; i++)
        gather_call(&w->g[i], w->comm[i], w->stream[0]);
    end();
    for (int i = 0; i < N; i++)
        check(w, i, w->stream[0], "several communicators on one stream");
}

/* ---- with other operations ---- */

struct others {
    int32_t *sum;
    uint8_t *all, *from;
};

static void open_others(struct others *o, const struct world *w)
{
    CUDA(cudaMalloc((void **)&o->sum, 4));
    CUDA(cudaMalloc((void **)&o->all, shard));
    CUDA(cudaMalloc((void **)&o->from, shard));
    to_device(o->sum, &(int32_t){w->r->rank + 1}, 4);
}

static void close_others(struct others *o)
{
    CUDA(cudaFree(o->sum));
    CUDA(cudaFree(o->all));
    CUDA(cudaFree(o->from));
}

static void expect_shard(const struct world *w, const uint8_t *device, uint64_t seed, int rank, const char *what)
{
    uint8_t *have = malloc(shard), *want = malloc(shard);
    CUDA(cudaMemcpy(have, device, shard, cudaMemcpyDeviceToHost));
    shard_fill(want, shard, seed, rank, false);
    EXPECT(!memcmp(have, want, shard), "rank %d: %s", w->r->rank, what);
    free(have);
    free(want);
}

static void mixed(struct world *w)
{
    int n = w->r->nranks, next = (w->r->rank + 1) % n, before = (w->r->rank + n - 1) % n, sum;
    cudaStream_t s = w->stream[0];
    struct others o;
    open_others(&o, w);
    start();
    gather_call(&w->g[0], w->comm[0], s);
    NCCL(ncclAllReduce(o.sum, o.sum, 1, ncclInt32, ncclSum, w->comm[0], s));
    gather_call(&w->g[1], w->comm[1], s);
    NCCL(ncclBroadcast(w->g[2].send, o.all, shard, ncclUint8, 1, w->comm[0], s));
    NCCL(ncclSend(w->g[2].send, shard, ncclUint8, next, w->comm[1], s));
    NCCL(ncclRecv(o.from, shard, ncclUint8, before, w->comm[1], s));
    gather_call(&w->g[2], w->comm[0], s);
    end();
    for (int i = 0; i < N; i++)
        check(w, i, s, "mixed");
    CUDA(cudaMemcpy(&sum, o.sum, 4, cudaMemcpyDeviceToHost));
    EXPECT(sum == n * (n + 1) / 2, "rank %d: the sum is %d", w->r->rank, sum);
    expect_shard(w, o.all, w->seed + 2, 1, "broadcast");
    expect_shard(w, o.from, w->seed + 2, before, "receive");
    close_others(&o);
}

#define MANY (4 << 20) /* a reduction that takes longer than the gather */

struct reduction {
    int32_t *device, *host; /* host: what is sent, then the last element of the result */
    size_t count;
};

static void check_sum(const struct world *w, const struct reduction *x)
{
    int n = w->r->nranks;
    CUDA(cudaMemcpyAsync(x->host, x->device + x->count - 1, 4, cudaMemcpyDeviceToHost, w->stream[1]));
    CUDA(cudaStreamSynchronize(w->stream[1]));
    EXPECT(*x->host == n * (n - 1) / 2 + 10 * n, "rank %d: the sum on the gather's stream is %d", w->r->rank, *x->host);
}

/* NCCL's own operation on another stream: both start after both streams, and what they brought is seen on both. */
static void reduce_beside(struct world *w, size_t count, bool sum_first)
{
    int n = w->r->nranks, late = (int)(w->seed / N) % n;
    struct reduction x = {.count = count};
    CUDA(cudaMalloc((void **)&x.device, count * sizeof *x.device));
    CUDA(cudaMallocHost((void **)&x.host, count * sizeof *x.host));
    for (size_t i = 0; i < count; i++)
        x.host[i] = w->r->rank + 10;
    if (w->r->rank == late)
        hold(w->stream[1], LATE_MS);
    CUDA(cudaMemcpyAsync(x.device, x.host, count * sizeof *x.device, cudaMemcpyHostToDevice,
                         w->stream[1])); /* for the reduction */
    w->seed += 50;
    shard_fill(w->g[0].host, shard, w->seed, w->r->rank, false);
    CUDA(cudaMemcpyAsync(w->g[0].send, w->g[0].host, shard, cudaMemcpyHostToDevice, w->stream[2])); /* for the gather */
    start();
    gather_call(&w->g[0], w->comm[0], w->stream[1]);
    NCCL(ncclAllReduce(x.device, x.device, count, ncclInt32, ncclSum, w->comm[0], w->stream[2]));
    end();
    if (sum_first)
        check_sum(w, &x);
    check(w, 0, w->stream[2], "a gather on the reduction's stream");
    check_sum(w, &x);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(x.device));
    CUDA(cudaFreeHost(x.host));
}

static void other_stream(struct world *w)
{
    reduce_beside(w, 1, false);
}

static void other_stream_slow(struct world *w)
{
    reduce_beside(w, MANY, true);
}

/* Some ranks group, some do not; some send to each other in the group. */
static void uneven(struct world *w)
{
    bool grouped = w->r->rank != 1;
    struct others o;
    open_others(&o, w);
    if (grouped)
        start();
    for (int i = 0; i < N; i++)
        gather_call(&w->g[i], w->comm[i], w->stream[0]);
    if (w->r->rank == 0)
        NCCL(ncclSend(w->g[0].send, shard, ncclUint8, 2, w->comm[0], w->stream[0]));
    if (w->r->rank == 2)
        NCCL(ncclRecv(o.from, shard, ncclUint8, 0, w->comm[0], w->stream[0]));
    if (grouped)
        end();
    for (int i = 0; i < N; i++)
        check(w, i, w->stream[0], "uneven");
    if (w->r->rank == 2)
        expect_shard(w, o.from, w->seed, 0, "receive beside the gathers");
    close_others(&o);
}

/* ---- nesting, nothing, and errors ---- */

static void nested(struct world *w)
{
    start();
    start();
    gather_call(&w->g[0], w->comm[0], w->stream[0]);
    end();
    CUDA(cudaDeviceSynchronize());
    expect_untouched(w, 0, "before the outermost end");
    start();
    start();
    gather_call(&w->g[1], w->comm[0], w->stream[1]);
    end();
    end();
    gather_call(&w->g[2], w->comm[1], w->stream[2]);
    end();
    check_all(w, "nested");
}

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 0)
typedef struct {
    size_t size;
    unsigned magic, version;
    char rest[96];
} ncclCollConfig_t;
#define NCCL_COLLCONFIG_INITIALIZER                                                                                    \
    {                                                                                                                  \
        .size = sizeof(ncclCollConfig_t), .magic = 0xcafebeef, .version = NCCL_VERSION_CODE                            \
    }
ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
#endif

/* The configuration is gone when the call has returned. */
static void configured_call(struct world *w, int i, int stream)
{
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    const struct gather *g = &w->g[i];
    NCCL(ncclAllGatherConfig(g->send, g->recv, shard, ncclUint8, w->comm[0], w->stream[stream], &config));
    memset(&config, 0xff, sizeof config);
}

/* Gathers with a configuration of the call: alone, as all of a group, and in one with a plain gather; without one; and
 * an all-reduce. */
static void configured(struct world *w)
{
    const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    uint8_t *first = w->g[1].send, sum[2];
    configured_call(w, 0, 0);
    check(w, 0, w->stream[0], "configured");
    start();
    configured_call(w, 1, 1);
    end();
    check(w, 1, w->stream[1], "configured, in a group of one");
    NCCL(ncclAllGatherConfig(w->g[2].send, w->g[2].recv, shard, ncclUint8, w->comm[0], w->stream[2], NULL));
    check(w, 2, w->stream[2], "without a configuration");
    load(w);
    start();
    gather_call(&w->g[0], w->comm[0], w->stream[0]);
    configured_call(w, 2, 1);
    end();
    check(w, 0, w->stream[1], "beside a configured one");
    check(w, 2, w->stream[0], "configured, beside another");
    CUDA(cudaMemset(first, 3, shard));
    CUDA(cudaDeviceSynchronize());
    NCCL(ncclAllReduceConfig(first, first, shard, ncclUint8, ncclSum, w->comm[0], w->stream[0], &config));
    CUDA(cudaMemcpyAsync(sum, first, sizeof sum, cudaMemcpyDeviceToHost, w->stream[0]));
    CUDA(cudaStreamSynchronize(w->stream[0]));
    EXPECT(sum[0] == 3 * w->r->nranks && sum[1] == sum[0], "rank %d: the sum is %d", w->r->rank, sum[0]);
}

/* A function of NCCL's that is not known comes behind a gather that is pending, on its stream: it sends what that has
 * gathered. One that is known and left alone is asked for as well. */
static void unknown(struct world *w)
{
    void *const nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    __typeof__(&ncclAllGather) gather = (__typeof__(&ncclAllGather))dlsym(nccl, "ncclToComeAllGather");
    const size_t all = shard * (size_t)w->r->nranks;
    uint8_t *twice;
    EXPECT(gather && dlsym(nccl, "ncclCommCount"), "rank %d: %s", w->r->rank, dlerror());
    CUDA(cudaMalloc((void **)&twice, all * (size_t)w->r->nranks));
    gather_call(&w->g[0], w->comm[0], w->stream[0]);
    NCCL(gather(w->g[0].recv, twice, all, ncclUint8, w->comm[0], w->stream[0]));
    CUDA(cudaStreamSynchronize(w->stream[0]));
    for (int i = 0; i < w->r->nranks * w->r->nranks; i++)
        expect_shard(w, twice + (size_t)i * shard, w->seed, i % w->r->nranks, "gathered twice");
    CUDA(cudaFree(twice));
    dlclose(nccl);
}

static void simulated(struct world *w)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    start();
    gather_call(&w->g[0], w->comm[0], w->stream[0]);
    NCCL(ncclGroupSimulateEnd(&info));
    CUDA(cudaDeviceSynchronize());
    sleep_ms(20);
    expect_untouched(w, 0, "a simulated group");
    several_comms(w);
}

static void empty(struct world *w)
{
    for (int i = 0; i < 3; i++) {
        start();
        start();
        end();
        end();
    }
    EXPECT(ncclGroupEnd() != ncclSuccess, "rank %d: an end without a start is accepted", w->r->rank);
    start();
    NCCL(ncclAllGather(w->g[0].send, w->g[0].recv, 0, ncclUint8, w->comm[0], w->stream[0]));
    end();
    one_stream(w);
}

static void error_inside(struct world *w)
{
    start();
    gather_call(&w->g[0], w->comm[0], w->stream[0]);
    ncclResult_t bad =
        ncclAllReduce(w->g[1].send, w->g[1].recv, 1, (ncclDataType_t)99, ncclSum, w->comm[0], w->stream[0]);
    EXPECT(bad != ncclSuccess, "rank %d: an unknown type is accepted", w->r->rank);
    EXPECT(ncclGroupEnd() != ncclSuccess, "rank %d: a group with an error is accepted", w->r->rank);
    CUDA(cudaDeviceSynchronize());
    expect_untouched(w, 0, "a group with an error");
    several_comms(w);
}

/* A bad gather in the group: the others of the group do not run either, as with NCCL alone. */
static void bad_gather_inside(struct world *w)
{
    start();
    gather_call(&w->g[0], w->comm[0], w->stream[0]);
    ncclResult_t bad = ncclAllGather(NULL, w->g[1].recv, shard, ncclUint8, w->comm[0], w->stream[0]);
    EXPECT(bad != ncclSuccess, "rank %d: a NULL buffer is accepted", w->r->rank);
    EXPECT(ncclGroupEnd() != ncclSuccess, "rank %d: a group with an error is accepted", w->r->rank);
    several_comms(w);
}

/* A group whose end does not wait, because its communicator is non-blocking: the ring's gather on one stream, NCCL's
 * operation on another, and each stream sees both. */
static void in_progress(struct world *w)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    uint8_t *sum = malloc(shard);
    config.blocking = 0;
    NCCL(ncclCommSplit(w->comm[0], 0, w->r->rank, &comm, &config));
    CUDA(cudaMemsetAsync(w->g[1].send, 3, shard, w->stream[1]));
    start();
    gather_call(&w->g[0], comm, w->stream[0]);
    NCCL(ncclAllReduce(w->g[1].send, w->g[1].send, shard, ncclUint8, ncclSum, comm, w->stream[1]));
    ncclResult_t e = ncclGroupEnd();
    EXPECT(e == ncclInProgress, "rank %d: %s", w->r->rank, ncclGetErrorString(e));
    while (e == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &e));
    NCCL(e);
    CUDA(cudaMemcpyAsync(sum, w->g[1].send, shard, cudaMemcpyDeviceToHost, w->stream[0]));
    check(w, 0, w->stream[1], "in progress");
    CUDA(cudaStreamSynchronize(w->stream[0]));
    EXPECT(sum[0] == 3 * w->r->nranks && sum[shard - 1] == sum[0], "rank %d: the sum is %d", w->r->rank, sum[0]);
    free(sum);
    NCCL(ncclCommDestroy(comm));
}

static const struct {
    const char *name;
    void (*body)(struct world *w);
} cases[] = {
    {"one-stream", one_stream},
    {"made-late", made_late},
    {"several-streams", several_streams},
    {"own-streams", own_streams},
    {"several-comms", several_comms},
    {"mixed", mixed},
    {"other-stream", other_stream},
    {"other-stream-slow", other_stream_slow},
    {"uneven", uneven},
    {"nested", nested},
    {"configured", configured},
    {"unknown", unknown},
    {"simulated", simulated},
    {"empty", empty},
    {"error-inside", error_inside},
    {"bad-gather-inside", bad_gather_inside},
    {"in-progress", in_progress},
};

static void body(struct rank *r)
{
    struct world w = {.r = r};
    void (*const *one)(struct world *) = r->arg;
    NCCL(ncclCommInitRank(&w.comm[0], r->nranks, r->id, r->rank));
    for (int i = 0; i < N; i++) {
        if (i)
            NCCL(ncclCommSplit(w.comm[0], 0, r->rank, &w.comm[i], NULL));
        CUDA(cudaStreamCreateWithFlags(&w.stream[i], cudaStreamNonBlocking));
        gather_alloc(&w.g[i], r->rank, r->nranks, shard);
    }
    for (int round = 0; round < 3; round++) {
        load(&w);
        (*one)(&w);
        CUDA(cudaDeviceSynchronize());
    }
    for (int i = N - 1; i >= 0; i--) {
        NCCL(ncclCommDestroy(w.comm[i]));
        CUDA(cudaStreamDestroy(w.stream[i]));
        gather_free(&w.g[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 3)
        shard = strtoull(argv[3], NULL, 0);
    for (int i = 0; i < LENGTH(cases) && argc > 1; i++)
        if (!strcmp(cases[i].name, argv[1]))
            return forms_run(argc > 2 && atoi(argv[2]) > 3 ? atoi(argv[2]) : 3, 60, body,
                             (void *)(uintptr_t)&cases[i].body);
    fprintf(stderr, "usage: groups CASE [RANKS [SHARD_BYTES]]\n");
    return 2;
}
