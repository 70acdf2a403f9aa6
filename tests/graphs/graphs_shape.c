/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a graph: gathers and the GEMMs behind them, on one stream or two. */
#include "graphs.h"

#include <string.h>

#define REPLAYS 4
#define MANY 6
#define K 64

/* ---- a GEMM consumes what is gathered ---- */

struct product {
    struct gather g;
    cublasHandle_t blas;
    float *one, *out;
};

static void product_open(struct world *w, struct product *p)
{
    float unit[K * K] = {0};
    for (int i = 0; i < K; i++)
        unit[i * K + i] = 1;
    buffers_open(w, &p->g, SHARD, false);
    p->g.floats = true;
    BLAS(cublasCreate(&p->blas));
    CUDA(cudaMalloc((void **)&p->one, sizeof unit));
    CUDA(cudaMalloc((void **)&p->out, SHARD * (size_t)w->nranks));
    to_device(p->one, unit, sizeof unit);
}

static void product_close(struct product *p)
{
    BLAS(cublasDestroy(p->blas));
    CUDA(cudaFree(p->one));
    CUDA(cudaFree(p->out));
    buffers_close(&p->g);
}

/* out <- 1 x recv. */
static void multiply(struct world *w, struct product *p)
{
    const float alpha = 1, beta = 0;
    const int columns = (int)(SHARD * (size_t)w->nranks / sizeof(float) / K);
    BLAS(cublasSetStream(p->blas, w->s));
    BLAS(cublasSgemm(p->blas, CUBLAS_OP_N, CUBLAS_OP_N, K, columns, K, &alpha, p->one, K,
                     (const float *)(const void *)p->g.recv, K, &beta, p->out, K));
}

static void see_product(struct world *w, struct product *p, const char *what)
{
    CUDA(cudaMemcpyAsync(p->g.host, p->out, SHARD * (size_t)w->nranks, cudaMemcpyDeviceToHost, w->s));
    CUDA(cudaStreamSynchronize(w->s));
    bytes_check(&p->g, p->g.host, w->seed, what);
    gather_check(&p->g, w->seed, w->s, what);
}

static void on_one_stream(struct world *w, struct product *p)
{
    gather_call(&p->g, w->comm, w->s);
    multiply(w, p);
}

/* As PyTorch's collectives: on a stream of their own, with events. */
static void on_two_streams(struct world *w, struct product *p)
{
    CUDA(cudaEventRecord(w->event, w->s));
    CUDA(cudaStreamWaitEvent(w->side, w->event, 0));
    gather_call(&p->g, w->comm, w->side);
    CUDA(cudaEventRecord(w->back, w->side));
    CUDA(cudaStreamWaitEvent(w->s, w->back, 0));
    multiply(w, p);
}

static void gemm(struct world *w, void (*both)(struct world *, struct product *))
{
    struct product p;
    product_open(w, &p);
    multiply(w, &p); /* what cuBLAS does at its first call is not recorded */
    CUDA(cudaStreamSynchronize(w->s));
    capture_begin(w->s);
    both(w, &p);
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int i = 0; i < 2 * REPLAYS; i++) {
        w->seed++;
        gather_load(&p.g, w->seed, w->s);
        CUDA(cudaMemsetAsync(p.out, 0x7f, SHARD * (size_t)w->nranks, w->s));
        if (i % 2 && i > REPLAYS)
            both(w, &p);
        else
            CUDA(cudaGraphLaunch(exec, w->s));
        see_product(w, &p, "a GEMM in a graph");
    }
    CUDA(cudaGraphExecDestroy(exec));
    product_close(&p);
}

static void gemm_stream(struct world *w)
{
    gemm(w, on_one_stream);
}

static void gemm_event(struct world *w)
{
    gemm(w, on_two_streams);
}

/* Two such graphs, launched in another order by each rank: a shard is not where it was the last time. */
static void gemm_crossed(struct world *w)
{
    struct product p[2];
    cudaGraphExec_t exec[2];
    for (int i = 0; i < 2; i++) {
        product_open(w, &p[i]);
        multiply(w, &p[i]);
        CUDA(cudaStreamSynchronize(w->s));
        capture_begin(w->s);
        on_one_stream(w, &p[i]);
        exec[i] = graph_executable(capture_end(w->s));
    }
    for (int n = 0; n < 5 * REPLAYS; n++) {
        const uint64_t seed = w->seed;
        for (int i = 0; i < 2; i++) {
            const int mine = (i + n / 2 * w->rank) % 2;
            gather_load(&p[mine].g, seed + 1 + (uint64_t)i, w->s);
            CUDA(cudaMemsetAsync(p[mine].out, 0x7f, SHARD * (size_t)w->nranks, w->s));
            CUDA(cudaGraphLaunch(exec[mine], w->s));
        }
        for (int i = 0; i < 2; i++) {
            w->seed = seed + 1 + (uint64_t)i;
            see_product(w, &p[(i + n / 2 * w->rank) % 2], "in another order");
        }
    }
    for (int i = 0; i < 2; i++) {
        CUDA(cudaGraphExecDestroy(exec[i]));
        product_close(&p[i]);
    }
}

/* ---- more than one gather ---- */

static void several(struct world *w)
{
    static const size_t shards[MANY] = {1, 4097, 65536, 70001, 131072, 262147};
    struct gather g[MANY];
    for (int i = 0; i < MANY; i++)
        buffers_open(w, &g[i], shards[i], i % 2);
    capture_begin(w->s);
    for (int i = 0; i < MANY; i++)
        gather_call(&g[i], w->comm, w->s);
    gather_call(&g[2], w->comm, w->s); /* once more */
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int n = 0; n < REPLAYS; n++) {
        w->seed++;
        for (int i = 0; i < MANY; i++)
            gather_load(&g[i], w->seed * MANY + (uint64_t)i, w->s);
        CUDA(cudaGraphLaunch(exec, w->s));
        for (int i = 0; i < MANY; i++)
            gather_check(&g[i], w->seed * MANY + (uint64_t)i, w->s, "one of several");
        eager(w, &g[n % MANY], "between replays");
    }
    CUDA(cudaGraphExecDestroy(exec));
    for (int i = 0; i < MANY; i++)
        buffers_close(&g[i]);
}

/* The second gather sends what the first has gathered. */
static void chain(struct world *w)
{
    struct gather a, b;
    buffers_open(w, &a, SHARD, false);
    buffers_open(w, &b, SHARD * (size_t)w->nranks, false);
    capture_begin(w->s);
    gather_call(&a, w->comm, w->s);
    NCCL(ncclAllGather(a.recv, b.recv, b.shard, ncclUint8, w->comm, w->s));
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int n = 0; n < REPLAYS; n++) {
        w->seed++;
        gather_load(&a, w->seed, w->s);
        CUDA(cudaMemsetAsync(b.recv, 0x11, b.shard * (size_t)w->nranks, w->s));
        CUDA(cudaGraphLaunch(exec, w->s));
        for (int r = 0; r < w->nranks; r++) {
            CUDA(cudaMemcpyAsync(a.host, b.recv + b.shard * (size_t)r, b.shard, cudaMemcpyDeviceToHost, w->s));
            CUDA(cudaStreamSynchronize(w->s));
            bytes_check(&a, a.host, w->seed, "gathered twice");
        }
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&a);
    buffers_close(&b);
}

/* ---- how it is recorded ---- */

static void modes(struct world *w)
{
    static const enum cudaStreamCaptureMode mode[] = {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal,
                                                      cudaStreamCaptureModeGlobal};
    struct gather g;
    buffers_open(w, &g, SHARD, false);
    for (int m = 0; m < (w->threads ? 2 : LENGTH(mode)); m++) {
        cudaGraph_t graph;
        CUDA(cudaStreamBeginCapture(w->s, mode[m]));
        gather_call(&g, w->comm, w->s);
        CUDA(cudaStreamEndCapture(w->s, &graph));
        cudaGraphExec_t exec = graph_executable(graph);
        for (int n = 0; n < REPLAYS; n++)
            replay(w, exec, &g, "captured in any mode");
        CUDA(cudaGraphExecDestroy(exec));
    }
    buffers_close(&g);
}

/* The side stream is in the capture by events alone; a copy behind the gather, which the stream does not know. */
static void fork_join(struct world *w)
{
    struct gather g;
    const size_t all = SHARD * (size_t)w->nranks;
    uint8_t *copy;
    buffers_open(w, &g, SHARD, false);
    CUDA(cudaMalloc((void **)&copy, all));
    capture_begin(w->s);
    CUDA(cudaEventRecord(w->event, w->s));
    CUDA(cudaStreamWaitEvent(w->side, w->event, 0));
    gather_call(&g, w->comm, w->side);
    CUDA(cudaMemsetAsync(copy, 0x33, all, w->s)); /* beside it */
    CUDA(cudaEventRecord(w->back, w->side));
    CUDA(cudaStreamWaitEvent(w->s, w->back, 0));
    CUDA(cudaMemcpyAsync(copy, g.recv, all, cudaMemcpyDeviceToDevice, w->s));
    cudaGraphExec_t exec = graph_executable(capture_end(w->s));
    for (int n = 0; n < REPLAYS; n++) {
        w->seed++;
        gather_load(&g, w->seed, w->s);
        if (n % w->nranks == w->rank)
            hold(w->s, 20);
        CUDA(cudaGraphLaunch(exec, w->s));
        CUDA(cudaMemcpyAsync(g.host, copy, all, cudaMemcpyDeviceToHost, w->s));
        CUDA(cudaStreamSynchronize(w->s));
        bytes_check(&g, g.host, w->seed, "copied in the graph");
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaFree(copy));
    buffers_close(&g);
}

/* Streams of the replays differ, and overtake each other unless something orders them. */
static void streams(struct world *w)
{
    struct gather a, b;
    buffers_open(w, &a, SHARD, false);
    buffers_open(w, &b, 3 * SHARD, true);
    cudaGraphExec_t exec = graph_executable(record(w, &a));
    for (int n = 0; n < 3 * REPLAYS; n++) {
        cudaStream_t on = n % 2 ? w->side : w->s, off = n % 2 ? w->s : w->side;
        w->seed++;
        gather_load(&a, w->seed, on);
        gather_load(&b, w->seed + 1000, off);
        CUDA(cudaDeviceSynchronize());
        if (n % w->nranks == w->rank)
            hold(n % 4 < 2 ? on : off, 10);
        if (n % 4 < 2) {
            CUDA(cudaGraphLaunch(exec, on));
            gather_call(&b, w->comm, off);
        } else {
            gather_call(&b, w->comm, off);
            CUDA(cudaGraphLaunch(exec, on));
        }
        gather_check(&b, w->seed + 1000, off, "beside a replay");
        gather_check(&a, w->seed, on, "beside a gather");
    }
    CUDA(cudaGraphExecDestroy(exec));
    buffers_close(&a);
    buffers_close(&b);
}

const struct graph_case graph_shape_cases[] = {{.name = "gemm-stream", .body = gemm_stream},
                                               {.name = "gemm-event", .body = gemm_event},
                                               {.name = "gemm-crossed", .body = gemm_crossed},
                                               {.name = "several", .body = several},
                                               {.name = "chain", .body = chain},
                                               {.name = "modes", .body = modes},
                                               {.name = "fork", .body = fork_join},
                                               {.name = "streams", .body = streams},
                                               {.name = NULL}};
