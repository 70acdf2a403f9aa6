/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: what may be done while a stream records, and how streams join a recording. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

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
    *c = (struct sg_capture){.next = captures,
                             .id = ++next_id,
                             .graph = g,
                             .origin = s,
                             .mode = mode,
                             .thread = pthread_self(),
                             .streams = 1};
    captures = c;
    s->capture = c;
    s->tips.n = 0;
    return c;
}

void sg_capture_detach_locked(struct sg_capture *c)
{
    struct sg_capture **p = &captures;

    for (struct sg_ctx *ctx = sg_ctx_list_locked(); ctx; ctx = ctx->next)
        for (struct sg_stream *s = ctx->streams; s; s = s->next)
            if (s->capture == c) {
                s->capture = NULL;
                s->tips.n = 0;
            }
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    free(c);
}

/* A stream that records is destroyed: the capture can not end well. Without its origin it ends here. */
void sg_capture_leave_locked(struct sg_stream *s)
{
    struct sg_capture *c = s->capture;

    c->invalid = true;
    s->capture = NULL;
    if (s == c->origin) {
        sg_graph_destroy_locked(c->graph);
        sg_capture_detach_locked(c);
    } else {
        c->streams--;
    }
}

CUresult sg_capture_refuse_locked(struct sg_stream *s)
{
    s->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Calls such as cuMemAlloc and cuEventQuery: a global capture of any thread forbids them, a thread-local one only to
 * its own thread; cuThreadExchangeStreamCaptureMode relaxes that. */
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

bool sg_capture_active_in_locked(struct sg_ctx *ctx)
{
    if (!captures)
        return false;
    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
            return true;
    return false;
}

void sg_capture_invalidate_locked(struct sg_ctx *ctx)
{
    for (struct sg_stream *s = ctx->streams; s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
            s->capture->invalid = true;
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

CUresult sg_capture_op_locked(struct sg_stream *s, struct sg_op *op)
{
    struct sg_capture *c = s->capture;

    if (c->invalid) {
        sg_op_free_locked(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    s->tips.node[0] = sg_graph_add_locked(c->graph, op, s->tips.node, s->tips.n);
    s->tips.n = 1;
    return CUDA_SUCCESS;
}

/* Joins two lines; more than fits is gathered behind one empty node. */
void sg_capture_merge_locked(struct sg_capture *c, struct sg_tips *to, const struct sg_tips *more)
{
    for (unsigned i = 0; i < more->n; i++) {
        bool known = false;
        for (unsigned j = 0; j < to->n; j++)
            known |= to->node[j] == more->node[i];
        if (known)
            continue;
        if (to->n == SG_TIPS) {
            to->node[0] = sg_graph_add_locked(c->graph, sg_op_new(SG_OP_ORDER, "join"), to->node, to->n);
            to->n = 1;
        }
        to->node[to->n++] = more->node[i];
    }
}

CUresult sg_capture_record_locked(struct sg_stream *s, struct sg_event *e)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    e->capture = s->capture->id;
    e->tips = s->tips;
    return CUDA_SUCCESS;
}

bool sg_capture_has_event_locked(const struct sg_event *e)
{
    return e->capture && sg_capture_find_locked(e->capture);
}

CUresult sg_capture_wait_locked(struct sg_stream *s, struct sg_event *e)
{
    struct sg_capture *c = e->capture ? sg_capture_find_locked(e->capture) : NULL;

    if (!c && !s->capture)
        return CUDA_SUCCESS; /* recorded by a capture that has ended: nothing of it ever ran */
    if (!c && !e->fence)
        return CUDA_SUCCESS; /* never recorded */
    if (!c) {
        s->capture->invalid = true; /* would depend on work outside of the capture */
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->legacy) {
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (s->capture && s->capture != c) {
        s->capture->invalid = c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!s->capture) {
        s->capture = c;
        s->tips.n = 0;
        c->streams++;
    }
    sg_capture_merge_locked(c, &s->tips, &e->tips);
    return CUDA_SUCCESS;
}
