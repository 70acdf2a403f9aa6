/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that begin, end and inspect a capture. */
#include "sg.h"
#include <string.h>

static CUresult begin(CUstream hStream, CUgraph hGraph, CUstreamCaptureMode mode)
{
    struct sg_graph *g = NULL;
    CUresult rc;

    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && s->legacy)
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (s && s->capture)
        rc = CUDA_ERROR_ILLEGAL_STATE;
    if (!rc) {
        g = hGraph ? sg_handle_get_locked(SG_GRAPH, hGraph) : sg_graph_new_locked();
        if (g)
            sg_capture_begin_locked(s, g, mode);
        else
            rc = CUDA_ERROR_INVALID_VALUE;
    }
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

/* Every line of the capture must have been joined into the origin's. */
static bool unjoined_locked(struct sg_capture *c)
{
    struct sg_graph *g = c->graph;

    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->mark = false;
    for (unsigned i = 0; i < c->origin->tips.n; i++)
        c->origin->tips.node[i]->mark = true;
    for (size_t i = g->count; i-- > 0;) /* dependencies come before what depends on them */
        for (unsigned d = 0; g->nodes[i]->mark && d < g->nodes[i]->ndeps; d++)
            g->nodes[i]->deps[d]->mark = true;
    for (struct sg_ctx *ctx = sg_ctx_list_locked(); ctx; ctx = ctx->next)
        for (struct sg_stream *s = ctx->streams; s; s = s->next)
            for (unsigned i = 0; s->capture == c && i < s->tips.n; i++)
                if (!s->tips.node[i]->mark)
                    return true;
    return false;
}

static CUresult end_locked(struct sg_stream *s, CUgraph *out)
{
    struct sg_capture *c = s->capture;
    struct sg_graph *g;
    CUresult rc = CUDA_SUCCESS;

    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    g = c->graph;
    if (c->invalid)
        rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (unjoined_locked(c))
        rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    sg_capture_detach_locked(c);
    if (rc)
        sg_graph_destroy_locked(g);
    *out = rc ? NULL : g->handle;
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
        for (unsigned i = 0; i < s->tips.n; i++)
            s->tip_handles[i] = s->tips.node[i]->handle;
        if (s->capture && out.id)
            *out.id = s->capture->id;
        if (s->capture && out.graph)
            *out.graph = s->capture->graph->handle;
        if (s->capture && out.deps)
            *out.deps = s->tip_handles;
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

static CUresult update(CUstream hStream, const CUgraphNode *nodes, size_t n, unsigned flags)
{
    struct sg_tips more = {.n = 0};
    CUresult rc;

    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || n > SG_TIPS || (n && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_get_locked(hStream, &rc);
    if (s && !s->capture)
        rc = CUDA_ERROR_ILLEGAL_STATE;
    for (size_t i = 0; i < n && !rc; i++) {
        more.node[more.n] = sg_handle_get_locked(SG_NODE, nodes[i]);
        if (!more.node[more.n] || more.node[more.n]->graph != s->capture->graph)
            rc = CUDA_ERROR_INVALID_VALUE;
        more.n++;
    }
    if (!rc && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        s->tips.n = 0;
    if (!rc)
        sg_capture_merge_locked(s->capture, &s->tips, &more);
    sg_release();
    return rc;
}

static CUresult cuStreamUpdateCaptureDependencies_on(CUstream hStream, CUgraphNode *deps, size_t n, unsigned int flags)
{
    return update(hStream, deps, n, flags);
}
SG_PAIR(cuStreamUpdateCaptureDependencies, _ptsz,
        (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
        (hStream, dependencies, numDependencies, flags), (SG_PT(hStream), dependencies, numDependencies, flags))

static CUresult cuStreamUpdateCaptureDependencies_v2_on(CUstream hStream, CUgraphNode *deps, size_t n,
                                                        unsigned int flags)
{
    return update(hStream, deps, n, flags);
}
SG_PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz,
        (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
         unsigned int flags),
        (hStream, dependencies, ((void)dependencyData, numDependencies), flags),
        (SG_PT(hStream), dependencies, ((void)dependencyData, numDependencies), flags))

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    SG_ENTER(cuThreadExchangeStreamCaptureMode);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = sg_capture_exchange_mode(*mode);
    return CUDA_SUCCESS;
}
