/* SPDX-License-Identifier: Apache-2.0 */
/* The host looks, by itself: it reads the gathered memory without a CUDA call once it has been told that the gather is
 * done. */
#include "order.h"

#include <cuda.h>
#include <pthread.h>
#include <string.h>

static void read_recv(struct look *l)
{
    memcpy(l->seen, l->g.recv, l->all);
}

static void stream_sync(struct look *l)
{
    CUDA(cudaStreamSynchronize(l->s));
    read_recv(l);
}

static void query(struct look *l, cudaStream_t stream)
{
    cudaError_t e;
    while ((e = cudaStreamQuery(stream)) == cudaErrorNotReady)
        sleep_ms(1);
    CUDA(e);
    read_recv(l);
}

static void stream_query(struct look *l)
{
    query(l, l->s);
}

static void legacy_query(struct look *l)
{
    query(l, cudaStreamLegacy);
}

/* Nothing on the stream is seen to be over before the stream is: it tells of all before it. */
static void stream_query_events(struct look *l)
{
    enum { MANY = 60 };
    cudaEvent_t many[MANY];
    cudaError_t e;
    for (int i = 0; i < MANY; i++) {
        CUDA(cudaEventCreateWithFlags(&many[i], cudaEventDisableTiming));
        CUDA(cudaEventRecord(many[i], l->s));
    }
    while ((e = cudaStreamQuery(l->s)) == cudaErrorNotReady)
        continue;
    EXPECT(cudaEventQuery(many[MANY - 1]) == cudaSuccess, "rank %d: the stream is ready before its events", l->g.rank);
    CUDA(e);
    for (int i = 0; i < MANY; i++)
        CUDA(cudaEventDestroy(many[i]));
    read_recv(l);
}

static void device_sync(struct look *l)
{
    CUDA(cudaDeviceSynchronize());
    read_recv(l);
}

static void ctx_sync(struct look *l)
{
    DRIVER(cuCtxSynchronize());
    read_recv(l);
}

static void event_sync(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaEventSynchronize(l->event));
    read_recv(l);
}

static void event_query(struct look *l)
{
    cudaError_t e;
    CUDA(cudaEventRecord(l->event, l->s));
    while ((e = cudaEventQuery(l->event)) == cudaErrorNotReady)
        sleep_ms(1);
    CUDA(e);
    read_recv(l);
}

static void CUDART_CB read_in_host_func(void *arg)
{
    read_recv(arg);
}

static void host_func(struct look *l)
{
    CUDA(cudaLaunchHostFunc(l->s, read_in_host_func, l));
    CUDA(cudaStreamSynchronize(l->s));
}

static void CUDART_CB read_in_callback(cudaStream_t s, cudaError_t e, void *arg)
{
    (void)s;
    if (e == cudaSuccess)
        read_recv(arg);
}

static void callback(struct look *l)
{
    CUDA(cudaStreamAddCallback(l->s, read_in_callback, l, 0));
    CUDA(cudaStreamSynchronize(l->s));
}

/* The application's own flag, behind the gather. */
static void write_value(struct look *l)
{
    DRIVER(cuStreamWriteValue32((CUstream)l->s, (CUdeviceptr)(uintptr_t)l->flag, 1, 0));
    while (__atomic_load_n(l->flag, __ATOMIC_ACQUIRE) == 0)
        sleep_ms(1);
    read_recv(l);
}

static void prefetch(struct look *l)
{
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    DRIVER(cuMemPrefetchAsync((CUdeviceptr)(uintptr_t)l->g.recv, l->all, host, 0, (CUstream)l->s));
    CUDA(cudaStreamSynchronize(l->s));
    read_recv(l);
}

static void stream_destroy(struct look *l)
{
    CUDA(cudaStreamDestroy(l->s));
    CUDA(cudaDeviceSynchronize());
    read_recv(l);
    CUDA(cudaStreamCreateWithFlags(&l->s, cudaStreamNonBlocking));
}

/* cudaFree waits for the device. */
static void free_other(struct look *l)
{
    void *p;
    CUDA(cudaFree(l->side));
    read_recv(l);
    CUDA(cudaMalloc(&p, l->all));
    l->side = p;
}

static void free_recv(struct look *l)
{
    void *p;
    CUDA(cudaFree(l->g.recv));
    CUDA(cudaMalloc(&p, l->all));
    l->g.recv = l->device_recv = p;
    /* What is checked is that nothing was written after the free; the data went with the memory. */
    for (int r = 0; r < l->g.nranks; r++)
        shard_fill(l->seen + (size_t)r * l->g.shard, l->g.shard, l->seed, r, false);
}

/* ---- another thread looks ---- */

static void by_thread(struct look *l, void (*body)(void *l))
{
    on_threads(1, l, sizeof *l, body);
}

/* A new thread has no device current. */
static void use_device(const struct look *l)
{
    int device;
    NCCL(ncclCommCuDevice(l->comm, &device));
    CUDA(cudaSetDevice(device));
}

static void thread_stream_sync_body(void *arg)
{
    use_device(arg);
    stream_sync(arg);
}

static void thread_stream_sync(struct look *l)
{
    by_thread(l, thread_stream_sync_body);
}

static void thread_device_sync_body(void *arg)
{
    struct look *l = arg;
    use_device(l);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(l->seen, l->g.recv, l->all, cudaMemcpyDeviceToHost));
}

static void thread_device_sync(struct look *l)
{
    by_thread(l, thread_device_sync_body);
}

static void thread_event_body(void *arg)
{
    use_device(arg);
    event_sync(arg);
}

static void thread_event(struct look *l)
{
    by_thread(l, thread_event_body);
}

const struct order_case order_host_cases[] = {
    {.name = "stream-sync", .look = stream_sync, .recv = RECV_MAPPED},
    {.name = "stream-sync-legacy", .look = stream_sync, .recv = RECV_MAPPED, .stream = STREAM_LEGACY},
    {.name = "stream-sync-per-thread", .look = stream_sync, .recv = RECV_MAPPED, .stream = STREAM_PER_THREAD},
    {.name = "stream-query", .look = stream_query, .recv = RECV_MAPPED, .quiet = true},
    {.name = "stream-query-legacy",
     .look = legacy_query,
     .recv = RECV_MAPPED,
     .stream = STREAM_BLOCKING,
     .quiet = true},
    {.name = "stream-query-events", .look = stream_query_events, .recv = RECV_MAPPED, .quiet = true},
    {.name = "device-sync", .look = device_sync, .recv = RECV_MAPPED, .quiet = true},
    {.name = "ctx-sync", .look = ctx_sync, .recv = RECV_MAPPED, .quiet = true},
    {.name = "event-sync", .look = event_sync, .recv = RECV_MAPPED, .quiet = true},
    {.name = "event-query", .look = event_query, .recv = RECV_MAPPED, .quiet = true},
    {.name = "host-func", .look = host_func, .recv = RECV_MAPPED},
    {.name = "callback", .look = callback, .recv = RECV_MAPPED},
    {.name = "write-value", .look = write_value, .recv = RECV_MAPPED},
    {.name = "prefetch", .look = prefetch, .recv = RECV_MANAGED},
    {.name = "stream-destroy", .look = stream_destroy, .recv = RECV_MAPPED, .quiet = true},
    {.name = "free-other", .look = free_other, .recv = RECV_MAPPED, .quiet = true},
    {.name = "free-recv", .look = free_recv, .quiet = true},
    {.name = "thread-stream-sync", .look = thread_stream_sync, .recv = RECV_MAPPED},
    {.name = "thread-event", .look = thread_event, .recv = RECV_MAPPED, .quiet = true},
    {.name = "thread-device-sync", .look = thread_device_sync, .quiet = true},
    {.name = NULL},
};
