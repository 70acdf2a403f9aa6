/* SPDX-License-Identifier: Apache-2.0 */
/* cuGraphExecUpdate: an executable graph takes over what a graph of the same shape does. Nodes are paired in the order
 * in which they were made, as captures and programs that make them alike do. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

/* ---- one node ---- */

/* Where the memory is that an operation is given at p. */
struct place {
    int dev;
    const struct sg_ctx *ctx;
};

static const struct sg_range *range_at(const struct sg_op *op, uintptr_t p)
{
    for (unsigned i = 0; i < op->nranges; i++)
        if (op->ranges[i].ptr == p)
            return &op->ranges[i];
    return NULL; /* pageable */
}

static struct place place_of(const struct sg_op *op, uintptr_t p)
{
    const struct sg_range *range = range_at(op, p);
    return range ? (struct place){range->dev, range->ctx} : (struct place){-1, NULL};
}

static bool same_place(const struct sg_op *a, uintptr_t pa, const struct sg_op *b, uintptr_t pb)
{
    struct place x = place_of(a, pa), y = place_of(b, pb);
    return x.dev == y.dev && (x.dev < 0 || x.ctx == y.ctx);
}

static bool copy_may_change(const struct sg_op *a, const struct sg_op *b)
{
    return same_place(a, a->u.copy.dst, b, b->u.copy.dst) && same_place(a, a->u.copy.src, b, b->u.copy.src);
}

/* Mapped memory may only be replaced by such memory of the same device, to which the same devices have access, and other
 * memory by other memory (seen with driver 580). */
static bool same_memory(const struct sg_op *a, uintptr_t pa, const struct sg_op *b, uintptr_t pb)
{
    const struct sg_range *x = range_at(a, pa), *y = range_at(b, pb);
    const uint64_t mine = x ? x->access : 0, theirs = y ? y->access : 0;
    return mine == theirs && (!mine || x->dev == y->dev);
}

bool sg_ends_alike(const struct sg_op *a, const struct sg_op *b)
{
    const struct sg_copy *x = &a->u.copy, *y = &b->u.copy;
    return sg_copy_type(a, x->dst) == sg_copy_type(b, y->dst) && sg_copy_type(a, x->src) == sg_copy_type(b, y->src) &&
           same_memory(a, x->dst, b, y->dst) && same_memory(a, x->src, b, y->src);
}

static bool fill_may_change(const struct sg_op *a, const struct sg_op *b)
{
    const struct sg_fill *x = &a->u.fill, *y = &b->u.fill;

    if (!same_place(a, x->dst, b, y->dst) || x->rows != y->rows)
        return false;
    return x->rows == 1 || (x->width == y->width && x->elem == y->elem && x->pitch == y->pitch);
}

static bool memop_may_change(const struct sg_op *a, const struct sg_op *b)
{
    unsigned fixed = a->kind == SG_OP_WAIT ? CU_STREAM_WAIT_VALUE_FLUSH : ~0u;

    if (a->kind == SG_OP_ORDER)
        return true;
    return a->u.memop.wide == b->u.memop.wide && (a->u.memop.flags & fixed) == (b->u.memop.flags & fixed);
}

static bool op_may_change(const struct sg_op *a, const struct sg_op *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == SG_OP_COPY                             ? copy_may_change(a, b)
           : a->kind == SG_OP_FILL                           ? fill_may_change(a, b)
           : a->kind == SG_OP_WAIT || a->kind == SG_OP_WRITE ? memop_may_change(a, b)
                                                             : true;
}

CUgraphExecUpdateResult sg_change_of(const struct sg_node *have, struct sg_op *const *ops, unsigned nops,
                                     const struct sg_ctx *ctx)
{
    if (have->nops && have->type != CU_GRAPH_NODE_TYPE_HOST && have->ctx != ctx)
        return have->type == CU_GRAPH_NODE_TYPE_KERNEL ? CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE
                                                       : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if (have->nops != nops)
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    for (unsigned i = 0; i < nops; i++)
        if (!op_may_change(have->ops[i], ops[i]))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* ---- all of them ---- */

static void wrong(CUgraphExecUpdateResultInfo *info, CUgraphExecUpdateResult why, const struct sg_node *node,
                  const struct sg_node *from)
{
    info->result = why;
    info->errorNode = node ? node->handle : NULL;
    info->errorFromNode = from ? from->handle : NULL;
}

static void number(struct sg_graph *g)
{
    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->index = i;
}

/* Edges are paired by their order. */
static bool same_edges(const struct sg_node *have, const struct sg_node *want, CUgraphExecUpdateResultInfo *info)
{
    if (have->ndeps != want->ndeps) {
        wrong(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, want, NULL);
        return false;
    }
    for (unsigned d = 0; d < have->ndeps; d++)
        if (have->deps[d]->index != want->deps[d]->index) {
            wrong(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, want, want->deps[d]);
            return false;
        }
    return true;
}

static bool fits_locked(struct sg_graph *have, struct sg_graph *want, CUgraphExecUpdateResultInfo *info);

static bool bodies_fit_locked(const struct sg_cond *have, const struct sg_node *node, CUgraphExecUpdateResultInfo *info)
{
    const struct sg_cond *want = node->cond;
    bool fit = have->type == want->type && have->size == want->size;
    if (!fit)
        wrong(info, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node, NULL);
    for (unsigned i = 0; i < have->size && fit; i++)
        fit = fits_locked(have->runs[i].graph, want->runs[i].graph, info);
    return fit;
}

static bool node_fits_locked(const struct sg_node *have, const struct sg_node *want, CUgraphExecUpdateResultInfo *info)
{
    if (!same_edges(have, want, info))
        return false;
    if (have->type != want->type) {
        wrong(info, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, want, NULL);
        return false;
    }
    if (have->child)
        return fits_locked(have->child, want->child, info);
    if (have->cond)
        return bodies_fit_locked(have->cond, want, info);
    if (have->memory) {
        wrong(info, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, want, NULL);
        return false;
    }
    CUgraphExecUpdateResult r = sg_change_of(have, want->ops, want->nops, want->ctx);
    if (r != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        wrong(info, r, want, NULL);
    return r == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static bool fits_locked(struct sg_graph *have, struct sg_graph *want, CUgraphExecUpdateResultInfo *info)
{
    if (have->count != want->count) {
        wrong(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
        return false;
    }
    number(have);
    number(want);
    for (size_t i = 0; i < have->count; i++)
        if (!node_fits_locked(have->nodes[i], want->nodes[i], info))
            return false;
    return true;
}

/* References to user objects and bodies of conditional nodes change as well; the old ones stay until `last` has run. */
static void take_locked(struct sg_graph *have, const struct sg_graph *want, struct sg_fence *last)
{
    struct sg_graph *old = sg_graph_new_locked();

    old->objects = have->objects;
    have->objects = NULL;
    sg_objects_copy_locked(have, want);
    for (size_t i = 0; i < have->count; i++) {
        struct sg_node *n = have->nodes[i];
        const struct sg_node *from = want->nodes[i];
        if (n->child) {
            take_locked(n->child, from->child, last);
            continue;
        }
        if (n->cond) {
            sg_cond_update_locked(n, from->cond, old);
            continue;
        }
        sg_node_drop_ops_locked(n);
        for (unsigned k = 0; k < from->nops; k++)
            sg_node_op(n, sg_op_clone(from->ops[k]));
        n->event = from->event;
    }
    sg_graph_leave_locked(old, last);
}

static CUresult update(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *info)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    sg_acquire();
    struct sg_exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    struct sg_graph *g = e ? sg_handle_get_locked(SG_GRAPH, hGraph) : NULL;
    if (g && !g->owner && fits_locked(e->graph, g, info)) {
        take_locked(e->graph, g, e->last);
        info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
        rc = CUDA_SUCCESS;
    } else if (g) {
        rc = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                   CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info;

    SG_ENTER(cuGraphExecUpdate);
    if (!updateResult_out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = update(hGraphExec, hGraph, &info);
    *updateResult_out = info.result;
    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    return rc;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
    SG_ENTER(cuGraphExecUpdate_v2);
    return resultInfo ? update(hGraphExec, hGraph, resultInfo) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sg_exec_set_child(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph child)
{
    CUgraphExecUpdateResultInfo info;

    sg_acquire();
    struct sg_exec *e = sg_handle_get_locked(SG_EXEC, hGraphExec);
    struct sg_graph *g = e ? sg_handle_get_locked(SG_GRAPH, child) : NULL;
    struct sg_node *n = g && sg_handle_get_locked(SG_NODE, hNode) ? sg_graph_copied_locked(e->graph, hNode) : NULL;
    bool ok = n && n->child && fits_locked(n->child, g, &info);
    if (ok)
        take_locked(n->child, g, e->last);
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
