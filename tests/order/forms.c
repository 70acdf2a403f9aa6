/* SPDX-License-Identifier: Apache-2.0 */
#include "forms.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define POISON 0xa5
#define WRONG_PRINTED 8

static _Atomic int own_wrongs;
static _Atomic int *wrongs = &own_wrongs; /* forms_run: shared by all processes of the program */

void wrong(const char *fmt, ...)
{
    if ((*wrongs)++ >= WRONG_PRINTED)
        return;
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "wrong: %s\n", text);
}

int wrong_count(void)
{
    return *wrongs;
}

int forms_run(int procs, int seconds, rank_body body, void *arg)
{
    wrongs = mmap(NULL, sizeof *wrongs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (wrongs == MAP_FAILED)
        return 2;
    int status = ranks_run(procs, seconds, body, arg);
    if (*wrongs)
        fprintf(stderr, "%d wrong results\n", *wrongs);
    return status ? status : *wrongs ? 1 : 0;
}

void shard_fill(uint8_t *host, size_t bytes, uint64_t seed, int rank, bool floats)
{
    uint64_t stream = seed * 64 + (uint64_t)rank;
    if (!floats)
        hash_fill(host, bytes, stream);
    for (size_t i = 0; floats && i + 4 <= bytes; i += 4) {
        float v = (float)(int)(hash64(stream, i) % 9) - 4;
        memcpy(host + i, &v, 4);
    }
}

void gather_alloc(struct gather *g, int rank, int nranks, size_t shard)
{
    *g = (struct gather){.rank = rank, .nranks = nranks, .shard = shard};
    CUDA(cudaMalloc((void **)&g->send, shard));
    CUDA(cudaMalloc((void **)&g->recv, shard * (size_t)nranks));
    CUDA(cudaMallocHost((void **)&g->host, shard * (size_t)nranks));
}

void gather_free(struct gather *g)
{
    CUDA(cudaFree(g->send));
    CUDA(cudaFree(g->recv));
    CUDA(cudaFreeHost(g->host));
}

void gather_load(struct gather *g, uint64_t seed, cudaStream_t stream)
{
    shard_fill(g->host, g->shard, seed, g->rank, g->floats);
    CUDA(cudaMemsetAsync(g->recv, POISON, g->shard * (size_t)g->nranks, stream));
    CUDA(cudaMemcpyAsync(g->send, g->host, g->shard, cudaMemcpyHostToDevice, stream));
}

void nccl_connects(ncclComm_t comm, cudaStream_t stream)
{
    const size_t count = 1024;
    float *sum;
    CUDA(cudaMalloc((void **)&sum, count * sizeof *sum));
    CUDA(cudaMemsetAsync(sum, 0, count * sizeof *sum, stream));
    NCCL(ncclAllReduce(sum, sum, count, ncclFloat, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaFree(sum));
}

void gather_call(struct gather *g, ncclComm_t comm, cudaStream_t stream)
{
    NCCL(ncclAllGather(g->send, g->recv, g->shard, ncclUint8, comm, stream));
}

void bytes_check(const struct gather *g, const uint8_t *host, uint64_t seed, const char *what)
{
    uint8_t *want = malloc(g->shard);
    for (int r = 0; r < g->nranks; r++) {
        const uint8_t *have = host + (size_t)r * g->shard;
        shard_fill(want, g->shard, seed, r, g->floats);
        if (!memcmp(have, want, g->shard))
            continue;
        size_t i = 0;
        while (have[i] == want[i])
            i++;
        wrong("rank %d: %s: shard %d of %zu bytes: byte %zu is %02x, expected %02x", g->rank, what, r, g->shard, i,
              have[i], want[i]);
    }
    free(want);
}

void gather_check(struct gather *g, uint64_t seed, cudaStream_t stream, const char *what)
{
    CUDA(cudaMemcpyAsync(g->host, g->recv, g->shard * (size_t)g->nranks, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    bytes_check(g, g->host, seed, what);
}

void comm_check(ncclComm_t comm, cudaStream_t stream, size_t shard, int rounds, const char *what)
{
    int rank, nranks;
    struct gather g;
    NCCL(ncclCommUserRank(comm, &rank));
    NCCL(ncclCommCount(comm, &nranks));
    gather_alloc(&g, rank, nranks, shard);
    for (int round = 0; round < rounds; round++) {
        gather_load(&g, (uint64_t)round + 1, stream);
        gather_call(&g, comm, stream);
        gather_check(&g, (uint64_t)round + 1, stream, what);
    }
    gather_free(&g);
}

void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static void CUDART_CB sleep_here(void *ms)
{
    sleep_ms((unsigned)(uintptr_t)ms);
}

void capture_begin(cudaStream_t stream)
{
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

cudaGraph_t capture_end(cudaStream_t stream)
{
    cudaGraph_t graph;
    CUDA(cudaStreamEndCapture(stream, &graph));
    return graph;
}

cudaGraphExec_t graph_executable(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

void hold(cudaStream_t stream, unsigned ms)
{
    CUDA(cudaLaunchHostFunc(stream, sleep_here, (void *)(uintptr_t)ms));
}

struct start {
    void (*body)(void *one);
    void *one;
};

static void *run_thread(void *arg)
{
    const struct start *s = arg;
    s->body(s->one);
    return NULL;
}

void on_threads(int n, void *each, size_t size, void (*body)(void *one))
{
    pthread_t thread[64];
    struct start start[64];
    for (int t = 0; t < n; t++) {
        start[t] = (struct start){body, (char *)each + (size_t)t * size};
        if (pthread_create(&thread[t], NULL, run_thread, &start[t]))
            DIE(3, "no thread");
    }
    for (int t = 0; t < n; t++)
        pthread_join(thread[t], NULL);
}
