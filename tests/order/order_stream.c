/* SPDX-License-Identifier: Apache-2.0 */
/* Streams look: copies, NCCL, GEMMs and graphs behind the gather, on its stream or on one that is ordered after it. */
#include "order.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

static void copy_async(struct look *l)
{
    see(l, l->g.recv, l->s);
}

static void copy_blocking(struct look *l)
{
    CUDA(cudaMemcpy(l->seen, l->g.recv, l->all, cudaMemcpyDeviceToHost));
}

static void copy_2d(struct look *l)
{
    size_t row = l->all / 64;
    CUDA(cudaMemcpy2DAsync(l->seen, row, l->g.recv, row, row, 64, cudaMemcpyDeviceToHost, l->s));
    CUDA(cudaStreamSynchronize(l->s));
}

static void copy_peer(struct look *l)
{
    int device;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaMemcpyPeerAsync(l->side, device, l->g.recv, device, l->all, l->s));
    see(l, l->side, l->s);
}

/* What is written behind the gather stays. */
static void overwrite_recv(struct look *l)
{
    uint8_t *host = l->g.host;
    for (int r = 0; r < l->g.nranks; r++)
        shard_fill(host + (size_t)r * SHARD, SHARD, l->seed, r, false);
    CUDA(cudaMemcpyAsync(l->g.recv, host, l->all, cudaMemcpyHostToDevice, l->s));
    /* The gather brings the same data; so every byte is changed once more. */
    CUDA(cudaMemsetAsync(l->g.recv, 7, l->all, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    sleep_ms(60); /* what should have been joined has time to come */
    see(l, l->g.recv, l->s);
    for (size_t i = 0; i < l->all; i++)
        if (l->seen[i] != 7) {
            wrong("rank %d: byte %zu of recv was written after the memset", l->g.rank, i);
            break;
        }
    memcpy(l->seen, host, l->all);
}

/* ---- other streams, ordered by an event ---- */

static void hop(struct look *l, cudaStream_t from, cudaStream_t to)
{
    CUDA(cudaEventRecord(l->event, from));
    CUDA(cudaStreamWaitEvent(to, l->event, 0));
}

static void event_third(struct look *l)
{
    hop(l, l->s, l->other);
    see(l, l->g.recv, l->other);
}

static void event_two_hops(struct look *l)
{
    hop(l, l->s, l->other);
    hop(l, l->other, l->third);
    see(l, l->g.recv, l->third);
}

/* ---- default streams ---- */

static void legacy_after(struct look *l)
{
    see(l, l->g.recv, 0);
}

static void legacy_by_name(struct look *l)
{
    see(l, l->g.recv, cudaStreamLegacy);
}

static void blocking_after_legacy(struct look *l)
{
    cudaStream_t blocking;
    CUDA(cudaStreamCreate(&blocking));
    see(l, l->g.recv, blocking);
    CUDA(cudaStreamDestroy(blocking));
}

static void per_thread_after_legacy(struct look *l)
{
    see(l, l->g.recv, cudaStreamPerThread);
}

/* A program compiled with --default-stream per-thread: stream 0 is the thread's own there, and waits for the legacy
 * one. */
static void ptsz_after_legacy(struct look *l)
{
    typedef CUresult (*copy_fn)(void *, CUdeviceptr, size_t, CUstream);
    typedef CUresult (*sync_fn)(CUstream);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    copy_fn copy = (copy_fn)dlsym(driver, "cuMemcpyDtoHAsync_v2_ptsz");
    sync_fn sync = (sync_fn)dlsym(driver, "cuStreamSynchronize_ptsz");
    if (!copy || !sync || copy(l->seen, (CUdeviceptr)(uintptr_t)l->g.recv, l->all, NULL) != CUDA_SUCCESS ||
        sync(NULL) != CUDA_SUCCESS)
        DIE(3, "the per-thread entry points");
    dlclose(driver);
}

/* ---- NCCL behind the gather ---- */

static void broadcast(struct look *l)
{
    NCCL(ncclBroadcast(l->g.recv, l->side, l->all, ncclUint8, l->g.nranks - 1, l->comm, l->s));
    see(l, l->side, l->s);
}

static void send_recv(struct look *l)
{
    int n = l->g.nranks, next = (l->g.rank + 1) % n, before = (l->g.rank + n - 1) % n;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(l->g.recv, l->all, ncclUint8, next, l->comm, l->s));
    NCCL(ncclRecv(l->side, l->all, ncclUint8, before, l->comm, l->s));
    NCCL(ncclGroupEnd());
    see(l, l->side, l->s);
}

/* Gather 2 sends what gather 1 received from the next rank: shard r of its result is shard r + 1 of the first. */
static void chain(struct look *l, ncclComm_t comm, cudaStream_t stream)
{
    int n = l->g.nranks, next = (l->g.rank + 1) % n;
    NCCL(ncclAllGather(l->g.recv + (size_t)next * SHARD, l->side, SHARD, ncclUint8, comm, stream));
    for (int r = 0; r < n; r++)
        CUDA(cudaMemcpyAsync(l->seen + (size_t)((r + 1) % n) * SHARD, l->side + (size_t)r * SHARD, SHARD,
                             cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
}

static void chain_same(struct look *l)
{
    chain(l, l->comm, l->s);
}

static void chain_other_comm(struct look *l)
{
    chain(l, l->comm2, l->s);
}

static void chain_other_stream(struct look *l)
{
    hop(l, l->s, l->other);
    chain(l, l->comm, l->other);
}

/* Four gathers, streams and communicators in turn: each sends what the one before received. */
static void chain_all(struct look *l)
{
    int n = l->g.nranks, next = (l->g.rank + 1) % n;
    for (int i = 0; i < 3; i++) {
        cudaStream_t from = i % 2 ? l->other : l->s, to = i % 2 ? l->s : l->other;
        uint8_t *in = i % 2 ? l->side : l->g.recv, *out = i % 2 ? l->g.recv : l->side;
        hop(l, from, to);
        NCCL(ncclAllGather(in + (size_t)next * SHARD, out, SHARD, ncclUint8, i % 2 ? l->comm : l->comm2, to));
    }
    for (int r = 0; r < n; r++)
        CUDA(cudaMemcpyAsync(l->seen + (size_t)((r + 3) % n) * SHARD, l->side + (size_t)r * SHARD, SHARD,
                             cudaMemcpyDeviceToHost, l->other));
    CUDA(cudaStreamSynchronize(l->other));
}

/* ---- GEMMs ---- */

void gemm_identity_open(struct look *l)
{
    float one[GEMM_K * GEMM_K] = {0};
    for (int i = 0; i < GEMM_K; i++)
        one[i * GEMM_K + i] = 1;
    BLAS(cublasCreate(&l->blas));
    CUDA(cudaMalloc((void **)&l->one, sizeof one));
    to_device(l->one, one, sizeof one);
}

void gemm_identity_close(struct look *l)
{
    BLAS(cublasDestroy(l->blas));
    CUDA(cudaFree(l->one));
}

void gemm_identity(struct look *l, const void *from, cudaStream_t stream)
{
    gemm_identity_to(l, from, l->side, stream);
}

void gemm_identity_to(struct look *l, const void *from, void *to, cudaStream_t stream)
{
    const float alpha = 1, beta = 0;
    int n = (int)(l->all / sizeof(float) / GEMM_K);
    BLAS(cublasSetStream(l->blas, stream));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, n, GEMM_K, &alpha, l->one, GEMM_K, from, GEMM_K, &beta,
                     to, GEMM_K));
}

static void gemm(struct look *l)
{
    gemm_identity(l, l->g.recv, l->s);
    see(l, l->side, l->s);
}

static void gemm_after_event(struct look *l)
{
    hop(l, l->s, l->other);
    gemm_identity(l, l->g.recv, l->other);
    see(l, l->side, l->other);
}

/* The product's memory comes from the gather's stream, behind the gather; `told`: an event was recorded before. */
static void gemm_into_allocated(struct look *l, bool told)
{
    uint8_t *side = l->side;
    if (told)
        hop(l, l->s, l->third);
    CUDA(cudaMallocAsync((void **)&l->side, l->all, l->s));
    gemm_after_event(l);
    CUDA(cudaFreeAsync(l->side, l->other));
    l->side = side;
}

static void alloc_then_event(struct look *l)
{
    gemm_into_allocated(l, false);
}

static void event_alloc_event(struct look *l)
{
    gemm_into_allocated(l, true);
}

/* Half of the gathered matrix: an operand that begins inside the buffer. */
static void gemm_inside(struct look *l)
{
    const float alpha = 1, beta = 0;
    int n = (int)(l->all / sizeof(float) / GEMM_K) / 2;
    BLAS(cublasSetStream(l->blas, l->s));
    for (int half = 0; half < 2; half++) {
        size_t at = (size_t)half * l->all / 2;
        BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, n, GEMM_K, &alpha, l->one, GEMM_K,
                         (const float *)(const void *)(l->g.recv + at), GEMM_K, &beta, (float *)(void *)(l->side + at),
                         GEMM_K));
    }
    see(l, l->side, l->s);
}

/* A GEMM that has nothing to do with the gather, on a stream that has nothing to do with it: both are right. */
static void gemm_unrelated(struct look *l)
{
    float c[GEMM_K * GEMM_K], *dc;
    const float alpha = 3, beta = 0;
    CUDA(cudaMallocAsync((void **)&dc, sizeof c, l->other));
    BLAS(cublasSetStream(l->blas, l->other));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, GEMM_K, GEMM_K, &alpha, l->one, GEMM_K, l->one, GEMM_K,
                     &beta, dc, GEMM_K));
    CUDA(cudaMemcpyAsync(c, dc, sizeof c, cudaMemcpyDeviceToHost, l->other));
    CUDA(cudaFreeAsync(dc, l->other));
    CUDA(cudaStreamSynchronize(l->other));
    for (int i = 0; i < GEMM_K * GEMM_K; i++)
        EXPECT(c[i] == (i % (GEMM_K + 1) ? 0 : 3), "rank %d: the unrelated GEMM: element %d is %g", l->g.rank, i, c[i]);
    see(l, l->g.recv, l->s);
}

/* ---- graphs and pools ---- */

static void graph(struct look *l)
{
    cudaGraph_t g;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(l->other, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMemcpyAsync(l->side, l->g.recv, l->all, cudaMemcpyDeviceToDevice, l->other));
    CUDA(cudaStreamEndCapture(l->other, &g));
    CUDA(cudaGraphInstantiate(&exec, g, 0));
    CUDA(cudaGraphLaunch(exec, l->s));
    see(l, l->side, l->s);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(g));
}

/* The memory goes back to its pool behind the gather, and is given out again on the same stream. */
static void pool_reuse(struct look *l)
{
    uint8_t *p, *q;
    CUDA(cudaStreamSynchronize(l->s)); /* the gather of the program; here another one is meant */
    if (l->late)
        hold(l->s, 40);
    CUDA(cudaMallocAsync((void **)&p, l->all, l->s));
    NCCL(ncclAllGather(l->g.send, p, SHARD, ncclUint8, l->comm, l->s));
    CUDA(cudaFreeAsync(p, l->s));
    CUDA(cudaMallocAsync((void **)&q, l->all, l->s));
    CUDA(cudaMemsetAsync(q, 7, l->all, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    sleep_ms(60); /* what should have been joined has time to come */
    CUDA(cudaMemcpyAsync(l->seen, q, l->all, cudaMemcpyDeviceToHost, l->s));
    CUDA(cudaFreeAsync(q, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    for (size_t i = 0; i < l->all; i++)
        if (l->seen[i] != 7) {
            wrong("rank %d: byte %zu of the pool's memory was written after it was freed", l->g.rank, i);
            break;
        }
    see(l, l->g.recv, l->s);
}

const struct order_case order_stream_cases[] = {
    {.name = "copy-async", .look = copy_async},
    {.name = "copy-async-blocking-stream", .look = copy_async, .stream = STREAM_BLOCKING},
    {.name = "copy-async-legacy", .look = copy_async, .stream = STREAM_LEGACY},
    {.name = "copy-async-per-thread", .look = copy_async, .stream = STREAM_PER_THREAD},
    {.name = "copy-blocking", .look = copy_blocking, .stream = STREAM_BLOCKING},
    {.name = "copy-blocking-legacy", .look = copy_blocking, .stream = STREAM_LEGACY},
    {.name = "copy-2d", .look = copy_2d},
    {.name = "copy-peer", .look = copy_peer},
    {.name = "overwrite-recv", .look = overwrite_recv},
    {.name = "event-third", .look = event_third},
    {.name = "event-third-blocking", .look = event_third, .stream = STREAM_BLOCKING},
    {.name = "event-two-hops", .look = event_two_hops},
    {.name = "legacy-after-blocking", .look = legacy_after, .stream = STREAM_BLOCKING},
    {.name = "legacy-name-after-blocking", .look = legacy_by_name, .stream = STREAM_BLOCKING},
    {.name = "legacy-after-per-thread", .look = legacy_after, .stream = STREAM_PER_THREAD},
    {.name = "blocking-after-legacy", .look = blocking_after_legacy, .stream = STREAM_LEGACY},
    {.name = "per-thread-after-legacy", .look = per_thread_after_legacy, .stream = STREAM_LEGACY},
    {.name = "ptsz-after-legacy", .look = ptsz_after_legacy, .stream = STREAM_LEGACY},
    {.name = "broadcast", .look = broadcast},
    {.name = "send-recv", .look = send_recv},
    {.name = "chain", .look = chain_same},
    {.name = "chain-legacy", .look = chain_same, .stream = STREAM_LEGACY},
    {.name = "chain-other-comm", .look = chain_other_comm, .two_comms = true},
    {.name = "chain-other-stream", .look = chain_other_stream},
    {.name = "chain-all", .look = chain_all, .two_comms = true},
    {.name = "gemm", .look = gemm, .floats = true, .quiet = true},
    {.name = "gemm-after-event", .look = gemm_after_event, .floats = true, .quiet = true},
    {.name = "alloc-event", .look = alloc_then_event, .floats = true, .quiet = true},
    {.name = "event-alloc-event", .look = event_alloc_event, .floats = true, .quiet = true},
    {.name = "gemm-inside", .look = gemm_inside, .floats = true},
    {.name = "gemm-unrelated", .look = gemm_unrelated, .floats = true},
    {.name = "graph", .look = graph},
    {.name = "pool-reuse", .look = pool_reuse},
    {.name = NULL},
};
