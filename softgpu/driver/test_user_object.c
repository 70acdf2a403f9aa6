/* SPDX-License-Identifier: Apache-2.0 */
/* User objects: who holds them, when they end, and what their destructors may do. */
#include "test_graph_util.h"

TestSuite(user_object, .timeout = 60);

static volatile int *ended;
static pthread_t ended_on;

static void end_it(void *p)
{
    ended_on = pthread_self();
    __atomic_fetch_add((int *)p, 1, __ATOMIC_RELEASE);
}

static void setup_object(void)
{
    setup();
    ended = shared_page();
}

static CUuserObject object(unsigned count)
{
    CUuserObject o;
    OK(cuUserObjectCreate(&o, (void *)ended, end_it, count, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return o;
}

static void expect_alive(void)
{
    usleep(50000);
    cr_assert_eq(__atomic_load_n(ended, __ATOMIC_ACQUIRE), 0, "the object has ended");
}

static void expect_ended(void)
{
    await(ended, 1);
    usleep(20000);
    cr_assert_eq(__atomic_load_n(ended, __ATOMIC_ACQUIRE), 1, "its destructor runs once");
}

static CUgraph graph_with(CUuserObject o)
{
    CUgraph g;
    begin(s);
    follow(s, t);
    add_on(s, 0, 1);
    add_on(t, 1, 1);
    follow(t, s);
    g = end(s);
    OK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
    return g;
}

Test(user_object, ends_with_the_last_reference_on_another_thread, .init = setup_object)
{
    CUuserObject o = object(2);
    OK(cuUserObjectRetain(o, 3));
    OK(cuUserObjectRelease(o, 4));
    expect_alive();
    OK(cuUserObjectRelease(o, 1));
    expect_ended();
    cr_assert(!pthread_equal(ended_on, pthread_self()));
    RC(cuUserObjectRelease(o, 1), CUDA_ERROR_INVALID_VALUE);
    expect_report("user object");
}

Test(user_object, arguments_are_checked, .init = setup_object)
{
    CUuserObject o;
    CUgraph g;
    RC(cuUserObjectCreate(&o, NULL, end_it, 1, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuUserObjectCreate(&o, NULL, end_it, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC), CUDA_ERROR_INVALID_VALUE);
    RC(cuUserObjectCreate(&o, NULL, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC), CUDA_ERROR_INVALID_VALUE);
    o = object(1);
    OK(cuGraphCreate(&g, 0));
    RC(cuUserObjectRetain(o, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuUserObjectRetain(o, 1u << 31), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphRetainUserObject(g, o, 1, 2), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphReleaseUserObject(g, o, 1), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
    RC(cuUserObjectRelease(o, 2), CUDA_ERROR_INVALID_VALUE);
    expect_report("of which the program owns 1");
    RC(cuGraphRetainUserObject(g, o, 2, CU_GRAPH_USER_OBJECT_MOVE), CUDA_ERROR_INVALID_VALUE);
    expect_report("of which the program owns 1");
}

Test(user_object, graphs_hold_references_of_their_own, .init = setup_object)
{
    CUuserObject o = object(1);
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphRetainUserObject(g, o, 2, 0));
    OK(cuUserObjectRelease(o, 1));
    OK(cuGraphReleaseUserObject(g, o, 1));
    expect_alive();
    OK(cuGraphReleaseUserObject(g, o, 1));
    expect_ended();
    expect_no_report();
}

Test(user_object, clones_children_and_executable_graphs_hold_it_too, .init = setup_object)
{
    CUgraph g = graph_with(object(1)), clone, parent;
    CUgraphNode child;
    OK(cuGraphClone(&clone, g));
    OK(cuGraphDestroy(g));
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, clone));
    OK(cuGraphDestroy(clone));
    CUgraphExec x = executable(parent);
    OK(cuGraphDestroy(parent));
    launch_and_wait(x);
    expect_alive();
    OK(cuGraphExecDestroy(x));
    expect_ended();
    expect_no_report();
}

Test(user_object, a_launch_that_runs_keeps_it, .init = setup_object)
{
    CUgraph g = graph_with(object(1));
    CUgraphExec x = executable(g);
    OK(cuGraphDestroy(g));
    hold(s);
    launch(x, s);
    OK(cuGraphExecDestroy(x));
    expect_alive();
    let_go();
    expect_ended();
    expect_no_report();
}

Test(user_object, an_update_replaces_what_is_held, .init = setup_object)
{
    CUgraphExecUpdateResultInfo info;
    CUgraph g = graph_with(object(1)), plain;
    CUgraphExec x = executable(g);
    begin(s);
    follow(s, t);
    add_on(s, 0, 1);
    add_on(t, 1, 1);
    follow(t, s);
    plain = end(s);
    OK(cuGraphDestroy(g));
    hold(s);
    launch(x, s);
    OK(cuGraphExecUpdate(x, plain, &info));
    expect_alive(); /* the launch that was before still runs */
    let_go();
    expect_ended();
    launch_and_wait(x);
    expect_no_report();
}

Test(user_object, a_capture_that_fails_lets_go, .init = setup_object)
{
    CUstreamCaptureStatus st;
    CUuserObject o = object(1);
    CUgraph g, none;
    cuuint64_t id;
    begin(s);
    OK(cuStreamGetCaptureInfo(s, &st, &id, &g, NULL, NULL, NULL));
    OK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE)); /* as libraries do while they are captured */
    RC(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    RC(cuStreamEndCapture(s, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_ended();
}

static volatile CUresult in_destructor;

static void calls_cuda(void *p)
{
    CUdeviceptr d;
    in_destructor = cuMemAlloc(&d, 16);
    end_it(p);
}

Test(user_object, destructors_and_host_functions_must_not_call_cuda, .init = setup_object)
{
    CUuserObject o;
    OK(cuUserObjectCreate(&o, (void *)ended, calls_cuda, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuUserObjectRelease(o, 1));
    expect_ended();
    cr_assert_eq(in_destructor, CUDA_ERROR_NOT_PERMITTED);
    expect_report("the destructor of a user object calls cuMemAlloc");
    in_destructor = CUDA_SUCCESS;
    OK(cuLaunchHostFunc(s, calls_cuda, (void *)ended));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(in_destructor, CUDA_ERROR_NOT_PERMITTED);
    expect_report("a host function calls cuMemAlloc");
}
