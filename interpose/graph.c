/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/gate.h"

#include "base/real.h"
#include "base/settings.h"
#include "cache/blocks.h"
#include "cache/captures.h"
#include "plugin/record/record.h"
#include "plugin/graphs/graphs.h"

/* cuda.h turns them into other forms. */
#undef cuGraphAddNode
#undef cuGraphExecUpdate
#undef cuGraphInstantiate
#undef cuGraphInstantiateWithParams
#undef cuStreamBeginCapture

/* The hooks of two forms of a function; `own` is what the stream means, which in the per-thread form is
 * another one when none is given. */
#define OWN(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
#define FORMS(HOOK, sym, a, b) HOOK(sym##a, stream) HOOK(sym##b, OWN(stream))
#define INSTALL_FORMS(sym, a, b)                                                                                       \
    SLR_INSTALL(sym##a);                                                                                               \
    SLR_INSTALL(sym##b)

/* The capture is announced before it begins: see slr_block_captures. */
#define BEGIN(sym, after, params, args)                                                                                \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        slr_block_captures(1);                                                                                         \
        CUresult r = SLR_FOUND(sym) args;                                                                              \
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
        slr_graph_made(slr_graph_captured_into(stream));
}

#define BEGIN_PLAIN(sym, own) BEGIN(sym, began(own), (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
#define BEGIN_GRAPH(sym, own)                                                                                          \
    BEGIN(sym, began_given(own),                                                                                       \
          (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t n,            \
           CUstreamCaptureMode mode),                                                                                  \
          (stream, graph, nodes, data, n, mode))
FORMS(BEGIN_PLAIN, cuStreamBeginCapture, , _ptsz) /* these take no mode, and do not miss it */
FORMS(BEGIN_PLAIN, cuStreamBeginCapture, _v2, _v2_ptsz)
FORMS(BEGIN_GRAPH, cuStreamBeginCaptureToGraph, , _ptsz)

/* Since CUDA 13.1 and later: declared here, as an older cuda.h has to do. A graph that is captured anew
 * has nodes of its own already; what goes to a CIG context is no graph. */
#define BEGIN_RECAPTURE(sym, own)                                                                                      \
    BEGIN(sym, began_given(own),                                                                                       \
          (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void (*ask)(void), void *data),                   \
          (stream, mode, graph, ask, data))
#define BEGIN_CIG(sym, own) BEGIN(sym, began_given(own), (CUstream stream, void *params), (stream, params))
FORMS(BEGIN_RECAPTURE, cuStreamBeginRecaptureToGraph, , _ptsz)
FORMS(BEGIN_CIG, cuStreamBeginCaptureToCig, , _ptsz)

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
        CUresult r = SLR_FOUND(sym) args;                                                                              \
        if (before && !capturing(own)) {                                                                               \
            slr_block_captures(-1);                                                                                    \
            slr_capture_given_ends(capture);                                                                           \
            slr_record_ended(capture);                                                                                 \
        }                                                                                                              \
        return r;                                                                                                      \
    }
#define END_GRAPH(sym, own) END(sym, own, (CUstream stream, CUgraph * graph), (stream, graph))
#define END_CIG(sym, own) END(sym, own, (CUstream stream), (stream))
FORMS(END_GRAPH, cuStreamEndCapture, , _ptsz)
FORMS(END_CIG, cuStreamEndCaptureToCig, , _ptsz)

static CUresult hook_cuGraphCreate(CUgraph *out, unsigned flags)
{
    CUresult r = SLR_FOUND(cuGraphCreate)(out, flags);
    if (r == CUDA_SUCCESS)
        slr_graph_made(*out);
    return r;
}

static CUresult hook_cuGraphClone(CUgraph *out, CUgraph from)
{
    CUresult r = SLR_FOUND(cuGraphClone)(out, from);
    if (r == CUDA_SUCCESS)
        slr_graph_cloned(*out, from);
    return r;
}

static CUresult hook_cuGraphDestroy(CUgraph graph)
{
    return slr_graph_ends(graph) ? SLR_FOUND(cuGraphDestroy)(graph) : CUDA_SUCCESS;
}

static CUresult hook_cuGraphDestroyNode(CUgraphNode node)
{
    slr_graph_node_ends(node);
    return SLR_FOUND(cuGraphDestroyNode)(node);
}

static CUresult hook_cuGraphExecDestroy(CUgraphExec exec)
{
    CUgraph late = slr_graph_exec_ends(exec);
    CUresult r = SLR_FOUND(cuGraphExecDestroy)(exec);
    if (late)
        SLR_FOUND(cuGraphDestroy)(late);
    return r;
}

#define INSTANTIATE(sym, params, args)                                                                                 \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        CUresult r = SLR_FOUND(sym) args;                                                                              \
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
        CUresult r = SLR_FOUND(sym) args;                                                                              \
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
    CUresult r = SLR_FOUND(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
    if (r == CUDA_SUCCESS)
        slr_graph_child_set(exec, child);
    return r;
}

static CUresult hook_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    CUresult r = SLR_FOUND(cuGraphExecNodeSetParams)(exec, node, params);
    if (r == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        slr_graph_child_set(exec, params->graph.graph);
    return r;
}

static CUresult hook_cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *from, size_t n,
                                              CUgraph child)
{
    CUresult r = SLR_FOUND(cuGraphAddChildGraphNode)(out, graph, from, n, child);
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
    CUresult r = SLR_FOUND(cuGraphAddNode)(out, graph, from, n, node);
    if (r == CUDA_SUCCESS)
        node_added(graph, *out, node);
    return r;
}

static CUresult hook_cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *from,
                                       const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *node)
{
    CUresult r = SLR_FOUND(cuGraphAddNode_v2)(out, graph, from, edges, n, node);
    if (r == CUDA_SUCCESS)
        node_added(graph, *out, node);
    return r;
}

/* On a capturing stream a launch becomes a child of the graph that is captured. */
static CUresult launch(CUresult (*real)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream, CUstream own)
{
    CUgraph into = slr_graph_captured_into(own);
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
            return launch(SLR_FOUND(sym), exec, stream, own);                                                          \
        return SLR_FOUND(sym)(exec, stream);                                                                           \
    }
FORMS(LAUNCH, cuGraphLaunch, , _ptsz)

static void install_captures(void)
{
    INSTALL_FORMS(cuStreamBeginCapture, , _ptsz);
    INSTALL_FORMS(cuStreamBeginCapture, _v2, _v2_ptsz);
    INSTALL_FORMS(cuStreamBeginCaptureToGraph, , _ptsz);
    INSTALL_FORMS(cuStreamBeginRecaptureToGraph, , _ptsz);
    INSTALL_FORMS(cuStreamBeginCaptureToCig, , _ptsz);
    INSTALL_FORMS(cuStreamEndCaptureToCig, , _ptsz);
    INSTALL_FORMS(cuStreamEndCapture, , _ptsz);
}

static void install_graphs(void)
{
    SLR_INSTALL(cuGraphAddChildGraphNode);
    INSTALL_FORMS(cuGraphAddNode, , _v2);
    SLR_INSTALL(cuGraphClone);
    SLR_INSTALL(cuGraphCreate);
    SLR_INSTALL(cuGraphDestroy);
    SLR_INSTALL(cuGraphDestroyNode);
    SLR_INSTALL(cuGraphExecChildGraphNodeSetParams);
    SLR_INSTALL(cuGraphExecDestroy);
    SLR_INSTALL(cuGraphExecNodeSetParams);
    INSTALL_FORMS(cuGraphExecUpdate, , _v2);
    INSTALL_FORMS(cuGraphInstantiate, , _v2);
    SLR_INSTALL(cuGraphInstantiateWithFlags);
    INSTALL_FORMS(cuGraphInstantiateWithParams, , _ptsz);
    INSTALL_FORMS(cuGraphLaunch, , _ptsz);
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
