/* SPDX-License-Identifier: Apache-2.0 */
/* Freeing memory that gathers used, and that peers have mapped, while another thread captures. The captured stream is
 * not of the freed memory's business: what the mode of the capture allows succeeds, and the capture lives. The program
 * passes without slipring as well.
 *
 *   captured thread-local|relaxed|global
 */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include "../programs/ranks.h"

#define SHARD ((size_t)1 << 20)
#define GATHERS 30
#define PAUSE_MS 20 /* between gathers, so that the peers map the buffers meanwhile */
#define LATE_MS 50

struct work {
    struct rank *r;
    enum cudaStreamCaptureMode mode;
    uint8_t *send, *recv, *copy;
    size_t all;
    pthread_barrier_t turn;
    cudaError_t ended;
};

static void pause_ms(void *ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(intptr_t)ms * 1000000}, NULL);
}

/* Another thread: begins to capture, ends it when the main one says so, and runs what it has. */
static void *capture(void *arg)
{
    struct work *w = arg;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    void *p;
    CUDA(cudaSetDevice(w->r->rank));
    CUDA(cudaMalloc(&p, 4096));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamBeginCapture(stream, w->mode));
    CUDA(cudaMemsetAsync(p, 7, 4096, stream));
    pthread_barrier_wait(&w->turn);
    pthread_barrier_wait(&w->turn);
    w->ended = cudaStreamEndCapture(stream, &graph);
    if (w->ended == cudaSuccess) {
        uint8_t seen[4096];
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaMemcpyAsync(seen, p, 4096, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        CHECK(seen[0] == 7 && seen[4095] == 7, "what was captured does not run");
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
    }
    cudaGetLastError();
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(p));
    return NULL;
}

static void gather(struct work *w, int value)
{
    CUDA(cudaMemsetAsync(w->send, value + w->r->rank, SHARD, w->r->stream));
    NCCL(ncclAllGather(w->send, w->recv, SHARD, ncclUint8, w->r->comm, w->r->stream));
}

/* What is queued reads the memory until after the free; who gets it next does not disturb that. */
static void free_in_use(struct work *w, int value)
{
    cudaStream_t other;
    uint8_t *host = malloc(w->all), *q;
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    gather(w, value);
    CUDA(cudaLaunchHostFunc(w->r->stream, pause_ms, (void *)LATE_MS));
    CUDA(cudaMemcpyAsync(w->copy, w->recv, w->all, cudaMemcpyDeviceToDevice, w->r->stream));
    CUDA(cudaFree(w->send));
    CUDA(cudaFree(w->recv));
    CUDA(cudaMalloc((void **)&w->send, SHARD));
    CUDA(cudaMalloc((void **)&q, w->all));
    CUDA(cudaMemsetAsync(q, 99, w->all, other));
    CUDA(cudaStreamSynchronize(other));
    CUDA(cudaMemcpyAsync(host, w->copy, w->all, cudaMemcpyDeviceToHost, w->r->stream));
    CUDA(cudaStreamSynchronize(w->r->stream));
    for (int p = 0; p < w->r->nranks; p++) {
        const uint8_t *shard = host + (size_t)p * SHARD;
        CHECK(shard[0] == value + p && memcmp(shard, shard + 1, SHARD - 1) == 0, "rank %d: wrong shard %d", w->r->rank,
              p);
    }
    CUDA(cudaStreamDestroy(other));
    w->recv = q;
    free(host);
}

static void refused(const struct work *w, void *p)
{
    cudaError_t e = cudaFree(p);
    CHECK(e == cudaErrorStreamCaptureUnsupported, "rank %d: cudaFree: %s", w->r->rank, cudaGetErrorName(e));
    cudaGetLastError();
}

static void body(struct rank *r)
{
    struct work w = {.r = r, .mode = *(const enum cudaStreamCaptureMode *)r->arg, .all = SHARD * (size_t)r->nranks};
    bool global = w.mode == cudaStreamCaptureModeGlobal;
    pthread_t thread;
    rank_open(r);
    CUDA(cudaMalloc((void **)&w.send, SHARD));
    CUDA(cudaMalloc((void **)&w.recv, w.all));
    CUDA(cudaMalloc((void **)&w.copy, w.all));
    for (int i = 0; i < GATHERS; i++) {
        gather(&w, i);
        CUDA(cudaStreamSynchronize(r->stream));
        pause_ms((void *)PAUSE_MS);
    }
    pthread_barrier_init(&w.turn, NULL, 2);
    CHECK(pthread_create(&thread, NULL, capture, &w) == 0, "no thread");
    pthread_barrier_wait(&w.turn);
    if (global) {
        refused(&w, w.send);
        refused(&w, w.recv);
    } else {
        free_in_use(&w, 100);
    }
    pthread_barrier_wait(&w.turn);
    CHECK(pthread_join(thread, NULL) == 0, "no end");
    CHECK((w.ended == cudaSuccess) == !global, "rank %d: the capture's end: %s", r->rank, cudaGetErrorName(w.ended));
    free_in_use(&w, 150);
    CUDA(cudaFree(w.send));
    CUDA(cudaFree(w.recv));
    CUDA(cudaFree(w.copy));
    rank_close(r);
}

int main(int argc, char **argv)
{
    static const char *const name[] = {[cudaStreamCaptureModeGlobal] = "global",
                                       [cudaStreamCaptureModeThreadLocal] = "thread-local",
                                       [cudaStreamCaptureModeRelaxed] = "relaxed"};
    for (enum cudaStreamCaptureMode m = 0; argc == 2 && m < 3; m++)
        if (strcmp(argv[1], name[m]) == 0)
            return ranks_run(2, 60, body, &m);
    fprintf(stderr, "usage: captured thread-local|relaxed|global\n");
    return 2;
}
