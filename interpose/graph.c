/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/install.h"

#include "base/real.h"
#include "base/settings.h"
#include "cache/blocks.h"
#include "cache/captures.h"
#include "interpose/gate_table.h"
#include "plugin/record/replay.h"
#include "plugin/graphs/graphs.h"
#include "plugin/record/record.h"

/* cuda.h turns them into other forms. */
#undef cuGraphAddNode
#undef cuGraphExecUpdate
#undef cuGraphInstantiate
#undef cuGraphInstantiateWithParams
#undef cuStreamBeginCapture

/* The stream that a per-thread form means. */
#define OWN(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#define REAL(sym) ((__typeof__(&hook_##sym))slr_gate_found[SLR_GATE_IX_##sym])

/* The capture is announced before it begins: see slr_block_captures. */
#define BEGIN(sym, after, params, args)                                                                                \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        slr_block_captures(1);                                                                                         \
        CUresult r = REAL(sym) args;                                                                                   \
        if (r != CUDA_SUCCESS)                                                                                         \
            slr_block_captures(-1);                                                                                    \
        else                                                                                                           \
            after;                                                                                                     \
        return r;                                                                                                      \
    }

/* Into a graph of the program's. */
static void began_given(CUstream stream)
{
    const unsigned long long capture = slr_graph_capture(stream, NULL);
    if (capture)
        slr_capture_given(capture);
}

/* Into a graph that the driver makes for it. */
static void began(CUstream stream)
{
    if (slr_graphs_any())
        slr_graph_made(slr_graph_recorded(stream));
}

#define BEGIN_PLAIN(sym, own) BEGIN(sym, began(own), (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
#define BEGIN_GRAPH(sym, own)                                                                                          \
    BEGIN(sym, began_given(own),                                                                                       \
          (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n,            \
           CUstreamCaptureMode mode),                                                                                  \
          (stream, graph, nodes, data, n, mode))
BEGIN_PLAIN(cuStreamBeginCapture, stream) /* the first form takes no mode, and does not miss it */
BEGIN_PLAIN(cuStreamBeginCapture_ptsz, OWN(stream))
BEGIN_PLAIN(cuStreamBeginCapture_v2, stream)
BEGIN_PLAIN(cuStreamBeginCapture_v2_ptsz, OWN(stream))
BEGIN_GRAPH(cuStreamBeginCaptureToGraph, stream)
BEGIN_GRAPH(cuStreamBeginCaptureToGraph_ptsz, OWN(stream))

/* Since CUDA 13.1 and later: declared here, as an older cuda.h has to do. A graph that is captured anew
 * has nodes of its own already; what goes to a CIG context is no graph. */
#define BEGIN_RECAPTURE(sym, own)                                                                                      \
    BEGIN(sym, began_given(own),                                                                                       \
          (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void (*ask)(void), void *data),                   \
          (stream, mode, graph, ask, data))
#define BEGIN_CIG(sym, own) BEGIN(sym, began_given(own), (CUstream stream, void *params), (stream, params))
BEGIN_RECAPTURE(cuStreamBeginRecaptureToGraph, stream)
BEGIN_RECAPTURE(cuStreamBeginRecaptureToGraph_ptsz, OWN(stream))
BEGIN_CIG(cuStreamBeginCaptureToCig, stream)
BEGIN_CIG(cuStreamBeginCaptureToCig_ptsz, OWN(stream))

static bool capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return slr_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Whether the call ended the capture can not be told from its result: one that was broken ends with
 * an error. */
#define END(sym, own, params, args)                                                                                    \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        bool before = capturing(own);                                                                                  \
        const unsigned long long capture = slr_graph_capture(own, NULL);                                               \
        slr_record_end(own);                                                                                           \
        CUresult r = REAL(sym) args;                                                                                   \
        if (before && !capturing(own)) {                                                                               \
            slr_block_captures(-1);                                                                                    \
            slr_capture_given_ends(capture);                                                                           \
            slr_record_ended(capture);                                                                                 \
        }                                                                                                              \
        return r;                                                                                                      \
    }
END(cuStreamEndCapture, stream, (CUstream stream, CUgraph *graph), (stream, graph))
END(cuStreamEndCapture_ptsz, OWN(stream), (CUstream stream, CUgraph *graph), (stream, graph))
END(cuStreamEndCaptureToCig, stream, (CUstream stream), (stream))
END(cuStreamEndCaptureToCig_ptsz, OWN(stream), (CUstream stream), (stream))

static CUresult hook_cuGraphCreate(CUgraph *out, unsigned flags)
{
    CUresult r = REAL(cuGraphCreate)(out, flags);
    if (r == CUDA_SUCCESS)
        slr_graph_made(*out);
    return r;
}

static CUresult hook_cuGraphClone(CUgraph *out, CUgraph from)
{
    CUresult r = REAL(cuGraphClone)(out, from);
    if (r == CUDA_SUCCESS)
        slr_graph_cloned(*out, from);
    return r;
}

static CUresult hook_cuGraphDestroy(CUgraph graph)
{
    return slr_graph_ends(graph) ? REAL(cuGraphDestroy)(graph) : CUDA_SUCCESS;
}

static CUresult hook_cuGraphDestroyNode(CUgraphNode node)
{
    slr_graph_node_ends(node);
    return REAL(cuGraphDestroyNode)(node);
}

static CUresult hook_cuGraphExecDestroy(CUgraphExec exec)
{
    CUgraph late = slr_graph_exec_ends(exec);
    CUresult r = REAL(cuGraphExecDestroy)(exec);
    if (late)
        REAL(cuGraphDestroy)(late);
    return r;
}

#define INSTANTIATE(sym, params, args)                                                                                 \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        CUresult r = REAL(sym) args;                                                                                   \
        slr_graph_instantiated(r == CUDA_SUCCESS ? *out : NULL, graph, r);                                             \
        return r;                                                                                                      \
    }
INSTANTIATE(cuGraphInstantiate, (CUgraphExec * out, CUgraph graph, CUgraphNode *node, char *text, size_t room),
            (out, graph, node, text, room))
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphExec * out, CUgraph graph, CUgraphNode *node, char *text, size_t room),
            (out, graph, node, text, room))
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags),
            (out, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how),
            (out, graph, how))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how),
            (out, graph, how))

#define UPDATE(sym, params, args)                                                                                      \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        CUresult r = REAL(sym) args;                                                                                   \
        if (r == CUDA_SUCCESS)                                                                                         \
            slr_graph_updated(exec, graph);                                                                            \
        return r;                                                                                                      \
    }
UPDATE(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *result),
       (exec, graph, node, result))
UPDATE(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result),
       (exec, graph, result))

static CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUresult r = REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
    if (r == CUDA_SUCCESS)
        slr_graph_child_set(exec, child);
    return r;
}

static CUresult hook_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    CUresult r = REAL(cuGraphExecNodeSetParams)(exec, node, params);
    if (r == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        slr_graph_child_set(exec, params->graph.graph);
    return r;
}

static CUresult hook_cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t n,
                                              CUgraph child)
{
    CUresult r = REAL(cuGraphAddChildGraphNode)(out, graph, from, n, child);
    if (r == CUDA_SUCCESS)
        slr_graph_child_added(graph, child, *out);
    return r;
}

/* The bodies of a conditional node are graphs that are made with it. */
static void node_added(CUgraph graph, CUgraphNode added, const CUgraphNodeParams *node)
{
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        slr_graph_child_added(graph, node->graph.graph, added);
    for (unsigned i = 0; node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && i < node->conditional.size; i++)
        slr_graph_body_added(graph, node->conditional.phGraph_out[i]);
}

static CUresult hook_cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t n,
                                    CUgraphNodeParams *node)
{
    CUresult r = REAL(cuGraphAddNode)(out, graph, from, n, node);
    if (r == CUDA_SUCCESS)
        node_added(graph, *out, node);
    return r;
}

static CUresult hook_cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                       const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *node)
{
    CUresult r = REAL(cuGraphAddNode_v2)(out, graph, from, edges, n, node);
    if (r == CUDA_SUCCESS)
        node_added(graph, *out, node);
    return r;
}

/* On a capturing stream a launch becomes a child of the graph that is recorded. */
static CUresult launch(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, CUstream own)
{
    CUgraph into = slr_graph_recorded(own);
    struct slr_replay *replay = NULL;
    CUresult r;
    if (!into)
        slr_graph_enters(exec, own);
    if (!into && !slr_replay_begin(exec, own, &replay, &r))
        return r;
    r = real(exec, stream);
    slr_replay_end(replay, r);
    if (r == CUDA_SUCCESS && into)
        slr_graph_launch_captured(into, exec);
    else if (r == CUDA_SUCCESS)
        slr_graph_runs(exec, own);
    return r;
}

#define LAUNCH(sym, own)                                                                                               \
    static CUresult hook_##sym(CUgraphExec exec, CUstream stream)                                                      \
    {                                                                                                                  \
        if (__builtin_expect(atomic_load_explicit(&slr_graphs_held, memory_order_relaxed) != 0, 0))                    \
            return launch(REAL(sym), exec, stream, own);                                                               \
        return REAL(sym)(exec, stream);                                                                                \
    }
LAUNCH(cuGraphLaunch, stream)
LAUNCH(cuGraphLaunch_ptsz, OWN(stream))

#define INSTALL(sym)                                                                                                   \
    if (slr_gate_found[SLR_GATE_IX_##sym])                                                                             \
    slr_gate_real[SLR_GATE_IX_##sym] = (void *)hook_##sym

static void install_captures(void)
{
    INSTALL(cuStreamBeginCapture);
    INSTALL(cuStreamBeginCapture_ptsz);
    INSTALL(cuStreamBeginCapture_v2);
    INSTALL(cuStreamBeginCapture_v2_ptsz);
    INSTALL(cuStreamBeginCaptureToGraph);
    INSTALL(cuStreamBeginCaptureToGraph_ptsz);
    INSTALL(cuStreamBeginRecaptureToGraph);
    INSTALL(cuStreamBeginRecaptureToGraph_ptsz);
    INSTALL(cuStreamBeginCaptureToCig);
    INSTALL(cuStreamBeginCaptureToCig_ptsz);
    INSTALL(cuStreamEndCaptureToCig);
    INSTALL(cuStreamEndCaptureToCig_ptsz);
    INSTALL(cuStreamEndCapture);
    INSTALL(cuStreamEndCapture_ptsz);
}

static void install_graphs(void)
{
    INSTALL(cuGraphAddChildGraphNode);
    INSTALL(cuGraphAddNode);
    INSTALL(cuGraphAddNode_v2);
    INSTALL(cuGraphClone);
    INSTALL(cuGraphCreate);
    INSTALL(cuGraphDestroy);
    INSTALL(cuGraphDestroyNode);
    INSTALL(cuGraphExecChildGraphNodeSetParams);
    INSTALL(cuGraphExecDestroy);
    INSTALL(cuGraphExecNodeSetParams);
    INSTALL(cuGraphExecUpdate);
    INSTALL(cuGraphExecUpdate_v2);
    INSTALL(cuGraphInstantiate);
    INSTALL(cuGraphInstantiateWithFlags);
    INSTALL(cuGraphInstantiateWithParams);
    INSTALL(cuGraphInstantiateWithParams_ptsz);
    INSTALL(cuGraphInstantiate_v2);
    INSTALL(cuGraphLaunch);
    INSTALL(cuGraphLaunch_ptsz);
}

void slr_graph_install(void)
{
    if (!slr_get(SLR_S_ENABLE))
        return;
    bool follow = slr_real.cuStreamGetCaptureInfo != NULL;
    if (slr_real.cuStreamIsCapturing && (follow || slr_get(SLR_S_ALLOC)))
        install_captures();
    if (follow)
        install_graphs();
}
