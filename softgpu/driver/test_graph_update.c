/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs that change: cuGraphExecUpdate, setters of single nodes, nodes switched off. */
#include "test_graph_util.h"

TestSuite(graph_update, .timeout = 60);

static CUgraph setting(int i, unsigned value)
{
    begin(s);
    set_on(s, i, value);
    return end(s);
}

static void expect_update(CUgraphExec x, CUgraph g, CUgraphExecUpdateResult why, CUgraphNode node, CUgraphNode from)
{
    CUgraphExecUpdateResultInfo info;
    CUresult rc = cuGraphExecUpdate(x, g, &info);
    cr_assert_eq(rc, why ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS);
    cr_assert_eq(info.result, why, "result %d, expected %d", (int)info.result, (int)why);
    cr_assert(info.errorNode == node && info.errorFromNode == from);
}

static CUgraphNode node_of(CUgraph g, int i)
{
    CUgraphNode nodes[8];
    nodes_of(g, nodes, 8);
    return nodes[i];
}

Test(graph_update, takes_over_what_a_graph_of_the_same_shape_does, .init = setup)
{
    CUgraph five = setting(0, 5), six = setting(1, 6);
    CUgraphExec x = executable(five);
    hold(s);
    launch(x, s);
    expect_update(x, six, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
    launch(x, s); /* only later launches change */
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert(word(0) == 5 && word(1) == 6);
    expect_update(x, five, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
    OK(cuGraphDestroy(five));
    OK(cuGraphDestroy(six));
    OK(cuMemsetD32(data, 0, 2));
    OK(cuCtxSynchronize()); /* the fill goes on when the call has returned */
    launch_and_wait(x);
    cr_assert_eq(word(0), 5);
    expect_no_report();
}

Test(graph_update, names_what_does_not_fit, .init = setup)
{
    CUgraph one = setting(0, 5), kernel, more, ordered, unordered, swapped;
    CUgraphExec x = executable(one);
    begin(s);
    add_on(s, 0, 1);
    kernel = end(s);
    expect_update(x, kernel, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node_of(kernel, 0), NULL);
    begin(s);
    set_on(s, 0, 1);
    set_on(s, 1, 1);
    more = end(s);
    expect_update(x, more, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    begin(s);
    follow(s, t);
    set_on(s, 0, 1);
    set_on(t, 1, 1);
    follow(t, s);
    unordered = end(s);
    x = executable(more);
    expect_update(x, unordered, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node_of(unordered, 1), NULL);
    OK(cuGraphClone(&ordered, more));
    OK(cuGraphAddEmptyNode(&(CUgraphNode){0}, ordered, (CUgraphNode[]){node_of(ordered, 1)}, 1));
    OK(cuGraphClone(&swapped, more));
    OK(cuGraphAddEmptyNode(&(CUgraphNode){0}, swapped, (CUgraphNode[]){node_of(swapped, 0)}, 1));
    x = executable(ordered);
    expect_update(x, swapped, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node_of(swapped, 2), node_of(swapped, 0));
    launch_and_wait(x);
    cr_assert(word(0) == 1 && word(1) == 1, "as it was");
    expect_no_report();
}

/* cuGraphExecUpdate: memory stays on its device and in its context, and on its side. */
Test(graph_update, memory_does_not_move, .init = setup)
{
    uint32_t *pinned;
    CUcontext other = start(1);
    CUdeviceptr far;
    CUgraph near_copy, far_copy, host_copy;
    OK(cuMemAlloc(&far, 4));
    OK(cuCtxSetCurrent(ctx));
    (void)other;
    OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
    begin(s);
    OK(cuMemcpyAsync(at(0), at(1), 4, s));
    near_copy = end(s);
    begin(s);
    OK(cuMemcpyAsync(at(0), far, 4, s));
    far_copy = end(s);
    begin(s);
    OK(cuMemcpyAsync(at(0), (CUdeviceptr)pinned, 4, s));
    host_copy = end(s);
    CUgraphExec x = executable(near_copy);
    expect_update(x, far_copy, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node_of(far_copy, 0), NULL);
    expect_update(x, host_copy, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node_of(host_copy, 0), NULL);
    expect_update(x, near_copy, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
}

Test(graph_update, fills_of_rectangles_keep_their_shape, .init = setup)
{
    CUgraph wide, narrow, moved;
    begin(s);
    OK(cuMemsetD2D32Async(at(0), 16, 1, 2, 2, s));
    wide = end(s);
    begin(s);
    OK(cuMemsetD2D32Async(at(0), 16, 1, 1, 2, s));
    narrow = end(s);
    begin(s);
    OK(cuMemsetD2D32Async(at(4), 16, 3, 2, 2, s));
    moved = end(s);
    CUgraphExec x = executable(wide);
    expect_update(x, narrow, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node_of(narrow, 0), NULL);
    expect_update(x, moved, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
    launch_and_wait(x);
    cr_assert(word(0) == 0 && word(4) == 3 && word(5) == 3 && word(8) == 3 && word(9) == 3);
}

static CUgraph waiting(CUdeviceptr flag, uint32_t value, unsigned flags, unsigned count)
{
    CUstreamBatchMemOpParams p[2] = {0};
    for (unsigned i = 0; i < count; i++)
        p[i].waitValue =
            (struct CUstreamMemOpWaitValueParams_st){CU_STREAM_MEM_OP_WAIT_VALUE_32, flag, {value}, flags, 0};
    begin(s);
    OK(cuStreamBatchMemOp(s, count, p, 0));
    return end(s);
}

Test(graph_update, memory_operations_change_in_what_the_documentation_names, .init = setup)
{
    CUdeviceptr flag;
    set_flag(flag_word(&flag), 5);
    CUgraph one = waiting(flag, 5, CU_STREAM_WAIT_VALUE_EQ, 1), two = waiting(flag, 5, CU_STREAM_WAIT_VALUE_EQ, 2);
    CUgraph geq = waiting(flag, 4, CU_STREAM_WAIT_VALUE_GEQ, 1);
    CUgraph flush = waiting(flag, 5, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, 1), writes;
    CUstreamBatchMemOpParams w = {0};
    CUgraphExec x = executable(one);
    begin(s);
    OK(cuStreamWriteValue32(s, flag, 1, 0));
    writes = end(s);
    expect_update(x, geq, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
    launch_and_wait(x);
    expect_update(x, two, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node_of(two, 0), NULL);
    expect_update(x, flush, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node_of(flush, 0), NULL);
    expect_update(x, writes, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node_of(writes, 0), NULL);
    CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.ctx = ctx, .count = 1, .paramArray = &w};
    w.writeValue = (struct CUstreamMemOpWriteValueParams_st){CU_STREAM_MEM_OP_WRITE_VALUE_32, at(2), {77}, 0, 0};
    x = executable(writes);
    OK(cuGraphExecBatchMemOpNodeSetParams(x, node_of(writes, 0), &p));
    launch_and_wait(x);
    cr_assert_eq(word(2), 77);
    p.count = 2;
    RC(cuGraphExecBatchMemOpNodeSetParams(x, node_of(writes, 0), &(CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = ctx}),
       CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}

static void store_one(void *p)
{
    post(p, 1);
}

static void store_two(void *p)
{
    post(p, 2);
}

Test(graph_update, single_nodes_are_set_by_the_node_of_the_graph, .init = setup)
{
    volatile int *host = shared_page();
    CUevent first = new_event(), second = new_event();
    CUgraph g;
    begin(s);
    set_on(s, 0, 1);
    OK(cuMemcpyDtoDAsync(at(1), at(0), 4, s));
    add_on(s, 1, 1);
    OK(cuLaunchHostFunc(s, store_one, (void *)host));
    OK(cuEventRecordWithFlags(first, s, CU_EVENT_RECORD_EXTERNAL));
    g = end(s);
    CUgraphExec x = executable(g);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = at(4), .value = 9, .elementSize = 4, .width = 1, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = at(4),
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = at(5),
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    struct add a = {at(5), 10};
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_HOST_NODE_PARAMS call = {.fn = store_two, .userData = (void *)host};
    OK(cuGraphKernelNodeGetParams(node_of(g, 2), &kernel));
    kernel.kernelParams = (void *[]){&a};
    OK(cuGraphExecMemsetNodeSetParams(x, node_of(g, 0), &fill, ctx));
    OK(cuGraphExecMemcpyNodeSetParams(x, node_of(g, 1), &copy, ctx));
    OK(cuGraphExecKernelNodeSetParams(x, node_of(g, 2), &kernel));
    OK(cuGraphExecHostNodeSetParams(x, node_of(g, 3), &call));
    OK(cuGraphExecEventRecordNodeSetEvent(x, node_of(g, 4), second));
    hold(s);
    launch(x, s);
    OK(cuEventQuery(first));
    RC(cuEventQuery(second), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert(word(0) == 0 && word(1) == 0 && word(4) == 9 && word(5) == 19 && *host == 2);
    copy.Height = 2;
    RC(cuGraphExecMemcpyNodeSetParams(x, node_of(g, 1), &copy, ctx), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphExecMemsetNodeSetParams(x, node_of(g, 1), &fill, ctx), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode gone = node_of(g, 3);
    OK(cuGraphDestroyNode(gone));
    expect_no_report();
    RC(cuGraphExecHostNodeSetParams(x, gone, &call), CUDA_ERROR_INVALID_VALUE);
    expect_report("graph node");
}

static CUDA_MEMCPY3D linear(CUmemorytype type, CUdeviceptr to, CUdeviceptr from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = type,
                           .srcDevice = from,
                           .dstMemoryType = type,
                           .dstDevice = to,
                           .WidthInBytes = 4,
                           .Height = 1,
                           .Depth = 1};
}

/* As seen with driver 580. */
Test(graph_update, a_captured_copy_names_its_ends_as_unified, .init = setup)
{
    CUgraphNode by_hand;
    CUDA_MEMCPY3D copy, device = linear(CU_MEMORYTYPE_DEVICE, at(3), at(2));
    begin(s);
    OK(cuMemcpyAsync(at(1), at(0), 4, s));
    OK(cuMemcpyDtoDAsync(at(2), at(0), 4, s));
    CUgraph g = end(s);
    CUgraphExec x = executable(g);
    for (int i = 0; i < 2; i++) {
        OK(cuGraphMemcpyNodeGetParams(node_of(g, i), &copy));
        cr_assert(copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED && copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED);
        cr_assert(copy.srcDevice == at(0) && copy.dstDevice == at(1 + i) && copy.WidthInBytes == 4);
        cr_assert(copy.srcPitch == 0 && copy.srcHeight == 0 && copy.dstPitch == 0 && copy.dstHeight == 0);
        OK(cuGraphExecMemcpyNodeSetParams(x, node_of(g, i), &copy, ctx));
        RC(cuGraphExecMemcpyNodeSetParams(x, node_of(g, i), &device, ctx), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuGraphAddMemcpyNode(&by_hand, g, NULL, 0, &device, ctx));
    x = executable(g);
    OK(cuGraphExecMemcpyNodeSetParams(x, by_hand, &device, ctx));
    copy = linear(CU_MEMORYTYPE_UNIFIED, at(3), at(2));
    RC(cuGraphExecMemcpyNodeSetParams(x, by_hand, &copy, ctx), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}

/* Likewise. */
Test(graph_update, allocated_and_mapped_memory_do_not_replace_each_other, .init = setup)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t size = (size_t)2 << 20;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr mapped, other;
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemAddressReserve(&mapped, size, 0, 0, 0));
    OK(cuMemMap(mapped, size, 0, handle, 0));
    OK(cuMemSetAccess(mapped, size, &access, 1));
    OK(cuMemAlloc(&other, 64));
    begin(s);
    OK(cuMemcpyAsync(at(1), at(0), 4, s));
    OK(cuMemcpyAsync(at(1), mapped, 4, s));
    CUgraph g = end(s);
    CUgraphExec x = executable(g);
    const CUDA_MEMCPY3D from_other = linear(CU_MEMORYTYPE_UNIFIED, at(1), other),
                        from_mapped = linear(CU_MEMORYTYPE_UNIFIED, at(1), mapped + 64);
    OK(cuGraphExecMemcpyNodeSetParams(x, node_of(g, 0), &from_other, ctx));
    RC(cuGraphExecMemcpyNodeSetParams(x, node_of(g, 0), &from_mapped, ctx), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecMemcpyNodeSetParams(x, node_of(g, 1), &from_mapped, ctx));
    RC(cuGraphExecMemcpyNodeSetParams(x, node_of(g, 1), &from_other, ctx), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}

Test(graph_update, nodes_are_not_set_any_more_when_their_graph_is_gone, .init = setup)
{
    begin(s);
    OK(cuMemcpyAsync(at(1), at(0), 4, s));
    CUgraph g = end(s);
    const CUgraphNode node = node_of(g, 0);
    const CUDA_MEMCPY3D copy = linear(CU_MEMORYTYPE_UNIFIED, at(1), at(2));
    CUgraphExec x = executable(g);
    OK(cuGraphExecMemcpyNodeSetParams(x, node, &copy, ctx));
    OK(cuGraphDestroy(g));
    RC(cuGraphExecMemcpyNodeSetParams(x, node, &copy, ctx), CUDA_ERROR_INVALID_VALUE);
    expect_report("graph node");
}

Test(graph_update, nodes_stay_those_of_the_first_graph_after_an_update, .init = setup)
{
    CUgraph one = setting(0, 1), two = setting(1, 2);
    CUgraphExec x = executable(one);
    CUDA_MEMSET_NODE_PARAMS p = {.dst = at(2), .value = 3, .elementSize = 4, .width = 1, .height = 1};
    expect_update(x, two, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
    RC(cuGraphExecMemsetNodeSetParams(x, node_of(two, 0), &p, ctx), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecMemsetNodeSetParams(x, node_of(one, 0), &p, ctx));
    launch_and_wait(x);
    cr_assert(word(0) == 0 && word(1) == 0 && word(2) == 3);
}

Test(graph_update, children_change_with_it_or_alone, .init = setup)
{
    CUgraph one = setting(0, 1), two = setting(1, 2), longer, parent;
    CUgraphNode child;
    begin(s);
    set_on(s, 0, 1);
    set_on(s, 1, 1);
    longer = end(s);
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, one));
    CUgraphExec x = executable(parent);
    OK(cuGraphExecChildGraphNodeSetParams(x, child, two));
    launch_and_wait(x);
    cr_assert(word(0) == 0 && word(1) == 2);
    RC(cuGraphExecChildGraphNodeSetParams(x, child, longer), CUDA_ERROR_INVALID_VALUE);
    expect_update(x, parent, CU_GRAPH_EXEC_UPDATE_SUCCESS, NULL, NULL);
    launch_and_wait(x);
    cr_assert_eq(word(0), 1);
}

Test(graph_update, a_node_that_is_off_is_order_alone, .init = setup)
{
    CUgraphNode fill, kernel, host;
    unsigned on = 9;
    CUgraph g;
    begin(s);
    set_on(s, 0, 5);
    add_on(s, 0, 1);
    OK(cuLaunchHostFunc(s, store_one, shared_page()));
    g = end(s);
    CUgraphExec x = executable(g);
    fill = node_of(g, 0);
    kernel = node_of(g, 1);
    host = node_of(g, 2);
    OK(cuGraphNodeSetEnabled(x, kernel, 0));
    OK(cuGraphNodeGetEnabled(x, kernel, &on));
    cr_assert_eq(on, 0);
    launch_and_wait(x);
    cr_assert_eq(word(0), 5);
    OK(cuGraphNodeSetEnabled(x, kernel, 1));
    OK(cuGraphNodeSetEnabled(x, fill, 0));
    launch_and_wait(x);
    cr_assert_eq(word(0), 6);
    RC(cuGraphNodeSetEnabled(x, host, 0), CUDA_ERROR_INVALID_VALUE);
}
