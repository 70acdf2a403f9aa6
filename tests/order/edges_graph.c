/* SPDX-License-Identifier: Apache-2.0 */
/* Edges within graphs, between a graph and streams, and between launches. */
#include "edges.h"

static void begin(CUstream s)
{
    CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static CUgraphExec end(CUstream s)
{
    CUgraph g;
    CUgraphExec x;

    CU(cuStreamEndCapture(s, &g));
    CU(cuGraphInstantiate(&x, g, 0));
    CU(cuGraphDestroy(g));
    return x;
}

static void launch(struct edge_env *e, CUgraphExec x, CUstream s)
{
    CU(cuGraphLaunch(x, s));
    settle(e, s);
}

/* A third stream of the capture, joined into a at the end. */
static CUstream branch(struct edge_env *e)
{
    CUstream c;

    CU(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
    follow(e, e->a, c);
    return c;
}

static void two_branches(struct edge_env *e)
{
    begin(e->a);
    CUstream c = branch(e);
    fill(e, e->a);
    if (e->edge)
        follow(e, e->a, c);
    look(e, c);
    follow(e, c, e->a);
    launch(e, end(e->a), e->a);
}

/* The second branch runs where the first one did, at another launch: no order either. */
static void branches_of_two_graphs(struct edge_env *e)
{
    begin(e->a);
    fill(e, e->a);
    CUgraphExec writes = end(e->a);
    begin(e->a);
    look(e, e->a);
    CUgraphExec reads = end(e->a);
    launch(e, writes, e->a);
    launch(e, reads, e->edge ? e->a : e->b);
}

static CUgraphExec forked_fill(struct edge_env *e)
{
    begin(e->a);
    CUstream c = branch(e);
    fill(e, c);
    CU(cuMemsetD8Async(e->y, 1, 1, e->a));
    follow(e, c, e->a);
    return end(e->a);
}

static void before_a_launch(struct edge_env *e)
{
    CUgraphExec x = forked_fill(e);

    look(e, e->edge ? e->a : e->b);
    settle(e, e->edge ? e->a : e->b);
    launch(e, x, e->a);
}

static void behind_a_launch(struct edge_env *e)
{
    launch(e, forked_fill(e), e->a);
    look(e, e->edge ? e->a : e->b);
}

static void launches_follow(struct edge_env *e)
{
    begin(e->a);
    CUstream c = branch(e);
    fill(e, c);
    follow(e, c, e->a);
    CUgraph g;
    CUgraphExec x, y;
    CU(cuStreamEndCapture(e->a, &g));
    CU(cuGraphInstantiate(&x, g, 0));
    CU(cuGraphInstantiate(&y, g, 0));
    launch(e, x, e->a);
    launch(e, e->edge ? x : y, e->b); /* another stream: only launches of one executable graph follow one another */
}

static void upload_follows(struct edge_env *e)
{
    CUgraphExec x = forked_fill(e);

    launch(e, x, e->a);
    if (e->edge)
        CU(cuGraphUpload(x, e->b));
    look(e, e->b);
}

static void record_node(struct edge_env *e)
{
    begin(e->a);
    fill(e, e->a);
    if (e->edge)
        CU(cuEventRecordWithFlags(e->event, e->a, CU_EVENT_RECORD_EXTERNAL));
    CUgraphExec x = end(e->a);
    launch(e, x, e->a);
    CU(cuStreamWaitEvent(e->b, e->event, 0));
    look(e, e->b);
}

static void wait_node(struct edge_env *e)
{
    begin(e->b);
    if (e->edge)
        CU(cuStreamWaitEvent(e->b, e->event, CU_EVENT_WAIT_EXTERNAL));
    look(e, e->b);
    CUgraphExec x = end(e->b);
    fill(e, e->a);
    CU(cuEventRecord(e->event, e->a));
    settle(e, e->a);
    launch(e, x, e->b);
}

static void host_node(void *unused)
{
    (void)unused;
}

/* What the host's function has seen is before all that is queued later; what is only before a branch of it is not. */
static void host_function_in_a_graph(struct edge_env *e)
{
    begin(e->a);
    CUstream c = branch(e);
    fill(e, e->a);
    CU(cuLaunchHostFunc(e->edge ? e->a : c, host_node, NULL));
    follow(e, c, e->a);
    CUgraphExec x = end(e->a);
    launch(e, x, e->a);
    look(e, e->b);
}

/* Branches that meet by words: the order is the word's. */
static void words_between_branches(struct edge_env *e)
{
    begin(e->a);
    CUstream c = branch(e);
    fill(e, e->a);
    CU(cuStreamWriteValue32(e->a, e->flag, 1, 0));
    if (e->edge)
        CU(cuStreamWaitValue32(c, e->flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    look(e, c);
    follow(e, c, e->a);
    launch(e, end(e->a), e->a);
}

static void child_graphs(struct edge_env *e)
{
    CUDA_MEMSET_NODE_PARAMS writes = {.dst = e->x, .value = 1, .elementSize = 1, .width = BYTES, .height = 1};
    CUgraphNode fills, child, reads;
    CUgraph inner, outer;
    CUgraphExec x;
    CUcontext ctx;
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = e->x,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = e->y,
                          .WidthInBytes = BYTES,
                          .Height = 1,
                          .Depth = 1};

    CU(cuCtxGetCurrent(&ctx));
    CU(cuGraphCreate(&inner, 0));
    CU(cuGraphAddMemsetNode(&fills, inner, NULL, 0, &writes, ctx));
    CU(cuGraphCreate(&outer, 0));
    CU(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    CU(cuGraphAddMemcpyNode(&reads, outer, &child, e->edge, &copy, ctx));
    CU(cuGraphInstantiate(&x, outer, 0));
    launch(e, x, e->a);
}

/* An executable graph that does not run any more is no work that memory is freed under. */
static void freed_behind_a_launch(struct edge_env *e)
{
    launch(e, forked_fill(e), e->a);
    if (e->edge)
        CU(cuStreamSynchronize(e->a));
    CU(cuMemFreeAsync(e->x, e->b));
}

/* An allocation node is where its memory begins. */
static void allocation_node(struct edge_env *e)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {.bytesize = BYTES};
    CUDA_MEMSET_NODE_PARAMS writes = {.value = 1, .elementSize = 1, .width = BYTES, .height = 1};
    CUgraphNode alloc, fills, frees;
    CUgraphExec x;
    CUgraph g;
    CUcontext ctx;

    CU(cuCtxGetCurrent(&ctx));
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CU(cuGraphCreate(&g, 0));
    CU(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &memory));
    writes.dst = memory.dptr;
    CU(cuGraphAddMemsetNode(&fills, g, &alloc, e->edge, &writes, ctx));
    CU(cuGraphAddMemFreeNode(&frees, g, &fills, 1, memory.dptr));
    CU(cuGraphInstantiate(&x, g, 0));
    launch(e, x, e->a);
    CU(cuGraphLaunch(x, e->b));
}

const struct edge_case edges_graph[] = {
    {.name = "graph-branches", .body = two_branches, .first = "cuMemsetD8Async", .second = "cuMemcpyDtoDAsync"},
    {.name = "graph-two-graphs", .body = branches_of_two_graphs},
    {.name = "graph-before", .body = before_a_launch},
    {.name = "graph-behind", .body = behind_a_launch},
    {.name = "graph-launches", .body = launches_follow, .first = "cuMemsetD8Async", .second = "cuMemsetD8Async"},
    {.name = "graph-upload", .body = upload_follows},
    {.name = "graph-record-node", .body = record_node},
    {.name = "graph-wait-node", .body = wait_node},
    {.name = "graph-host-node", .body = host_function_in_a_graph},
    {.name = "graph-words", .body = words_between_branches},
    {.name = "graph-child", .body = child_graphs, .first = "memset node", .second = "memcpy node"},
    {.name = "graph-free", .body = freed_behind_a_launch, .first = "cuMemsetD8Async", .second = "cuMemFreeAsync"},
    {.name = "graph-alloc", .body = allocation_node, .first = "memory allocation node", .second = "memset node"},
    {.name = NULL},
};
