/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs and their nodes. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

struct sg_graph *sg_graph_new_locked(void)
{
    struct sg_graph *g = must(calloc(1, sizeof(*g)));
    g->handle = sg_handle_new_locked(SG_GRAPH, g);
    return g;
}

void sg_node_drop_ops_locked(struct sg_node *n)
{
    for (unsigned i = 0; i < n->nops; i++)
        sg_op_free_locked(n->ops[i]);
    free(n->ops);
    n->ops = NULL;
    n->nops = 0;
}

static void node_free_locked(struct sg_node *n)
{
    sg_handle_drop_locked(n->handle);
    sg_node_drop_ops_locked(n);
    if (n->child)
        sg_graph_destroy_locked(n->child);
    if (n->cond)
        sg_cond_free_locked(n->cond);
    sg_graph_mem_unref_locked(n->memory);
    free(n->deps);
    free(n->shown);
    free(n);
}

void sg_graph_destroy_locked(struct sg_graph *g)
{
    for (size_t i = 0; i < g->count; i++)
        node_free_locked(g->nodes[i]);
    sg_objects_drop_locked(g);
    sg_handle_drop_locked(g->handle);
    free(g->nodes);
    free(g);
}

struct sg_node *sg_node_add_locked(struct sg_graph *g, CUgraphNodeType type, struct sg_ctx *ctx)
{
    struct sg_node *n = must(calloc(1, sizeof(*n)));

    if (g->count == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 16;
        g->nodes = must(realloc(g->nodes, g->cap * sizeof(struct sg_node *)));
    }
    n->graph = g;
    n->type = type;
    n->ctx = ctx;
    n->handle = sg_handle_new_locked(SG_NODE, n);
    g->nodes[g->count++] = n;
    return n;
}

void sg_node_free_locked(struct sg_node *n)
{
    struct sg_graph *g = n->graph;
    size_t at = 0;

    while (g->nodes[at] != n)
        at++;
    memmove(g->nodes + at, g->nodes + at + 1, (--g->count - at) * sizeof(struct sg_node *));
    for (size_t i = 0; i < g->count; i++)
        sg_node_dep_drop(g->nodes[i], n);
    node_free_locked(n);
}

void sg_node_op(struct sg_node *n, struct sg_op *op)
{
    n->ops = must(realloc(n->ops, (n->nops + 1) * sizeof(struct sg_op *)));
    n->ops[n->nops++] = op;
}

bool sg_node_depends(const struct sg_node *n, const struct sg_node *on)
{
    for (unsigned i = 0; i < n->ndeps; i++)
        if (n->deps[i] == on)
            return true;
    return false;
}

void sg_node_dep(struct sg_node *n, struct sg_node *on)
{
    n->deps = must(realloc(n->deps, (n->ndeps + 1) * sizeof(struct sg_node *)));
    n->deps[n->ndeps++] = on;
}

void sg_node_dep_drop(struct sg_node *n, const struct sg_node *on)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < n->ndeps; i++)
        if (n->deps[i] != on)
            n->deps[kept++] = n->deps[i];
    n->ndeps = kept;
}

static struct sg_node *copy_node_locked(struct sg_graph *to, const struct sg_node *from)
{
    struct sg_node *n = sg_node_add_locked(to, from->type, from->ctx);

    n->source = from->handle;
    n->event = from->event;
    n->disabled = from->disabled;
    n->memory = from->memory;
    sg_graph_mem_ref_locked(n->memory);
    for (unsigned i = 0; i < from->nops; i++)
        sg_node_op(n, sg_op_clone(from->ops[i]));
    if (from->child) {
        n->child = sg_graph_copy_locked(from->child);
        n->child->owner = n;
    }
    if (from->cond)
        sg_cond_copy_locked(n, from->cond);
    return n;
}

struct sg_graph *sg_graph_copy_locked(const struct sg_graph *from)
{
    struct sg_graph *to = sg_graph_new_locked();

    to->source = from->handle;
    for (size_t i = 0; i < from->count; i++) {
        from->nodes[i]->index = i;
        copy_node_locked(to, from->nodes[i]);
    }
    for (size_t i = 0; i < from->count; i++)
        for (unsigned d = 0; d < from->nodes[i]->ndeps; d++)
            sg_node_dep(to->nodes[i], to->nodes[from->nodes[i]->deps[d]->index]);
    sg_objects_copy_locked(to, from);
    return to;
}

CUgraphNodeType sg_node_type_of(const struct sg_op *op)
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

bool sg_edges_plain(const CUgraphEdgeData *edges, size_t n)
{
    static const CUgraphEdgeData plain;

    for (size_t i = 0; edges && i < n; i++)
        if (memcmp(&edges[i], &plain, sizeof(plain)) != 0)
            return false;
    return true;
}

bool sg_nodes_of_locked(const struct sg_graph *g, const CUgraphNode *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct sg_node *at = sg_handle_get_locked(SG_NODE, nodes[i]);
        if (!at || at->graph != g)
            return false;
        for (size_t k = 0; k < i; k++)
            if (nodes[k] == nodes[i])
                return false;
    }
    return true;
}
