/* SPDX-License-Identifier: Apache-2.0 */
/* Events carry the news of a gather: to other streams, other threads and the host, as frameworks do that gather on a
 * stream of their own. */
#include "order.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>
#include "softgpu/softgpu.h"

#define MANY 40
#define MANY_STREAMS 24  /* fewer than there are hardware queues: streams that wait could fill those */
#define OTHER_WORK_MS 80 /* longer than the late rank is late */

static void tell(struct look *l, cudaStream_t to)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamWaitEvent(to, l->event, 0));
}

static void gemm_then_see(struct look *l, cudaStream_t stream)
{
    gemm_identity(l, l->g.recv, stream);
    see(l, l->side, stream);
}

/* recv as `stream` sees it now, apart from what the case leaves in l->seen. */
static void check_recv(struct look *l, cudaStream_t stream, const char *what)
{
    see(l, l->g.recv, stream);
    bytes_check(&l->g, l->seen, l->seed, what);
}

static void hide_side(struct look *l)
{
    CUDA(cudaMemsetAsync(l->side, 0, l->all, l->s));
}

/* `side` has been filled with 0x3c before what `stream` sees now. */
static void check_side(struct look *l, cudaStream_t stream, const char *what)
{
    see(l, l->side, stream);
    EXPECT(l->seen[0] == 0x3c && !memcmp(l->seen, l->seen + 1, l->all - 1), "rank %d: %s was not waited for", l->g.rank,
           what);
}

static void gemm_other(struct look *l)
{
    tell(l, l->other);
    gemm_then_see(l, l->other);
}

/* The default stream has work of its own between the gather and the event. */
static void gemm_legacy(struct look *l)
{
    CUDA(cudaMemsetAsync(l->side, 0x5a, l->all, 0));
    tell(l, 0);
    gemm_then_see(l, 0);
}

static void told_only(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    gemm_then_see(l, l->s);
}

static void per_thread(struct look *l)
{
    tell(l, cudaStreamPerThread);
    gemm_then_see(l, cudaStreamPerThread);
}

/* ---- several streams and events ---- */

static void two_waiters(struct look *l)
{
    tell(l, l->other);
    CUDA(cudaStreamWaitEvent(l->third, l->event, 0));
    gemm_identity(l, l->g.recv, l->other);
    check_recv(l, l->third, "the second stream that waited");
    see(l, l->side, l->other);
}

static void later_waiter(struct look *l)
{
    tell(l, l->other);
    gemm_identity(l, l->g.recv, l->other);
    CUDA(cudaStreamWaitEvent(l->third, l->event, 0));
    check_recv(l, l->third, "a stream that waits when the gather is consumed");
    see(l, l->side, l->other);
}

static void then_origin(struct look *l)
{
    tell(l, l->other);
    gemm_identity(l, l->g.recv, l->other);
    check_recv(l, l->s, "the gather's stream after another one consumed it");
    see(l, l->side, l->other);
    CUDA(cudaMemsetAsync(l->side, 0, l->all, l->s));
    gemm_then_see(l, l->s);
}

/* More events than slipring remembers. */
static void many(struct look *l)
{
    cudaEvent_t event[MANY];
    for (int i = 0; i < MANY; i++) {
        CUDA(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
        CUDA(cudaEventRecord(event[i], l->s));
    }
    CUDA(cudaStreamWaitEvent(l->other, event[0], 0));
    CUDA(cudaStreamWaitEvent(l->third, event[MANY - 1], 0));
    gemm_identity(l, l->g.recv, l->other);
    check_recv(l, l->third, "the last of many events");
    for (int i = 0; i < MANY; i++)
        CUDA(cudaEventDestroy(event[i]));
    see(l, l->side, l->other);
}

/* More streams than slipring remembers. */
static void many_waiters(struct look *l)
{
    cudaStream_t stream[MANY_STREAMS];
    CUDA(cudaEventRecord(l->event, l->s));
    for (int i = 0; i < MANY_STREAMS; i++) {
        CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        CUDA(cudaStreamWaitEvent(stream[i], l->event, 0));
    }
    for (int i = 0; i < MANY_STREAMS; i += MANY_STREAMS / 4)
        check_recv(l, stream[i], "one of many streams");
    see(l, l->g.recv, stream[MANY_STREAMS - 1]);
    for (int i = 0; i < MANY_STREAMS; i++)
        CUDA(cudaStreamDestroy(stream[i]));
}

/* What stood on the second stream before it was told is waited for by the third one, too. */
static void second_hop(struct look *l)
{
    hold(l->other, OTHER_WORK_MS);
    CUDA(cudaMemsetAsync(l->side, 0x3c, l->all, l->other));
    tell(l, l->other);
    CUDA(cudaEventRecord(l->event, l->other));
    CUDA(cudaStreamWaitEvent(l->third, l->event, 0));
    check_side(l, l->third, "what stood on the stream before it was told of the gather");
    see(l, l->g.recv, l->third);
}

static void two_gathers(struct look *l)
{
    struct gather second;
    cudaEvent_t event;
    gather_alloc(&second, l->g.rank, l->g.nranks, SHARD);
    second.floats = true;
    gather_load(&second, l->seed + 100, l->third);
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    gather_call(&second, l->comm2, l->third);
    CUDA(cudaEventRecord(event, l->third));
    tell(l, l->other);
    CUDA(cudaStreamWaitEvent(l->other, event, 0));
    gemm_identity(l, l->g.recv, l->other);
    see(l, l->side, l->other);
    bytes_check(&l->g, l->seen, l->seed, "the first of two gathers");
    gather_check(&second, l->seed + 100, l->other, "the second of two gathers");
    CUDA(cudaEventDestroy(event));
    gather_free(&second);
}

/* Streams of another device wait for the event, also its default stream, which has the same name. */
static void other_device(struct look *l)
{
    int here, devices;
    cudaStream_t there;
    tell(l, 0);
    CUDA(cudaGetDevice(&here));
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice((here + l->g.nranks) % devices));
    CUDA(cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking));
    CUDA(cudaStreamWaitEvent(0, l->event, 0));
    check_recv(l, 0, "the default stream of another device");
    CUDA(cudaStreamWaitEvent(there, l->event, 0));
    check_recv(l, there, "a stream of another device");
    CUDA(cudaStreamDestroy(there));
    CUDA(cudaSetDevice(here));
    gemm_then_see(l, 0);
}

/* ---- events that are used again, or end ---- */

/* `event` stands for late work on `third` now: whoever waits for it sees that. */
static void check_other_work(struct look *l, cudaEvent_t event)
{
    hold(l->third, OTHER_WORK_MS);
    CUDA(cudaMemsetAsync(l->side, 0x3c, l->all, l->third));
    CUDA(cudaEventRecord(event, l->third));
    CUDA(cudaStreamWaitEvent(l->other, event, 0));
    check_side(l, l->other, "the event's second record");
}

static void record_again(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    check_other_work(l, l->event);
    see(l, l->g.recv, l->s);
}

static void nothing(void *args)
{
    (void)args;
}

/* A kernel on `third`, behind what is there, that records the event when it begins. */
static void launch_records(struct look *l, CUlaunchAttribute attribute)
{
    static const struct softgpu_kernel_desc kernel = {.name = "nothing", .run = nothing};
    softgpuKernelRegister_t add = (softgpuKernelRegister_t)dlsym(RTLD_DEFAULT, "softgpuKernelRegister");
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = (CUstream)l->third,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUfunction f;
    CHECK(add && add(&kernel, &f) == CUDA_SUCCESS, "the software GPU takes no kernel");
    CUDA(cudaEventRecord(l->event, l->s));
    hold(l->third, OTHER_WORK_MS);
    CUDA(cudaMemsetAsync(l->side, 0x3c, l->all, l->third));
    CUresult r = cuLaunchKernelEx(&config, f, NULL, NULL);
    CHECK(r == CUDA_SUCCESS, "cuLaunchKernelEx: %d", (int)r);
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    check_side(l, l->other, "the event's record by a launch");
    see(l, l->g.recv, l->s);
}

static void launch_completion(struct look *l)
{
    CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    a.value.launchCompletionEvent.event = (CUevent)l->event;
    launch_records(l, a);
}

static void launch_programmatic(struct look *l)
{
    CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT};
    a.value.programmaticEvent.event = (CUevent)l->event;
    launch_records(l, a);
}

static void made_again(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaEventDestroy(l->event));
    CUDA(cudaEventCreateWithFlags(&l->event, cudaEventDisableTiming));
    check_other_work(l, l->event);
    see(l, l->g.recv, l->s);
}

static void destroyed(struct look *l)
{
    tell(l, l->other);
    CUDA(cudaEventDestroy(l->event));
    gemm_then_see(l, l->other);
    CUDA(cudaEventCreateWithFlags(&l->event, cudaEventDisableTiming));
}

static void stream_destroyed(struct look *l)
{
    tell(l, l->other);
    CUDA(cudaStreamDestroy(l->s));
    CUDA(cudaStreamCreateWithFlags(&l->s, cudaStreamNonBlocking));
    gemm_then_see(l, l->other);
}

/* ---- an event from before the gather ---- */

/* Rank 0 is alone in its gather until it says go. */
static void wait_for_go(struct look *l)
{
    if (l->g.rank == 0) {
        CUDA(cudaEventRecord(l->event, l->s));
        return;
    }
    NCCL(ncclBroadcast(l->side, l->side, 64, ncclUint8, 0, l->comm2, l->third));
    CUDA(cudaStreamSynchronize(l->third));
}

static void early_event(struct look *l)
{
    if (l->g.rank == 0) { /* this ends although the gather can not */
        CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
        CUDA(cudaMemsetAsync(l->side, 1, 64, l->other));
        CUDA(cudaStreamSynchronize(l->other));
        NCCL(ncclBroadcast(l->side, l->side, 64, ncclUint8, 0, l->comm2, l->third));
    }
    see(l, l->g.recv, l->s);
}

/* ---- other threads ---- */

static void use_device(const struct look *l)
{
    int device;
    NCCL(ncclCommCuDevice(l->comm, &device));
    CUDA(cudaSetDevice(device));
}

static void wait_in_thread_body(void *arg)
{
    struct look *l = arg;
    use_device(l);
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    gemm_then_see(l, l->other);
}

static void wait_in_thread(struct look *l)
{
    CUDA(cudaEventRecord(l->event, l->s));
    on_threads(1, l, sizeof *l, wait_in_thread_body);
}

static void poll_in_thread_body(void *arg)
{
    struct look *l = arg;
    cudaError_t e;
    use_device(l);
    while ((e = cudaEventQuery(l->event)) == cudaErrorNotReady)
        sleep_ms(1);
    CUDA(e);
    memcpy(l->seen, l->g.recv, l->all);
}

/* A watchdog polls the event while the stream has other events behind it. */
static void poll_in_thread(struct look *l)
{
    cudaEvent_t another;
    CUDA(cudaEventCreateWithFlags(&another, cudaEventDisableTiming));
    CUDA(cudaEventRecord(another, l->s));
    tell(l, l->other);
    on_threads(1, l, sizeof *l, poll_in_thread_body);
    CUDA(cudaEventDestroy(another));
}

/* ---- the whole pattern, again and again ---- */

static void framework(struct look *l)
{
    cudaEvent_t start, end;
    CUDA(cudaEventCreateWithFlags(&start, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    tell(l, l->other);
    for (int i = 0; i < 4; i++) {
        CUDA(cudaMemsetAsync(l->side, i, l->all, l->other));
        CUDA(cudaMemsetAsync(l->g.recv, i, l->all, l->other));
        CUDA(cudaEventRecord(start, l->other));
        CUDA(cudaStreamWaitEvent(l->s, start, 0));
        if (i % 2) /* PyTorch groups also single calls */
            NCCL(ncclGroupStart());
        gather_call(&l->g, l->comm, l->s);
        if (i % 2)
            NCCL(ncclGroupEnd());
        CUDA(cudaEventRecord(end, l->s));
        CUDA(cudaEventRecord(l->event, l->s));
        CUDA(cudaStreamWaitEvent(l->other, end, 0));
        gemm_identity(l, l->g.recv, l->other);
    }
    CUDA(cudaEventSynchronize(l->event));
    see(l, l->side, l->other);
    CUDA(cudaEventDestroy(start));
    CUDA(cudaEventDestroy(end));
}

static void elapsed(struct look *l)
{
    cudaEvent_t at[3];
    float ms[2];
    for (int i = 0; i < 3; i++)
        CUDA(cudaEventCreate(&at[i]));
    CUDA(cudaEventRecord(at[0], l->third));
    CUDA(cudaEventSynchronize(at[0]));
    CUDA(cudaEventRecord(at[1], l->s));
    see(l, l->g.recv, l->s);
    EXPECT(cudaEventQuery(at[1]) == cudaSuccess, "rank %d: what is behind the event ended before it", l->g.rank);
    CUDA(cudaEventRecord(at[2], l->s));
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 2; i++)
        CUDA(cudaEventElapsedTime(&ms[i], at[i], at[i + 1]));
    EXPECT(ms[0] >= 0 && ms[1] >= 0, "rank %d: %g ms to the gather's event, %g ms from there", l->g.rank, ms[0], ms[1]);
    for (int i = 0; i < 3; i++)
        CUDA(cudaEventDestroy(at[i]));
}

/* ---- capture and graphs ---- */

/* A stream that was told of the gather is drawn into a capture by another stream's event. */
static void drawn_into_capture(struct look *l)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    tell(l, l->other);
    CUDA(cudaStreamBeginCapture(l->third, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaEventRecord(l->event, l->third));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    CUDA(cudaMemcpyAsync(l->side, l->g.recv, l->all, cudaMemcpyDeviceToDevice, l->other));
    CUDA(cudaEventRecord(l->event, l->other));
    CUDA(cudaStreamWaitEvent(l->third, l->event, 0));
    CUDA(cudaStreamEndCapture(l->third, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, l->other));
    see(l, l->side, l->other);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

/* A stream that is being captured can not wait for it: CUDA says so, and the capture is lost. */
static void refused_by_capture(struct look *l)
{
    cudaGraph_t graph = NULL;
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaStreamBeginCapture(l->other, cudaStreamCaptureModeThreadLocal));
    cudaError_t e = cudaStreamWaitEvent(l->other, l->event, 0);
    EXPECT(e != cudaSuccess, "rank %d: a captured stream waited for an event from outside", l->g.rank);
    EXPECT(cudaStreamEndCapture(l->other, &graph) != cudaSuccess, "rank %d: the capture went on", l->g.rank);
    cudaGetLastError();
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    see(l, l->g.recv, l->other);
}

/* A graph may record any event: after its launch none is relied upon. */
static void graph_between(struct look *l)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(l->third, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMemsetAsync(l->side, 9, l->all, l->third));
    CUDA(cudaStreamEndCapture(l->third, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaEventRecord(l->event, l->s));
    CUDA(cudaGraphLaunch(exec, l->third));
    CUDA(cudaStreamSynchronize(l->third));
    CUDA(cudaStreamWaitEvent(l->other, l->event, 0));
    gemm_then_see(l, l->other);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

const struct order_case order_event_cases[] = {
    {.name = "event-gemm-blocking", .look = gemm_other, .stream = STREAM_BLOCKING, .floats = true, .quiet = true},
    {.name = "event-gemm-legacy", .look = gemm_legacy, .floats = true, .quiet = true},
    {.name = "event-blocking-to-legacy", .look = gemm_legacy, .stream = STREAM_BLOCKING, .floats = true, .quiet = true},
    {.name = "event-per-thread", .look = per_thread, .floats = true, .quiet = true},
    {.name = "event-told-from-legacy", .look = told_only, .stream = STREAM_LEGACY, .floats = true, .quiet = true},
    {.name = "event-from-legacy", .look = gemm_other, .stream = STREAM_LEGACY, .floats = true, .quiet = true},
    {.name = "event-two-waiters", .look = two_waiters, .floats = true},
    {.name = "event-later-waiter", .look = later_waiter, .floats = true, .quiet = true},
    {.name = "event-then-origin", .look = then_origin, .floats = true},
    {.name = "event-many", .look = many, .floats = true, .quiet = true},
    {.name = "event-many-waiters", .look = many_waiters},
    {.name = "event-second-hop", .look = second_hop, .before = hide_side, .quiet = true},
    {.name = "event-other-device", .look = other_device, .floats = true, .quiet = true},
    {.name = "event-two-gathers", .look = two_gathers, .floats = true, .two_comms = true, .quiet = true},
    {.name = "event-record-again", .look = record_again, .before = hide_side, .quiet = true},
    {.name = "event-launch-completion", .look = launch_completion, .before = hide_side, .quiet = true},
    {.name = "event-launch-programmatic", .look = launch_programmatic, .before = hide_side, .quiet = true},
    {.name = "event-made-again", .look = made_again, .before = hide_side, .quiet = true},
    {.name = "event-destroyed", .look = destroyed, .floats = true, .quiet = true},
    {.name = "event-stream-destroyed", .look = stream_destroyed, .floats = true, .quiet = true},
    {.name = "event-early", .look = early_event, .on_the_way = wait_for_go, .two_comms = true},
    {.name = "event-wait-in-thread", .look = wait_in_thread, .floats = true, .quiet = true},
    {.name = "event-poll-in-thread", .look = poll_in_thread, .recv = RECV_MAPPED, .quiet = true},
    {.name = "event-framework", .look = framework, .floats = true, .quiet = true},
    {.name = "event-elapsed", .look = elapsed},
    {.name = "event-drawn-into-capture", .look = drawn_into_capture, .quiet = true},
    {.name = "event-refused-by-capture", .look = refused_by_capture, .quiet = true},
    {.name = "event-graph-between", .look = graph_between, .floats = true, .quiet = true},
    {.name = NULL},
};
