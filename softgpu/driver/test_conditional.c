/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes, moved children, and graphs that are embedded in nodes. */
#include "test_graph_util.h"

TestSuite(conditional, .timeout = 60);

static CUgraph g;
static CUfunction setter;

static void setup_graph(void)
{
    softgpuSetConditional_t get;
    setup();
    OK(cuGraphCreate(&g, 0));
    *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuSetConditional");
    OK(get(&setter));
}

static CUgraphConditionalHandle handle_in(CUgraph graph, unsigned standard, unsigned flags)
{
    CUgraphConditionalHandle h;
    OK(cuGraphConditionalHandleCreate(&h, graph, ctx, standard, flags));
    return h;
}

static CUgraphNodeParams params_of(CUgraphConditionalHandle h, CUgraphConditionalNodeType type, unsigned size)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    p.conditional.handle = h;
    p.conditional.type = type;
    p.conditional.size = size;
    p.conditional.ctx = ctx;
    return p;
}

/* Its bodies, which live as long as the node. */
static CUgraph *node_in(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle h, CUgraphConditionalNodeType type,
                        unsigned size, CUgraphNode *out)
{
    CUgraphNodeParams p = params_of(h, type, size);
    OK(cuGraphAddNode(out, graph, after ? &after : NULL, NULL, after != NULL, &p));
    return p.conditional.phGraph_out;
}

static CUgraph *conditional(CUgraphConditionalHandle h, CUgraphConditionalNodeType type, unsigned size)
{
    CUgraphNode node;
    return node_in(g, NULL, h, type, size, &node);
}

/* The handle gets what is left of word i when `less` is taken away. */
static void set_handle(CUstream on, CUgraphConditionalHandle h, int i, unsigned less)
{
    struct softgpu_set_conditional a = {h, at(i), less};
    void *params[] = {&a};
    OK(cuLaunchKernel(setter, 1, 1, 1, 32, 1, 1, 0, on, params, NULL));
}

static void begin_body(CUgraph body)
{
    OK(cuStreamBeginCaptureToGraph(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static void end_body(CUgraph body)
{
    cr_assert_eq(end(s), body);
}

static void fill_body(CUgraph body, int i, uint32_t value)
{
    begin_body(body);
    add_on(s, i, value);
    end_body(body);
}

Test(conditional, if_runs_its_body_or_the_other_one, .init = setup_graph)
{
    CUgraphConditionalHandle h = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT),
                             k = handle_in(g, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *yes = conditional(h, CU_GRAPH_COND_TYPE_IF, 1), *no = conditional(k, CU_GRAPH_COND_TYPE_IF, 2);

    fill_body(yes[0], 0, 1);
    fill_body(no[0], 1, 1);
    fill_body(no[1], 2, 1);
    CUgraphExec x = executable(g);
    launch(x, s);
    launch_and_wait(x);
    cr_assert_eq(word(0), 2);
    cr_assert_eq(word(1), 0);
    cr_assert_eq(word(2), 2);
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(g));
    cr_assert(!reported("misuse"));
}

static void setup_graph_with_one_queue(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    setup_graph();
}

Test(conditional, a_body_does_not_wait_for_what_the_host_queued_behind_it, .init = setup_graph_with_one_queue)
{
    CUgraphConditionalHandle h = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    fill_body(conditional(h, CU_GRAPH_COND_TYPE_IF, 1)[0], 0, 1);
    CUgraphExec x = executable(g);
    hold(s);
    launch(x, s);
    add_on(s, 0, 1);
    add_on(t, 1, 1);
    let_go();
    OK(cuCtxSynchronize());
    cr_assert(word(0) == 2 && word(1) == 1);
}

Test(conditional, switch_runs_the_body_of_the_value, .init = setup_graph)
{
    CUgraphConditionalHandle h = handle_in(g, 0, 0);
    begin(s);
    OK(cuStreamEndCapture(s, &g));
    h = handle_in(g, 0, 0);
    CUgraphNode first, node;
    struct softgpu_set_conditional a = {h, at(9), 0};
    void *params[] = {&a};
    CUDA_KERNEL_NODE_PARAMS p = {.func = setter,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = params};
    OK(cuGraphAddKernelNode(&first, g, NULL, 0, &p));
    CUgraph *body = node_in(g, first, h, CU_GRAPH_COND_TYPE_SWITCH, 3, &node);
    for (int i = 0; i < 3; i++)
        fill_body(body[i], i, 1);
    CUgraphExec x = executable(g);
    for (unsigned value = 0; value < 5; value++) { /* 3 and 4: none */
        set_on(s, 9, value);
        launch(x, s);
    }
    OK(cuStreamSynchronize(s));
    for (int i = 0; i < 3; i++)
        cr_assert_eq(word(i), 1);
    cr_assert(!reported("misuse"));
}

Test(conditional, while_runs_until_the_value_is_0_behind_what_is_before, .init = setup_graph)
{
    CUgraphConditionalHandle h = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *body = conditional(h, CU_GRAPH_COND_TYPE_WHILE, 1);

    begin_body(*body);
    add_on(s, 0, 1);
    set_handle(s, h, 1, 1);
    end_body(*body);
    CUgraphExec x = executable(g);
    hold(s);
    set_on(s, 1, 7);
    launch(x, s);
    set_on(s, 1, 5);
    launch(x, s);
    add_on(s, 0, 100);
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(0), 112);
    cr_assert(!reported("misuse"));
}

Test(conditional, loops_are_nested, .init = setup_graph)
{
    CUgraphConditionalHandle outer = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), inner;
    CUgraph *body = conditional(outer, CU_GRAPH_COND_TYPE_WHILE, 1);
    CUgraphNode node, again;
    CUgraph set;

    begin(s);
    set_on(s, 2, 4); /* turns of the inner loop; its handle is set to that before it */
    inner = handle_in(*body, 0, 0);
    set_handle(s, inner, 2, 0);
    set = end(s);
    CUgraphNode first;
    OK(cuGraphAddChildGraphNode(&first, *body, NULL, 0, set));
    CUgraph *deep = node_in(*body, first, inner, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    begin_body(*deep);
    add_on(s, 0, 1);
    set_handle(s, inner, 2, 1);
    end_body(*deep);
    OK(cuStreamBeginCaptureToGraph(s, *body, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    set_handle(s, outer, 1, 1);
    end_body(*body);
    (void)again;
    CUgraphExec x = executable(g);
    set_on(s, 1, 3);
    launch_and_wait(x);
    cr_assert_eq(word(0), 12);
    cr_assert(!reported("misuse"));
}

Test(conditional, an_update_reaches_the_bodies_but_no_launch_before, .init = setup_graph)
{
    CUgraph other;
    CUgraphExecUpdateResultInfo info;
    CUgraphConditionalHandle h = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), k;
    fill_body(conditional(h, CU_GRAPH_COND_TYPE_IF, 1)[0], 0, 1);
    CUgraphExec x = executable(g);

    OK(cuGraphCreate(&other, 0));
    k = handle_in(other, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node;
    CUgraph *body = node_in(other, NULL, k, CU_GRAPH_COND_TYPE_IF, 1, &node);
    fill_body(*body, 0, 10);
    hold(s);
    launch(x, s);
    OK(cuGraphExecUpdate(x, other, &info));
    launch(x, s);
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(0), 11);
    fill_body(*body, 1, 1); /* one node more */
    RC(cuGraphExecUpdate(x, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    OK(cuGraphExecDestroy(x));
    cr_assert(!reported("misuse"));
}

Test(conditional, parameters_in_a_body_are_set, .init = setup_graph)
{
    CUgraphConditionalHandle h = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *body = conditional(h, CU_GRAPH_COND_TYPE_IF, 1);
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS p = {.dst = at(0), .value = 3, .elementSize = 4, .width = 1, .height = 1};

    OK(cuGraphAddMemsetNode(&node, *body, NULL, 0, &p, ctx));
    CUgraphExec x = executable(g);
    p.value = 4;
    OK(cuGraphExecMemsetNodeSetParams(x, node, &p, ctx));
    launch_and_wait(x);
    cr_assert_eq(word(0), 4);
}

/* ---- what is refused ---- */

static CUresult add_to_body(CUgraph body, int kind)
{
    CUgraphNode node;
    CUgraphNodeParams p = {.type = (CUgraphNodeType)kind};
    CUstreamBatchMemOpParams op = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = held_at}};
    if (kind == CU_GRAPH_NODE_TYPE_HOST)
        p.host.fn = free;
    else if (kind == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        p.memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){ctx, 1, &op, 0};
    else
        p.eventWait.event = new_event();
    return cuGraphAddNode(&node, body, NULL, NULL, 0, &p);
}

Test(conditional, some_nodes_may_not_be_in_bodies, .init = setup_graph)
{
    static const int kinds[] = {CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    CUgraphExec x;
    hold(t); /* makes the word */
    let_go();
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (int deep = 0; deep < 2; deep++) {
            CUgraph child;
            CUgraphNode node;
            OK(cuGraphCreate(&g, 0));
            OK(cuGraphCreate(&child, 0));
            CUgraph *body = conditional(handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), CU_GRAPH_COND_TYPE_IF, 1);
            OK(add_to_body(deep ? child : *body, kinds[i]));
            if (deep)
                OK(cuGraphAddChildGraphNode(&node, *body, NULL, 0, child));
            RC(cuGraphInstantiate(&x, g, 0), CUDA_ERROR_INVALID_VALUE);
        }
}

Test(conditional, handles_and_sizes_are_checked, .init = setup_graph)
{
    CUgraphConditionalHandle h, other;
    CUgraph elsewhere;
    CUgraphNode node;
    CUgraphNodeParams p;
    CUgraphExec x;
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};

    RC(cuGraphConditionalHandleCreate(&h, g, ctx, 0, 2), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphConditionalHandleCreate(NULL, g, ctx, 0, 0), CUDA_ERROR_INVALID_VALUE);
    h = handle_in(g, 0, 0);
    p = params_of(h, CU_GRAPH_COND_TYPE_WHILE, 2);
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    p = params_of(h, CU_GRAPH_COND_TYPE_IF, 3);
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    p = params_of(h, CU_GRAPH_COND_TYPE_SWITCH, 0);
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    p = params_of(h + 1, CU_GRAPH_COND_TYPE_IF, 1);
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphCreate(&elsewhere, 0));
    other = handle_in(elsewhere, 0, 0);
    p = params_of(other, CU_GRAPH_COND_TYPE_IF, 1);
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphInstantiateWithParams(&x, g, &how), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(how.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    conditional(h, CU_GRAPH_COND_TYPE_WHILE, 1);
    p = params_of(h, CU_GRAPH_COND_TYPE_WHILE, 1); /* one node only */
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiateWithParams(&x, g, &how));
}

Test(conditional, such_a_graph_is_one_executable_one_and_no_copy, .init = setup_graph)
{
    CUgraph body = *conditional(handle_in(g, 0, CU_GRAPH_COND_ASSIGN_DEFAULT), CU_GRAPH_COND_TYPE_WHILE, 1), clone,
            parent;
    CUgraphNode node;
    CUgraphExec x = executable(g), y;

    RC(cuGraphInstantiate(&y, g, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuGraphClone(&clone, g), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphCreate(&parent, 0));
    RC(cuGraphAddChildGraphNode(&node, parent, NULL, 0, g), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuGraphInstantiate(&y, body, 0), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuGraphDestroy(body), CUDA_ERROR_INVALID_VALUE);
    expect_report("conditional node");
    OK(cuGraphExecDestroy(x));
    OK(cuGraphExecDestroy(executable(g)));
}

Test(conditional, a_body_that_is_captured_into_is_not_instantiated, .init = setup_graph)
{
    CUgraph body = *conditional(handle_in(g, 0, CU_GRAPH_COND_ASSIGN_DEFAULT), CU_GRAPH_COND_TYPE_WHILE, 1);
    CUgraphExec x;

    begin_body(body);
    RC(cuGraphInstantiate(&x, g, 0), CUDA_ERROR_INVALID_VALUE);
    end_body(body);
    OK(cuGraphInstantiate(&x, g, 0));
}

Test(conditional, a_loop_outlives_its_executable_graph, .init = setup_graph)
{
    CUgraphConditionalHandle h = handle_in(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph *body = conditional(h, CU_GRAPH_COND_TYPE_WHILE, 1);

    begin_body(*body);
    add_on(s, 0, 1);
    set_handle(s, h, 1, 1);
    end_body(*body);
    CUgraphExec x = executable(g);
    hold(s);
    set_on(s, 1, 9);
    launch(x, s);
    OK(cuGraphExecDestroy(x));
    OK(cuGraphDestroy(g));
    let_go();
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(0), 9);
}

/* ---- embedded graphs ---- */

Test(conditional, an_embedded_graph_is_not_instantiated, .init = setup_graph)
{
    CUgraph parent, inner;
    CUgraphNode node;
    CUgraphExec x;

    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, g));
    OK(cuGraphChildGraphNodeGetGraph(node, &inner));
    RC(cuGraphInstantiate(&x, inner, 0), CUDA_ERROR_NOT_SUPPORTED);
}

static CUgraphNodeParams moving(CUgraph child)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    p.graph.graph = child;
    p.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    return p;
}

Test(conditional, a_child_is_moved, .init = setup_graph)
{
    CUgraph parent, inner, other;
    CUgraphNode node;
    CUgraphExec x;
    CUgraphNodeParams p = moving(g);

    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddNode(&node, parent, NULL, NULL, 0, &p));
    OK(cuGraphChildGraphNodeGetGraph(node, &inner));
    cr_assert_eq(inner, g);
    fill_body(g, 0, 1); /* nodes may still be added */
    RC(cuGraphInstantiate(&x, g, 0), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuGraphAddNode(&node, other, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    p = moving(parent);
    RC(cuGraphAddNode(&node, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
    launch_and_wait(executable(parent));
    cr_assert_eq(word(0), 1);
    OK(cuGraphDestroy(parent));
    RC(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE); /* it went with its parent */
    expect_report("misuse");
}
