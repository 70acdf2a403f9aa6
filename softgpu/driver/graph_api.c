/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that make, copy, take apart and inspect graphs. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

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

/* Nodes and edges of graphs with memory of their own stay. */
static CUresult fixed_locked(const struct sg_graph *g)
{
    return sg_graph_has_memory(g) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* Whether the graph may lose nodes, or end. */
static bool may_shrink_locked(const struct sg_graph *g, const char *call)
{
    if (!g->captures)
        return true;
    sg_misuse("%s of a graph into which a stream is captured", call);
    return false;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph)
{
    SG_ENTER(cuGraphDestroy);
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    bool ok = g && may_shrink_locked(g, "cuGraphDestroy");
    if (ok && g->owner) {
        sg_misuse("cuGraphDestroy of the graph of a child graph or conditional node, which owns it");
        ok = false;
    }
    if (ok)
        sg_graph_destroy_locked(g);
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    SG_ENTER(cuGraphDestroyNode);
    sg_acquire();
    struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    if (n && may_shrink_locked(n->graph, "cuGraphDestroyNode"))
        rc = fixed_locked(n->graph);
    if (!rc)
        sg_node_free_locked(n);
    sg_release();
    return rc;
}

CUresult CUDAAPI cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    SG_ENTER(cuGraphClone);
    if (!phGraphClone)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, originalGraph);
    CUresult rc = !g                             ? CUDA_ERROR_INVALID_VALUE
                  : sg_graph_has_conditionals(g) ? CUDA_ERROR_NOT_SUPPORTED
                                                 : fixed_locked(g);
    if (!rc)
        *phGraphClone = sg_graph_copy_locked(g)->handle;
    sg_release();
    return rc;
}

static struct sg_node *copied_in_locked(struct sg_node *n, CUgraphNode from)
{
    struct sg_node *found = n->source == from ? n : n->child ? sg_graph_copied_locked(n->child, from) : NULL;
    for (unsigned i = 0; n->cond && i < n->cond->size && !found; i++)
        found = sg_graph_copied_locked(n->cond->runs[i].graph, from);
    return found;
}

struct sg_node *sg_graph_copied_locked(const struct sg_graph *copy, CUgraphNode from)
{
    struct sg_node *found = NULL;
    for (size_t i = 0; i < copy->count && !found; i++)
        found = copied_in_locked(copy->nodes[i], from);
    return found;
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
    SG_ENTER(cuGraphNodeFindInClone);
    if (!phNode)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hClonedGraph);
    struct sg_node *n =
        g && sg_handle_get_locked(SG_NODE, hOriginalNode) ? sg_graph_copied_locked(g, hOriginalNode) : NULL;
    if (n)
        *phNode = n->handle;
    sg_release();
    return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- lists ---- */

struct list { /* of nodes; `room` of them are wanted when `out` is not NULL, and what is over becomes NULL */
    CUgraphNode *out;
    size_t room, n;
};

static void put(struct list *l, const struct sg_node *n)
{
    if (l->out && l->n < l->room)
        l->out[l->n] = n->handle;
    l->n++;
}

/* How many there are: all of them without a place to put them, and those put otherwise. */
static size_t end_of(struct list *l)
{
    for (size_t i = l->n; l->out && i < l->room; i++)
        l->out[i] = NULL;
    return l->out && l->n > l->room ? l->room : l->n;
}

static CUresult graph_list(CUgraph hGraph, CUgraphNode *nodes, size_t *n, bool roots)
{
    struct list l = {nodes, n ? *n : 0, 0};

    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    for (size_t i = 0; g && i < g->count; i++)
        if (!roots || !g->nodes[i]->ndeps)
            put(&l, g->nodes[i]);
    if (g)
        *n = end_of(&l);
    sg_release();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    SG_ENTER(cuGraphGetNodes);
    return graph_list(hGraph, nodes, numNodes, false);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    SG_ENTER(cuGraphGetRootNodes);
    return graph_list(hGraph, rootNodes, numRootNodes, true);
}

/* All edges have the default data. */
static void plain_edges(CUgraphEdgeData *edges, size_t n)
{
    if (edges)
        memset(edges, 0, n * sizeof(*edges));
}

static CUresult get_edges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n)
{
    struct list a = {from, n ? *n : 0, 0}, b = {to, n ? *n : 0, 0};

    if (!n || !from != !to || (edges && !from))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    for (size_t i = 0; g && i < g->count; i++)
        for (unsigned d = 0; d < g->nodes[i]->ndeps; d++) {
            put(&a, g->nodes[i]->deps[d]);
            put(&b, g->nodes[i]);
        }
    if (g) {
        *n = end_of(&a);
        end_of(&b);
        plain_edges(edges, *n);
    }
    sg_release();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    SG_ENTER(cuGraphGetEdges);
    return get_edges(hGraph, from, to, NULL, numEdges);
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                    size_t *numEdges)
{
    SG_ENTER(cuGraphGetEdges_v2);
    return get_edges(hGraph, from, to, edgeData, numEdges);
}

static CUresult neighbours(CUgraphNode hNode, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n, bool dependents)
{
    struct list l = {nodes, n ? *n : 0, 0};

    if (!n || (edges && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_node *at = sg_handle_get_locked(SG_NODE, hNode);
    for (unsigned d = 0; at && !dependents && d < at->ndeps; d++)
        put(&l, at->deps[d]);
    for (size_t i = 0; at && dependents && i < at->graph->count; i++)
        if (sg_node_depends(at->graph->nodes[i], at))
            put(&l, at->graph->nodes[i]);
    if (at) {
        *n = end_of(&l);
        plain_edges(edges, *n);
    }
    sg_release();
    return at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define SG_NEIGHBOURS(symbol, dependents)                                                                              \
    CUresult CUDAAPI symbol(CUgraphNode hNode, CUgraphNode *nodes, size_t *n)                                          \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        return neighbours(hNode, nodes, NULL, n, dependents);                                                          \
    }                                                                                                                  \
    CUresult CUDAAPI symbol##_v2(CUgraphNode hNode, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n)             \
    {                                                                                                                  \
        SG_ENTER(symbol##_v2);                                                                                         \
        return neighbours(hNode, nodes, edges, n, dependents);                                                         \
    }
SG_NEIGHBOURS(cuGraphNodeGetDependencies, false)
SG_NEIGHBOURS(cuGraphNodeGetDependentNodes, true)

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    SG_ENTER(cuGraphNodeGetType);
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    if (n)
        *type = n->type;
    sg_release();
    return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    SG_ENTER(cuGraphChildGraphNodeGetGraph);
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    bool ok = n && n->child;
    if (ok)
        *phGraph = n->child->handle;
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- edges ---- */

/* All or none; `add` says which edges must be there before: none of them, or all. */
static CUresult change_edges_locked(struct sg_graph *g, const CUgraphNode *from, const CUgraphNode *to, size_t n,
                                    bool add)
{
    for (size_t i = 0; i < n; i++) {
        struct sg_node *a = sg_handle_get_locked(SG_NODE, from[i]), *b = sg_handle_get_locked(SG_NODE, to[i]);
        if (!a || !b || a->graph != g || b->graph != g || a == b || sg_node_depends(b, a) == add)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t k = 0; k < i; k++)
            if (from[k] == from[i] && to[k] == to[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < n; i++) {
        struct sg_node *a = sg_handle_get_locked(SG_NODE, from[i]), *b = sg_handle_get_locked(SG_NODE, to[i]);
        if (add)
            sg_node_dep(b, a);
        else
            sg_node_dep_drop(b, a);
    }
    return CUDA_SUCCESS;
}

static CUresult change_edges(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *edges, size_t n, bool add)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    if (n && (!from || !to))
        return rc;
    if (!sg_edges_plain(edges, n))
        return CUDA_ERROR_NOT_SUPPORTED;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    if (g && !(rc = add ? CUDA_SUCCESS : fixed_locked(g)))
        rc = change_edges_locked(g, from, to, n, add);
    sg_release();
    return rc;
}

#define SG_EDGES(symbol, add)                                                                                          \
    CUresult CUDAAPI symbol(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t n)                  \
    {                                                                                                                  \
        SG_ENTER(symbol);                                                                                              \
        return change_edges(hGraph, from, to, NULL, n, add);                                                           \
    }                                                                                                                  \
    CUresult CUDAAPI symbol##_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,                       \
                                 const CUgraphEdgeData *edges, size_t n)                                               \
    {                                                                                                                  \
        SG_ENTER(symbol##_v2);                                                                                         \
        return change_edges(hGraph, from, to, edges, n, add);                                                          \
    }
SG_EDGES(cuGraphAddDependencies, true)
SG_EDGES(cuGraphRemoveDependencies, false)
