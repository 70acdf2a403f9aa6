/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that graphs allocate and free: cuGraphAddMemAllocNode and allocation in captures. */
#include "test_graph_util.h"

TestSuite(graph_memory, .timeout = 60);

static CUDA_MEM_ALLOC_NODE_PARAMS wanted(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.bytesize = bytes};
    p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return p;
}

static cuuint64_t book(CUgraphMem_attribute attr)
{
    cuuint64_t v;
    OK(cuDeviceGetGraphMemAttribute(0, attr, &v));
    return v;
}

/* Allocates, fills, copies the first word to `data`, and frees when `inside`. */
static CUgraph capture_use(CUdeviceptr *p, bool inside)
{
    begin(s);
    OK(cuMemAllocAsync(p, 256, s));
    OK(cuMemsetD32Async(*p, 42, 64, s));
    OK(cuMemcpyDtoDAsync(at(0), *p, 4, s));
    if (inside)
        OK(cuMemFreeAsync(*p, s));
    return end(s);
}

Test(graph_memory, a_capture_allocates_and_frees, .init = setup)
{
    CUgraphNode nodes[4];
    CUdeviceptr p, freed;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraph g = capture_use(&p, true);
    cr_assert_eq(nodes_of(g, nodes, 4), 4);
    cr_assert_eq(type_of(nodes[0]), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    cr_assert_eq(type_of(nodes[3]), CU_GRAPH_NODE_TYPE_MEM_FREE);
    OK(cuGraphMemAllocNodeGetParams(nodes[0], &params));
    cr_assert(params.dptr == p && params.bytesize == 256);
    OK(cuGraphMemFreeNodeGetParams(nodes[3], &freed));
    cr_assert_eq(freed, p);
    CUgraphExec x = executable(g);
    for (int i = 0; i < 3; i++) {
        set_on(s, 0, 0);
        launch_and_wait(x);
        cr_assert_eq(word(0), 42);
    }
    expect_no_report();
    RC(cuMemsetD32Async(p, 1, 1, s), CUDA_ERROR_INVALID_VALUE); /* it is the graph's alone */
    expect_report("used while no launch of its graph has allocated it");
    RC(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    expect_report("double free");
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(g));
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    RC(cuMemsetD32Async(p, 1, 1, s), CUDA_ERROR_INVALID_VALUE);
    expect_report("lies in the freed");
}

Test(graph_memory, what_is_not_freed_inside_is_the_streams_until_it_is, .init = setup)
{
    CUdeviceptr p;
    CUgraph g = capture_use(&p, false);
    CUgraphExec x = executable(g);
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    launch(x, s);
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 256);
    RC(cuGraphLaunch(x, s), CUDA_ERROR_INVALID_VALUE); /* not allocated twice */
    OK(cuMemcpyDtoDAsync(at(1), p + 128, 4, s));
    OK(cuMemFreeAsync(p, s));
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 256);
    launch_and_wait(x);
    cr_assert_eq(word(1), 42);
    expect_no_report();
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(g));
    OK(cuMemcpyDtoDAsync(at(2), p, 4, s)); /* it outlives its graph */
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(2), 42);
    OK(cuMemFree(p));
    RC(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    expect_report("double free");
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
}

Test(graph_memory, instantiation_can_ask_for_a_free_at_the_next_launch, .init = setup)
{
    CUgraphExec x;
    CUdeviceptr p;
    CUgraph g = capture_use(&p, false);
    OK(cuGraphInstantiate(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    for (int i = 0; i < 3; i++)
        launch_and_wait(x);
    cr_assert_eq(word(0), 42);
    OK(cuMemFree(p));
    expect_no_report();
}

Test(graph_memory, another_graph_may_free_it, .init = setup)
{
    CUdeviceptr p;
    CUgraphNode n;
    CUgraph g = capture_use(&p, false), frees;
    CUgraphExec x = executable(g), y;
    OK(cuGraphCreate(&frees, 0));
    OK(cuGraphAddMemFreeNode(&n, frees, NULL, 0, p));
    RC(cuGraphAddMemFreeNode(&n, g, NULL, 0, p), CUDA_ERROR_INVALID_VALUE); /* no longer by its own */
    RC(cuGraphAddMemFreeNode(&n, frees, NULL, 0, data), CUDA_ERROR_INVALID_VALUE);
    y = executable(frees);
    RC(cuGraphLaunch(y, s), CUDA_ERROR_INVALID_VALUE);
    expect_report("which no graph has allocated now");
    for (int i = 0; i < 3; i++) {
        launch(x, s);
        launch(y, s);
    }
    OK(cuStreamSynchronize(s));
    expect_no_report();
}

Test(graph_memory, such_graphs_are_not_copied_nor_taken_apart, .init = setup)
{
    CUgraphExecUpdateResultInfo info;
    CUgraphNode nodes[4], child;
    CUgraphExec x, second;
    CUdeviceptr p, q;
    CUgraph g = capture_use(&p, true), other = capture_use(&q, true), parent;
    nodes_of(g, nodes, 4);
    RC(cuGraphClone(&parent, g), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphCreate(&parent, 0));
    RC(cuGraphAddChildGraphNode(&child, parent, NULL, 0, g), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuGraphDestroyNode(nodes[1]), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuGraphRemoveDependencies(g, &nodes[0], &nodes[1], NULL, 1), CUDA_ERROR_NOT_SUPPORTED);
    x = executable(g);
    RC(cuGraphInstantiate(&second, g, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphExecUpdate(x, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    begin(s);
    RC(cuGraphLaunch(x, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    RC(cuStreamEndCapture(s, &parent), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuGraphExecDestroy(x));
    OK(cuGraphInstantiate(&second, g, 0));
    expect_no_report();
}

Test(graph_memory, memory_stays_while_a_launch_runs, .init = setup)
{
    CUdeviceptr p;
    CUgraph g = capture_use(&p, true);
    CUgraphExec x = executable(g);
    OK(cuGraphDestroy(g));
    hold(s);
    launch(x, s);
    OK(cuGraphExecDestroy(x));
    cr_assert_gt(book(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(0), 42);
    for (int i = 0; i < 2000 && book(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); i++)
        usleep(1000);
    cr_assert_eq(book(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0);
    expect_no_report();
}

Test(graph_memory, nodes_made_by_hand, .init = setup)
{
    CUDA_MEM_ALLOC_NODE_PARAMS p = wanted(64);
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    cuuint64_t zero = 0, one = 1;
    CUgraphNode alloc, fill, copy, gone;
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = p.dptr, .value = 8, .elementSize = 4, .width = 16, .height = 1};
    CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p.dptr + 60,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = at(3),
                         .WidthInBytes = 4,
                         .Height = 1,
                         .Depth = 1};
    OK(cuGraphAddMemsetNode(&fill, g, &alloc, 1, &set, ctx));
    OK(cuGraphAddMemcpyNode(&copy, g, &fill, 1, &out, ctx));
    all.free.dptr = p.dptr;
    OK(cuGraphAddNode(&gone, g, &copy, NULL, 1, &all));
    RC(cuGraphAddMemFreeNode(&gone, g, &copy, 1, p.dptr), CUDA_ERROR_INVALID_VALUE);
    launch_and_wait(executable(g));
    cr_assert_eq(word(3), 8);
    p = wanted(0);
    RC(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGraphMemTrim(0));
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    RC(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
    RC(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}
