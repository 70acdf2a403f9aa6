/* SPDX-License-Identifier: Apache-2.0 */
/* The sender's side: what comes behind the gather may overwrite `send`, and what comes before it is done before it
 * starts. */
#include "order.h"

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static void then_see(struct look *l)
{
    see(l, l->g.recv, l->s);
}

static void overwrite_memset(struct look *l)
{
    CUDA(cudaMemsetAsync(l->g.send, 0xee, SHARD, l->s));
    then_see(l);
}

static void overwrite_h2d(struct look *l)
{
    memset(l->g.host, 0xdd, SHARD);
    CUDA(cudaMemcpyAsync(l->g.send, l->g.host, SHARD, cudaMemcpyHostToDevice, l->s));
    then_see(l);
}

static void overwrite_d2d(struct look *l)
{
    CUDA(cudaMemcpyAsync(l->g.send, l->side, SHARD, cudaMemcpyDeviceToDevice, l->s));
    then_see(l);
}

static void overwrite_blocking(struct look *l)
{
    CUDA(cudaMemset(l->g.send, 0xee, SHARD));
    then_see(l);
}

static void overwrite_other_stream(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    CUDA(cudaMemsetAsync(l->g.send, 0xee, SHARD, l->other));
    then_see(l);
}

/* A kernel, here a GEMM, writes over `send`; it does not read the gathered buffer. */
static void overwrite_gemm(struct look *l)
{
    const float alpha = 1, beta = 0;
    int n = (int)(SHARD / sizeof(float) / GEMM_K);
    BLAS(cublasSetStream(l->blas, l->s));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, n, GEMM_K, &alpha, l->one, GEMM_K,
                     (const float *)(const void *)l->side, GEMM_K, &beta, (float *)(void *)l->g.send, GEMM_K));
    then_see(l);
}

/* The GEMM that reads the gathered buffer writes over `send`. */
static void consume_into_send(struct look *l)
{
    const float alpha = 2, beta = 0;
    int n = (int)(l->all / sizeof(float) / GEMM_K);
    BLAS(cublasSetStream(l->blas, l->s));
    /* A row of ones would not fit the form; the first GEMM_K / nranks rows of the unit matrix do: C has the bytes of
     * send. */
    int m = GEMM_K / l->g.nranks;
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, GEMM_K, &alpha, l->one, GEMM_K,
                     (const float *)(const void *)l->g.recv, GEMM_K, &beta, (float *)(void *)l->g.send, m));
    then_see(l);
}

/* What the host does once it has seen the gather's end: new data for the next one, in no order with the stream. */
static void load_next(struct look *l)
{
    memset(l->g.host, 0xdd, SHARD);
    CUDA(cudaMemcpy(l->g.send, l->g.host, SHARD, cudaMemcpyHostToDevice));
}

static void gemm_then_see(struct look *l)
{
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
}

static void overwrite_after_query(struct look *l)
{
    cudaError_t e;
    while ((e = cudaStreamQuery(l->s)) == cudaErrorNotReady)
        sleep_ms(1);
    CUDA(e);
    load_next(l);
    gemm_then_see(l);
}

/* The gathered data is changed by a stream that the gather's own one then waits for. */
static void change_after_query(struct look *l)
{
    const size_t own = (size_t)l->g.rank * SHARD;
    cudaError_t e;
    while ((e = cudaStreamQuery(l->s)) == cudaErrorNotReady)
        sleep_ms(1);
    CUDA(e);
    CUDA(cudaMemsetAsync(l->g.recv + own, 0, SHARD, l->other));
    CUDA(cudaEventRecord(l->event, l->other));
    CUDA(cudaStreamWaitEvent(l->s, l->event, 0));
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
    for (size_t i = 0; i < SHARD; i++)
        if (l->seen[own + i] != 0) {
            wrong("rank %d: the GEMM read byte %zu of the own shard as it was before it was changed", l->g.rank, i);
            break;
        }
    shard_fill(l->seen + own, SHARD, l->seed, l->g.rank, true);
}

/* The same by another thread, while this one's GEMM is on its way to the driver (SOFTGPU_FAIL holds it up). */
static _Thread_local struct beside {
    struct look *l;
    int device;
    _Atomic bool called;
} beside;

static void *load_beside(void *arg)
{
    struct beside *b = arg;
    cudaError_t e;
    CUDA(cudaSetDevice(b->device));
    while (!atomic_load(&b->called))
        sleep_ms(1);
    sleep_ms(5);
    while ((e = cudaStreamQuery(b->l->s)) == cudaErrorNotReady)
        sleep_ms(1);
    CUDA(e);
    load_next(b->l);
    return NULL;
}

static void overwrite_beside(struct look *l)
{
    pthread_t thread;
    beside.l = l;
    atomic_store(&beside.called, false);
    NCCL(ncclCommCuDevice(l->comm, &beside.device));
    CHECK(pthread_create(&thread, NULL, load_beside, &beside) == 0, "no thread");
    sleep_ms(150); /* the gather ends, and nobody sees it */
    atomic_store(&beside.called, true);
    gemm_identity(l, l->g.recv, l->s);
    pthread_join(thread, NULL);
    see(l, l->side, l->s);
}

/* The context is waited for, by a free of its memory, where another one is current. */
static void overwrite_after_elsewhere(struct look *l)
{
    int here, devices;
    CUdeviceptr memory;
    DRIVER(cuMemAlloc(&memory, 256));
    CUDA(cudaGetDevice(&here));
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice((here + l->g.nranks) % devices));
    CUDA(cudaFree(NULL));
    DRIVER(cuMemFree(memory));
    CUDA(cudaSetDevice(here));
    load_next(l);
    gemm_then_see(l);
}

static void overwrite_reduce(struct look *l)
{
    NCCL(ncclAllReduce(l->g.send, l->g.send, SHARD, ncclUint8, ncclSum, l->comm, l->s));
    then_see(l);
}

/* ---- what stands before the gather on the stream ---- */

static void hide_send(struct look *l)
{
    CUDA(cudaMemcpyAsync(l->side, l->g.send, SHARD, cudaMemcpyDeviceToDevice, l->s));
    CUDA(cudaMemsetAsync(l->g.send, 0x77, SHARD, l->s));
}

static void produce(struct look *l)
{
    CUDA(cudaMemcpyAsync(l->g.send, l->side, SHARD, cudaMemcpyDeviceToDevice, l->s));
}

static void produce_elsewhere(struct look *l)
{
    if (l->late)
        hold(l->other, 40);
    CUDA(cudaMemcpyAsync(l->g.send, l->side, SHARD, cudaMemcpyDeviceToDevice, l->other));
    CUDA(cudaEventRecord(l->event, l->other));
    CUDA(cudaStreamWaitEvent(l->s, l->event, 0));
}

/* The buffer is still being read when the gather is called. */
static void read_old(struct look *l)
{
    CUDA(cudaMemcpyAsync(l->side, l->g.recv, l->all, cudaMemcpyDeviceToDevice, l->s));
}

static void read_old_gemm(struct look *l)
{
    gemm_identity(l, l->g.recv, l->s);
}

static void expect_old(struct look *l)
{
    see(l, l->side, l->s);
    for (size_t i = 0; i < l->all; i++)
        if (l->seen[i] != 0xa5) {
            wrong("rank %d: the gather wrote byte %zu before the stream had read it", l->g.rank, i);
            break;
        }
    then_see(l);
}

const struct order_case order_send_cases[] = {
    {.name = "overwrite-memset", .look = overwrite_memset},
    {.name = "overwrite-h2d", .look = overwrite_h2d},
    {.name = "overwrite-d2d", .look = overwrite_d2d},
    {.name = "overwrite-blocking", .look = overwrite_blocking, .stream = STREAM_BLOCKING},
    {.name = "overwrite-other-stream", .look = overwrite_other_stream},
    {.name = "overwrite-gemm", .look = overwrite_gemm, .floats = true},
    {.name = "overwrite-after-query", .look = overwrite_after_query, .floats = true, .quiet = true},
    {.name = "change-after-query", .look = change_after_query, .floats = true, .quiet = true},
    {.name = "overwrite-beside", .look = overwrite_beside, .floats = true, .quiet = true},
    {.name = "overwrite-after-elsewhere", .look = overwrite_after_elsewhere, .floats = true, .quiet = true},
    {.name = "consume-into-send", .look = consume_into_send, .floats = true},
    {.name = "overwrite-reduce", .look = overwrite_reduce},
    {.name = "produce", .look = then_see, .before = hide_send, .on_the_way = produce},
    {.name = "produce-elsewhere", .look = then_see, .before = hide_send, .on_the_way = produce_elsewhere},
    {.name = "read-old", .look = expect_old, .on_the_way = read_old},
    {.name = "read-old-gemm", .look = expect_old, .on_the_way = read_old_gemm, .floats = true},
    {.name = NULL},
};
