/* SPDX-License-Identifier: Apache-2.0 */
/* What one ncclAllGather costs, by size. A plain NCCL program, a process for each rank; it knows
 * nothing of slipring. The calls whose host time counts go to a stream that is not idle and has
 * room: it is synchronised after every 16th. */
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "pin.h"
#include "tests/programs/ranks.h"
#include "tools/common/json.h"

#define OPTIONS_FILE "bench/gather_cost.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { MOST_RANKS = 16, MOST_SIZES = 24, MOST_CALLS = 10000, LEAST_CALLS = 10, QUEUED = 16, BLOCKS = 5 };
enum { PIECE = 1 << 20, PIECES = 64 }; /* what is compared of a large shard */

/* Of one size; each rank writes its own column. */
struct costs {
    double device_us[MOST_RANKS], host_us[MOST_RANKS], latency_us[MOST_RANKS];
    size_t checked[MOST_RANKS]; /* bytes */
};

/* Made before the fork. The parent reads when all have ended. */
struct shared {
    _Atomic int arrived;
    struct costs costs[MOST_SIZES];
};

struct work {
    struct options options;
    size_t bytes[MOST_SIZES];
    struct pin pins[MOST_RANKS]; /* with --cores */
    int sizes, barriers;
    struct shared *shared;
};

struct buffers {
    char *send, *recv;
    void *windows[2];
    size_t bytes; /* of a shard */
    int calls;
    cudaGraphExec_t exec; /* with the gather; NULL: it is called */
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

/* A rank that dies leaves the others here; ranks_run kills them. */
static void barrier(struct rank *r)
{
    struct work *w = r->arg;
    int all = ++w->barriers * r->nranks;
    atomic_fetch_add(&w->shared->arrived, 1);
    while (atomic_load(&w->shared->arrived) < all)
        sched_yield();
}

static void gather(struct rank *r, const struct buffers *b)
{
    if (b->exec)
        CUDA(cudaGraphLaunch(b->exec, r->stream));
    else
        NCCL(ncclAllGather(b->send, b->recv, b->bytes, ncclInt8, r->comm, r->stream));
}

static void capture(struct rank *r, struct buffers *b)
{
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    gather(r, b);
    CUDA(cudaStreamEndCapture(r->stream, &graph));
    CUDA(cudaGraphInstantiate(&b->exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
}

static double host_time(struct rank *r, const struct buffers *b, double *us)
{
    for (int i = 0; i < b->calls; i++) {
        if (i % QUEUED == 0) {
            CUDA(cudaStreamSynchronize(r->stream));
            barrier(r);
            gather(r, b); /* the stream is busy from here on */
        }
        double begin = now_us();
        gather(r, b);
        us[i] = now_us() - begin;
    }
    CUDA(cudaStreamSynchronize(r->stream));
    return median(us, b->calls);
}

static double latency(struct rank *r, const struct buffers *b, double *us, int calls)
{
    for (int i = 0; i < calls; i++) {
        barrier(r);
        double begin = now_us();
        gather(r, b);
        CUDA(cudaStreamSynchronize(r->stream));
        us[i] = now_us() - begin;
    }
    return median(us, calls);
}

/* A few blocks of calls, back to back, between two events each. */
static double device_time(struct rank *r, const struct buffers *b, double *us)
{
    const int each = b->calls / BLOCKS;
    cudaEvent_t begin, end;
    float ms;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int block = 0; block < BLOCKS; block++) {
        barrier(r);
        CUDA(cudaEventRecord(begin, r->stream));
        for (int i = 0; i < each; i++)
            gather(r, b);
        CUDA(cudaEventRecord(end, r->stream));
        CUDA(cudaEventSynchronize(end));
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        us[block] = (double)ms * 1e3 / each;
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return median(us, BLOCKS);
}

/* A rank's shard is what a counter-based generator gives, 8 bytes at a time; `first` is a multiple of
 * that. */
static void make_shard(int rank, size_t first, size_t count, unsigned char *out)
{
    for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
        const uint64_t word = hash64((uint64_t)rank + 1, (first + i) / sizeof word);
        memcpy(out + i, &word, count - i < sizeof word ? count - i : sizeof word);
    }
}

static void fill(struct rank *r, const struct buffers *b, unsigned char *host)
{
    CUDA(cudaMemset(b->recv, 0xff, b->bytes * (size_t)r->nranks));
    for (size_t first = 0, count; first < b->bytes; first += count) {
        count = b->bytes - first < PIECE ? b->bytes - first : PIECE;
        make_shard(r->rank, first, count, host);
        CUDA(cudaMemcpy(b->send + first, host, count, cudaMemcpyHostToDevice));
    }
    CUDA(cudaDeviceSynchronize()); /* the stream does not wait for the default one */
}

static size_t compare(const struct buffers *b, int owner, size_t first, unsigned char *got, unsigned char *wanted)
{
    const size_t count = b->bytes - first < PIECE ? b->bytes - first : PIECE;
    CUDA(cudaMemcpy(got, b->recv + (size_t)owner * b->bytes + first, count, cudaMemcpyDeviceToHost));
    make_shard(owner, first, count, wanted);
    for (size_t i = 0; memcmp(got, wanted, count) != 0 && i < count; i++)
        CHECK(got[i] == wanted[i], "byte %zu of rank %d's shard of %zu is %d, not %d", first + i, owner, b->bytes,
              got[i], wanted[i]);
    return count;
}

/* Bytes compared. */
static size_t check(struct rank *r, const struct buffers *b)
{
    unsigned char *got = malloc(PIECE), *wanted = malloc(PIECE);
    const size_t pieces = (b->bytes + PIECE - 1) / PIECE, some = pieces < PIECES ? pieces : PIECES;
    size_t checked = 0;
    CHECK(got && wanted, "no memory");
    fill(r, b, wanted);
    barrier(r);
    gather(r, b);
    CUDA(cudaStreamSynchronize(r->stream));
    for (int owner = 0; owner < r->nranks; owner++)
        for (size_t i = 0; i < some; i++)
            checked += compare(b, owner, (some > 1 ? i * (pieces - 1) / (some - 1) : 0) * PIECE, got, wanted);
    free(got);
    free(wanted);
    return checked;
}

/* NCCL has windows since 2.27; the library at hand may be older than the header. */
static void *window_of(struct rank *r, void *memory, size_t bytes)
{
    ncclResult_t (*enter)(ncclComm_t, void *, size_t, void **, int);
    void *window = NULL;
    *(void **)&enter = dlsym(RTLD_DEFAULT, "ncclCommWindowRegister");
    CHECK(enter, "this NCCL has no ncclCommWindowRegister");
    NCCL(enter(r->comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    return window;
}

static void close_window(struct rank *r, void *window)
{
    ncclResult_t (*leave)(ncclComm_t, void *);
    *(void **)&leave = dlsym(RTLD_DEFAULT, "ncclCommWindowDeregister");
    CHECK(leave, "this NCCL has no ncclCommWindowDeregister");
    NCCL(leave(r->comm, window));
}

static void allocate(struct rank *r, struct buffers *b)
{
    const struct options *o = &((struct work *)r->arg)->options;
    const size_t all = b->bytes * (size_t)r->nranks;
    if (o->windows) {
        NCCL(ncclMemAlloc((void **)&b->recv, all));
        b->windows[0] = window_of(r, b->recv, all);
    } else {
        CUDA(cudaMalloc((void **)&b->recv, all));
    }
    if (o->in_place) {
        b->send = b->recv + (size_t)r->rank * b->bytes;
    } else if (o->windows) {
        NCCL(ncclMemAlloc((void **)&b->send, b->bytes));
        b->windows[1] = window_of(r, b->send, b->bytes);
    } else {
        CUDA(cudaMalloc((void **)&b->send, b->bytes));
    }
}

static void release(struct rank *r, struct buffers *b)
{
    const struct options *o = &((struct work *)r->arg)->options;
    void *const memory[2] = {b->recv, o->in_place ? NULL : b->send};
    for (int i = 0; i < 2 && memory[i]; i++) {
        if (!o->windows) {
            CUDA(cudaFree(memory[i]));
            continue;
        }
        close_window(r, b->windows[i]);
        NCCL(ncclMemFree(memory[i]));
    }
}

static int calls_of(const struct options *o, size_t bytes)
{
    const double most = o->gib ? (double)o->gib * (1 << 30) / (double)bytes : (double)o->calls;
    const int calls = most < (double)o->calls ? (int)most : (int)o->calls;
    return calls > LEAST_CALLS || calls == (int)o->calls ? calls : LEAST_CALLS;
}

static const struct pin *pins; /* of all ranks; NULL: wherever the system puts them */

static void begin(int rank)
{
    const int status = pin_process(&pins[rank]);
    CHECK(status == 0, "--cores, rank %d: %s", rank, strerror(-status));
}

/* The threads that the first calls have begun are known now. */
static void pin(const struct rank *r)
{
    const int status = pins ? pin_issuer(&pins[r->rank]) : 0;
    CHECK(status == 0, "--cores, rank %d: %s", r->rank, strerror(-status));
}

static void measure(struct rank *r, int size)
{
    static double us[MOST_CALLS];
    const struct work *w = r->arg;
    struct costs *costs = &w->shared->costs[size];
    struct buffers b = {.bytes = w->bytes[size], .calls = calls_of(&w->options, w->bytes[size])};
    allocate(r, &b);
    latency(r, &b, us, (int)w->options.warmup);
    pin(r);
    if (w->options.graph)
        capture(r, &b);
    costs->device_us[r->rank] = device_time(r, &b, us);
    costs->host_us[r->rank] = host_time(r, &b, us);
    costs->latency_us[r->rank] = latency(r, &b, us, b.calls);
    if (w->options.check)
        costs->checked[r->rank] = check(r, &b);
    if (b.exec)
        CUDA(cudaGraphExecDestroy(b.exec));
    release(r, &b);
}

static void body(struct rank *r)
{
    const struct work *w = r->arg;
    rank_open(r);
    for (int size = 0; size < w->sizes; size++)
        measure(r, size);
    rank_close(r);
}

static double worst(const double *of_rank, long ranks)
{
    double most = 0;
    for (long rank = 0; rank < ranks; rank++)
        most = of_rank[rank] > most ? of_rank[rank] : most;
    return most;
}

static void write_json(const struct work *w, FILE *to)
{
    struct json_writer json = {.to = to};
    char name[32];
    json_put_open(&json, NULL, "{\n");
    for (int i = 0; i < w->sizes; i++) {
        const struct costs *costs = &w->shared->costs[i];
        snprintf(name, sizeof name, "%zu", w->bytes[i]);
        json_put_open(&json, name, "{");
        json_put_number(&json, "device_us", "%.3f", worst(costs->device_us, w->options.ranks));
        json_put_number(&json, "host_us", "%.3f", worst(costs->host_us, w->options.ranks));
        json_put_number(&json, "latency_us", "%.3f", worst(costs->latency_us, w->options.ranks));
        json_put_number(&json, "checked", "%zu", costs->checked[0]);
        json_put_close(&json);
    }
    json_put_close(&json);
}

static void report(const struct work *w)
{
    const char *path = w->options.json;
    printf("%12s %10s %10s %10s\n", "shard bytes", "device us", "host us", "latency us");
    for (int i = 0; i < w->sizes; i++) {
        const struct costs *costs = &w->shared->costs[i];
        printf("%12zu %10.2f %10.2f %10.2f\n", w->bytes[i], worst(costs->device_us, w->options.ranks),
               worst(costs->host_us, w->options.ranks), worst(costs->latency_us, w->options.ranks));
    }
    if (!*path)
        return;
    FILE *to = fopen(path, "w");
    if (to)
        write_json(w, to);
    if (!to || fclose(to) != 0)
        DIE(2, "gather_cost: can not write %s: %s", path, strerror(errno));
}

static bool parse_bytes(struct work *w)
{
    const char *text = w->options.bytes;
    char *end = NULL;
    for (w->sizes = 0; w->sizes < MOST_SIZES; text = end + 1) {
        w->bytes[w->sizes] = strtoull(text, &end, 10);
        if (end == text || !w->bytes[w->sizes] || (*end && *end != ','))
            return false;
        w->sizes++;
        if (!*end)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    static struct work work;
    struct options *o = &work.options;
    int rest = options_parse(option_rows, OPTIONS_FIRST, o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    if (!parse_bytes(&work))
        return options_wrong(option_rows, "--bytes: up to %d sizes from 1 on, parted by commas, not %s", MOST_SIZES,
                             o->bytes);
    if (*o->cores && !pin_parse(o->cores, work.pins, (int)o->ranks))
        return options_wrong(option_rows, "--cores: cores/core for each of %ld ranks, parted by colons, not %s",
                             o->ranks, o->cores);
    pins = *o->cores ? work.pins : NULL;
    ranks_begin = pins ? begin : NULL;
    work.shared = mmap(NULL, sizeof *work.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(work.shared != MAP_FAILED, "no shared page");
    int status = ranks_run((int)o->ranks, (int)o->seconds, body, &work);
    if (status == 0)
        report(&work);
    return status;
}
