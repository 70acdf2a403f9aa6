/* SPDX-License-Identifier: Apache-2.0 */
/* What frameworks put on a stream between a gather and its GEMM, and what shows nothing of the gather: waits, GEMMs of
 * other memory, allocations and frees. The GEMM is fused all the same, and whoever looks behind them sees all. */
#include "order.h"

#include <cuda.h>
#include <string.h>

#define OTHER_WORK_MS 80 /* longer than the late rank is late */

static void gemm_then_see(struct look *l, cudaStream_t stream)
{
    gemm_identity(l, l->g.recv, stream);
    see(l, l->side, stream);
}

static void tell(struct look *l, cudaStream_t to)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(to, l->event, 0));
}

/* ---- waits ---- */

/* `stream` waits for work of the third one, which has nothing to do with the gather. */
static void wait_for_third(struct look *l, cudaStream_t stream, unsigned ms)
{
    cudaEvent_t event;
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    if (ms)
        hold(l->third, ms);
    CUDA(cudaMemsetAsync(l->side, 0x3c, l->all, l->third));
    CUDA(cudaEventRecord(event, l->third));
    CUDA(cudaStreamWaitEvent(stream, event, 0));
    CUDA(cudaEventDestroy(event));
}

static void wait_on_origin(struct look *l)
{
    wait_for_third(l, l->s, 0);
    gemm_then_see(l, l->s);
}

static void wait_on_follower(struct look *l)
{
    tell(l, l->other);
    wait_for_third(l, l->other, 0);
    gemm_then_see(l, l->other);
}

static void wait_then_look(struct look *l)
{
    wait_for_third(l, l->s, 0);
    see(l, l->g.recv, l->s);
}

static void hide_side(struct look *l)
{
    CUDA(cudaMemsetAsync(l->side, 0, l->all, l->s));
}

/* Another stream is told of the gather behind the wait, so of what was waited for, too. `before`: it has been told before
 * the wait as well. */
static void tell_behind_wait(struct look *l, bool before)
{
    if (before)
        CUDA(cudaEventRecord(l->event, l->s));
    wait_for_third(l, l->s, OTHER_WORK_MS);
    tell(l, l->other);
    see(l, l->side, l->other);
    EXPECT(l->seen[0] == 0x3c && !memcmp(l->seen, l->seen + 1, l->all - 1), "rank %d: the wait was overtaken",
           l->g.rank);
    see(l, l->g.recv, l->other);
}

static void wait_then_event(struct look *l)
{
    tell_behind_wait(l, false);
}

static void event_wait_event(struct look *l)
{
    tell_behind_wait(l, true);
}

/* ---- GEMMs ---- */

/* A small product that reads nothing of the gather. */
static void gemm_apart(struct look *l, void *into, cudaStream_t stream)
{
    const float alpha = 3, beta = 0;
    BLAS(cublasSetStream(l->blas, stream));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, GEMM_K, GEMM_K, &alpha, l->one, GEMM_K, l->one, GEMM_K,
                     &beta, into, GEMM_K));
}

static void gemm_between(struct look *l)
{
    float c[GEMM_K * GEMM_K], *dc;
    CUDA(cudaMalloc((void **)&dc, sizeof c));
    gemm_apart(l, dc, l->s);
    gemm_then_see(l, l->s);
    CUDA(cudaMemcpyAsync(c, dc, sizeof c, cudaMemcpyDeviceToHost, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    for (int i = 0; i < GEMM_K * GEMM_K; i++)
        EXPECT(c[i] == (i % (GEMM_K + 1) ? 0 : 3), "rank %d: the GEMM between: element %d is %g", l->g.rank, i, c[i]);
    CUDA(cudaFree(dc));
}

/* The second half of what was gathered: no operand that begins where the buffer does. */
static void gemm_reads_half(struct look *l)
{
    const float alpha = 1, beta = 0;
    const size_t half = l->all / 2;
    int n = (int)(half / sizeof(float) / GEMM_K);
    BLAS(cublasSetStream(l->blas, l->s));
    BLAS(cublasSgemm(l->blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_K, n, GEMM_K, &alpha, l->one, GEMM_K,
                     (const float *)(const void *)(l->g.recv + half), GEMM_K, &beta, (float *)(void *)(l->side + half),
                     GEMM_K));
    CUDA(cudaMemcpyAsync(l->side, l->g.recv, half, cudaMemcpyDeviceToDevice, l->s));
    see(l, l->side, l->s);
}

/* Behind the gather `send` may be written to, but not before. */
static void gemm_into_send(struct look *l)
{
    gemm_apart(l, l->g.send, l->s);
    see(l, l->g.recv, l->s);
}

static void gemm_into_recv(struct look *l)
{
    float *c = (float *)(void *)l->g.recv;
    gemm_apart(l, c, l->s);
    see(l, l->g.recv, l->s);
    const float *have = (const float *)(const void *)l->seen;
    for (int i = 0; i < GEMM_K * GEMM_K; i++)
        EXPECT(have[i] == (i % (GEMM_K + 1) ? 0 : 3), "rank %d: the gather came behind the GEMM", l->g.rank);
    shard_fill(l->seen, SHARD, l->seed, 0, true); /* what the GEMM has overwritten */
}

/* Another stream is told behind the GEMM. */
static void gemm_then_event(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    gemm_apart(l, l->side, l->s);
    tell(l, l->other);
    see(l, l->side, l->other);
    EXPECT(*(float *)(void *)l->seen == 3, "rank %d: the GEMM before the event was not waited for", l->g.rank);
    see(l, l->g.recv, l->other);
}

/* A GEMM on the legacy default stream comes behind the gather on a blocking one, and another blocking stream behind that. */
static void legacy_between(struct look *l)
{
    cudaStream_t blocking;
    CUDA(cudaStreamCreate(&blocking));
    gemm_apart(l, l->side, 0);
    see(l, l->g.recv, blocking);
    CUDA(cudaStreamDestroy(blocking));
}

/* Gathers of two communicators in one group, and a GEMM behind each. */
static void two_comms(struct look *l)
{
    struct gather second;
    uint8_t *product, *side = l->side;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMalloc((void **)&product, l->all));
    gather_alloc(&second, l->g.rank, l->g.nranks, SHARD);
    second.floats = true;
    gather_load(&second, l->seed + 100, l->s);
    CUDA(cudaDeviceSynchronize());
    if (l->late)
        hold(l->s, 40);
    NCCL(ncclGroupStart());
    gather_call(&second, l->comm2, l->s);
    gather_call(&l->g, l->comm, l->s);
    NCCL(ncclGroupEnd());
    gemm_identity(l, l->g.recv, l->s);
    l->side = product;
    gemm_identity(l, second.recv, l->s);
    see(l, product, l->s);
    bytes_check(&second, l->seen, l->seed + 100, "the second GEMM of a group of two gathers");
    l->side = side;
    see(l, l->side, l->s);
    CUDA(cudaFree(product));
    gather_free(&second);
}

/* ---- memory in the stream's order ---- */

static void free_between(struct look *l)
{
    CUDA(cudaFreeAsync(l->pool, l->s));
    gemm_then_see(l, l->s);
}

static void take_from_pool(struct look *l)
{
    CUDA(cudaMallocAsync(&l->pool, l->all, l->s));
    CUDA(cudaMemsetAsync(l->pool, 1, l->all, l->s));
}

/* As frameworks: an event behind the gather, memory for the product, a free. */
static void event_alloc_free(struct look *l)
{
    uint8_t *side = l->side;
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaMallocAsync((void **)&l->side, l->all, l->s));
    CUDA(cudaFreeAsync(l->pool, l->s));
    gemm_then_see(l, l->s);
    CUDA(cudaFreeAsync(l->side, l->s));
    l->side = side;
}

/* What is sent goes back to the pool, and is written to by who gets it then. */
static void free_send(struct look *l)
{
    void *p, *q;
    CUDA(cudaStreamSynchronize(l->s)); /* the gather of the program; here another one is meant */
    CUDA(cudaMallocAsync(&p, SHARD, l->s));
    CUDA(cudaMemcpyAsync(p, l->g.send, SHARD, cudaMemcpyDeviceToDevice, l->s));
    CUDA(cudaStreamSynchronize(l->s));
    if (l->late)
        hold(l->s, 40);
    NCCL(ncclAllGather(p, l->g.recv, SHARD, ncclUint8, l->comm, l->s));
    CUDA(cudaFreeAsync(p, l->s));
    CUDA(cudaMallocAsync(&q, SHARD, l->s));
    CUDA(cudaMemsetAsync(q, 7, SHARD, l->s));
    see(l, l->g.recv, l->s);
    CUDA(cudaFreeAsync(q, l->s));
}

/* Blocking fills and copies are the legacy default stream's, with which the gather's has nothing to do. */
static void blocking_between(struct look *l)
{
    CUDA(cudaMemset(l->side, 0x5a, l->all));
    to_device(l->side, l->seen, l->all);
    gemm_then_see(l, l->s);
}

/* As allocators that grow by mapping: the product's memory is mapped behind the gather. */
static void map_between(struct look *l)
{
    int device;
    size_t bytes = 2 << 20;
    CUdeviceptr p;
    CUmemGenericAllocationHandle memory;
    uint8_t *side = l->side;
    CUDA(cudaGetDevice(&device));
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(bytes >= l->all, "the product does not fit");
    DRIVER(cuMemAddressReserve(&p, bytes, 0, 0, 0));
    DRIVER(cuMemCreate(&memory, bytes, &prop, 0));
    DRIVER(cuMemMap(p, bytes, 0, memory, 0));
    DRIVER(cuMemSetAccess(p, bytes, &access, 1));
    l->side = (uint8_t *)(uintptr_t)p;
    gemm_then_see(l, l->s);
    l->side = side;
    DRIVER(cuMemUnmap(p, bytes));
    DRIVER(cuMemRelease(memory));
    DRIVER(cuMemAddressFree(p, bytes));
}

const struct order_case order_overtake_cases[] = {
    {.name = "overtake-wait", .look = wait_on_origin, .floats = true, .quiet = true},
    {.name = "overtake-wait-legacy", .look = wait_on_origin, .stream = STREAM_LEGACY, .floats = true, .quiet = true},
    {.name = "overtake-wait-follower", .look = wait_on_follower, .floats = true, .quiet = true},
    {.name = "overtake-wait-look", .look = wait_then_look},
    {.name = "overtake-wait-event", .look = wait_then_event, .before = hide_side, .quiet = true},
    {.name = "overtake-event-wait-event", .look = event_wait_event, .before = hide_side, .quiet = true},
    {.name = "overtake-gemm", .look = gemm_between, .floats = true, .quiet = true},
    {.name = "overtake-gemm-reads", .look = gemm_reads_half, .floats = true},
    {.name = "overtake-gemm-send", .look = gemm_into_send, .floats = true},
    {.name = "overtake-gemm-recv", .look = gemm_into_recv, .floats = true},
    {.name = "overtake-gemm-event", .look = gemm_then_event, .floats = true, .quiet = true},
    {.name = "overtake-legacy-blocking", .look = legacy_between, .stream = STREAM_BLOCKING, .floats = true},
    {.name = "overtake-two-comms", .look = two_comms, .floats = true, .two_comms = true, .quiet = true},
    {.name = "overtake-free", .look = free_between, .before = take_from_pool, .floats = true, .quiet = true},
    {.name = "overtake-event-alloc-free",
     .look = event_alloc_free,
     .before = take_from_pool,
     .floats = true,
     .quiet = true},
    {.name = "overtake-blocking", .look = blocking_between, .floats = true, .quiet = true},
    {.name = "overtake-map", .look = map_between, .floats = true, .quiet = true},
    {.name = "overtake-free-send", .look = free_send},
    {.name = NULL},
};
