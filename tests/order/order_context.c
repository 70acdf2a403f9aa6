/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of other contexts than the primary one: what waits for all of a context, or records it, and gathers on streams
 * and in memory of contexts that NCCL itself can do nothing with. */
#include "order.h"

#include <cuda.h>
#include <string.h>

enum { GREENS = 2, LEAST_SMS = 16 };

#if CUDA_VERSION >= 13000
#define CREATE(ctx, device) cuCtxCreate(ctx, NULL, 0, device)
#else
#define CREATE(ctx, device) cuCtxCreate(ctx, 0, device)
#endif

static CUgreenCtx green[GREENS];
static CUcontext of_green[GREENS], created;

void contexts_open(void)
{
    CUdevice device;
    CUdevResource all, part[GREENS];
    CUdevResourceDesc desc[GREENS];
    CUcontext old;
    unsigned n = GREENS;
    DRIVER(cuCtxGetDevice(&device));
    DRIVER(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    DRIVER(cuDevSmResourceSplitByCount(part, &n, &all, NULL, 0, LEAST_SMS));
    for (int i = 0; i < GREENS; i++) {
        DRIVER(cuDevResourceGenerateDesc(&desc[i], &part[i], 1));
        DRIVER(cuGreenCtxCreate(&green[i], desc[i], device, CU_GREEN_CTX_DEFAULT_STREAM));
        DRIVER(cuCtxFromGreenCtx(&of_green[i], green[i]));
    }
    DRIVER(CREATE(&created, device));
    DRIVER(cuCtxPopCurrent(&old));
}

static void enter(CUcontext ctx)
{
    DRIVER(cuCtxPushCurrent(ctx));
}

static void leave(void)
{
    CUcontext old;
    DRIVER(cuCtxPopCurrent(&old));
}

cudaStream_t contexts_stream(bool is_green)
{
    CUstream stream;
    if (is_green) {
        DRIVER(cuGreenCtxStreamCreate(&stream, green[0], CU_STREAM_NON_BLOCKING, 0));
        return (cudaStream_t)stream;
    }
    enter(created);
    DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    leave();
    return (cudaStream_t)stream;
}

uint8_t *contexts_memory(size_t bytes)
{
    CUdeviceptr p;
    enter(created);
    DRIVER(cuMemAlloc(&p, bytes));
    leave();
    return (uint8_t *)(uintptr_t)p;
}

/* ---- all of a green context ---- */

static void read_recv(struct look *l)
{
    memcpy(l->seen, l->g.recv, l->all);
}

static void sync_current(struct look *l)
{
    enter(of_green[0]);
    DRIVER(cuCtxSynchronize());
    leave();
    read_recv(l);
}

/* While another context is current. */
static void sync_named(struct look *l)
{
    enter(created);
#if CUDA_VERSION >= 13000
    DRIVER(cuCtxSynchronize_v2(of_green[0]));
#else
    enter(of_green[0]);
    DRIVER(cuCtxSynchronize());
    leave();
#endif
    leave();
    read_recv(l);
}

static void await_event(struct look *l)
{
    CUDA(cudaEventSynchronize(l->event));
    read_recv(l);
}

static void record_named(struct look *l)
{
    enter(created);
    DRIVER(cuCtxRecordEvent(of_green[0], (CUevent)l->event));
    leave();
    await_event(l);
}

static void record_green(struct look *l)
{
    enter(created);
    DRIVER(cuGreenCtxRecordEvent(green[0], (CUevent)l->event));
    leave();
    await_event(l);
}

/* A record of the primary context comes behind its green ones. */
static void record_primary(struct look *l)
{
    CUcontext primary;
    CUdevice device;
    DRIVER(cuCtxGetDevice(&device));
    DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    DRIVER(cuDevicePrimaryCtxRelease(device));
    enter(created);
    DRIVER(cuCtxRecordEvent(primary, (CUevent)l->event));
    leave();
    await_event(l);
}

/* A stream of the other green context, behind all of the first one. */
static CUstream behind_green(struct look *l)
{
    CUstream behind;
    DRIVER(cuGreenCtxStreamCreate(&behind, green[1], CU_STREAM_NON_BLOCKING, 0));
    DRIVER(cuGreenCtxRecordEvent(green[0], (CUevent)l->event));
    DRIVER(cuGreenCtxWaitEvent(green[1], (CUevent)l->event));
    return behind;
}

static void wait_green(struct look *l)
{
    CUstream behind = behind_green(l);
    see(l, l->g.recv, (cudaStream_t)behind);
    DRIVER(cuStreamDestroy(behind));
}

/* Behind a GEMM that may run in parts: what is sent is free then. */
static void gemm_wait_green(struct look *l)
{
    gemm_identity(l, l->g.recv, l->s);
    CUstream behind = behind_green(l);
    CUDA(cudaMemsetAsync(l->g.send, 0x77, SHARD, (cudaStream_t)behind));
    see(l, l->g.recv, (cudaStream_t)behind);
    DRIVER(cuStreamDestroy(behind));
}

static void wait_named(struct look *l)
{
    CUstream behind;
    DRIVER(cuGreenCtxStreamCreate(&behind, green[1], CU_STREAM_NON_BLOCKING, 0));
    CUDA(cudaEventRecord(l->event, l->s));
    DRIVER(cuCtxWaitEvent(of_green[1], (CUevent)l->event));
    see(l, l->g.recv, (cudaStream_t)behind);
    DRIVER(cuStreamDestroy(behind));
}

/* Of ones, as many as there are ranks; seen behind all of a green context, or on its own stream. */
static void sum_behind(struct look *l, bool green_waits)
{
    const size_t count = SHARD / sizeof(float);
    float *host = (float *)(void *)l->g.host;
    CUstream behind = (CUstream)l->s;
    see(l, l->g.recv, l->s);
    for (size_t i = 0; i < count; i++)
        host[i] = 1;
    if (l->late)
        hold(l->s, 40);
    CUDA(cudaMemcpyAsync(l->side, host, SHARD, cudaMemcpyHostToDevice, l->s));
    NCCL(ncclAllReduce(l->side, l->side, count, ncclFloat, ncclSum, l->comm, l->s));
    if (green_waits)
        behind = behind_green(l);
    CUDA(cudaMemcpyAsync(host, l->side, SHARD, cudaMemcpyDeviceToHost, (cudaStream_t)behind));
    CUDA(cudaStreamSynchronize((cudaStream_t)behind));
    if (green_waits)
        DRIVER(cuStreamDestroy(behind));
    for (size_t i = 0; i < count; i++)
        if (host[i] != (float)l->g.nranks) {
            wrong("rank %d: sum %zu is %f", l->g.rank, i, (double)host[i]);
            return;
        }
}

static void sum_wait_green(struct look *l)
{
    sum_behind(l, true);
}

/* Of the context that has the stream, as PyTorch has one for the time of its streams. */
static void gemm_current(struct look *l)
{
    enter(of_green[0]);
    gemm_identity(l, l->g.recv, l->s);
    leave();
    see(l, l->side, l->s);
}

static void gemm_event(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    gemm_identity(l, l->g.recv, l->other);
    see(l, l->side, l->other);
}

const struct order_case order_context_cases[] = {
    {.name = "context-sync", .look = sync_current, .stream = STREAM_GREEN, .recv = RECV_MAPPED},
    {.name = "context-sync-named", .look = sync_named, .stream = STREAM_GREEN, .recv = RECV_MAPPED},
    {.name = "context-record", .look = record_named, .stream = STREAM_GREEN, .recv = RECV_MAPPED},
    {.name = "context-record-green", .look = record_green, .stream = STREAM_GREEN, .recv = RECV_MAPPED},
    {.name = "context-record-primary",
     .look = record_primary,
     .stream = STREAM_GREEN,
     .recv = RECV_MAPPED,
     .quiet = true},
    {.name = "context-wait", .look = wait_named, .stream = STREAM_GREEN, .quiet = true},
    {.name = "context-wait-green", .look = wait_green, .stream = STREAM_GREEN},
    {.name = "context-sum-wait", .look = sum_wait_green, .stream = STREAM_GREEN},
    {.name = "context-gemm", .look = gemm_current, .stream = STREAM_GREEN, .floats = true, .quiet = true},
    {.name = "context-gemm-event", .look = gemm_event, .stream = STREAM_GREEN, .floats = true, .quiet = true},
    {.name = "context-gemm-wait", .look = gemm_wait_green, .stream = STREAM_GREEN, .floats = true, .quiet = true},
    {.name = NULL},
};

/* ---- what NCCL's kernels are not for ---- */

static void see_it(struct look *l)
{
    see(l, l->g.recv, l->s);
}

static void overwrite_send(struct look *l)
{
    CUDA(cudaMemsetAsync(l->g.send, 0x77, SHARD, l->s));
    see_it(l);
}

/* An event of the context itself. */
static void see_behind_event(struct look *l)
{
    CUevent event;
    enter(created);
    DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    DRIVER(cuEventRecord(event, (CUstream)l->s));
    leave();
    DRIVER(cuStreamWaitEvent((CUstream)l->other, event, 0));
    see(l, l->g.recv, l->other);
    DRIVER(cuEventDestroy(event));
}

static void sync_created(struct look *l)
{
    enter(created);
    DRIVER(cuCtxSynchronize());
    leave();
    read_recv(l);
}

/* One on each kind of stream, in one group: both streams see both. */
static void group_with_primary(struct look *l)
{
    struct gather more;
    gather_alloc(&more, l->g.rank, l->g.nranks, SHARD);
    if (l->late)
        hold(l->third, 40);
    gather_load(&more, l->seed, l->third);
    NCCL(ncclGroupStart());
    gather_call(&more, l->comm, l->third);
    gather_call(&l->g, l->comm, l->s);
    NCCL(ncclGroupEnd());
    see(l, more.recv, l->s);
    bytes_check(&more, l->seen, l->seed, "the other gather");
    see(l, l->g.recv, l->third);
    gather_free(&more);
}

/* In the stead of the round's gather, of the same data: the default stream of a context that is current for the call. */
static void on_default_of(struct look *l, CUcontext ctx)
{
    CUDA(cudaStreamSynchronize(l->s));
    enter(ctx);
    if (l->late)
        hold(0, 40);
    gather_load(&l->g, l->seed, 0);
    gather_call(&l->g, l->comm, 0);
    see(l, l->g.recv, 0);
    leave();
}

static void default_of_green(struct look *l)
{
    on_default_of(l, of_green[0]);
}

static void default_of_created(struct look *l)
{
    on_default_of(l, created);
}

/* NCCL leaves the primary context current, whose default stream a program goes on with. */
static void default_of_either(struct look *l)
{
    CUDA(cudaStreamSynchronize(l->s));
    if (l->late)
        hold(0, 40);
    gather_load(&l->g, l->seed, 0);
    enter(of_green[0]);
    gather_call(&l->g, l->comm, 0);
    leave();
    see(l, l->g.recv, 0);
}

static void sum(struct look *l)
{
    sum_behind(l, false);
}

const struct order_case order_foreign_cases[] = {
    {.name = "foreign-see", .look = see_it, .stream = STREAM_CREATED},
    {.name = "foreign-overwrite", .look = overwrite_send, .stream = STREAM_CREATED},
    {.name = "foreign-event", .look = see_behind_event, .stream = STREAM_CREATED},
    {.name = "foreign-sync", .look = sync_created, .stream = STREAM_CREATED, .recv = RECV_MAPPED},
    {.name = "foreign-group", .look = group_with_primary, .stream = STREAM_CREATED},
    {.name = "foreign-memory", .look = see_it, .stream = STREAM_OWN, .recv = RECV_CREATED},
    {.name = "foreign-both", .look = see_it, .stream = STREAM_CREATED, .recv = RECV_CREATED},
    {.name = "foreign-sum", .look = sum, .stream = STREAM_CREATED},
    {.name = "default-of-green", .look = default_of_green},
    {.name = "default-of-created", .look = default_of_created},
    {.name = "default-of-either", .look = default_of_either},
    {.name = NULL},
};
