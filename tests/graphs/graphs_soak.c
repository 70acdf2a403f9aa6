/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs for as long as one likes: 20 of them are replayed in random turn with gathers outside of graphs, while graphs
 * are recorded again and buffers come and go. All results are exact, and nothing grows: device memory, descriptors,
 * mappings, blocks of peers that are open.
 *
 * The turn is the same on all ranks. Steps come in batches: until its end the host waits for nothing, so that replays
 * run back to back, with what loads and fetches their data in between or without. */
#define SLIPRING_WEAK
#include "plugin/slipring.h"

#include <dirent.h>
#include <string.h>
#include "graphs.h"
#include "graphs_shapes.h"

#define GRAPHS LENGTH(graph_shapes)
#define EAGER 6
#define BATCH 8  /* steps */
#define K 64     /* of the GEMM, which needs shards of whole columns */
#define SEED 905 /* of the turn */
#define STILL 25 /* looks, a pause apart, that find the same figures */
#define PAUSE_MS 20
#define LOOKS 300

/* How much more there may be in the end. Rounding and the driver's own books; a leak for each replay, capture or buffer
 * is many times as much. */
#define MORE_MEMORY ((long)8 << 20)
#define MORE_HANDLES 4
#define BOUNCE_HANDLES 8 /* of a bounce buffer, where new buffers did not find room among the exports in time */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MORE_MAPPINGS 100000 /* shadow memory */
#else
#define MORE_MAPPINGS 128
#endif
#define MORE_OPEN 24 /* more of the buffers find room among the exports */

/* The gathers of a graph, or of a call outside. What they bring lies in one piece, shard by shard: */
struct item {
    struct shape shape;
    int gathers;
    struct gather g[MOST];
    uint8_t *result, *sends; /* `sends`: NULL where they lie behind the result, or in it */
    size_t bytes, at[MOST], product_at;
    cudaGraphExec_t exec;
};

/* What one step loads and fetches. */
struct step {
    struct item *item;
    bool replays; /* from the graph; on all ranks, but where they differ */
    bool replayed;
    uint64_t seed;
    uint8_t *in, *out; /* pinned */
};

struct figures {
    long memory, handles, mappings, open;
};

struct soak {
    struct world *w;
    bool kept;  /* the buffers of graphs stay, and always belong to one */
    bool mixed; /* each rank decides for itself whether it replays or calls */
    cublasHandle_t blas;
    float *one;
    struct item graph[GRAPHS], eager[EAGER];
    struct step step[BATCH];
    uint64_t drawn, seed, calls;
    unsigned replays, gathers, records, buffers;
};

static uint64_t draw(struct soak *s, uint64_t n)
{
    return hash64(SEED, s->drawn++) % n;
}

static uint64_t seed_of(const struct step *step, int gather)
{
    return step->seed * MOST + (uint64_t)gather;
}

/* ---- buffers ---- */

static size_t lay_out(struct item *it, const struct shape *shape, size_t nranks)
{
    size_t sends = 0;
    *it = (struct item){.shape = *shape};
    for (; it->gathers < MOST && shape->shard[it->gathers]; it->gathers++) {
        it->at[it->gathers] = it->bytes;
        it->bytes += shape->shard[it->gathers] * nranks;
        sends += shape->in_place ? 0 : shape->shard[it->gathers];
    }
    it->product_at = (it->bytes + 255) & ~(size_t)255;
    it->bytes = shape->product ? it->product_at + shape->shard[0] * nranks : it->bytes;
    return sends;
}

static void item_open(struct soak *s, struct item *it, const struct shape *shape)
{
    struct world *w = s->w;
    const size_t sends = lay_out(it, shape, (size_t)w->nranks);
    const bool apart = sends && shape->apart;
    it->result = memory_get(it->bytes + (apart ? 0 : sends));
    it->sends = apart ? memory_get(sends) : NULL;
    uint8_t *send = apart ? it->sends : it->result + it->bytes;
    for (int i = 0; i < it->gathers; i++) {
        struct gather *g = &it->g[i];
        const size_t shard = shape->shard[i];
        *g = (struct gather){.rank = w->rank, .nranks = w->nranks, .shard = shard, .recv = it->result + it->at[i]};
        g->floats = shape->product && i == 0;
        g->send = shape->in_place ? g->recv + (size_t)w->rank * shard : send;
        send += shape->in_place ? 0 : shard;
    }
    s->buffers++;
}

static void item_close(struct item *it)
{
    memory_put(it->result);
    if (it->sends)
        memory_put(it->sends);
}

/* ---- gathers ---- */

static void calls(struct soak *s, struct item *it, cudaStream_t stream)
{
    const float alpha = 1, beta = 0;
    for (int i = 0; i < it->gathers; i++)
        gather_call(&it->g[i], s->w->comm, stream);
    if (!it->shape.product)
        return;
    const int columns = (int)(it->g[0].shard * (size_t)s->w->nranks / sizeof(float) / K);
    BLAS(cublasSetStream(s->blas, stream));
    BLAS(cublasSgemm(s->blas, CUBLAS_OP_N, CUBLAS_OP_N, K, columns, K, &alpha, s->one, K,
                     (const float *)(const void *)it->result, K, &beta, (float *)(void *)(it->result + it->product_at),
                     K));
}

static void record_item(struct soak *s, struct item *it)
{
    capture_begin(s->w->s);
    calls(s, it, s->w->s);
    it->exec = graph_executable(capture_end(s->w->s));
    s->records++;
}

static void load(const struct step *step, cudaStream_t stream)
{
    const struct item *it = step->item;
    uint8_t *in = step->in;
    CUDA(cudaMemsetAsync(it->result, 0xa5, it->bytes, stream));
    for (int i = 0; i < it->gathers; i++) {
        const struct gather *g = &it->g[i];
        shard_fill(in, g->shard, seed_of(step, i), g->rank, g->floats);
        CUDA(cudaMemcpyAsync(g->send, in, g->shard, cudaMemcpyHostToDevice, stream));
        in += g->shard;
    }
}

static void perform(struct soak *s, const struct step *step, cudaStream_t stream)
{
    s->calls += (uint64_t)step->item->gathers;
    s->replays += step->replays;
    s->gathers += step->replayed ? 0u : (unsigned)step->item->gathers;
    if (step->replayed)
        CUDA(cudaGraphLaunch(step->item->exec, stream));
    else
        calls(s, step->item, stream);
}

static void fetch(const struct step *step, cudaStream_t stream)
{
    CUDA(cudaMemcpyAsync(step->out, step->item->result, step->item->bytes, cudaMemcpyDeviceToHost, stream));
}

static void check(const struct step *step)
{
    const struct item *it = step->item;
    const char *what = step->replayed ? "replayed in random turn" : "gathered between replays";
    for (int i = 0; i < it->gathers; i++)
        bytes_check(&it->g[i], step->out + it->at[i], seed_of(step, i), what);
    if (it->shape.product)
        bytes_check(&it->g[0], step->out + it->product_at, seed_of(step, 0), "the product of a gather");
}

/* ---- batches ---- */

static void choose(struct soak *s, struct step *step)
{
    const uint64_t what = draw(s, 10);
    step->item = what < 8 ? &s->graph[draw(s, GRAPHS)] : &s->eager[draw(s, EAGER)];
    step->replays = what < 7; /* a graph's buffers are also gathered outside of it */
    step->replayed = step->replays && (!s->mixed || hash64((uint64_t)s->w->rank, s->drawn) % 3);
    step->seed = ++s->seed;
}

/* Each step loads, runs and fetches. */
static void one_by_one(struct soak *s, int n, cudaStream_t stream)
{
    for (int i = 0; i < n; i++) {
        load(&s->step[i], stream);
        perform(s, &s->step[i], stream);
        fetch(&s->step[i], stream);
    }
}

/* First all steps load, then all run, some more than once, then all fetch. */
static void at_once(struct soak *s, int n, cudaStream_t stream)
{
    for (int i = 0; i < n; i++)
        for (int before = 0; before < i; before++) /* each item has the data of its last load */
            if (s->step[before].item == s->step[i].item)
                s->step[i].seed = s->step[before].seed;
    for (int i = 0; i < n; i++)
        load(&s->step[i], stream);
    for (int i = 0; i < n; i++)
        perform(s, &s->step[i], stream);
    for (int again = (int)draw(s, 4); again > 0; again--)
        perform(s, &s->step[draw(s, (uint64_t)n)], stream);
    for (int i = 0; i < n; i++)
        fetch(&s->step[i], stream);
}

/* A graph goes, perhaps while it runs, and comes again. */
static void record_again(struct soak *s)
{
    struct item *it = &s->graph[draw(s, GRAPHS)];
    cudaGraphExec_t old = it->exec;
    const bool old_first = draw(s, 2) && !s->kept;
    if (old_first)
        CUDA(cudaGraphExecDestroy(old));
    record_item(s, it);
    if (!old_first)
        CUDA(cudaGraphExecDestroy(old));
}

static void renew(struct soak *s, struct item *it, const struct shape *shape, bool old_first)
{
    struct item old = *it;
    if (old.exec)
        CUDA(cudaGraphExecDestroy(old.exec));
    if (old_first)
        item_close(&old);
    item_open(s, it, shape);
    if (!old_first)
        item_close(&old);
    if (old.exec)
        record_item(s, it);
}

static void change(struct soak *s)
{
    const uint64_t what = draw(s, 24), which = draw(s, GRAPHS), shape = draw(s, LENGTH(eager_shapes));
    if (what < 2 && !s->kept)
        renew(s, &s->graph[which], &graph_shapes[which], what);
    else if (what < 6)
        renew(s, &s->eager[which % EAGER], &eager_shapes[shape], what % 2);
}

static void batch(struct soak *s)
{
    struct world *w = s->w;
    const int n = 1 + (int)draw(s, BATCH);
    const cudaStream_t stream = draw(s, 3) ? w->s : w->side;
    for (int i = 0; i < n; i++)
        choose(s, &s->step[i]);
    if (draw(s, 32) == 0 && draw(s, (uint64_t)w->nranks) == (uint64_t)w->rank)
        sleep_ms(3); /* and the peers come first */
    (draw(s, 2) ? one_by_one : at_once)(s, n, stream);
    if (draw(s, 12) == 0)
        record_again(s);
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        check(&s->step[i]);
    change(s);
}

/* ---- figures ---- */

static long lines_of(const char *path)
{
    char text[4096];
    long lines = 0;
    FILE *file = fopen(path, "r");
    for (size_t n; file && (n = fread(text, 1, sizeof text, file)) > 0;)
        for (size_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    if (file)
        fclose(file);
    return lines;
}

static long entries_of(const char *path)
{
    long n = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static struct slipring_counters counters(void)
{
    struct slipring_counters c = {.size = sizeof c};
    if (slipring_loaded())
        CHECK(slipring_counters_read(&c) == 0, "no counters");
    return c;
}

static struct figures look(void)
{
    size_t now, all;
    const struct slipring_counters c = counters();
    CUDA(cudaMemGetInfo(&now, &all));
    return (struct figures){.memory = (long)(all - now),
                            .handles = entries_of("/proc/self/fd"),
                            .mappings = lines_of("/proc/self/maps"),
                            .open = (long)(c.imports - c.import_closes)};
}

/* All ranks are here, and have nothing in flight. */
static void meet(struct soak *s, struct item *by)
{
    struct step *step = &s->step[0];
    *step = (struct step){.item = by, .seed = ++s->seed, .in = step->in, .out = step->out};
    one_by_one(s, 1, s->w->s);
    CUDA(cudaStreamSynchronize(s->w->s));
    check(step);
}

/* The program has the same buffers each time. What is closed and given back later is waited for. */
static struct figures measure(struct soak *s, const char *when)
{
    struct figures f = {0};
    for (int i = 0; i < EAGER; i++)
        renew(s, &s->eager[i], &eager_shapes[i], true);
    for (int i = 0; i < EAGER; i++) /* and the peers map them */
        meet(s, &s->eager[i]);
    for (int looks = 0, still = 0; looks < LOOKS && still < STILL; looks++) {
        const struct figures now = look();
        still = memcmp(&now, &f, sizeof f) == 0 ? still + 1 : 0;
        f = now;
        sleep_ms(PAUSE_MS);
    }
    printf("rank %d: %s %u replays: %ld KiB of device memory, %ld descriptors, %ld mappings, %ld blocks of peers\n",
           s->w->rank, when, s->replays, f.memory >> 10, f.handles, f.mappings, f.open);
    meet(s, &s->eager[0]);
    return f;
}

static void compare(const struct soak *s, const struct figures *a, const struct figures *b)
{
    const struct world *w = s->w;
    /* The software GPU has two for each open block. */
    const long more_open = b->open > a->open ? b->open - a->open : 0;
    const long more_handles = MORE_HANDLES + (s->kept ? 0 : BOUNCE_HANDLES) + 2 * more_open;
    int devices;
    CUDA(cudaGetDeviceCount(&devices));
    const int sharing = (w->nranks + devices - 1) / devices; /* what is in use on the device is of all these */
    EXPECT(b->memory - a->memory <= MORE_MEMORY * sharing, "rank %d: %ld bytes of device memory became %ld", w->rank,
           a->memory, b->memory);
    EXPECT(b->handles - a->handles <= more_handles, "rank %d: %ld descriptors became %ld", w->rank, a->handles,
           b->handles);
    EXPECT(b->mappings - a->mappings <= MORE_MAPPINGS, "rank %d: %ld mappings became %ld", w->rank, a->mappings,
           b->mappings);
    EXPECT(b->open - a->open <= MORE_OPEN, "rank %d: %ld open blocks of peers became %ld", w->rank, a->open, b->open);
}

/* ---- the program ---- */

static void soak_open(struct soak *s, struct world *w)
{
    float unit[K * K] = {0};
    size_t in = 0, out = 0;
    *s = (struct soak){.w = w};
    for (int i = 0; i < K; i++)
        unit[i * K + i] = 1;
    BLAS(cublasCreate(&s->blas));
    CUDA(cudaMalloc((void **)&s->one, sizeof unit));
    to_device(s->one, unit, sizeof unit);
    for (int i = 0; i < GRAPHS + LENGTH(eager_shapes); i++) {
        const struct shape *shape = i < GRAPHS ? &graph_shapes[i] : &eager_shapes[i - GRAPHS];
        struct item it;
        (void)lay_out(&it, shape, (size_t)w->nranks);
        out = it.bytes > out ? it.bytes : out;
        const size_t sum = shape->shard[0] + shape->shard[1] + shape->shard[2];
        in = sum > in ? sum : in;
    }
    for (int i = 0; i < BATCH; i++) {
        CUDA(cudaMallocHost((void **)&s->step[i].in, in));
        CUDA(cudaMallocHost((void **)&s->step[i].out, out));
    }
    for (int i = 0; i < EAGER; i++)
        item_open(s, &s->eager[i], &eager_shapes[i]);
    meet(s, &s->eager[2]); /* what cuBLAS does at its first call is not recorded */
    for (int i = 0; i < GRAPHS; i++) {
        item_open(s, &s->graph[i], &graph_shapes[i]);
        record_item(s, &s->graph[i]);
    }
}

static void soak_close(struct soak *s)
{
    for (int i = 0; i < GRAPHS; i++) {
        CUDA(cudaGraphExecDestroy(s->graph[i].exec));
        item_close(&s->graph[i]);
    }
    for (int i = 0; i < EAGER; i++)
        item_close(&s->eager[i]);
    for (int i = 0; i < BATCH; i++) {
        CUDA(cudaFreeHost(s->step[i].in));
        CUDA(cudaFreeHost(s->step[i].out));
    }
    CUDA(cudaFree(s->one));
    BLAS(cublasDestroy(s->blas));
}

/* Every gather of the process was the ring's, those of replays as well; before the soak each rank has made one, and where
 * ranks share a process one for NCCL. */
static void see_counters(const struct soak *s)
{
    static _Atomic uint64_t made;
    static _Atomic int ranks;
    made += s->calls + 1;
    if (++ranks != (s->w->threads ? s->w->nranks : 1))
        return;
    const struct slipring_counters c = counters();
    const uint64_t first = s->w->threads ? (uint64_t)s->w->nranks : 0;
    printf("rank %d: %llu gathers made, %llu substituted, %llu passed, %llu fused\n", s->w->rank,
           (unsigned long long)made, (unsigned long long)c.substituted, (unsigned long long)c.passed,
           (unsigned long long)c.fused);
    EXPECT(!slipring_loaded() || (c.substituted == made && c.passed == first),
           "rank %d: not all gathers were the ring's", s->w->rank);
}

static void run(struct world *w, bool kept, bool mixed)
{
    static const unsigned usual = 300;
    const unsigned replays = w->replays ? w->replays : usual;
    struct soak s;
    struct figures early = {0};
    soak_open(&s, w);
    s.kept = kept;
    s.mixed = mixed;
    while (s.replays < replays / 10)
        batch(&s);
    early = measure(&s, "after");
    while (s.replays < replays)
        batch(&s);
    const struct figures late = measure(&s, "after");
    compare(&s, &early, &late);
    printf("rank %d: %u replays, %u gathers outside of graphs, %u captures, %u times new buffers\n", w->rank, s.replays,
           s.gathers, s.records, s.buffers);
    see_counters(&s);
    soak_close(&s);
}

static void soak(struct world *w)
{
    run(w, false, false);
}

static void soak_kept(struct world *w)
{
    run(w, true, false);
}

static void soak_mixed(struct world *w)
{
    run(w, false, true);
}

const struct graph_case graph_soak_cases[] = {{.name = "soak", .body = soak},
                                              {.name = "soak-kept", .body = soak_kept},
                                              {.name = "soak-mixed", .body = soak_mixed},
                                              {.name = NULL}};
