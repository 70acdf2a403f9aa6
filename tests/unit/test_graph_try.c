/* SPDX-License-Identifier: Apache-2.0 */
/* The trial of graphs on a fake driver that says yes and does something else, or nothing. What a driver refuses is in
 * tests/graphs. */
#include <criterion/criterion.h>
#include <string.h>
#include "base/wait.h"
#include "kernels/graph_try.h"

static enum { HONEST, KEEPS_WORDS, KEEPS_COPY, KEEPS_ON, KEEPS_OFF, LATE_WORDS, STUCK } lie;

/* One graph, executable or not; the stream's work is done at once, or never. */
static struct graph {
    CUstreamBatchMemOpParams op[2];
    CUdeviceptr from, to;
    bool on;
} made, given;
static int graphs, execs;

static CUresult create(CUgraph *graph, unsigned flags)
{
    (void)flags;
    graphs++;
    *graph = (CUgraph)(void *)&made;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph graph)
{
    cr_assert_eq((void *)graph, &made);
    graphs--;
    return CUDA_SUCCESS;
}

static CUresult add_words(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    (void)graph, (void)after;
    cr_assert(n == 0 && params->count == 2);
    memcpy(made.op, params->paramArray, sizeof made.op);
    *node = (CUgraphNode)(void *)&made.op;
    return CUDA_SUCCESS;
}

static CUresult add_copy(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
                         const CUDA_MEMCPY3D *params, CUcontext ctx)
{
    (void)graph, (void)ctx;
    cr_assert(n == 1 && (void *)*after == &made.op && params->WidthInBytes == 8);
    made.from = params->srcDevice;
    made.to = params->dstDevice;
    made.on = true;
    *node = (CUgraphNode)(void *)&made.from;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    execs++;
    given = made;
    *exec = (CUgraphExec)(void *)&given;
    return CUDA_SUCCESS;
}

static CUresult destroy_exec(CUgraphExec exec)
{
    cr_assert_eq((void *)exec, &given);
    execs--;
    return CUDA_SUCCESS;
}

static CUresult set_words(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    cr_assert((void *)exec == &given && (void *)node == &made.op && params->count == 2);
    if (lie != KEEPS_WORDS)
        memcpy(given.op, params->paramArray, sizeof given.op);
    return CUDA_SUCCESS;
}

static CUresult set_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
    (void)exec, (void)ctx;
    cr_assert_eq((void *)node, &made.from);
    if (lie != KEEPS_COPY) {
        given.from = params->srcDevice;
        given.to = params->dstDevice;
    }
    return CUDA_SUCCESS;
}

static CUresult enable(CUgraphExec exec, CUgraphNode node, unsigned on)
{
    (void)exec;
    cr_assert_eq((void *)node, &made.from);
    if (!(lie == KEEPS_ON && !on) && !(lie == KEEPS_OFF && on))
        given.on = on != 0;
    return CUDA_SUCCESS;
}

static void move(CUdeviceptr to, CUdeviceptr from)
{
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, 8);
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    (void)exec, (void)stream;
    const CUstreamBatchMemOpParams *write = &given.op[0], *wait = &given.op[1];
    cr_assert_eq(write->operation, CU_STREAM_MEM_OP_WRITE_VALUE_64);
    cr_assert_eq(wait->operation, CU_STREAM_MEM_OP_WAIT_VALUE_64);
    /* A launch whose values are those of the next one: what was set later. */
    const uint64_t value = write->writeValue.value64 + (lie == LATE_WORDS);
    memcpy((void *)(uintptr_t)write->writeValue.address, &value, sizeof value);
    cr_assert_eq(wait->waitValue.address, write->writeValue.address);
    cr_assert_leq(wait->waitValue.value64, value);
    if (given.on)
        move(given.to, given.from);
    return CUDA_SUCCESS;
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    cr_assert_eq(bytes, 8);
    move(to, from);
    return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
    (void)stream;
    return lie == STUCK ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static void driver(void)
{
    slr_real.cuGraphCreate = create;
    slr_real.cuGraphDestroy = destroy;
    slr_real.cuGraphAddBatchMemOpNode = add_words;
    slr_real.cuGraphAddMemcpyNode = add_copy;
    slr_real.cuGraphInstantiate = instantiate;
    slr_real.cuGraphExecDestroy = destroy_exec;
    slr_real.cuGraphExecBatchMemOpNodeSetParams = set_words;
    slr_real.cuGraphExecMemcpyNodeSetParams = set_copy;
    slr_real.cuGraphNodeSetEnabled = enable;
    slr_real.cuGraphLaunch = launch;
    slr_real.cuMemcpyAsync = copy_async;
    slr_real.cuStreamQuery = query;
    /* Needed, and not called by the trial. */
    memset(&slr_real.cuGraphNodeFindInClone, 1, sizeof slr_real.cuGraphNodeFindInClone);
    memset(&slr_real.cuGraphChildGraphNodeGetGraph, 1, sizeof slr_real.cuGraphChildGraphNodeGetGraph);
    memset(&slr_real.cuStreamGetCaptureInfo, 1, sizeof slr_real.cuStreamGetCaptureInfo);
}

static _Atomic uint64_t words[SLR_GRAPH_TRY_WORDS];
static char memory[SLR_GRAPH_TRY_BYTES] __attribute__((aligned(8)));

static struct slr_graph_try tried(bool good)
{
    struct slr_graph_try t = {
        .word = words, .dword = (CUdeviceptr)(uintptr_t)words, .memory = (CUdeviceptr)(uintptr_t)memory};
    cr_assert_eq(slr_graph_try_make(&t) && slr_graph_try_use(&t), good);
    slr_graph_try_end(&t);
    cr_assert(graphs == 0 && execs == 0);
    return t;
}

Test(graph_try, does_what_it_says, .init = driver)
{
    tried(true);
    tried(true); /* with the values of the trial before */
}

static void finds(int what, const char *step)
{
    lie = what;
    const struct slr_graph_try t = tried(false);
    cr_assert_str_eq(t.step, step);
    cr_assert_str_eq(t.why, "differs");
}

Test(graph_try, lies_are_found, .init = driver)
{
    finds(KEEPS_WORDS, "cuGraphExecBatchMemOpNodeSetParams");
    finds(LATE_WORDS, "cuGraphExecBatchMemOpNodeSetParams");
    finds(KEEPS_COPY, "cuGraphExecMemcpyNodeSetParams");
    finds(KEEPS_ON, "cuGraphNodeSetEnabled");
    finds(KEEPS_OFF, "cuGraphExecMemcpyNodeSetParams");
}

Test(graph_try, what_does_not_end_is_given_up, .init = driver)
{
    lie = STUCK;
    const uint64_t begin = slr_now_ms();
    const struct slr_graph_try t = tried(false);
    cr_assert_str_eq(t.why, "timeout");
    cr_assert_geq(slr_now_ms() - begin, SLR_GRAPH_TRY_MS);
}

Test(graph_try, what_is_missing_is_named, .init = driver)
{
    cr_assert_null(slr_graph_try_missing());
    slr_real.cuGraphAddBatchMemOpNode = NULL;
    cr_assert_str_eq(slr_graph_try_missing(), "cuGraphAddBatchMemOpNode");
    const struct slr_graph_try t = tried(false);
    cr_assert_str_eq(t.step, "cuGraphAddBatchMemOpNode");
    cr_assert_str_eq(t.why, "missing");
    slr_real.cuStreamGetCaptureInfo = NULL; /* as the header calls it, and so the look-up */
    cr_assert_str_eq(slr_graph_try_missing(), "cuStreamGetCaptureInfo_v3");
}
