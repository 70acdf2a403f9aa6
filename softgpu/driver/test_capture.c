/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture and the replay of what was captured. */
#include "test_util.h"
#include <pthread.h>

TestSuite(capture, .timeout = 30);

static CUstream s, t;
static CUdeviceptr data;

static void setup(void)
{
    watch_reports();
    start(0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, 64));
    OK(cuMemsetD32(data, 0, 16));
    OK(cuCtxSynchronize());
}

static uint32_t word(int i)
{
    uint32_t v;
    OK(cuMemcpyDtoH(&v, data + 4 * (unsigned)i, 4));
    return v;
}

Test(capture, records_and_replays_two_joined_streams, .init = setup)
{
    CUevent fork_e, join_e;
    CUgraph g;
    CUgraphExec x;
    size_t n = 0, deps = 0;
    CUstreamCaptureStatus st;
    cuuint64_t id = 0;
    const CUgraphNode *tips;
    OK(cuEventCreate(&fork_e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_e, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(data, 5, 1, s));
    OK(cuEventRecord(fork_e, s));
    OK(cuStreamWaitEvent(t, fork_e, 0));
    OK(cuStreamIsCapturing(t, &st));
    cr_assert_eq(st, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemcpyDtoDAsync(data + 4, data, 4, t));
    OK(cuMemsetD32Async(data + 8, 9, 1, s));
    OK(cuEventRecord(join_e, t));
    OK(cuStreamWaitEvent(s, join_e, 0));
    OK(cuStreamGetCaptureInfo(s, &st, &id, NULL, &tips, NULL, &deps));
    cr_assert(id > 0 && deps == 2);
    RC(cuStreamEndCapture(t, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    OK(cuStreamEndCapture(s, &g));
    OK(cuStreamIsCapturing(t, &st));
    cr_assert_eq(st, CU_STREAM_CAPTURE_STATUS_NONE);
    cr_assert_eq(word(0), 0, "nothing runs while it is captured");
    OK(cuGraphGetNodes(g, NULL, &n));
    cr_assert_eq(n, 3);
    OK(cuGraphInstantiate(&x, g, 0));
    OK(cuGraphDestroy(g));
    for (int i = 0; i < 2; i++) {
        OK(cuMemsetD32Async(data, 0, 16, t));
        OK(cuGraphLaunch(x, t));
        OK(cuStreamSynchronize(t));
        cr_assert(word(0) == 5 && word(1) == 5 && word(2) == 9);
    }
    OK(cuGraphExecDestroy(x));
    expect_no_report();
}

Test(capture, forbidden_calls_invalidate, .init = setup)
{
    CUgraph g = (CUgraph)1;
    CUstreamCaptureStatus st;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    RC(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_ERROR_ILLEGAL_STATE);
    RC(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamIsCapturing(s, &st));
    cr_assert_eq(st, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    RC(cuMemsetD32Async(data, 1, 1, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    cr_assert_null(g);
    OK(cuStreamSynchronize(s));
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_ILLEGAL_STATE);
    RC(cuStreamBeginCapture(0, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

Test(capture, unsafe_calls_depend_on_the_mode, .init = setup)
{
    CUgraph g;
    CUdeviceptr p;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAlloc(&p, 64));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    RC(cuMemAlloc(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&p, 64));
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphDestroy(g));
}

Test(capture, peer_access_is_an_unsafe_call, .init = setup)
{
    CUgraph g;
    CUcontext other;
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    RC(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuCtxEnablePeerAccess(other, 0));
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphDestroy(g));
}

static void *sync_here(void *ctx)
{
    OK(cuCtxSetCurrent(ctx));
    RC(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return NULL;
}

static void *free_here(void *ctx)
{
    CUdeviceptr p;
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemFree(p)); /* it waits for the context as well, but is not asked to */
    return NULL;
}

static void in_thread(void *(*body)(void *))
{
    pthread_t thread;
    CUcontext ctx;
    OK(cuCtxGetCurrent(&ctx));
    cr_assert(!pthread_create(&thread, NULL, body, ctx));
    cr_assert(!pthread_join(thread, NULL));
}

Test(capture, no_thread_synchronises_a_context_that_captures, .init = setup)
{
    CUgraph g;
    for (int mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        OK(cuStreamBeginCapture(s, mode));
        in_thread(free_here);
        in_thread(sync_here);
        RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    OK(cuCtxSynchronize());
}

Test(capture, events_of_a_capture_and_of_other_work_do_not_mix, .init = setup)
{
    CUevent captured, outside;
    CUgraph g;
    OK(cuEventCreate(&captured, 0));
    OK(cuEventCreate(&outside, 0));
    OK(cuEventRecord(outside, t));
    OK(cuStreamSynchronize(t));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(captured, s));
    RC(cuStreamWaitEvent(s, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    RC(cuEventQuery(captured), CUDA_ERROR_CAPTURED_EVENT);
    RC(cuEventSynchronize(captured), CUDA_ERROR_CAPTURED_EVENT);
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

Test(capture, a_line_that_is_not_joined_fails_the_capture, .init = setup)
{
    CUevent e;
    CUgraph g;
    OK(cuEventCreate(&e, 0));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(cuMemsetD32Async(data, 1, 1, t));
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

Test(capture, the_legacy_stream_must_not_touch_a_capture, .init = setup)
{
    CUstream blocking;
    CUgraph g;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    RC(cuMemsetD32Async(data, 1, 1, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    RC(cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* One operation that sets the first word to `value`. */
static CUgraph setting(unsigned value)
{
    CUgraph g;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(data, value, 1, s));
    OK(cuStreamEndCapture(s, &g));
    return g;
}

static void run(CUgraphExec x, uint32_t expected)
{
    OK(cuMemsetD32Async(data, 0, 1, s));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(0), expected);
}

Test(capture, graphs_are_cloned_nested_and_updated, .init = setup)
{
    CUgraph five = setting(5), six = setting(6), clone, parent, both;
    CUgraphNode node, next;
    CUgraphExec x;
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphClone(&clone, five));
    OK(cuGraphDestroy(five));
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, clone));
    OK(cuGraphInstantiate(&x, parent, 0));
    run(x, 5);
    OK(cuGraphCreate(&both, 0));
    OK(cuGraphAddChildGraphNode(&node, both, NULL, 0, six));
    OK(cuGraphExecUpdate(x, both, &info));
    run(x, 6);
    OK(cuGraphAddChildGraphNode(&next, both, &node, 1, clone));
    RC(cuGraphExecUpdate(x, both, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    run(x, 6);
    OK(cuGraphExecDestroy(x));
    OK(cuGraphInstantiate(&x, both, 0));
    run(x, 5);
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(clone));
    OK(cuGraphDestroy(six));
    OK(cuGraphDestroy(parent));
    OK(cuGraphDestroy(both));
    expect_no_report();
}
