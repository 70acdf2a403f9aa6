/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs made by hand: nodes of every kind, their edges and parameters. */
#include "test_graph_util.h"

TestSuite(graph_nodes, .timeout = 60);

static CUgraph g;

static void setup_graph(void)
{
    setup();
    OK(cuGraphCreate(&g, 0));
}

static CUDA_MEMSET_NODE_PARAMS setting(int i, unsigned value)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = at(i), .value = value, .elementSize = 4, .width = 1, .height = 1};
}

static CUDA_MEMCPY3D copying(int to, int from, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = at(from),
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = at(to),
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

static CUgraphNode set_node(CUgraphNode after, int i, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS p = setting(i, value);
    CUgraphNode n;
    OK(cuGraphAddMemsetNode(&n, g, &after, after != NULL, &p, ctx));
    return n;
}

static CUgraphNode copy_node(CUgraphNode after, int to, int from)
{
    CUDA_MEMCPY3D p = copying(to, from, 4);
    CUgraphNode n;
    OK(cuGraphAddMemcpyNode(&n, g, &after, after != NULL, &p, ctx));
    return n;
}

static CUDA_KERNEL_NODE_PARAMS adding(void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = adder,
                                     .gridDimX = 2,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 64,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

static CUgraphNode add_node(CUgraphNode after, int i, unsigned value)
{
    struct add a = {at(i), value};
    void *params[] = {&a};
    CUDA_KERNEL_NODE_PARAMS p = adding(params);
    CUgraphNode n;
    OK(cuGraphAddKernelNode(&n, g, &after, after != NULL, &p));
    return n;
}

static void count_call(void *user)
{
    __atomic_fetch_add((int *)user, 1, __ATOMIC_RELAXED);
}

Test(graph_nodes, every_kind_runs_in_the_order_of_its_edges, .init = setup_graph)
{
    CUDA_HOST_NODE_PARAMS host = {.fn = count_call, .userData = shared_page()};
    CUstreamBatchMemOpParams write = {0};
    CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {.ctx = ctx, .count = 1, .paramArray = &write};
    CUevent e = new_event();
    CUgraphNode n, all[8];
    write.writeValue = (struct CUstreamMemOpWriteValueParams_st){CU_STREAM_MEM_OP_WRITE_VALUE_32, at(3), {8}, 0, 0};
    n = set_node(NULL, 0, 5);
    n = add_node(n, 0, 1);
    n = copy_node(n, 1, 0);
    OK(cuGraphAddHostNode(&n, g, &n, 1, &host));
    OK(cuGraphAddBatchMemOpNode(&n, g, &n, 1, &ops));
    OK(cuGraphAddEventRecordNode(&n, g, &n, 1, e));
    OK(cuGraphAddEmptyNode(&n, g, &n, 1));
    OK(cuGraphAddEventWaitNode(&n, g, &n, 1, e));
    cr_assert_eq(nodes_of(g, all, 8), 8);
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_KERNEL,
                                            CU_GRAPH_NODE_TYPE_MEMCPY,       CU_GRAPH_NODE_TYPE_HOST,
                                            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                            CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    for (int i = 0; i < 8; i++)
        cr_assert_eq(type_of(all[i]), types[i]);
    CUgraphExec x = executable(g);
    launch_and_wait(x);
    launch_and_wait(x);
    cr_assert(word(0) == 6 && word(1) == 6 && word(3) == 8 && *(int *)host.userData == 2);
    OK(cuEventQuery(e));
    expect_no_report();
}

Test(graph_nodes, parameters_are_shown_as_they_were_given, .init = setup_graph)
{
    CUgraphNode fill = set_node(NULL, 2, 7), copy = copy_node(NULL, 5, 4), kernel = add_node(NULL, 6, 9), h, m, r, w;
    CUDA_HOST_NODE_PARAMS host = {.fn = count_call, .userData = &fill}, host_out;
    CUstreamBatchMemOpParams two[2] = {0};
    CUDA_BATCH_MEM_OP_NODE_PARAMS ops = {.ctx = ctx, .count = 2, .paramArray = two}, ops_out;
    CUDA_MEMSET_NODE_PARAMS fill_out;
    CUDA_MEMCPY3D copy_out;
    CUDA_KERNEL_NODE_PARAMS kernel_out;
    CUevent e = new_event(), f = new_event(), out;
    two[0].waitValue = (struct CUstreamMemOpWaitValueParams_st){
        CU_STREAM_MEM_OP_WAIT_VALUE_32, at(3), {8}, CU_STREAM_WAIT_VALUE_EQ, 0};
    two[1].writeValue = (struct CUstreamMemOpWriteValueParams_st){CU_STREAM_MEM_OP_WRITE_VALUE_64, at(8), {1}, 0, 0};
    OK(cuGraphAddHostNode(&h, g, NULL, 0, &host));
    OK(cuGraphAddBatchMemOpNode(&m, g, NULL, 0, &ops));
    OK(cuGraphAddEventRecordNode(&r, g, NULL, 0, e));
    OK(cuGraphAddEventWaitNode(&w, g, NULL, 0, f));
    OK(cuGraphMemsetNodeGetParams(fill, &fill_out));
    cr_assert(fill_out.dst == at(2) && fill_out.value == 7 && fill_out.elementSize == 4 && fill_out.width == 1);
    OK(cuGraphMemcpyNodeGetParams(copy, &copy_out));
    cr_assert(copy_out.srcDevice == at(4) && copy_out.dstDevice == at(5) && copy_out.WidthInBytes == 4);
    cr_assert(copy_out.srcMemoryType == CU_MEMORYTYPE_DEVICE && copy_out.Height == 1 && copy_out.Depth == 1);
    OK(cuGraphKernelNodeGetParams(kernel, &kernel_out));
    cr_assert(kernel_out.func == adder && kernel_out.gridDimX == 2 && kernel_out.blockDimX == 64);
    cr_assert_eq(((struct add *)kernel_out.kernelParams[0])->value, 9);
    OK(cuGraphHostNodeGetParams(h, &host_out));
    cr_assert(host_out.fn == count_call && host_out.userData == &fill);
    OK(cuGraphBatchMemOpNodeGetParams(m, &ops_out));
    cr_assert(ops_out.count == 2 && ops_out.ctx == ctx);
    cr_assert_eq(ops_out.paramArray[0].waitValue.flags, CU_STREAM_WAIT_VALUE_EQ);
    cr_assert_eq(ops_out.paramArray[1].operation, CU_STREAM_MEM_OP_WRITE_VALUE_64);
    OK(cuGraphEventRecordNodeGetEvent(r, &out));
    cr_assert_eq(out, e);
    OK(cuGraphEventWaitNodeGetEvent(w, &out));
    cr_assert_eq(out, f);
    RC(cuGraphMemsetNodeGetParams(copy, &fill_out), CUDA_ERROR_INVALID_VALUE);
}

Test(graph_nodes, parameters_of_a_graph_change_for_what_is_instantiated_later, .init = setup_graph)
{
    CUgraphNode n = set_node(NULL, 0, 1);
    CUgraphExec before = executable(g), after;
    CUDA_MEMSET_NODE_PARAMS p = setting(1, 2);
    OK(cuGraphMemsetNodeSetParams(n, &p));
    after = executable(g);
    launch_and_wait(before);
    cr_assert(word(0) == 1 && word(1) == 0);
    launch_and_wait(after);
    cr_assert_eq(word(1), 2);
    p.elementSize = 3;
    RC(cuGraphMemsetNodeSetParams(n, &p), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphHostNodeSetParams(n, &(CUDA_HOST_NODE_PARAMS){.fn = count_call}), CUDA_ERROR_INVALID_VALUE);
}

Test(graph_nodes, the_general_calls_do_the_same, .init = setup_graph)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    CUgraphNode n;
    p.memset = (CUDA_MEMSET_NODE_PARAMS_v2){.dst = at(0), .value = 3, .elementSize = 4, .width = 1, .height = 1};
    OK(cuGraphAddNode(&n, g, NULL, NULL, 0, &p));
    CUgraphExec x = executable(g);
    launch_and_wait(x);
    cr_assert_eq(word(0), 3);
    p.memset.value = 4;
    OK(cuGraphExecNodeSetParams(x, n, &p));
    launch_and_wait(x);
    cr_assert_eq(word(0), 4);
    OK(cuGraphNodeSetParams(n, &p));
    p.reserved0[1] = 1;
    RC(cuGraphAddNode(&n, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};
    RC(cuGraphAddNode(&n, g, NULL, NULL, 0, &p), CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- edges ---- */

Test(graph_nodes, edges_are_added_shown_and_removed, .init = setup_graph)
{
    CUgraphNode a = set_node(NULL, 0, 1), b = copy_node(NULL, 1, 0), c = add_node(NULL, 1, 1), list[4], from[4], to[4];
    CUgraphEdgeData data_of[4];
    size_t n = 4;
    OK(cuGraphAddDependencies(g, &a, &b, NULL, 1));
    OK(cuGraphAddDependencies(g, &b, &c, NULL, 1));
    RC(cuGraphAddDependencies(g, &a, &b, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphAddDependencies(g, &a, &a, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphGetRootNodes(g, list, &n));
    cr_assert(n == 1 && list[0] == a && list[1] == NULL, "the rest of the array is emptied");
    n = 0;
    OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
    cr_assert_eq(n, 2);
    n = 4;
    OK(cuGraphGetEdges(g, from, to, data_of, &n));
    cr_assert(n == 2 && from[0] == a && to[0] == b && from[1] == b && to[1] == c && from[2] == NULL);
    n = 4;
    OK(cuGraphNodeGetDependentNodes(a, list, NULL, &n));
    cr_assert(n == 1 && list[0] == b);
    CUgraphExec x = executable(g);
    launch_and_wait(x);
    cr_assert_eq(word(1), 2);
    OK(cuGraphRemoveDependencies(g, &b, &c, NULL, 1));
    RC(cuGraphRemoveDependencies(g, &b, &c, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    cr_assert(!depends(c, b));
    OK(cuGraphDestroyNode(a));
    n = 4;
    OK(cuGraphGetRootNodes(g, list, &n));
    cr_assert_eq(n, 2, "its edges went with it");
    RC(cuGraphDestroyNode(a), CUDA_ERROR_INVALID_VALUE);
    expect_report("graph node");
}

Test(graph_nodes, dependencies_are_nodes_of_the_graph_and_none_twice, .init = setup_graph)
{
    CUgraphNode a = set_node(NULL, 0, 1), twice[2] = {a, a}, n;
    CUgraph other;
    OK(cuGraphCreate(&other, 0));
    RC(cuGraphAddEmptyNode(&n, g, twice, 2), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphAddEmptyNode(&n, other, &a, 1), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphAddEmptyNode(&n, g, NULL, 1), CUDA_ERROR_INVALID_VALUE);
}

Test(graph_nodes, a_circle_is_found_at_instantiation, .init = setup_graph)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS p = {0};
    CUgraphNode a = set_node(NULL, 0, 1), b = set_node(a, 1, 1);
    CUgraphExec x;
    OK(cuGraphAddDependencies(g, &b, &a, NULL, 1));
    RC(cuGraphInstantiateWithParams(&x, g, &p), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(p.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    cr_assert(p.hErrNode_out == a || p.hErrNode_out == b);
}

/* Order is that of the edges, not that of the calls. */
Test(graph_nodes, a_node_may_follow_one_that_was_made_later, .init = setup_graph)
{
    CUgraphNode copy = copy_node(NULL, 1, 0), fill = set_node(NULL, 0, 6);
    OK(cuGraphAddDependencies(g, &fill, &copy, NULL, 1));
    launch_and_wait(executable(g));
    cr_assert_eq(word(1), 6);
}

/* ---- children and clones ---- */

Test(graph_nodes, a_child_is_a_copy_that_the_node_owns, .init = setup_graph)
{
    CUgraph parent, inner;
    CUgraphNode first, child, last, found, roots[4];
    CUDA_MEMSET_NODE_PARAMS p = setting(1, 5);
    size_t n = 4;
    CUgraphNode of_g = set_node(NULL, 1, 2);
    add_node(of_g, 1, 1);
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddEmptyNode(&first, parent, NULL, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, &first, 1, g));
    RC(cuGraphAddChildGraphNode(&last, parent, NULL, 0, parent), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphMemsetNodeSetParams(of_g, &p)); /* the child has its own */
    OK(cuGraphDestroy(g));
    cr_assert_eq(type_of(child), CU_GRAPH_NODE_TYPE_GRAPH);
    g = parent;
    last = copy_node(child, 0, 1);
    launch_and_wait(executable(parent));
    cr_assert_eq(word(0), 3);
    OK(cuGraphChildGraphNodeGetGraph(child, &inner));
    OK(cuGraphGetRootNodes(inner, roots, &n));
    cr_assert_eq(n, 1);
    OK(cuGraphMemsetNodeSetParams(roots[0], &p)); /* changes what the node does */
    launch_and_wait(executable(parent));
    cr_assert_eq(word(0), 6);
    RC(cuGraphDestroy(inner), CUDA_ERROR_INVALID_VALUE);
    expect_report("child graph or conditional node");
    OK(cuGraphClone(&inner, parent));
    OK(cuGraphNodeFindInClone(&found, last, inner));
    cr_assert_neq(found, last);
    OK(cuGraphNodeFindInClone(&found, roots[0], inner)); /* also in children */
    RC(cuGraphNodeFindInClone(&found, found, parent), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}

Test(graph_nodes, nodes_are_found_in_clones_and_in_children, .init = setup_graph)
{
    CUgraphNode node = add_node(NULL, 0, 1), child, found, kernel;
    CUgraph clone, parent, inner;
    begin(s);
    add_on(s, 0, 1);
    CUgraph captured = end(s);
    nodes_of(captured, &kernel, 1);
    OK(cuGraphClone(&clone, captured));
    OK(cuGraphNodeFindInClone(&found, kernel, clone));
    cr_assert(found != kernel && type_of(found) == CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, captured));
    OK(cuGraphChildGraphNodeGetGraph(child, &inner));
    OK(cuGraphNodeFindInClone(&found, kernel, inner));
    cr_assert(found != kernel && type_of(found) == CU_GRAPH_NODE_TYPE_KERNEL);
    RC(cuGraphNodeFindInClone(&found, node, inner), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}

Test(graph_nodes, branches_of_a_child_run_at_the_same_time, .init = setup_graph)
{
    CUdeviceptr flag;
    CUgraph parent;
    CUgraphNode child, follower;
    flag_word(&flag);
    begin(s);
    follow(s, t);
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    set_on(t, 0, 1);
    OK(cuStreamWriteValue32(t, flag, 1, 0));
    follow(t, s);
    CUgraph inner = end(s);
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&child, parent, NULL, 0, inner));
    g = parent;
    follower = add_node(child, 0, 1);
    cr_assert(depends(follower, child));
    launch_and_wait(executable(parent));
    cr_assert_eq(word(0), 2);
}
