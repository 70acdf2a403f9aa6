/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, as far as captures need them. A launch replays the operations in the order in which they were recorded, which
 * respects every dependency but runs branches one after another. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

struct exec {
    CUgraphExec handle;
    struct sg_op **ops;
    size_t count;
    unsigned long long flags;
};

struct sg_graph *sg_graph_new_locked(void)
{
    struct sg_graph *g = calloc(1, sizeof(*g));
    if (!g)
        abort();
    g->handle = sg_handle_new_locked(SG_GRAPH, g);
    return g;
}

void sg_graph_destroy_locked(struct sg_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        sg_handle_drop_locked(g->nodes[i]->handle);
        sg_op_free_locked(g->nodes[i]->op);
        free(g->nodes[i]->deps);
        free(g->nodes[i]);
    }
    sg_handle_drop_locked(g->handle);
    free(g->nodes);
    free(g);
}

struct sg_node *sg_graph_add_locked(struct sg_graph *g, struct sg_op *op, struct sg_node *const *deps, unsigned n)
{
    struct sg_node *node = calloc(1, sizeof(*node));

    if (g->count == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 16;
        g->nodes = realloc(g->nodes, g->cap * sizeof(struct sg_node *));
    }
    if (!node || !g->nodes)
        abort();
    node->deps = n ? malloc(n * sizeof(struct sg_node *)) : NULL;
    if (n && !node->deps)
        abort();
    for (unsigned i = 0; i < n; i++)
        node->deps[i] = deps[i];
    node->ndeps = n;
    node->graph = g;
    node->op = op;
    node->handle = sg_handle_new_locked(SG_NODE, node);
    g->nodes[g->count++] = node;
    return node;
}

CUresult CUDAAPI cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    SG_ENTER(cuGraphCreate);
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    *phGraph = sg_graph_new_locked()->handle;
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph)
{
    SG_ENTER(cuGraphDestroy);
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    if (g)
        sg_graph_destroy_locked(g);
    sg_release();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Copies of what `from` has behind what is there; their dependencies among each other are kept. */
static void append_locked(struct sg_graph *to, const struct sg_graph *from)
{
    size_t first = to->count;

    for (size_t i = 0; i < from->count; i++) {
        const struct sg_node *n = from->nodes[i];
        struct sg_node *copy = sg_graph_add_locked(to, sg_op_clone(n->op), n->deps, n->ndeps);
        for (unsigned d = 0; d < copy->ndeps; d++)
            for (size_t k = 0; k < i; k++)
                if (from->nodes[k] == n->deps[d])
                    copy->deps[d] = to->nodes[first + k];
    }
}

CUresult CUDAAPI cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    SG_ENTER(cuGraphClone);
    if (!phGraphClone)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, originalGraph);
    if (g) {
        struct sg_graph *clone = sg_graph_new_locked();
        append_locked(clone, g);
        *phGraphClone = clone->handle;
    }
    sg_release();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The child's operations become the parent's, with an empty node behind them that stands for the child. They run in the
 * order in which they were added, so what the child is to follow has to be there. */
CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies, CUgraph childGraph)
{
    SG_ENTER(cuGraphAddChildGraphNode);
    if (!phGraphNode || (numDependencies && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph), *child = sg_handle_get_locked(SG_GRAPH, childGraph);
    bool ok = g && child && g != child;
    for (size_t i = 0; i < numDependencies && ok; i++)
        ok = sg_handle_get_locked(SG_NODE, dependencies[i]) != NULL;
    if (ok) {
        size_t first = g->count;
        append_locked(g, child);
        unsigned n = (unsigned)(g->count - first);
        *phGraphNode =
            sg_graph_add_locked(g, sg_op_new(SG_OP_ORDER, "child graph"), n ? g->nodes + first : NULL, n)->handle;
    }
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    SG_ENTER(cuGraphGetNodes);
    if (!numNodes)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    if (g) {
        for (size_t i = 0; nodes && i < *numNodes; i++)
            nodes[i] = i < g->count ? g->nodes[i]->handle : NULL;
        if (!nodes || *numNodes > g->count)
            *numNodes = g->count;
    }
    sg_release();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUgraphNodeType node_type(const struct sg_op *op)
{
    switch (op->kind) {
    case SG_OP_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SG_OP_FILL:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SG_OP_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SG_OP_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SG_OP_WAIT:
    case SG_OP_WRITE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    SG_ENTER(cuGraphNodeGetType);
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    if (n)
        *type = node_type(n->op);
    sg_release();
    return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult instantiate(CUgraphExec *out, CUgraph hGraph, unsigned long long flags)
{
    struct exec *e = NULL;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    if (g) {
        e = calloc(1, sizeof(*e));
        if (!e)
            abort();
        e->flags = flags;
        e->count = g->count;
        e->ops = calloc(g->count ? g->count : 1, sizeof(struct sg_op *));
        if (!e->ops)
            abort();
        for (size_t i = 0; i < g->count; i++)
            e->ops[i] = sg_op_clone(g->nodes[i]->op);
        *out = e->handle = sg_handle_new_locked(SG_EXEC, e);
    }
    sg_release();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    SG_ENTER(cuGraphInstantiateWithFlags);
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                                    size_t bufferSize)
{
    SG_ENTER(cuGraphInstantiate);
    (void)phErrorNode;
    (void)logBuffer;
    (void)bufferSize;
    return instantiate(phGraphExec, hGraph, 0);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                       char *logBuffer, size_t bufferSize)
{
    SG_ENTER(cuGraphInstantiate_v2);
    (void)phErrorNode;
    (void)logBuffer;
    (void)bufferSize;
    return instantiate(phGraphExec, hGraph, 0);
}

static CUresult cuGraphInstantiateWithParams_on(CUgraphExec *out, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
    CUresult rc = p ? instantiate(out, hGraph, p->flags) : CUDA_ERROR_INVALID_VALUE;
    if (p)
        p->result_out = rc ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return rc;
}
SG_PAIR(cuGraphInstantiateWithParams, _ptsz,
        (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
        (phGraphExec, hGraph, instantiateParams), (phGraphExec, hGraph, instantiateParams))

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    SG_ENTER(cuGraphExecDestroy);
    sg_acquire();
    struct exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    if (e) {
        for (size_t i = 0; i < e->count; i++)
            sg_op_free_locked(e->ops[i]);
        sg_handle_drop_locked(hGraphExec);
        free(e->ops);
        free(e);
    }
    sg_release();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool same_topology(const struct exec *e, const struct sg_graph *g)
{
    if (e->count != g->count)
        return false;
    for (size_t i = 0; i < e->count; i++)
        if (e->ops[i]->kind != g->nodes[i]->op->kind)
            return false;
    return true;
}

static CUresult update(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResult *result)
{
    sg_acquire();
    struct exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    struct sg_graph *g = e ? sg_handle_get_locked(SG_GRAPH, hGraph) : NULL;
    bool same = g && same_topology(e, g);
    for (size_t i = 0; same && i < e->count; i++) {
        sg_op_free_locked(e->ops[i]);
        e->ops[i] = sg_op_clone(g->nodes[i]->op);
    }
    sg_release();
    *result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return same ? CUDA_SUCCESS : g ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                   CUgraphExecUpdateResult *updateResult_out)
{
    SG_ENTER(cuGraphExecUpdate);
    if (!updateResult_out)
        return CUDA_ERROR_INVALID_VALUE;
    if (hErrorNode_out)
        *hErrorNode_out = NULL;
    return update(hGraphExec, hGraph, updateResult_out);
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    SG_ENTER(cuGraphExecUpdate_v2);
    if (!resultInfo)
        return CUDA_ERROR_INVALID_VALUE;
    *resultInfo = (CUgraphExecUpdateResultInfo){0};
    return update(hGraphExec, hGraph, &resultInfo->result);
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    SG_ENTER(cuGraphExecGetFlags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    if (e)
        *flags = e->flags;
    sg_release();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult cuGraphLaunch_on(CUgraphExec hGraph, CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    struct exec *e = s ? sg_handle_get_locked(SG_EXEC, hGraph) : NULL;
    if (s && !e)
        rc = CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; e && i < e->count && !rc; i++) {
        struct sg_op *op = sg_op_clone(e->ops[i]);
        op->part = i > 0;
        rc = sg_submit_locked(s, op);
    }
    sg_release();
    return rc;
}
SG_PAIR(cuGraphLaunch, _ptsz, (CUgraphExec hGraph, CUstream hStream), (hGraph, hStream), (hGraph, SG_PT(hStream)))

static CUresult cuGraphUpload_on(CUgraphExec hGraph, CUstream hStream)
{
    CUresult rc;

    sg_acquire();
    if (sg_stream_get_locked(hStream, &rc) && !sg_handle_get_locked(SG_EXEC, hGraph))
        rc = CUDA_ERROR_INVALID_HANDLE;
    sg_release();
    return rc;
}
SG_PAIR(cuGraphUpload, _ptsz, (CUgraphExec hGraph, CUstream hStream), (hGraph, hStream), (hGraph, SG_PT(hStream)))
