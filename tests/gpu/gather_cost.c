/* SPDX-License-Identifier: Apache-2.0 */
/* What one ncclAllGather costs: the host's time in the call, and the time from the call to the end of a synchronisation
 * of the stream when all ranks call together. A plain NCCL program, a process for each rank; it knows nothing of
 * slipring.
 *
 *   gather_cost [--ranks N] [--bytes N[,N]...] [--calls N] [--json FILE]
 *
 * --bytes: of one rank's shard (65536,1048576,16777216). Prints medians in microseconds, of the slowest rank. The calls
 * whose host time counts go to a stream that is not idle and has room: it is synchronised after every 16th.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/e2e/ranks.h"

enum { MOST_RANKS = 16, MOST_SIZES = 16, MOST_CALLS = 10000, QUEUED = 16, WARMUP = 32 };

struct options {
    int ranks, calls, sizes;
    size_t bytes[MOST_SIZES];
    const char *json;
};

/* Made before the fork. Each rank writes its own column; the parent reads when all have ended. */
struct shared {
    _Atomic int arrived;
    double host_us[MOST_SIZES][MOST_RANKS], latency_us[MOST_SIZES][MOST_RANKS];
};

struct work {
    const struct options *options;
    struct shared *shared;
    int barriers;
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

struct buffers {
    void *send, *recv;
    size_t bytes;
};

static void gather(struct rank *r, const struct buffers *b)
{
    NCCL(ncclAllGather(b->send, b->recv, b->bytes, ncclInt8, r->comm, r->stream));
}

static double host_time(struct rank *r, const struct buffers *b, double *us, int calls)
{
    for (int i = 0; i < calls; i++) {
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
    return median(us, calls);
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

static void measure(struct rank *r, int size)
{
    static double us[MOST_CALLS];
    struct work *w = r->arg;
    struct buffers b = {.bytes = w->options->bytes[size]};
    CUDA(cudaMalloc(&b.send, b.bytes));
    CUDA(cudaMalloc(&b.recv, b.bytes * (size_t)r->nranks));
    latency(r, &b, us, WARMUP);
    w->shared->host_us[size][r->rank] = host_time(r, &b, us, w->options->calls);
    w->shared->latency_us[size][r->rank] = latency(r, &b, us, w->options->calls);
    CUDA(cudaFree(b.send));
    CUDA(cudaFree(b.recv));
}

static void body(struct rank *r)
{
    const struct options *o = ((struct work *)r->arg)->options;
    rank_open(r);
    for (int size = 0; size < o->sizes; size++)
        measure(r, size);
    rank_close(r);
}

static double worst(const double *of_rank, int ranks)
{
    double most = 0;
    for (int rank = 0; rank < ranks; rank++)
        most = of_rank[rank] > most ? of_rank[rank] : most;
    return most;
}

static void report(const struct options *o, const struct shared *s)
{
    FILE *json = o->json ? fopen(o->json, "w") : NULL;
    CHECK(json || !o->json, "%s: %s", o->json, strerror(errno));
    printf("%12s %10s %10s\n", "shard bytes", "host us", "latency us");
    for (int i = 0; i < o->sizes; i++) {
        double host = worst(s->host_us[i], o->ranks), whole = worst(s->latency_us[i], o->ranks);
        printf("%12zu %10.2f %10.2f\n", o->bytes[i], host, whole);
        if (json)
            fprintf(json, "%s\"%zu\": {\"host_us\": %.3f, \"latency_us\": %.3f}", i ? ", " : "{", o->bytes[i], host,
                    whole);
    }
    if (json && (fputs("}\n", json) < 0 || fclose(json) != 0))
        DIE(2, "%s: %s", o->json, strerror(errno));
}

static void parse_sizes(struct options *o, const char *text)
{
    char *end;
    for (o->sizes = 0; o->sizes < MOST_SIZES; text = end + 1) {
        o->bytes[o->sizes++] = strtoull(text, &end, 10);
        if (*end != ',')
            break;
    }
}

static void parse(struct options *o, char **argv)
{
    for (argv++; argv[0]; argv += 2) {
        CHECK(argv[1], "%s needs a value", argv[0]);
        if (!strcmp(argv[0], "--ranks"))
            o->ranks = atoi(argv[1]);
        else if (!strcmp(argv[0], "--calls"))
            o->calls = atoi(argv[1]);
        else if (!strcmp(argv[0], "--bytes"))
            parse_sizes(o, argv[1]);
        else if (!strcmp(argv[0], "--json"))
            o->json = argv[1];
        else
            DIE(2, "gather_cost: unknown option %s", argv[0]);
    }
    CHECK(o->ranks > 0 && o->ranks <= MOST_RANKS && o->calls > 0 && o->calls <= MOST_CALLS, "ranks or calls");
}

int main(int argc, char **argv)
{
    (void)argc;
    struct options options = {.ranks = 2, .calls = 320, .sizes = 3, .bytes = {65536, 1048576, 16777216}};
    parse(&options, argv);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED, "no shared page");
    struct work work = {.options = &options, .shared = shared};
    int status = ranks_run(options.ranks, 60, body, &work);
    if (status == 0)
        report(&options, shared);
    return status;
}
