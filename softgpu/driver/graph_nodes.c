/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes made by hand, and the parameters of nodes. Every form goes by way of CUgraphNodeParams. */
#include "sg.h"
#include <string.h>

/* ---- adding ---- */

/* A graph that is moved does not end up in one that is embedded in it. */
static bool moves_into_itself_locked(const struct sg_work *w, const struct sg_graph *g)
{
    while (w->moved && g != w->child && g->owner)
        g = g->owner->graph;
    return w->moved && g == w->child;
}

static CUresult add(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n, const CUgraphNodeParams *p)
{
    struct sg_work w;

    if (!out || !p || (n && !deps) || (p->type == CU_GRAPH_NODE_TYPE_GRAPH && p->graph.graph == hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = sg_work_of(p, &w);
    if (rc)
        return rc;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    if (g && sg_nodes_of_locked(g, deps, n) && !moves_into_itself_locked(&w, g)) {
        struct sg_node *node = sg_node_add_locked(g, p->type, NULL);
        sg_work_into_locked(&w, node);
        for (size_t i = 0; i < n; i++)
            sg_node_dep(node, sg_handle_get_locked(SG_NODE, deps[i]));
        *out = node->handle;
    } else {
        sg_work_drop_locked(&w);
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    sg_release();
    return rc;
}

static CUresult add_alloc(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n, CUgraphNodeParams *p)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;

    _Static_assert(sizeof(alloc) == sizeof(p->alloc), "one layout, two names");
    memcpy(&alloc, &p->alloc, sizeof(alloc));
    CUresult rc = sg_graph_add_alloc(out, hGraph, deps, n, &alloc);
    p->alloc.dptr = rc ? 0 : alloc.dptr;
    return rc;
}

static CUresult add_any(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n, CUgraphNodeParams *p)
{
    if (p && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return add_alloc(out, hGraph, deps, n, p);
    if (p && p->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return sg_graph_add_free(out, hGraph, deps, n, p->free.dptr);
    if (p && p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return sg_cond_add(out, hGraph, deps, n, &p->conditional);
    return add(out, hGraph, deps, n, p);
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    SG_ENTER(cuGraphAddNode);
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                   CUgraphNodeParams *nodeParams)
{
    SG_ENTER(cuGraphAddNode_v2);
    if (!sg_edges_plain(dependencyData, numDependencies))
        return CUDA_ERROR_NOT_SUPPORTED;
    return add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

/* The parameters of the old forms as the general ones. */
static CUgraphNodeParams kernel_params(const void *p, size_t bytes)
{
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&all.kernel, p, bytes); /* later versions have more fields at the end */
    return all;
}

static CUgraphNodeParams copy_params(const CUDA_MEMCPY3D *p, CUcontext ctx)
{
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    all.memcpy.copyParams = *p;
    all.memcpy.copyCtx = ctx;
    return all;
}

static CUgraphNodeParams fill_params(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    all.memset = (CUDA_MEMSET_NODE_PARAMS_v2){p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, ctx};
    return all;
}

static CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS *p)
{
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_HOST};
    all.host.fn = p->fn;
    all.host.userData = p->userData;
    return all;
}

static CUgraphNodeParams memop_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    all.memOp = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){p->ctx, p->count, p->paramArray, p->flags};
    return all;
}

static CUgraphNodeParams event_params(CUgraphNodeType type, CUevent event)
{
    CUgraphNodeParams all = {.type = type};
    if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        all.eventRecord.event = event;
    else
        all.eventWait.event = event;
    return all;
}

static CUgraphNodeParams child_params(CUgraph child)
{
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    all.graph.graph = child;
    return all;
}

/* An entry point for one kind of node. `have` is false when there are no parameters to convert. */
#define SG_ADD(symbol, have, convert, ...)                                                                             \
    CUresult CUDAAPI symbol(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t n, __VA_ARGS__)           \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        if (!(have))                                                                                                   \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        CUgraphNodeParams all = convert;                                                                               \
        return add(out, graph, deps, n, &all);                                                                         \
    }
SG_ADD(cuGraphAddKernelNode, p, kernel_params(p, sizeof(*p)), const CUDA_KERNEL_NODE_PARAMS_v1 *p)
SG_ADD(cuGraphAddKernelNode_v2, p, kernel_params(p, sizeof(*p)), const CUDA_KERNEL_NODE_PARAMS *p)
SG_ADD(cuGraphAddMemcpyNode, p, copy_params(p, ctx), const CUDA_MEMCPY3D *p, CUcontext ctx)
SG_ADD(cuGraphAddMemsetNode, p, fill_params(p, ctx), const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
SG_ADD(cuGraphAddHostNode, p, host_params(p), const CUDA_HOST_NODE_PARAMS *p)
SG_ADD(cuGraphAddBatchMemOpNode, p, memop_params(p), const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
SG_ADD(cuGraphAddEventRecordNode, true, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event), CUevent event)
SG_ADD(cuGraphAddEventWaitNode, true, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event), CUevent event)
SG_ADD(cuGraphAddChildGraphNode, true, child_params(child), CUgraph child)

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                     size_t numDependencies)
{
    SG_ENTER(cuGraphAddEmptyNode);
    CUgraphNodeParams all = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(phGraphNode, hGraph, dependencies, numDependencies, &all);
}

/* ---- asking ---- */

static CUresult get(CUgraphNode hNode, CUgraphNodeType type, CUgraphNodeParams *p)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    sg_acquire();
    struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    if (n && n->type == type)
        rc = sg_params_of_locked(n, p);
    sg_release();
    return rc;
}

#define SG_GET(symbol, kind, result, store)                                                                            \
    CUresult CUDAAPI symbol(CUgraphNode hNode, result *out)                                                            \
    {                                                                                                                  \
        CUgraphNodeParams all;                                                                                         \
        SG_ENTER(symbol);                                                                                              \
        CUresult rc = out ? get(hNode, CU_GRAPH_NODE_TYPE_##kind, &all) : CUDA_ERROR_INVALID_VALUE;                    \
        if (!rc)                                                                                                       \
            store;                                                                                                     \
        return rc;                                                                                                     \
    }
SG_GET(cuGraphKernelNodeGetParams, KERNEL, CUDA_KERNEL_NODE_PARAMS_v1, memcpy(out, &all.kernel, sizeof(*out)))
SG_GET(cuGraphKernelNodeGetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, memcpy(out, &all.kernel, sizeof(*out)))
SG_GET(cuGraphMemcpyNodeGetParams, MEMCPY, CUDA_MEMCPY3D, *out = all.memcpy.copyParams)
SG_GET(cuGraphMemsetNodeGetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, memcpy(out, &all.memset, sizeof(*out)))
SG_GET(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS, memcpy(out, &all.host, sizeof(*out)))
SG_GET(cuGraphBatchMemOpNodeGetParams, BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS,
       memcpy(out, &all.memOp, sizeof(*out)))
SG_GET(cuGraphEventRecordNodeGetEvent, EVENT_RECORD, CUevent, *out = all.eventRecord.event)
SG_GET(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, CUevent, *out = all.eventWait.event)

/* ---- setting, in a graph ---- */

static CUresult set(CUgraphNode hNode, const CUgraphNodeParams *p)
{
    struct sg_work w;
    CUresult rc = p ? sg_work_of(p, &w) : CUDA_ERROR_INVALID_VALUE;

    if (rc)
        return rc;
    sg_acquire();
    struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    if (n && n->type == p->type)
        sg_work_into_locked(&w, n);
    else
        rc = CUDA_ERROR_INVALID_VALUE;
    sg_work_drop_locked(&w);
    sg_release();
    return rc;
}

/* The context that such a node has now, which its setter does not name. */
static CUcontext context_of(CUgraphNode hNode)
{
    sg_acquire();
    const struct sg_node *n = sg_handle_peek_locked(SG_NODE, hNode);
    CUcontext ctx = n && n->ctx ? n->ctx->handle : NULL;
    sg_release();
    return ctx;
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    SG_ENTER(cuGraphNodeSetParams);
    return set(hNode, nodeParams);
}

#define SG_SET(symbol, type, convert)                                                                                  \
    CUresult CUDAAPI symbol(CUgraphNode hNode, const type *p)                                                          \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        if (!p)                                                                                                        \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        CUgraphNodeParams all = convert;                                                                               \
        return set(hNode, &all);                                                                                       \
    }
SG_SET(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, kernel_params(p, sizeof(*p)))
SG_SET(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, kernel_params(p, sizeof(*p)))
SG_SET(cuGraphMemcpyNodeSetParams, CUDA_MEMCPY3D, copy_params(p, context_of(hNode)))
SG_SET(cuGraphMemsetNodeSetParams, CUDA_MEMSET_NODE_PARAMS, fill_params(p, context_of(hNode)))
SG_SET(cuGraphHostNodeSetParams, CUDA_HOST_NODE_PARAMS, host_params(p))
SG_SET(cuGraphBatchMemOpNodeSetParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, memop_params(p))

#define SG_SET_EVENT(symbol, kind)                                                                                     \
    CUresult CUDAAPI symbol(CUgraphNode hNode, CUevent event)                                                          \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        CUgraphNodeParams all = event_params(CU_GRAPH_NODE_TYPE_##kind, event);                                        \
        return set(hNode, &all);                                                                                       \
    }
SG_SET_EVENT(cuGraphEventRecordNodeSetEvent, EVENT_RECORD)
SG_SET_EVENT(cuGraphEventWaitNodeSetEvent, WAIT_EVENT)

/* ---- setting, in an executable graph ---- */

/* Its copy of the node, which must still be in the graph that it was made from. */
static struct sg_node *executable_locked(CUgraphExec hGraphExec, CUgraphNode hNode)
{
    struct sg_exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    return e && sg_handle_get_locked(SG_NODE, hNode) ? sg_graph_copied_locked(e->graph, hNode) : NULL;
}

/* Setters of one node are stricter than cuGraphExecUpdate: only copies of one row, whose ends stay what they are. */
static bool is_one_row(const struct sg_op *op)
{
    return op->kind != SG_OP_COPY || (op->u.copy.rows == 1 && op->u.copy.slices == 1);
}

static bool may_become(const struct sg_node *n, const struct sg_work *w)
{
    if (n->type != w->type || sg_change_of(n, w->ops, w->nops, w->ctx) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return false;
    for (unsigned i = 0; i < w->nops; i++)
        if (!is_one_row(w->ops[i]) || !is_one_row(n->ops[i]) ||
            (w->ops[i]->kind == SG_OP_COPY && !sg_ends_alike(n->ops[i], w->ops[i])))
            return false;
    return true;
}

static CUresult set_exec(CUgraphExec hGraphExec, CUgraphNode hNode, const CUgraphNodeParams *p)
{
    struct sg_work w;

    if (p && p->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return sg_exec_set_child(hGraphExec, hNode, p->graph.graph);
    CUresult rc = p ? sg_work_of(p, &w) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    sg_acquire();
    struct sg_node *n = executable_locked(hGraphExec, hNode);
    if (n && may_become(n, &w)) {
        w.ctx = n->ctx; /* the plan's lanes stay; an event node runs where it did */
        sg_work_into_locked(&w, n);
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    sg_work_drop_locked(&w);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    SG_ENTER(cuGraphExecNodeSetParams);
    return set_exec(hGraphExec, hNode, nodeParams);
}

#define SG_SET_EXEC(symbol, have, convert, ...)                                                                        \
    CUresult CUDAAPI symbol(CUgraphExec hGraphExec, CUgraphNode hNode, __VA_ARGS__)                                    \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        if (!(have))                                                                                                   \
            return CUDA_ERROR_INVALID_VALUE;                                                                           \
        CUgraphNodeParams all = convert;                                                                               \
        return set_exec(hGraphExec, hNode, &all);                                                                      \
    }
SG_SET_EXEC(cuGraphExecKernelNodeSetParams, p, kernel_params(p, sizeof(*p)), const CUDA_KERNEL_NODE_PARAMS_v1 *p)
SG_SET_EXEC(cuGraphExecKernelNodeSetParams_v2, p, kernel_params(p, sizeof(*p)), const CUDA_KERNEL_NODE_PARAMS *p)
SG_SET_EXEC(cuGraphExecMemcpyNodeSetParams, p, copy_params(p, ctx), const CUDA_MEMCPY3D *p, CUcontext ctx)
SG_SET_EXEC(cuGraphExecMemsetNodeSetParams, p, fill_params(p, ctx), const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
SG_SET_EXEC(cuGraphExecHostNodeSetParams, p, host_params(p), const CUDA_HOST_NODE_PARAMS *p)
SG_SET_EXEC(cuGraphExecBatchMemOpNodeSetParams, p, memop_params(p), const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
SG_SET_EXEC(cuGraphExecEventRecordNodeSetEvent, true, event_params(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event),
            CUevent event)
SG_SET_EXEC(cuGraphExecEventWaitNodeSetEvent, true, event_params(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event), CUevent event)
SG_SET_EXEC(cuGraphExecChildGraphNodeSetParams, true, child_params(child), CUgraph child)

static bool can_be_off(const struct sg_node *n)
{
    return n->type == CU_GRAPH_NODE_TYPE_KERNEL || n->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           n->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    SG_ENTER(cuGraphNodeSetEnabled);
    sg_acquire();
    struct sg_node *n = executable_locked(hGraphExec, hNode);
    bool ok = n && can_be_off(n);
    if (ok)
        n->disabled = !isEnabled;
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    SG_ENTER(cuGraphNodeGetEnabled);
    if (!isEnabled)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_node *n = executable_locked(hGraphExec, hNode);
    bool ok = n && can_be_off(n);
    if (ok)
        *isEnabled = !n->disabled;
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
