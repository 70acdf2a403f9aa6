/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and launches. The device code that turns a loop is the software GPU's (../../softgpu/softgpu.h). */
#include "play.h"

#include <dlfcn.h>

#include "softgpu/softgpu.h"

#define DRIVER(call) CHECK((call) == CUDA_SUCCESS, "%s", #call)

static CUcontext context(void)
{
    CUcontext ctx;
    DRIVER(cuCtxGetCurrent(&ctx));
    return ctx;
}

/* Each word is one loop's: the turns to come. */
static uint8_t *word(const struct player *p)
{
    return p->words + (size_t)p->ngraphs * 4;
}

/* What is not to run would write where nothing looks. */
static void fill_others(struct player *p, const struct branch *b, CUgraph *bodies)
{
    const CUDA_MEMSET_NODE_PARAMS set = {
        .dst = (CUdeviceptr)(uintptr_t)word(p), .value = 1, .elementSize = 4, .width = 1, .height = 1};
    CUgraphNode node;
    for (int i = 0; i < b->bodies; i++)
        if (i != b->body)
            DRIVER(cuGraphAddMemsetNode(&node, bodies[i], NULL, 0, &set, context()));
}

static void body_begin(struct player *p, const struct op *op)
{
    static const CUgraphConditionalNodeType types[] = {[BRANCH_IF] = CU_GRAPH_COND_TYPE_IF,
                                                       [BRANCH_WHILE] = CU_GRAPH_COND_TYPE_WHILE,
                                                       [BRANCH_SWITCH] = CU_GRAPH_COND_TYPE_SWITCH};
    const struct branch *b = &op->branch;
    const unsigned value = b->kind == BRANCH_WHILE ? b->value > 0 : (unsigned)b->value;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNode node;
    DRIVER(cuGraphCreate(&p->graph, 0));
    DRIVER(cuGraphConditionalHandleCreate(&p->handle, p->graph, context(), value, CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.handle = p->handle;
    params.conditional.type = types[b->kind];
    params.conditional.size = (unsigned)b->bodies;
    params.conditional.ctx = context();
    DRIVER(cuGraphAddNode(&node, p->graph, NULL, NULL, 0, &params));
    fill_others(p, b, params.conditional.phGraph_out);
    DRIVER(cuStreamBeginCaptureToGraph(p->stream[op->stream], params.conditional.phGraph_out[b->body], NULL, NULL, 0,
                                       CU_STREAM_CAPTURE_MODE_RELAXED));
}

void player_capture(struct player *p, const struct op *op)
{
    if (op->branch.kind)
        body_begin(p, op);
    else
        CUDA(cudaStreamBeginCapture(p->stream[op->stream],
                                    op->value ? cudaStreamCaptureModeThreadLocal : cudaStreamCaptureModeRelaxed));
    p->capturing = op->stream;
}

/* The last operation of a loop's body: one turn less. */
static void count_turn(struct player *p, cudaStream_t stream)
{
    softgpuSetConditional_t find;
    CUfunction setter;
    struct softgpu_set_conditional a = {p->handle, (CUdeviceptr)(uintptr_t)word(p), 1};
    void *params[] = {&a};
    *(void **)&find = dlsym(RTLD_DEFAULT, "softgpuSetConditional");
    CHECK(find, "no device code for loops");
    DRIVER(find(&setter));
    DRIVER(cuLaunchKernel(setter, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void launch(struct player *p, const struct op *op, cudaGraphExec_t exec)
{
    cudaStream_t stream = p->stream[op->stream];
    if (op->branch.kind == BRANCH_WHILE)
        CUDA(cudaMemsetAsync(word(p), op->branch.value, 1, stream));
    p->in_nccl++;
    const cudaError_t got = player_trusts(p) ? cudaGraphLaunch(exec, stream) : cudaSuccess;
    /* A call like those that the graph holds: slipring does not launch it when their communicator has failed. */
    if (got == cudaErrorIllegalState)
        player_told(p, "cudaGraphLaunch", cudaGetErrorString(got));
    else
        CUDA(got);
    p->in_nccl++;
}

/* False: who aborts has dropped the others. */
static bool keep_launched(struct player *p, cudaGraphExec_t exec)
{
    pthread_mutex_lock(&p->launched_lock);
    const bool keep = !p->aborting;
    if (keep)
        p->launched[p->nlaunched++] = exec;
    pthread_mutex_unlock(&p->launched_lock);
    return keep;
}

void player_drop_graphs(struct player *p)
{
    pthread_mutex_lock(&p->launched_lock);
    while (p->nlaunched > 0)
        CUDA(cudaGraphExecDestroy(p->launched[--p->nlaunched]));
    pthread_mutex_unlock(&p->launched_lock);
}

static cudaGraph_t end_capture(struct player *p, const struct op *op)
{
    cudaGraph_t graph;
    if (op->branch.kind == BRANCH_WHILE)
        count_turn(p, p->stream[op->stream]);
    CUDA(cudaStreamEndCapture(p->stream[op->stream], &graph));
    p->capturing = -1;
    return op->branch.kind ? p->graph : graph;
}

void player_capture_end(struct player *p, const struct op *op)
{
    cudaGraph_t graph = end_capture(p, op);
    cudaGraphExec_t exec;
    if (op->value || op->call) {
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < op->call; i++)
            launch(p, op, exec);
        if (!op->call || !keep_launched(p, exec))
            CUDA(cudaGraphExecDestroy(exec));
    }
    CUDA(cudaGraphDestroy(graph));
    p->ngraphs++;
}
