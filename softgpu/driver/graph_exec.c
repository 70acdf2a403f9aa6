/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: made, launched and destroyed. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

/* ---- instantiation ---- */

static void exec_free_locked(struct sg_exec *e)
{
    for (unsigned i = 0; i < e->nlanes; i++) {
        struct sg_stream *s = e->lanes[i].stream ? sg_handle_peek_locked(SG_STREAM, e->lanes[i].stream) : NULL;
        if (s) /* goes when what is queued there has run */
            sg_stream_retire_locked(s);
    }
    sg_handle_drop_locked(e->handle);
    sg_plan_drop(e);
    struct sg_graph *source = sg_handle_peek_locked(SG_GRAPH, e->source);
    if (source)
        source->instantiated = false;
    sg_graph_leave_locked(e->graph, e->last); /* what launches that still run refer to stays until they have */
    sg_fence_put_locked(e->last);
    free(e->lanes);
    free(e);
}

/* The program's node of which the executable graph's `n` is a copy. */
static CUgraphNode original(const struct sg_node *n)
{
    return n ? n->source : NULL;
}

static CUresult instantiate_locked(struct sg_graph *g, CUDA_GRAPH_INSTANTIATE_PARAMS *p, CUgraphExec *out)
{
    struct sg_node *bad = NULL;

    if (g->owner)
        return CUDA_ERROR_NOT_SUPPORTED; /* embedded in a node (seen with driver 580) */
    if (g->captures || g->instantiated)
        return CUDA_ERROR_INVALID_VALUE; /* not before the capture has ended; such as only once at a time */
    if (sg_cond_unfinished_locked(g)) {
        p->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sg_exec *e = calloc(1, sizeof(*e));
    if (!e)
        abort();
    e->graph = sg_graph_copy_locked(g);
    e->source = g->handle;
    e->flags = p->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    e->handle = sg_handle_new_locked(SG_EXEC, e);
    if (sg_plan_locked(e, &bad) && sg_cond_plan_locked(e->graph, &bad)) {
        g->instantiated = sg_graph_has_memory(g) || sg_graph_has_conditionals(g);
        *out = e->handle;
        return CUDA_SUCCESS;
    }
    p->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    p->hErrNode_out = original(bad);
    exec_free_locked(e);
    return CUDA_ERROR_INVALID_VALUE;
}

/* Flags that a call may be given, and a reason why it is not done. */
static CUresult check_flags(CUDA_GRAPH_INSTANTIATE_PARAMS *p, cuuint64_t known)
{
    if (p->flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        if (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
            return CUDA_ERROR_INVALID_VALUE;
        p->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED; /* there is no device code here */
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

#define KNOWN                                                                                                          \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |                     \
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static CUresult instantiate(CUgraphExec *out, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *p, cuuint64_t known)
{
    p->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    p->hErrNode_out = NULL;
    CUresult rc = out ? check_flags(p, known) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    rc = g ? instantiate_locked(g, p, out) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    if (!rc)
        p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return rc;
}

static CUresult instantiate_plain(CUgraphExec *out, CUgraph hGraph, CUgraphNode *bad, unsigned long long flags)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = flags};
    CUresult rc = instantiate(out, hGraph, &p, KNOWN);
    if (bad)
        *bad = p.hErrNode_out;
    return rc;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    SG_ENTER(cuGraphInstantiateWithFlags);
    return instantiate_plain(phGraphExec, hGraph, NULL, flags);
}

/* The old forms can explain themselves; there is nothing to say here. */
#define SG_INSTANTIATE(symbol)                                                                                         \
    CUresult CUDAAPI symbol(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,       \
                            size_t bufferSize)                                                                         \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        if (logBuffer && bufferSize)                                                                                   \
            *logBuffer = 0;                                                                                            \
        return instantiate_plain(phGraphExec, hGraph, phErrorNode, 0);                                                 \
    }
SG_INSTANTIATE(cuGraphInstantiate)
SG_INSTANTIATE(cuGraphInstantiate_v2)

static CUresult upload(CUgraphExec hGraph, CUstream hStream);

static CUresult instantiate_with_params(CUgraphExec *out, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *p,
                                        CUstream stream)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = instantiate(out, hGraph, p, KNOWN | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    return !rc && p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? upload(*out, stream) : rc;
}

static CUresult cuGraphInstantiateWithParams_on(CUgraphExec *out, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *p,
                                                bool per_thread)
{
    CUstream s = p ? p->hUploadStream : NULL;
    return instantiate_with_params(out, hGraph, p, per_thread ? SG_PT(s) : s);
}
SG_PAIR(cuGraphInstantiateWithParams, _ptsz,
        (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
        (phGraphExec, hGraph, instantiateParams, false), (phGraphExec, hGraph, instantiateParams, true))

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    SG_ENTER(cuGraphExecDestroy);
    sg_acquire();
    struct sg_exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    if (e)
        exec_free_locked(e);
    sg_release();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    SG_ENTER(cuGraphExecGetFlags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    if (e)
        *flags = e->flags;
    sg_release();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- launch ---- */

struct launch {
    struct sg_exec *exec;
    struct sg_stream *on;
    unsigned own_lane;      /* which lane is the launching stream */
    struct sg_op ***ops;    /* of each step: copies of its node's operations */
    struct sg_fence **done; /* of each step */
    struct sg_fence *began;
};

static bool is_off(const struct sg_step *s)
{
    return !s->node || s->node->disabled;
}

static unsigned ops_of(const struct sg_step *s)
{
    return is_off(s) ? 0 : s->node->nops;
}

static void launch_free_locked(struct launch *l, bool queued)
{
    for (unsigned i = 0; i < l->exec->count; i++) {
        for (unsigned k = 0; !queued && k < ops_of(&l->exec->steps[i]); k++)
            sg_op_free_locked(l->ops[i][k]);
        free(l->ops[i]);
    }
    free(l->ops);
    free(l->done);
}

/* Copies of the step's operations, each checked: nothing is queued unless all can be. */
static CUresult prepare_step_locked(struct launch *l, unsigned i)
{
    const struct sg_step *s = &l->exec->steps[i];
    CUresult rc = CUDA_SUCCESS;

    l->ops[i] = calloc(ops_of(s) + 1, sizeof(struct sg_op *));
    if (!l->ops[i])
        abort();
    if (s->ctx && s->ctx->dead) {
        sg_misuse("a graph is launched that has nodes of a context of device %d that was destroyed", s->ctx->dev);
        rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    for (unsigned k = 0; k < ops_of(s); k++) {
        struct sg_op *op = l->ops[i][k] = sg_op_clone(s->node->ops[k]);
        op->ctx = s->ctx ? s->ctx : l->on->ctx;
        if (!rc)
            rc = sg_ranges_again_locked(op);
    }
    if (!rc && !is_off(s) && s->node->event && !sg_handle_get_locked(SG_EVENT, s->node->event))
        rc = CUDA_ERROR_INVALID_VALUE; /* destroyed before the graph */
    return rc;
}

static CUresult prepare_locked(struct launch *l)
{
    CUresult rc = CUDA_SUCCESS;

    l->ops = calloc(l->exec->count + 1, sizeof(struct sg_op **));
    l->done = calloc(l->exec->count + 1, sizeof(struct sg_fence *));
    if (!l->ops || !l->done)
        abort();
    for (unsigned i = 0; i < l->exec->count; i++) {
        CUresult one = prepare_step_locked(l, i);
        rc = rc ? rc : one;
    }
    return rc;
}

static struct sg_stream *lane_locked(const struct launch *l, unsigned lane)
{
    struct sg_lane *at = &l->exec->lanes[lane];

    if (lane == l->own_lane)
        return l->on;
    struct sg_stream *s = at->stream ? sg_handle_peek_locked(SG_STREAM, at->stream) : NULL;
    if (!s) {
        s = sg_stream_new_locked(at->ctx ? at->ctx : l->on->ctx, CU_STREAM_NON_BLOCKING, 0);
        s->aside = l->on->aside;
        at->stream = s->handle;
    }
    return s;
}

static void choose_own_lane(struct launch *l)
{
    const struct sg_exec *e = l->exec;

    l->own_lane = 0;
    while (l->own_lane < e->nlanes && e->lanes[l->own_lane].ctx && e->lanes[l->own_lane].ctx != l->on->ctx)
        l->own_lane++;
}

/* The step's first operation follows the steps that it depends on, or the begin of the launch. */
static void follow_locked(const struct launch *l, const struct sg_step *s, struct sg_op *op)
{
    for (unsigned d = 0; d < s->ndeps; d++)
        sg_op_dep_locked(op, l->done[s->deps[d]]);
    if (!s->ndeps)
        sg_op_dep_locked(op, l->began);
}

static void queue_locked(struct sg_stream *s, struct sg_op *op)
{
    op->part = true;
    op->ctx = s->ctx;
    sg_queue_locked(s, op);
}

static void queue_step_locked(struct launch *l, unsigned i)
{
    const struct sg_step *s = &l->exec->steps[i];
    struct sg_stream *lane = lane_locked(l, s->lane);
    struct sg_event *event = is_off(s) || !s->node->event ? NULL : sg_handle_peek_locked(SG_EVENT, s->node->event);
    unsigned n = ops_of(s);

    if (!n) {
        struct sg_op *op = sg_op_new(SG_OP_ORDER, event ? "event node" : "empty node");
        follow_locked(l, s, op);
        if (event && s->node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
            sg_op_dep_locked(op, event->fence);
        queue_locked(lane, op);
    }
    for (unsigned k = 0; k < n; k++) {
        if (!k)
            follow_locked(l, s, l->ops[i][k]);
        queue_locked(lane, l->ops[i][k]);
    }
    if (event && s->node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        sg_event_recorded_locked(lane, event);
    else if (event && event->shared)
        sg_event_shared_wait_locked(lane, event);
    l->done[i] = lane->last;
}

/* The launch is one entry of the stream's queue; the last operation is the one that counts. */
static CUresult queue_launch_locked(struct launch *l)
{
    struct sg_exec *e = l->exec;
    struct sg_op *begin = sg_op_new(SG_OP_ORDER, "begin of a graph");

    begin->part = true;
    sg_op_dep_locked(begin, e->last);
    CUresult rc = sg_submit_locked(l->on, begin);
    if (rc)
        return rc;
    if (e->handle && sg_graph_has_conditionals(e->graph))
        queue_locked(l->on, sg_cond_begin_locked(e->graph));
    l->began = l->on->last;
    for (unsigned i = 0; i < e->count; i++)
        queue_step_locked(l, i);
    struct sg_op *end = sg_op_new(SG_OP_ORDER, "end of a graph");
    for (unsigned i = 0; i < e->count; i++)
        if (e->steps[i].last)
            sg_op_dep_locked(end, l->done[i]);
    end->ctx = l->on->ctx;
    end->launch = true;
    sg_queue_locked(l->on, end);
    sg_fence_put_locked(e->last);
    e->last = sg_fence_ref_locked(l->on->last);
    return CUDA_SUCCESS;
}

CUresult sg_exec_launch_locked(struct sg_exec *e, struct sg_stream *s)
{
    struct launch l = {.exec = e, .on = s};
    CUresult rc = prepare_locked(&l);

    choose_own_lane(&l);
    if (!rc)
        rc = sg_graph_mem_may_launch_locked(e);
    if (!rc)
        rc = queue_launch_locked(&l);
    launch_free_locked(&l, !rc);
    if (!rc)
        sg_graph_mem_launched_locked(e);
    return rc;
}

static CUresult cuGraphLaunch_on(CUgraphExec hGraph, CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_launch_locked(hStream, &rc);
    struct sg_exec *e = s ? sg_handle_get_locked(SG_EXEC, hGraph) : NULL;
    if (s && !e)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (e) /* a capture does not take a launch (seen with driver 580) */
        rc = s->capture ? sg_capture_refuse_locked(s) : sg_exec_launch_locked(e, s);
    sg_release();
    return rc;
}
SG_PAIR(cuGraphLaunch, _ptsz, (CUgraphExec hGraph, CUstream hStream), (hGraph, hStream), (hGraph, SG_PT(hStream)))

/* Nothing is to be uploaded; but it is ordered behind the launches of the graph, and the stream behind it. */
static CUresult upload(CUgraphExec hGraph, CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    struct sg_exec *e = s ? sg_handle_get_locked(SG_EXEC, hGraph) : NULL;
    if (s && !e) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (e && s->capture) {
        rc = sg_capture_refuse_locked(s);
    } else if (e) {
        struct sg_op *op = sg_op_new(SG_OP_ORDER, "cuGraphUpload");
        sg_op_dep_locked(op, e->last);
        rc = sg_submit_locked(s, op);
    }
    sg_release();
    return rc;
}

static CUresult cuGraphUpload_on(CUgraphExec hGraph, CUstream hStream)
{
    return upload(hGraph, hStream);
}
SG_PAIR(cuGraphUpload, _ptsz, (CUgraphExec hGraph, CUstream hStream), (hGraph, hStream), (hGraph, SG_PT(hStream)))
