/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what they run, in which order, and what runs at the same time. */
#include "test_graph_util.h"

TestSuite(graph_launch, .timeout = 60);

static void store_user(void *user)
{
    post(user, 7);
}

/* Each adds 1 to a word of its own, the first two; they are joined on `s`. */
static CUgraphExec two_branches(void)
{
    begin(s);
    follow(s, t);
    add_on(s, 0, 1);
    add_on(t, 1, 1);
    follow(t, s);
    return end_executable(s);
}

Test(graph_launch, every_kind_of_work_is_replayed, .init = setup)
{
    CUstreamBatchMemOpParams p[2] = {0};
    volatile int *host = shared_page();
    CUdeviceptr flag;
    uint32_t *flagged = flag_word(&flag);
    CUgraphNode nodes[8];
    CUgraph g;
    begin(s);
    set_on(s, 0, 5);
    OK(cuMemcpyDtoDAsync(at(1), at(0), 4, s));
    add_on(s, 1, 2);
    OK(cuLaunchHostFunc(s, store_user, (void *)host));
    OK(cuStreamWriteValue32(s, flag, 3, 0));
    p[0].waitValue = (struct CUstreamMemOpWaitValueParams_st){CU_STREAM_MEM_OP_WAIT_VALUE_32, flag, {3}, 0, 0};
    p[1].writeValue = (struct CUstreamMemOpWriteValueParams_st){CU_STREAM_MEM_OP_WRITE_VALUE_32, flag, {4}, 0, 0};
    OK(cuStreamBatchMemOp(s, 2, p, 0));
    g = end(s);
    cr_assert_eq(nodes_of(g, nodes, 8), 6, "a batch is one node");
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_MEMCPY,
                                            CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_HOST,
                                            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    for (int i = 0; i < 6; i++)
        cr_assert_eq(type_of(nodes[i]), types[i]);
    CUgraphExec x = executable(g);
    for (int i = 0; i < 3; i++) {
        post(host, 0);
        launch_and_wait(x);
        cr_assert(word(0) == 5 && word(1) == 7 && *host == 7 && *flagged == 4);
    }
    expect_no_report();
}

/* A branch that waits for a word which only the other branch writes. */
Test(graph_launch, branches_run_at_the_same_time, .init = setup)
{
    CUdeviceptr flag;
    uint32_t *word_of_flag = flag_word(&flag);
    begin(s);
    follow(s, t);
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    set_on(s, 0, 1);
    OK(cuStreamWriteValue32(s, flag, 0, 0));
    set_on(t, 1, 1); /* recorded after the wait */
    OK(cuStreamWriteValue32(t, flag, 1, 0));
    follow(t, s);
    CUgraphExec x = end_executable(s);
    for (int i = 0; i < 3; i++)
        launch_and_wait(x);
    cr_assert(word(0) == 1 && word(1) == 1 && *word_of_flag == 0);
    expect_no_report();
}

Test(graph_launch, a_join_follows_all_branches, .init = setup)
{
    CUstream more[4];
    begin(s);
    set_on(s, 0, 1);
    for (int i = 0; i < 4; i++) {
        OK(cuStreamCreate(&more[i], CU_STREAM_NON_BLOCKING));
        follow(s, more[i]);
        OK(cuMemcpyDtoDAsync(at(i + 1), at(0), 4, more[i]));
        add_on(more[i], i + 1, (unsigned)i);
    }
    for (int i = 0; i < 4; i++)
        follow(more[i], s);
    OK(cuMemcpyDtoDAsync(at(8), at(0), 20, s));
    CUgraphExec x = end_executable(s);
    for (int i = 0; i < 20; i++) {
        OK(cuMemsetD32Async(data, 0, WORDS, s));
        launch_and_wait(x);
        for (unsigned k = 0; k < 4; k++)
            cr_assert_eq(word(9 + (int)k), 1 + k);
    }
    expect_no_report();
}

/* cuGraphLaunch: behind previous work of the stream; and later work of the stream is behind it. */
Test(graph_launch, a_launch_is_one_piece_of_work_of_its_stream, .init = setup)
{
    CUgraphExec x = two_branches();
    hold(t);
    launch(x, t);
    OK(cuMemcpyDtoDAsync(at(2), at(0), 8, t));
    usleep(HOLDS_MS * 1000);
    RC(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    cr_assert(word(0) == 0 && word(1) == 0, "nothing of it runs before");
    let_go();
    OK(cuStreamSynchronize(t));
    cr_assert(word(2) == 1 && word(3) == 1, "nothing later runs before it");
    expect_no_report();
}

Test(graph_launch, launches_of_one_executable_graph_follow_one_another, .init = setup)
{
    CUdeviceptr flag;
    uint32_t *go = flag_word(&flag);
    begin(s);
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    add_on(s, 0, 1);
    OK(cuStreamWriteValue32(s, flag, 0, 0));
    CUgraph g = end(s);
    CUgraphExec x = executable(g), y = executable(g);
    launch(x, s);
    launch(x, t); /* another stream, the same executable graph */
    usleep(HOLDS_MS * 1000);
    RC(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    set_flag(go, 1);
    OK(cuStreamSynchronize(s));
    RC(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    set_flag(go, 1);
    OK(cuStreamSynchronize(t));
    cr_assert_eq(word(0), 2);
    OK(cuGraphExecDestroy(x));
    OK(cuGraphExecDestroy(y));
    expect_no_report();
}

Test(graph_launch, two_executable_graphs_run_at_the_same_time, .init = setup)
{
    CUdeviceptr flag;
    flag_word(&flag);
    begin(s);
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    CUgraphExec waits = end_executable(s);
    begin(s);
    OK(cuStreamWriteValue32(s, flag, 1, 0));
    CUgraphExec writes = end_executable(s);
    launch(waits, s);
    launch(writes, t);
    OK(cuStreamSynchronize(s));
    OK(cuStreamSynchronize(t));
    expect_no_report();
}

/* cuGraphExecDestroy: in flight, it is not terminated. */
Test(graph_launch, destroying_what_runs_does_not_stop_it, .init = setup)
{
    CUgraphExec x = two_branches();
    hold(s);
    launch(x, s);
    launch(x, s);
    OK(cuGraphExecDestroy(x));
    RC(cuGraphLaunch(x, s), CUDA_ERROR_INVALID_VALUE);
    expect_report("executable graph");
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert(word(0) == 2 && word(1) == 2);
    expect_no_report();
}

Test(graph_launch, an_upload_follows_launches, .init = setup)
{
    begin(s);
    add_on(s, 0, 1);
    CUgraphExec x = end_executable(s);
    OK(cuGraphUpload(x, t));
    OK(cuStreamSynchronize(t));
    hold(s);
    launch(x, s);
    OK(cuGraphUpload(x, t));
    RC(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(t));
    cr_assert_eq(word(0), 1);
    expect_no_report();
}

Test(graph_launch, the_legacy_stream_orders_launches_as_other_work, .init = setup)
{
    CUstream blocking;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CUgraphExec x = two_branches();
    hold(blocking);
    launch(x, 0);
    RC(cuStreamQuery(0), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(0));
    cr_assert(word(0) == 1 && word(1) == 1);
    launch(x, CU_STREAM_PER_THREAD);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    cr_assert(word(0) == 2 && word(1) == 2);
    expect_no_report();
}

/* Nodes run in the contexts that they were captured in. */
Test(graph_launch, a_graph_may_have_nodes_on_two_devices, .init = setup)
{
    CUcontext other = start(1);
    CUstream far;
    CUdeviceptr there;
    CUevent e;
    uint32_t v = 0;
    OK(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&there, 4));
    OK(cuCtxSetCurrent(ctx));
    begin(s);
    set_on(s, 0, 9);
    follow(s, far);
    OK(cuMemcpyDtoDAsync(there, at(0), 4, far));
    OK(cuEventRecord(e, far));
    OK(cuStreamWaitEvent(s, e, 0));
    OK(cuMemcpyDtoDAsync(at(1), there, 4, s));
    CUgraphExec x = end_executable(s);
    OK(cuCtxSetCurrent(other));
    launch(x, far); /* the launching stream's device is not that of the first node */
    OK(cuStreamSynchronize(far));
    OK(cuMemcpyDtoH(&v, there, 4));
    OK(cuCtxSetCurrent(ctx));
    cr_assert(v == 9 && word(1) == 9);
    expect_no_report();
}

Test(graph_launch, memory_that_is_gone_is_named_and_nothing_is_queued, .init = setup)
{
    CUdeviceptr p, again;
    begin(s);
    add_on(s, 0, 1);
    OK(cuMemAllocAsync(&p, 256, t)); /* another stream, which does not capture */
    OK(cuStreamSynchronize(t));
    OK(cuMemsetD32Async(p, 1, 4, s));
    CUgraphExec x = end_executable(s);
    launch_and_wait(x);
    cr_assert_eq(word(0), 1);
    OK(cuMemFree(p));
    RC(cuGraphLaunch(x, s), CUDA_ERROR_INVALID_VALUE);
    expect_report("lies in the freed");
    OK(cuMemAlloc(&again, 256));
    cr_assert_eq(again, p);
    RC(cuGraphLaunch(x, s), CUDA_ERROR_INVALID_VALUE);
    expect_report("which the graph was made with, was freed and its address used again");
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(0), 1, "all or nothing");
}

Test(graph_launch, device_launch_is_refused_with_a_reason, .init = setup)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH};
    CUgraphExec x;
    begin(s);
    add_on(s, 0, 1);
    CUgraph g = end(s);
    RC(cuGraphInstantiateWithParams(&x, g, &p), CUDA_ERROR_NOT_SUPPORTED);
    cr_assert_eq(p.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
    p.flags |= CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    RC(cuGraphInstantiateWithParams(&x, g, &p), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphInstantiate(&x, g, 1024), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphInstantiate(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_INVALID_VALUE);
}

Test(graph_launch, instantiation_can_upload, .init = setup)
{
    cuuint64_t flags = 99;
    CUgraphExec x;
    begin(s);
    add_on(s, 0, 1);
    CUgraph g = end(s);
    CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                                CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY,
                                       .hUploadStream = t};
    hold(t);
    OK(cuGraphInstantiateWithParams(&x, g, &p));
    cr_assert_eq(p.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    RC(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuGraphExecGetFlags(x, &flags));
    cr_assert_eq(flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, "the upload is no property");
    OK(cuStreamSynchronize(t));
}

Test(graph_launch, an_empty_graph_is_order, .init = setup)
{
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    CUgraphExec x = executable(g);
    hold(s);
    launch(x, s);
    RC(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(s));
    expect_no_report();
}

#define THREADS 4
#define TURNS 50

static CUgraphExec shared_exec;

static void *launch_often(void *on)
{
    OK(cuCtxSetCurrent(ctx));
    for (int i = 0; i < TURNS; i++)
        launch(shared_exec, on);
    OK(cuStreamSynchronize(on));
    return NULL;
}

/* The kernel adds without care for others: launches must not overlap. */
Test(graph_launch, several_threads_launch_one_executable_graph, .init = setup)
{
    pthread_t threads[THREADS];
    CUstream on[THREADS];
    shared_exec = two_branches();
    for (int i = 0; i < THREADS; i++) {
        OK(cuStreamCreate(&on[i], CU_STREAM_NON_BLOCKING));
        cr_assert_eq(pthread_create(&threads[i], NULL, launch_often, on[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert(word(0) == THREADS * TURNS && word(1) == THREADS * TURNS);
    expect_no_report();
}
