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
