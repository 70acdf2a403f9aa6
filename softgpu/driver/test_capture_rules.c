/* SPDX-License-Identifier: Apache-2.0 */
/* What a capture forbids, and what becomes of it then: CUDA Programming Guide, stream capture, and cuda.h. */
#include "test_graph_util.h"

TestSuite(capture_rules, .timeout = 60);

static void expect_broken(CUstream on)
{
    CUgraph g = (CUgraph)1;
    cr_assert_eq(status_of(on), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    RC(cuStreamEndCapture(on, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    cr_assert_null(g);
    cr_assert_eq(status_of(on), CU_STREAM_CAPTURE_STATUS_NONE);
}

/* ---- captured events ---- */

Test(capture_rules, asking_for_a_captured_event_breaks_the_capture, .init = setup)
{
    CUevent e = new_event(), timed;
    float ms;
    OK(cuEventCreate(&timed, 0));
    begin(s);
    OK(cuEventRecord(e, s));
    RC(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
    expect_broken(s);
    begin(s);
    OK(cuEventRecord(e, s));
    RC(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
    expect_broken(s);
    begin(s);
    OK(cuEventRecord(timed, s));
    RC(cuEventElapsedTime(&ms, timed, timed), CUDA_ERROR_CAPTURED_EVENT);
    expect_broken(s);
}

/* Relaxed mode does not allow what conflicts with the capture itself. */
Test(capture_rules, a_relaxed_thread_asks_in_vain_too, .init = setup)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent e = new_event();
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(e, s));
    RC(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
    expect_broken(s);
}

Test(capture_rules, an_event_stays_captured_until_it_is_recorded_elsewhere, .init = setup)
{
    CUevent e = new_event();
    CUgraph g;
    begin(s);
    OK(cuEventRecord(e, s));
    OK(cuGraphDestroy(end(s)));
    RC(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
    RC(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
    RC(cuStreamWaitEvent(t, e, 0), CUDA_ERROR_CAPTURED_EVENT);
    begin(t);
    RC(cuStreamWaitEvent(t, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    RC(cuStreamEndCapture(t, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventRecord(e, s));
    OK(cuEventSynchronize(e));
    OK(cuStreamWaitEvent(t, e, 0));
}

Test(capture_rules, an_event_that_was_never_recorded_is_no_dependency, .init = setup)
{
    CUevent e = new_event();
    begin(s);
    OK(cuStreamWaitEvent(s, e, 0));
    OK(cuGraphDestroy(end(s)));
}

/* ---- external event nodes ---- */

Test(capture_rules, external_events_are_invalid_outside_of_captures, .init = setup)
{
    CUevent e = new_event();
    RC(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
    RC(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
    RC(cuEventRecordWithFlags(e, s, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_DEFAULT));
}

Test(capture_rules, external_events_are_nodes_that_act_at_each_launch, .init = setup)
{
    CUevent in = new_event(), out = new_event();
    CUgraphNode nodes[4];
    begin(s);
    OK(cuStreamWaitEvent(s, in, CU_EVENT_WAIT_EXTERNAL));
    add_on(s, 0, 1);
    OK(cuEventRecordWithFlags(out, s, CU_EVENT_RECORD_EXTERNAL));
    CUgraph g = end(s);
    cr_assert_eq(nodes_of(g, nodes, 4), 3);
    cr_assert_eq(type_of(nodes[0]), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    cr_assert_eq(type_of(nodes[2]), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    OK(cuEventQuery(out)); /* not a captured event: it was never recorded */
    CUgraphExec x = executable(g);
    launch_and_wait(x); /* `in` was never recorded */
    hold(t);
    OK(cuEventRecord(in, t));
    launch(x, s);
    RC(cuEventQuery(out), CUDA_ERROR_NOT_READY);
    usleep(HOLDS_MS * 1000);
    cr_assert_eq(word(0), 1);
    OK(cuStreamWaitEvent(t, out, 0)); /* behind the launch, by the event that it records */
    let_go();
    OK(cuEventSynchronize(out));
    cr_assert_eq(word(0), 2);
    expect_no_report();
}

Test(capture_rules, an_event_node_needs_its_event_at_the_launch, .init = setup)
{
    CUevent e = new_event();
    begin(s);
    add_on(s, 0, 1);
    OK(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
    CUgraphExec x = end_executable(s);
    OK(cuEventDestroy(e));
    RC(cuGraphLaunch(x, s), CUDA_ERROR_INVALID_VALUE);
    expect_report("event");
    cr_assert_eq(word(0), 0);
}

/* ---- streams ---- */

Test(capture_rules, two_captures_do_not_merge, .init = setup)
{
    CUevent e = new_event();
    begin(s);
    begin(t);
    set_on(s, 0, 1);
    OK(cuEventRecord(e, s));
    RC(cuStreamWaitEvent(t, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    expect_broken(t);
    expect_broken(s);
}

Test(capture_rules, a_stream_that_joined_is_waited_for_and_asked_in_vain, .init = setup)
{
    begin(s);
    follow(s, t);
    RC(cuStreamQuery(t), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    cr_assert_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    RC(cuStreamSynchronize(t), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(s);
    cr_assert_eq(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE, "the end takes all streams out of it");
    OK(cuStreamSynchronize(t));
}

/* As seen with driver 580. */
Test(capture_rules, flags_and_id_of_a_capturing_stream_are_not_asked_for_in_any_mode, .init = setup)
{
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        unsigned flags;
        unsigned long long id;
        int priority;
        CUcontext of;
        OK(cuStreamBeginCapture(s, (CUstreamCaptureMode)mode));
        OK(cuStreamGetCtx(s, &of));
        cr_assert_eq(of, ctx);
        OK(cuStreamGetPriority(s, &priority));
        OK(cuCtxGetCurrent(&of));
        cr_assert_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        RC(cuStreamGetFlags(s, &flags), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_broken(s);
        OK(cuStreamBeginCapture(s, (CUstreamCaptureMode)mode));
        follow(s, t);
        RC(cuStreamGetId(t, &id), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_broken(s);
        OK(cuStreamBeginCapture(s, (CUstreamCaptureMode)mode));
        RC(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_broken(s);
        OK(cuStreamGetFlags(s, &flags));
        OK(cuStreamGetId(t, &id));
    }
    expect_no_report();
}

Test(capture_rules, other_streams_and_events_are_asked_only_in_a_relaxed_capture, .init = setup)
{
    CUevent e = new_event();
    OK(cuEventRecord(e, t));
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode < CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        OK(cuStreamBeginCapture(s, (CUstreamCaptureMode)mode));
        RC(cuStreamQuery(t), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_broken(s);
        OK(cuStreamBeginCapture(s, (CUstreamCaptureMode)mode));
        RC(cuEventQuery(e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_broken(s);
    }
    OK(cuStreamSynchronize(t));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamQuery(t));
    OK(cuEventQuery(e));
    OK(cuGraphDestroy(end(s)));
    expect_no_report();
}

Test(capture_rules, a_launch_is_not_captured, .init = setup)
{
    begin(s);
    set_on(s, 0, 1);
    CUgraphExec x = end_executable(s);
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
        OK(cuStreamBeginCapture(s, (CUstreamCaptureMode)mode));
        RC(cuGraphLaunch(x, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        expect_broken(s);
    }
    launch_and_wait(x);
    cr_assert_eq(word(0), 1);
    expect_no_report();
}

Test(capture_rules, work_that_graphs_have_no_node_for_is_refused, .init = setup)
{
    CUdeviceptr p;
    begin(s);
    RC(cuStreamAddCallback(s, (CUstreamCallback)1, NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(s);
    OK(cuMemAllocManaged(&p, 64, CU_MEM_ATTACH_GLOBAL));
    begin(s);
    RC(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(s);
    OK(cuMemAllocAsync(&p, 64, t));
    begin(s);
    RC(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE); /* memory that no graph allocates */
    expect_broken(s);
    OK(cuMemFreeAsync(p, t));
    begin(s);
    add_on(s, 0, 1);
    CUgraphExec x = end_executable(s);
    begin(s);
    RC(cuGraphUpload(x, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_broken(s);
}

Test(capture_rules, a_stream_that_is_destroyed_breaks_its_capture, .init = setup)
{
    begin(s);
    follow(s, t);
    OK(cuStreamDestroy(t));
    expect_broken(s);
    begin(s);
    OK(cuStreamDestroy(s)); /* the origin: there is nothing left to end */
    expect_no_report();
}

static void *end_here(void *on)
{
    CUgraph g;
    OK(cuCtxSetCurrent(ctx));
    RC(cuStreamEndCapture(on, &g), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    return NULL;
}

static void *end_relaxed_here(void *on)
{
    OK(cuCtxSetCurrent(ctx));
    OK(cuGraphDestroy(end(on)));
    return NULL;
}

static void in_thread(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, body, arg), 0);
    pthread_join(thread, NULL);
}

Test(capture_rules, only_a_relaxed_capture_ends_in_another_thread, .init = setup)
{
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_THREAD_LOCAL; mode++) {
        OK(cuStreamBeginCapture(s, mode));
        in_thread(end_here, s);
        OK(cuGraphDestroy(end(s)));
    }
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    in_thread(end_relaxed_here, s);
}

/* ---- the legacy stream ---- */

Test(capture_rules, the_legacy_stream_is_out_of_use_while_a_blocking_stream_captures, .init = setup)
{
    CUstreamCaptureStatus st;
    CUstream blocking;
    CUevent e = new_event();
    cuuint64_t id;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking);
    RC(cuStreamIsCapturing(0, &st), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    RC(cuStreamGetCaptureInfo(0, &st, &id, NULL, NULL, NULL, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    cr_assert_eq(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE, "those two break nothing");
    RC(cuStreamQuery(0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_broken(blocking);
    begin(blocking);
    RC(cuEventRecord(e, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_broken(blocking);
    begin(blocking);
    OK(cuEventRecord(e, blocking));
    RC(cuStreamWaitEvent(0, e, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    expect_broken(blocking);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED)); /* non-blocking */
    OK(cuStreamQuery(0));
    OK(cuGraphDestroy(end(s)));
}

/* ---- modes ---- */

static void *allocate_ok(void *unused)
{
    CUdeviceptr p;
    (void)unused;
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemAlloc(&p, 64));
    OK(cuMemFree(p));
    return NULL;
}

static void *allocate_refused(void *mode)
{
    CUstreamCaptureMode own = (CUstreamCaptureMode)(uintptr_t)mode;
    CUdeviceptr p;
    OK(cuCtxSetCurrent(ctx));
    OK(cuThreadExchangeStreamCaptureMode(&own));
    RC(cuMemAlloc(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return NULL;
}

static void *allocate_in_a_mode(void *mode)
{
    CUstreamCaptureMode own = (CUstreamCaptureMode)(uintptr_t)mode;
    OK(cuThreadExchangeStreamCaptureMode(&own));
    return allocate_ok(NULL);
}

#define MODE(m) (void *)(uintptr_t)CU_STREAM_CAPTURE_MODE_##m

/* cuThreadExchangeStreamCaptureMode, row by row: the capture's mode, and that of another thread. */
Test(capture_rules, what_another_thread_may_do_depends_on_both_modes, .init = setup)
{
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    in_thread(allocate_in_a_mode, MODE(THREAD_LOCAL));
    in_thread(allocate_in_a_mode, MODE(RELAXED));
    cr_assert_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    in_thread(allocate_refused, MODE(GLOBAL));
    expect_broken(s);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    in_thread(allocate_ok, NULL);
    OK(cuGraphDestroy(end(s)));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    in_thread(allocate_ok, NULL);
    allocate_ok(NULL);
    OK(cuGraphDestroy(end(s)));
}

Test(capture_rules, a_thread_that_captures_is_bound_unless_it_is_relaxed, .init = setup)
{
    for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_THREAD_LOCAL; mode++) {
        OK(cuStreamBeginCapture(s, mode));
        allocate_refused(MODE(THREAD_LOCAL));
        expect_broken(s);
        OK(cuStreamBeginCapture(s, mode));
        allocate_in_a_mode(MODE(RELAXED));
        OK(cuGraphDestroy(end(s)));
        CUstreamCaptureMode again = CU_STREAM_CAPTURE_MODE_GLOBAL;
        OK(cuThreadExchangeStreamCaptureMode(&again));
    }
}

/* ---- captures into a graph, and their dependencies ---- */

Test(capture_rules, a_capture_goes_on_in_a_graph_of_the_programs, .init = setup)
{
    CUgraphNode first, nodes[4];
    CUgraph g, same;
    CUgraphExec x;
    OK(cuGraphCreate(&g, 0));
    CUDA_MEMSET_NODE_PARAMS p = {.dst = at(0), .value = 4, .elementSize = 4, .width = 1, .height = 1};
    OK(cuGraphAddMemsetNode(&first, g, NULL, 0, &p, ctx));
    RC(cuStreamBeginCaptureToGraph(s, g, NULL, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamBeginCaptureToGraph(s, g, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    add_on(s, 0, 1);
    RC(cuGraphInstantiate(&x, g, 0), CUDA_ERROR_INVALID_VALUE); /* not until the end */
    RC(cuGraphDestroyNode(first), CUDA_ERROR_INVALID_VALUE);
    expect_report("cuGraphDestroyNode");
    RC(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
    expect_report("cuGraphDestroy");
    OK(cuStreamEndCapture(s, &same));
    cr_assert_eq(same, g);
    cr_assert_eq(nodes_of(g, nodes, 4), 2);
    cr_assert(depends(nodes[1], first));
    x = executable(g);
    launch_and_wait(x);
    cr_assert_eq(word(0), 5);
    OK(cuStreamBeginCaptureToGraph(s, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    RC(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    RC(cuStreamEndCapture(s, &same), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    cr_assert_null(same);
    cr_assert_eq(nodes_of(g, nodes, 4), 2, "the graph is the program's still");
    OK(cuGraphDestroy(g));
    expect_no_report();
}

Test(capture_rules, dependencies_are_shown_and_changed, .init = setup)
{
    const CUgraphEdgeData *edges;
    const CUgraphNode *deps;
    CUstreamCaptureStatus st;
    CUgraphNode nodes[4];
    CUgraph g, ended;
    cuuint64_t id;
    size_t n;
    RC(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
    begin(s);
    set_on(s, 0, 1);
    set_on(s, 1, 1);
    OK(cuStreamGetCaptureInfo(s, &st, &id, &g, &deps, &edges, &n));
    cr_assert_eq(n, 1);
    nodes_of(g, nodes, 4);
    cr_assert_eq(deps[0], nodes[1]);
    OK(cuStreamUpdateCaptureDependencies(s, nodes, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    set_on(s, 2, 1);
    nodes_of(g, nodes, 4);
    cr_assert(depends(nodes[2], nodes[0]) && !depends(nodes[2], nodes[1]));
    OK(cuStreamUpdateCaptureDependencies(s, &nodes[1], NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo(s, &st, &id, &g, &deps, &edges, &n));
    cr_assert_eq(n, 2);
    set_on(s, 3, 1);
    nodes_of(g, nodes, 4);
    cr_assert(depends(nodes[3], nodes[1]) && depends(nodes[3], nodes[2]));
    ended = end(s);
    cr_assert_eq(ended, g, "the graph has its handle from the begin on");
    expect_no_report();
}

/* What is taken out of the set by hand is not missed at the end. */
Test(capture_rules, dependencies_that_are_dropped_need_no_join, .init = setup)
{
    begin(s);
    set_on(s, 0, 1);
    OK(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    set_on(s, 1, 1);
    CUgraph g = end(s);
    cr_assert_eq(nodes_of(g, NULL, 0), 2);
}

/* As libraries do that keep order among their own captured work: their stream ends in a node made by hand. */
Test(capture_rules, a_stream_that_ends_in_a_node_made_by_hand_needs_no_join, .init = setup)
{
    const CUgraphNode *deps;
    CUstreamCaptureStatus st;
    CUgraphNode record, list[4];
    CUevent e = new_event();
    CUgraph g;
    cuuint64_t id;
    size_t n;
    begin(s);
    follow(s, t);
    OK(cuStreamUpdateCaptureDependencies(t, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    add_on(t, 0, 1);
    follow(t, s);
    OK(cuStreamGetCaptureInfo(t, &st, &id, &g, &deps, NULL, &n));
    OK(cuGraphAddEventRecordNode(&record, g, deps, n, e));
    OK(cuStreamUpdateCaptureDependencies(t, &record, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    g = end(s);
    cr_assert(nodes_of(g, list, 4) == 2 && depends(record, list[0]));
    launch_and_wait(executable(g));
    OK(cuEventQuery(e));
    begin(s);
    follow(s, t);
    OK(cuStreamUpdateCaptureDependencies(t, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    add_on(t, 0, 1);
    RC(cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

Test(capture_rules, many_streams_join_without_nodes_of_their_own, .init = setup)
{
    CUgraphNode nodes[32];
    CUstream more[20];
    begin(s);
    for (int i = 0; i < 20; i++) {
        OK(cuStreamCreate(&more[i], CU_STREAM_NON_BLOCKING));
        follow(s, more[i]);
        set_on(more[i], i % WORDS, 1);
    }
    for (int i = 0; i < 20; i++)
        follow(more[i], s);
    set_on(s, 0, 2);
    CUgraph g = end(s);
    cr_assert_eq(nodes_of(g, nodes, 32), 21);
    for (int i = 0; i < 20; i++)
        cr_assert(depends(nodes[20], nodes[i]));
}
