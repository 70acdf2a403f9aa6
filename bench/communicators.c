/* SPDX-License-Identifier: Apache-2.0 */
/* What a framework with several communicators pays. A plain NCCL program, a process for each rank; it knows nothing of
 * slipring. PyTorch's NCCL backends register all segments of their allocator, and ask for errors under the lock that
 * they hold over each call. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/programs/ranks.h"

#define OPTIONS_FILE "bench/communicators.def"
#define OPTIONS_STRUCT options
#include "tools/common/options_table.h"

enum { MOST_RANKS = 16, MOST_COMMS = 64, MOST_SEGMENTS = 4096 };

struct costs {
    double register_us, register_worst_us, deregister_us; /* of one call */
    double watched_us, call_us;                           /* the watchdog's longest wait; the longest gather call */
    double held_mib;
};

struct work {
    struct options options;
    struct costs *costs; /* of each rank; made before the fork */
};

struct job {
    struct rank *r;
    const struct options *o;
    struct costs *costs;
    ncclComm_t comm[MOST_COMMS];
    char *segment[MOST_SEGMENTS];
    void **handles;
    pthread_mutex_t lock;
    atomic_bool over;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static size_t free_bytes(void)
{
    size_t have = 0, total;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemGetInfo(&have, &total));
    return have;
}

/* Communicator `k` gathers the end of one segment into the beginning of another. */
static char *recv_of(const struct job *j, long k)
{
    return j->segment[k % j->o->segments];
}

static char *send_of(const struct job *j, long k)
{
    return j->segment[(k + 1) % j->o->segments] + (j->o->kib - j->o->shard) * 1024;
}

static void gather(struct job *j, long k)
{
    NCCL(ncclAllGather(send_of(j, k), recv_of(j, k), (size_t)j->o->shard * 1024, ncclUint8, j->comm[k % j->o->comms],
                       j->r->stream));
}

static void make(struct job *j)
{
    for (long s = 0; s < j->o->segments; s++)
        CUDA(cudaMalloc((void **)&j->segment[s], (size_t)j->o->kib * 1024));
    const size_t before = free_bytes();
    j->comm[0] = j->r->comm;
    for (long k = 1; k < j->o->comms; k++)
        NCCL(ncclCommSplit(j->r->comm, 0, j->r->rank, &j->comm[k], NULL));
    for (long k = 0; k < j->o->comms; k++)
        gather(j, k);
    const size_t after = free_bytes();
    j->costs->held_mib = after < before ? (double)(before - after) / (1 << 20) : 0;
}

static void register_all(struct job *j)
{
    double sum = 0;
    for (long k = 0, i = 0; k < j->o->comms; k++)
        for (long s = 0; s < j->o->segments; s++, i++) {
            const double begin = now_us();
            NCCL(ncclCommRegister(j->comm[k], j->segment[s], (size_t)j->o->kib * 1024, &j->handles[i]));
            const double took = now_us() - begin;
            sum += took;
            j->costs->register_worst_us = took > j->costs->register_worst_us ? took : j->costs->register_worst_us;
        }
    j->costs->register_us = sum / (double)(j->o->comms * j->o->segments);
}

static void deregister_all(struct job *j)
{
    const double begin = now_us();
    for (long k = 0, i = 0; k < j->o->comms; k++)
        for (long s = 0; s < j->o->segments; s++, i++)
            NCCL(ncclCommDeregister(j->comm[k], j->handles[i]));
    j->costs->deregister_us = (now_us() - begin) / (double)(j->o->comms * j->o->segments);
}

static void *watch(void *arg)
{
    struct job *j = arg;
    while (!atomic_load(&j->over))
        for (long k = 0; k < j->o->comms; k++) {
            ncclResult_t said = ncclSuccess;
            const double begin = now_us();
            pthread_mutex_lock(&j->lock);
            NCCL(ncclCommGetAsyncError(j->comm[k], &said));
            pthread_mutex_unlock(&j->lock);
            const double took = now_us() - begin;
            CHECK(said == ncclSuccess, "communicator %ld has failed: %s", k, ncclGetErrorString(said));
            j->costs->watched_us = took > j->costs->watched_us ? took : j->costs->watched_us;
        }
    return NULL;
}

/* As many calls on their way as a program has that waits for the device now and then. */
static void gather_watched(struct job *j)
{
    pthread_t watchdog;
    CHECK(pthread_create(&watchdog, NULL, watch, j) == 0, "no thread");
    for (long i = 0; i < j->o->gathers; i++) {
        const double begin = now_us();
        pthread_mutex_lock(&j->lock);
        gather(j, i);
        pthread_mutex_unlock(&j->lock);
        const double took = now_us() - begin;
        j->costs->call_us = took > j->costs->call_us ? took : j->costs->call_us;
        if (i % 16 == 15)
            CUDA(cudaStreamSynchronize(j->r->stream));
    }
    CUDA(cudaStreamSynchronize(j->r->stream));
    atomic_store(&j->over, true);
    pthread_join(watchdog, NULL);
}

static uint64_t seed_of(long k, int rank)
{
    return (uint64_t)k * 100 + (uint64_t)rank + 1;
}

static void check(struct job *j)
{
    const size_t shard = (size_t)j->o->shard * 1024, all = shard * (size_t)j->r->nranks;
    uint8_t *host = malloc(all);
    CHECK(host, "no memory");
    for (long k = 0; k < j->o->comms; k++) {
        hash_fill(host, shard, seed_of(k, j->r->rank));
        to_device(send_of(j, k), host, shard);
        CUDA(cudaMemset(recv_of(j, k), 0xff, all));
        CUDA(cudaDeviceSynchronize());
        gather(j, k);
        CUDA(cudaStreamSynchronize(j->r->stream));
        CUDA(cudaMemcpy(host, recv_of(j, k), all, cudaMemcpyDeviceToHost));
        for (int r = 0; r < j->r->nranks; r++) {
            const size_t at = hash_differs(host + (size_t)r * shard, shard, seed_of(k, r));
            CHECK(at == shard, "communicator %ld: byte %zu of rank %d's shard is wrong", k, at, r);
        }
    }
    free(host);
}

static void end(struct job *j)
{
    for (long k = j->o->comms - 1; k > 0; k--)
        NCCL(ncclCommDestroy(j->comm[k]));
    for (long s = 0; s < j->o->segments; s++)
        CUDA(cudaFree(j->segment[s]));
    free(j->handles);
}

static void body(struct rank *r)
{
    const struct work *w = r->arg;
    static struct job job;
    job = (struct job){.r = r, .o = &w->options, .costs = &w->costs[r->rank], .lock = PTHREAD_MUTEX_INITIALIZER};
    job.handles = calloc((size_t)(w->options.comms * w->options.segments), sizeof *job.handles);
    CHECK(job.handles, "no memory");
    rank_open(r);
    make(&job);
    register_all(&job);
    if (w->options.gathers)
        gather_watched(&job);
    if (w->options.check)
        check(&job);
    deregister_all(&job);
    end(&job);
    rank_close(r);
}

static double worst(const struct work *w, size_t field)
{
    double most = 0;
    for (long r = 0; r < w->options.ranks; r++) {
        double one;
        memcpy(&one, (const char *)&w->costs[r] + field, sizeof one);
        most = one > most ? one : most;
    }
    return most;
}
#define WORST(field) worst(w, offsetof(struct costs, field))

static void report(const struct work *w)
{
    printf("%ld communicators, %ld segments\n", w->options.comms, w->options.segments);
    printf("register, us a call      %10.2f\n", WORST(register_us));
    printf("register, longest, us    %10.2f\n", WORST(register_worst_us));
    printf("deregister, us a call    %10.2f\n", WORST(deregister_us));
    printf("watchdog's longest, us   %10.2f\n", WORST(watched_us));
    printf("longest gather call, us  %10.2f\n", WORST(call_us));
    printf("held, MiB                %10.1f\n", WORST(held_mib));
}

int main(int argc, char **argv)
{
    static struct work work;
    struct options *o = &work.options;
    const int rest = options_parse(option_rows, OPTIONS_FIRST, o, argc, argv);
    if (rest <= 0)
        return -rest;
    if (rest < argc)
        return options_wrong(option_rows, "unexpected argument: %s", argv[rest]);
    if (o->shard * o->ranks > o->kib)
        return options_wrong(option_rows, "--shard: %ld shards of %ld KiB do not fit a segment of %ld", o->ranks,
                             o->shard, o->kib);
    work.costs = mmap(NULL, MOST_RANKS * sizeof *work.costs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(work.costs != MAP_FAILED, "no shared page");
    const int status = ranks_run((int)o->ranks, (int)o->seconds, body, &work);
    if (status == 0)
        report(&work);
    return status;
}
