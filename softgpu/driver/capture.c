/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: what may be done while a stream records, and how streams join a recording. */
#include "sg.h"
#include <stdlib.h>

static struct sg_capture *captures;
static uint64_t next_id;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct sg_capture *sg_capture_find_locked(uint64_t id)
{
    struct sg_capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

CUstreamCaptureMode sg_capture_exchange_mode(CUstreamCaptureMode mode)
{
    CUstreamCaptureMode old = thread_mode;
    thread_mode = mode;
    return old;
}

struct sg_capture *sg_capture_begin_locked(struct sg_stream *s, struct sg_graph *g, CUstreamCaptureMode mode)
{
    struct sg_capture *c = calloc(1, sizeof(*c));

    if (!c)
        abort();
    *c = (struct sg_capture){
        .next = captures, .id = ++next_id, .graph = g, .origin = s, .mode = mode, .thread = pthread_self()};
    captures = c;
    g->captures++;
    s->capture = c;
    sg_tips_clear(&s->tips);
    return c;
}

void sg_capture_detach_locked(struct sg_capture *c)
{
    struct sg_capture **p = &captures;

    for (struct sg_ctx *ctx = sg_ctx_list_locked(); ctx; ctx = ctx->next)
        for (struct sg_stream *s = ctx->streams; s; s = s->next)
            if (s->capture == c) {
                s->capture = NULL;
                sg_tips_clear(&s->tips);
            }
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    c->graph->captures--;
    free(c);
}

/* A stream that records is destroyed: the capture can not end well. Without its origin it ends here. */
void sg_capture_leave_locked(struct sg_stream *s)
{
    struct sg_capture *c = s->capture;

    c->invalid = true;
    s->capture = NULL;
    if (s == c->origin) {
        struct sg_graph *g = c->given ? NULL : c->graph;
        sg_capture_detach_locked(c);
        if (g)
            sg_graph_destroy_locked(g);
    }
}

CUresult sg_capture_break_locked(struct sg_capture *c, CUresult rc)
{
    c->invalid = true;
    return rc;
}

CUresult sg_capture_refuse_locked(struct sg_stream *s)
{
    return sg_capture_break_locked(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* Calls such as cuMemAlloc, cuCtxEnablePeerAccess, cuEventQuery and cuStreamQuery of a stream that does not capture: a global capture of any thread forbids them, a
 * thread-local one only to its own thread; cuThreadExchangeStreamCaptureMode relaxes that. */
CUresult sg_capture_unsafe_locked(void)
{
    CUresult rc = CUDA_SUCCESS;

    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return rc;
    for (struct sg_capture *c = captures; c; c = c->next) {
        bool mine = pthread_equal(c->thread, pthread_self());
        bool global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && (mine || global)) {
            c->invalid = true;
            rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return rc;
}

int softgpuCaptureForbids(void);
__attribute__((visibility("default"))) int softgpuCaptureForbids(void)
{
    sg_acquire();
    CUresult rc = sg_capture_unsafe_locked();
    sg_release();
    return rc != CUDA_SUCCESS;
}

bool sg_capture_active_in_locked(struct sg_ctx *ctx)
{
    if (!captures)
        return false;
    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
            return true;
    return false;
}

CUresult sg_capture_implicit_locked(struct sg_ctx *ctx)
{
    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
            s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/* The programming guide: it is invalid to synchronise a context while any stream of it captures, whatever the mode. */
CUresult sg_capture_sync_locked(struct sg_ctx *ctx)
{
    CUresult rc = CUDA_SUCCESS;

    for (struct sg_stream *s = sg_cfg.ctxsync ? ctx->streams : NULL; s; s = s->next)
        if (s->capture) {
            s->capture->invalid = true;
            rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return rc;
}

/* ---- recording ---- */

void sg_tips_clear(struct sg_tips *t)
{
    free(t->node);
    *t = (struct sg_tips){NULL, 0, 0};
}

void sg_tips_add(struct sg_tips *t, CUgraphNode node)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->node[i] == node)
            return;
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 4;
        t->node = realloc(t->node, t->cap * sizeof(*t->node));
        if (!t->node)
            abort();
    }
    t->node[t->n++] = node;
}

void sg_tips_join(struct sg_tips *t, const struct sg_tips *more)
{
    for (unsigned i = 0; i < more->n; i++)
        sg_tips_add(t, more->node[i]);
}

struct sg_node *sg_capture_node_locked(struct sg_stream *s, CUgraphNodeType type)
{
    struct sg_node *n = sg_node_add_locked(s->capture->graph, type, s->ctx), *on;

    n->captured = true;
    for (unsigned i = 0; i < s->tips.n; i++)
        if ((on = sg_handle_peek_locked(SG_NODE, s->tips.node[i])) && on->graph == n->graph)
            sg_node_dep(n, on);
    s->tips.n = 0;
    sg_tips_add(&s->tips, n->handle);
    return n;
}

CUresult sg_capture_op_locked(struct sg_stream *s, struct sg_op *op)
{
    if (s->capture->invalid) {
        sg_op_free_locked(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    sg_node_op(sg_capture_node_locked(s, sg_node_type_of(op)), op);
    return CUDA_SUCCESS;
}
