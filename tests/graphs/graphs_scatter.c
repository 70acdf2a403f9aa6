/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that hold reduce-scatters, at the end of their communicator; all else of them is in tests/scatter. */
#include "graphs.h"

#include <signal.h>

#define COUNT 3000 /* floats that each rank gets */
#define LIMIT_MS 20000

struct scatter {
    float *send, *recv, *host;
};

static void open_buffers(const struct world *w, struct scatter *s)
{
    const size_t all = COUNT * sizeof(float) * (size_t)w->nranks;
    s->send = memory_get(all);
    s->recv = memory_get(COUNT * sizeof(float));
    CUDA(cudaMallocHost((void **)&s->host, all));
}

static void close_buffers(const struct scatter *s)
{
    memory_put(s->send);
    memory_put(s->recv);
    CUDA(cudaFreeHost(s->host));
}

static cudaGraphExec_t captured(struct world *w, const struct scatter *s)
{
    capture_begin(w->s);
    NCCL(ncclReduceScatter(s->send, s->recv, COUNT, ncclFloat32, ncclSum, w->comm, w->s));
    return graph_executable(capture_end(w->s));
}

static void run(struct world *w, const struct scatter *s, cudaGraphExec_t exec)
{
    const size_t n = COUNT * (size_t)w->nranks;
    for (size_t i = 0; i < n; i++)
        s->host[i] = (float)((i + w->seed) % 1000 + (size_t)w->rank);
    CUDA(cudaMemcpyAsync(s->send, s->host, n * sizeof(float), cudaMemcpyHostToDevice, w->s));
    CUDA(cudaMemsetAsync(s->recv, 0x7f, COUNT * sizeof(float), w->s));
    CUDA(cudaGraphLaunch(exec, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    CUDA(cudaMemcpyAsync(s->host, s->recv, COUNT * sizeof(float), cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    size_t wrong_ones = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const size_t at = i + (size_t)w->rank * COUNT + w->seed;
        wrong_ones += s->host[i] != (float)(at % 1000 * (size_t)w->nranks + (size_t)(w->nranks * (w->nranks - 1) / 2));
    }
    EXPECT(wrong_ones == 0, "rank %d: %zu of %d sums are wrong", w->rank, wrong_ones, COUNT);
    w->seed++;
}

static void destroyed(struct world *w)
{
    struct scatter s;
    open_buffers(w, &s);
    cudaGraphExec_t exec = captured(w, &s);
    for (int i = 0; i < 3; i++)
        run(w, &s, exec);
    outlives(w, exec);
    close_buffers(&s);
}

static void killed(struct world *w)
{
    struct scatter s;
    ncclResult_t error = ncclSuccess;
    open_buffers(w, &s);
    cudaGraphExec_t exec = captured(w, &s);
    run(w, &s, exec);
    if (w->rank == w->nranks - 1) {
        sleep_ms(200);
        raise(SIGKILL);
    }
    launch_or_told(w, exec);
    launch_or_told(w, exec);
    for (int ms = 0; ms < LIMIT_MS && error == ncclSuccess; ms += 10) {
        sleep_ms(10);
        NCCL(ncclCommGetAsyncError(w->comm, &error));
    }
    EXPECT(error != ncclSuccess, "rank %d: nobody says that a rank is gone", w->rank);
    EXPECT(cudaGraphLaunch(exec, w->s) != cudaSuccess, "rank %d: a graph of a broken communicator runs", w->rank);
    cudaGetLastError();
    CUDA(cudaGraphExecDestroy(exec));
    NCCL(ncclCommAbort(w->comm));
    w->comm = NULL;
    CUDA(cudaStreamSynchronize(w->s));
    close_buffers(&s);
}

/* A rank launches once more than the others: its replay waits, until an abort. */
static void more(struct world *w)
{
    struct scatter s;
    open_buffers(w, &s);
    cudaGraphExec_t exec = captured(w, &s);
    run(w, &s, exec);
    if (w->rank == 0) {
        CUDA(cudaGraphLaunch(exec, w->s));
        sleep_ms(300);
        EXPECT(cudaStreamQuery(w->s) == cudaErrorNotReady, "a reduce-scatter that the others do not make is over");
        cudaGetLastError();
        CUDA(cudaGraphExecDestroy(exec));
        NCCL(ncclCommAbort(w->comm));
        w->comm = NULL;
        CUDA(cudaStreamSynchronize(w->s));
    } else {
        sleep_ms(1500);
        CUDA(cudaGraphExecDestroy(exec));
        NCCL(ncclCommAbort(w->comm));
        w->comm = NULL;
    }
    close_buffers(&s);
}

const struct graph_case graph_scatter_cases[] = {{.name = "scatter-destroyed", .body = destroyed},
                                                 {.name = "scatter-killed", .body = killed, .kills = true},
                                                 {.name = "scatter-more", .body = more},
                                                 {.name = NULL}};
