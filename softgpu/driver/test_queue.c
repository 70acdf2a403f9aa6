/* SPDX-License-Identifier: Apache-2.0 */
/* A stream's queue has room for SOFTGPU_QUEUE entries; who fills it waits in the call, and nobody else does. */
#include "test_held.h"

TestSuite(queue, .timeout = 60);

#define ROOM 20

static CUcontext ctx[2];
static CUstream full, other;
static CUevent event;
static CUdeviceptr mem;
static CUgraphExec graph;

static void capture_many(int n)
{
    CUgraph g;
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < n; i++)
        OK(cuMemsetD32Async(mem, 1, 1, other));
    OK(cuStreamEndCapture(other, &g));
    OK(cuGraphInstantiate(&graph, g, 0));
}

/* A held stream with `room` left in its queue. */
static void start_held(const char *queue, int room)
{
    setenv("SOFTGPU_QUEUE", queue, 1);
    watch_reports();
    ctx[0] = start(0);
    OK(cuStreamCreate(&full, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&mem, 4096));
    capture_many(3 * ROOM);
    hold(full);
    for (int i = 1; i < ROOM - room; i++)
        OK(cuMemsetD32Async(mem, 2, 1, full));
}

static void end(void)
{
    let_go();
    OK(cuCtxSynchronize());
    expect_no_report();
}

static void a_fill(void)
{
    OK(cuMemsetD32Async(mem, 3, 1, full));
}

static void a_record(void)
{
    OK(cuEventRecord(event, full));
}

static void a_wait(void)
{
    OK(cuEventRecord(event, other));
    OK(cuStreamWaitEvent(full, event, 0));
}

static void a_batch(void)
{
    CUstreamBatchMemOpParams p[3] = {0};
    for (int i = 0; i < 3; i++)
        p[i].writeValue = (struct CUstreamMemOpWriteValueParams_st){CU_STREAM_MEM_OP_WRITE_VALUE_32, mem, {7}, 0, 0};
    OK(cuStreamBatchMemOp(full, 3, p, 0));
}

static void a_launch_of_a_graph(void)
{
    OK(cuGraphLaunch(graph, full));
}

static void an_allocation(void)
{
    CUdeviceptr p;
    OK(cuMemAllocAsync(&p, 4096, full));
}

Test(queue, whoever_fills_it_waits_in_the_call)
{
    void (*const calls[])(void) = {a_fill, a_record, a_wait, a_batch, a_launch_of_a_graph, an_allocation};
    start_held("20", 0);
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
        expect_waits(ctx[0], calls[i]);
        OK(cuCtxSynchronize());
        hold(full);
        for (int k = 1; k < ROOM; k++)
            OK(cuMemsetD32Async(mem, 2, 1, full));
    }
    end();
}

static void a_query(void)
{
    RC(cuStreamQuery(other), CUDA_SUCCESS);
}

Test(queue, a_query_waits_for_a_launch_that_waits)
{
    struct call launch;
    setenv("SOFTGPU_QUEUE_LAUNCHES", "3", 1);
    start_held("20", 12);
    for (int i = 0; i < 3; i++)
        expect_goes_on(ctx[0], a_launch_of_a_graph);
    expect_goes_on(ctx[0], a_query);
    expect_goes_on(ctx[0], a_fill); /* which is no launch */
    begin_call(&launch, ctx[0], a_launch_of_a_graph);
    usleep(HOLDS_MS * 1000);
    cr_assert_eq(launch.done, 0, "the launch did not wait");
    expect_waits(ctx[0], a_query);
    end_call(&launch);
    end();
}

Test(queue, a_call_is_one_entry)
{
    start_held("20", 3);
    expect_goes_on(ctx[0], a_batch);
    expect_goes_on(ctx[0], a_launch_of_a_graph);
    expect_goes_on(ctx[0], a_fill);
    expect_waits(ctx[0], a_fill);
    end();
}

static void rest_of_the_driver(void)
{
    CUdeviceptr p, q;
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemsetD32Async(p, 5, 1, other));
    OK(cuEventRecord(event, other));
    OK(cuStreamSynchronize(other));
    RC(cuStreamQuery(full), CUDA_ERROR_NOT_READY);
    OK(cuCtxSetCurrent(ctx[1]));
    OK(cuMemAlloc(&q, 4096));
    OK(cuMemsetD32(q, 5, 1));
    OK(cuCtxSynchronize());
    OK(cuMemFree(q));
    OK(cuCtxSetCurrent(ctx[0]));
}

Test(queue, other_streams_and_devices_go_on)
{
    struct call blocked;
    start_held("20", 0);
    OK(cuDevicePrimaryCtxRetain(&ctx[1], 1));
    begin_call(&blocked, ctx[0], a_fill);
    usleep(HOLDS_MS * 1000);
    rest_of_the_driver();
    cr_assert_eq(blocked.done, 0, "the call did not wait");
    let_go();
    end_call(&blocked);
    end();
}

static void captured_work(void)
{
    CUgraph g;
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < 3 * ROOM; i++)
        OK(cuMemsetD32Async(mem, 1, 1, other));
    OK(cuStreamEndCapture(other, &g));
    OK(cuGraphDestroy(g));
}

Test(queue, what_is_recorded_takes_no_entry)
{
    start_held("20", 0);
    expect_goes_on(ctx[0], captured_work);
    end();
}

Test(queue, zero_is_no_limit)
{
    start_held("0", 0);
    for (int i = 0; i < 5000; i++)
        a_fill();
    RC(cuStreamQuery(full), CUDA_ERROR_NOT_READY);
    end();
}

static void a_fill_of_a_lost_stream(void)
{
    RC(cuMemsetD32Async(mem, 3, 1, full), CUDA_ERROR_INVALID_HANDLE);
}

Test(queue, a_stream_that_is_destroyed_meanwhile_is_named)
{
    struct call blocked;
    start_held("20", 0);
    begin_call(&blocked, ctx[0], a_fill_of_a_lost_stream);
    usleep(HOLDS_MS * 1000);
    OK(cuStreamDestroy(full));
    let_go();
    end_call(&blocked);
    expect_report("used after it was destroyed");
}
