/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that begin, end and inspect a capture. */
#include "sg.h"
#include <stdlib.h>

struct onto { /* a graph of the program's, and what the first node depends on */
    CUgraph graph;
    const CUgraphNode *deps;
    size_t n;
};

static CUresult begin_locked(struct sg_stream *s, const struct onto *onto, CUstreamCaptureMode mode)
{
    if (s->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sg_graph *g = onto ? sg_handle_get_locked(SG_GRAPH, onto->graph) : sg_graph_new_locked();
    if (!g || (onto && !sg_nodes_of_locked(g, onto->deps, onto->n)))
        return CUDA_ERROR_INVALID_VALUE;
    sg_capture_begin_locked(s, g, mode)->given = onto != NULL;
    for (size_t i = 0; onto && i < onto->n; i++)
        sg_tips_add(&s->tips, onto->deps[i]);
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream hStream, const struct onto *onto, CUstreamCaptureMode mode)
{
    CUresult rc;

    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (onto && onto->n && !onto->deps))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s)
        rc = begin_locked(s, onto, mode);
    sg_release();
    return rc;
}

static CUresult cuStreamBeginCapture_on(CUstream hStream)
{
    return begin(hStream, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SG_PAIR(cuStreamBeginCapture, _ptsz, (CUstream hStream), (hStream), (SG_PT(hStream)))

static CUresult cuStreamBeginCapture_v2_on(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, NULL, mode);
}
SG_PAIR(cuStreamBeginCapture_v2, _ptsz, (CUstream hStream, CUstreamCaptureMode mode), (hStream, mode),
        (SG_PT(hStream), mode))

static CUresult cuStreamBeginCaptureToGraph_on(CUstream hStream, CUgraph graph, const CUgraphNode *deps,
                                               const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode)
{
    struct onto onto = {graph, deps, n};
    return sg_edges_plain(edges, n) ? begin(hStream, &onto, mode) : CUDA_ERROR_NOT_SUPPORTED;
}
SG_PAIR(cuStreamBeginCaptureToGraph, _ptsz,
        (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
         size_t numDependencies, CUstreamCaptureMode mode),
        (hStream, hGraph, dependencies, dependencyData, numDependencies, mode),
        (SG_PT(hStream), hGraph, dependencies, dependencyData, numDependencies, mode))

/* ---- end ---- */

/* Marks the nodes that are before a stream's next one. */
static void mark_locked(struct sg_graph *g, const struct sg_tips *tips)
{
    struct sg_node **stack = calloc(g->count + tips->n + 1, sizeof(*stack)), *n;
    size_t depth = 0;

    if (!stack)
        abort();
    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->mark = false;
    for (unsigned i = 0; i < tips->n; i++)
        if ((n = sg_handle_peek_locked(SG_NODE, tips->node[i])) && !n->mark) {
            n->mark = true;
            stack[depth++] = n;
        }
    while (depth) {
        n = stack[--depth];
        for (unsigned d = 0; d < n->ndeps; d++)
            if (!n->deps[d]->mark) {
                n->deps[d]->mark = true;
                stack[depth++] = n->deps[d];
            }
    }
    free(stack);
}

/* What the streams of a capture recorded last must have been joined into the origin; nodes made by hand need not. */
static bool unjoined_locked(struct sg_capture *c)
{
    const struct sg_node *n;

    mark_locked(c->graph, &c->origin->tips);
    for (struct sg_ctx *ctx = sg_ctx_list_locked(); ctx; ctx = ctx->next)
        for (struct sg_stream *s = ctx->streams; s; s = s->next)
            for (unsigned i = 0; s->capture == c && i < s->tips.n; i++)
                if ((n = sg_handle_peek_locked(SG_NODE, s->tips.node[i])) && !n->mark && n->captured)
                    return true;
    return false;
}

static CUresult end_locked(struct sg_stream *s, CUgraph *out)
{
    struct sg_capture *c = s->capture;
    struct sg_graph *g;
    CUresult rc = CUDA_SUCCESS;
    bool given;

    *out = NULL;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    g = c->graph;
    given = c->given;
    if (c->invalid)
        rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (unjoined_locked(c))
        rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    sg_capture_detach_locked(c);
    if (!rc)
        *out = g->handle;
    else if (!given)
        sg_graph_destroy_locked(g);
    return rc;
}

static CUresult cuStreamEndCapture_on(CUstream hStream, CUgraph *phGraph)
{
    CUresult rc;

    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s)
        rc = end_locked(s, phGraph);
    sg_release();
    return rc;
}
SG_PAIR(cuStreamEndCapture, _ptsz, (CUstream hStream, CUgraph *phGraph), (hStream, phGraph), (SG_PT(hStream), phGraph))

static CUstreamCaptureStatus status_of(const struct sg_stream *s)
{
    return !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult cuStreamIsCapturing_on(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    CUresult rc;

    if (!captureStatus)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && s->legacy && sg_capture_active_in_locked(s->ctx))
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else if (s)
        *captureStatus = status_of(s);
    sg_release();
    return rc;
}
SG_PAIR(cuStreamIsCapturing, _ptsz, (CUstream hStream, CUstreamCaptureStatus *captureStatus), (hStream, captureStatus),
        (SG_PT(hStream), captureStatus))

struct info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **deps;
    const CUgraphEdgeData **edges;
    size_t *ndeps;
};

static CUresult get_info(CUstream hStream, struct info out)
{
    CUresult rc;

    if (!out.status)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && s->legacy && sg_capture_active_in_locked(s->ctx))
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (!rc) {
        *out.status = status_of(s);
        if (s->capture && out.id)
            *out.id = s->capture->id;
        if (s->capture && out.graph)
            *out.graph = s->capture->graph->handle;
        if (s->capture && out.deps)
            *out.deps = s->tips.node;
        if (s->capture && out.edges)
            *out.edges = NULL; /* all edges carry the default annotation */
        if (s->capture && out.ndeps)
            *out.ndeps = s->tips.n;
    }
    sg_release();
    return rc;
}

static CUresult cuStreamGetCaptureInfo_on(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return get_info(hStream, (struct info){.status = status, .id = id});
}
SG_PAIR(cuStreamGetCaptureInfo, _ptsz, (CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id),
        (hStream, status, id), (SG_PT(hStream), status, id))

static CUresult cuStreamGetCaptureInfo_v2_on(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                             CUgraph *graph, const CUgraphNode **deps, size_t *ndeps)
{
    return get_info(hStream, (struct info){status, id, graph, deps, NULL, ndeps});
}
SG_PAIR(cuStreamGetCaptureInfo_v2, _ptsz,
        (CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
         size_t *ndeps),
        (hStream, status, id, graph, deps, ndeps), (SG_PT(hStream), status, id, graph, deps, ndeps))

static CUresult cuStreamGetCaptureInfo_v3_on(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                             CUgraph *graph, const CUgraphNode **deps, const CUgraphEdgeData **edges,
                                             size_t *ndeps)
{
    return get_info(hStream, (struct info){status, id, graph, deps, edges, ndeps});
}
SG_PAIR(cuStreamGetCaptureInfo_v3, _ptsz,
        (CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
         const CUgraphEdgeData **edges, size_t *ndeps),
        (hStream, status, id, graph, deps, edges, ndeps), (SG_PT(hStream), status, id, graph, deps, edges, ndeps))

/* ---- dependencies ---- */

static CUresult update_locked(struct sg_stream *s, const CUgraphNode *nodes, size_t n, bool set)
{
    struct sg_tips more = {NULL, 0, 0};

    if (!s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!sg_nodes_of_locked(s->capture->graph, nodes, n))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) /* `nodes` may be the stream's own array */
        sg_tips_add(&more, nodes[i]);
    if (set)
        s->tips.n = 0;
    sg_tips_join(&s->tips, &more);
    sg_tips_clear(&more);
    return CUDA_SUCCESS;
}

static CUresult update(CUstream hStream, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t n,
                       unsigned flags)
{
    CUresult rc;

    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (n && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_edges_plain(edges, n))
        return CUDA_ERROR_NOT_SUPPORTED;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s)
        rc = update_locked(s, nodes, n, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    sg_release();
    return rc;
}

static CUresult cuStreamUpdateCaptureDependencies_on(CUstream hStream, CUgraphNode *deps, size_t n, unsigned int flags)
{
    return update(hStream, deps, NULL, n, flags);
}
SG_PAIR(cuStreamUpdateCaptureDependencies, _ptsz,
        (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
        (hStream, dependencies, numDependencies, flags), (SG_PT(hStream), dependencies, numDependencies, flags))

static CUresult cuStreamUpdateCaptureDependencies_v2_on(CUstream hStream, CUgraphNode *deps,
                                                        const CUgraphEdgeData *edges, size_t n, unsigned int flags)
{
    return update(hStream, deps, edges, n, flags);
}
SG_PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz,
        (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
         unsigned int flags),
        (hStream, dependencies, dependencyData, numDependencies, flags),
        (SG_PT(hStream), dependencies, dependencyData, numDependencies, flags))

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SG_ENTER(cuThreadExchangeStreamCaptureMode);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sg_capture_exchange_mode(*mode);
    return CUDA_SUCCESS;
}
