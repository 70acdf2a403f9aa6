/* SPDX-License-Identifier: Apache-2.0 */
/* Events and captures: an event that a capturing stream records names nodes of the graph, and nothing else, until it is
 * recorded elsewhere. External records and waits become nodes that act on the event when the graph is launched. */
#include "sg.h"

static struct sg_capture *capture_of(const struct sg_event *e)
{
    return e->capture ? sg_capture_find_locked(e->capture) : NULL;
}

CUresult sg_capture_record_locked(struct sg_stream *s, struct sg_event *e, bool external)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) {
        sg_capture_node_locked(s, CU_GRAPH_NODE_TYPE_EVENT_RECORD)->event = e->handle;
        return CUDA_SUCCESS;
    }
    e->capture = s->capture->id;
    sg_tips_clear(&e->tips);
    sg_tips_join(&e->tips, &s->tips);
    return CUDA_SUCCESS;
}

CUresult sg_capture_refuse_event_locked(const struct sg_event *e)
{
    struct sg_capture *c = capture_of(e);

    if (!e->capture)
        return CUDA_SUCCESS;
    return c ? sg_capture_break_locked(c, CUDA_ERROR_CAPTURED_EVENT) : CUDA_ERROR_CAPTURED_EVENT;
}

static bool was_recorded(const struct sg_event *e)
{
    return e->capture || e->fence || (e->shared && atomic_load(&e->shared->recorded));
}

/* The event is not of a capture that goes on. */
static CUresult wait_outside_locked(struct sg_stream *s, const struct sg_event *e)
{
    if (!s->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!was_recorded(e))
        return CUDA_SUCCESS;
    return sg_capture_break_locked(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

static CUresult wait_external_locked(struct sg_stream *s, const struct sg_event *e)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sg_capture_node_locked(s, CU_GRAPH_NODE_TYPE_WAIT_EVENT)->event = e->handle;
    return CUDA_SUCCESS;
}

CUresult sg_capture_wait_locked(struct sg_stream *s, struct sg_event *e, bool external)
{
    struct sg_capture *c = capture_of(e);

    if (external)
        return wait_external_locked(s, e);
    if (!c)
        return wait_outside_locked(s, e);
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (s->legacy)
        return sg_capture_break_locked(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (s->capture && s->capture != c) {
        sg_capture_break_locked(s->capture, CUDA_SUCCESS);
        return sg_capture_break_locked(c, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!s->capture) {
        s->capture = c;
        sg_tips_clear(&s->tips);
    }
    sg_tips_join(&s->tips, &e->tips);
    return CUDA_SUCCESS;
}
