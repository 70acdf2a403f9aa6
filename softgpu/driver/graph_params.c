/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parameters of a graph's node and what it does. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

/* ---- parameters to operations ---- */

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v3 *k, struct sg_work *w)
{
    CUDA_KERNEL_NODE_PARAMS p;

    _Static_assert(sizeof(p) == sizeof(*k), "one layout, two names");
    memcpy(&p, k, sizeof(p));
    if (!p.func)
        return p.kern ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE; /* no libraries, so no CUkernel */
    CUresult rc = sg_kernel_op(&p, &w->ops[0]);
    w->nops = !rc;
    return rc;
}

static CUresult copy_work(const CUDA_MEMCPY_NODE_PARAMS *p, struct sg_work *w)
{
    if (p->flags || p->reserved)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = sg_copy_op(&p->copyParams, &w->ops[0]);
    w->nops = !rc;
    return rc;
}

static CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS_v2 *p, struct sg_work *w)
{
    struct sg_fill f = {p->dst, p->width, p->height, p->pitch, p->value, p->elementSize};

    if ((f.elem != 1 && f.elem != 2 && f.elem != 4) || !f.width || !f.rows)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = sg_fill_op("memset node", &f, &w->ops[0]);
    w->nops = !rc;
    return rc;
}

static CUresult host_work(const CUDA_HOST_NODE_PARAMS_v2 *p, struct sg_work *w)
{
    if (!p->fn)
        return CUDA_ERROR_INVALID_VALUE;
    w->ops[w->nops++] = sg_host_op(p->fn, p->userData);
    return CUDA_SUCCESS;
}

static CUresult memop_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p, struct sg_work *w)
{
    if (p->flags || !p->count || p->count > SG_WORK_OPS || !p->paramArray)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = sg_memop_batch(w->ops, p->count, p->paramArray);
    w->nops = rc ? 0 : p->count;
    return rc;
}

static CUresult event_work(CUevent event, struct sg_work *w)
{
    sg_acquire();
    struct sg_event *e = sg_handle_get_locked(SG_EVENT, event);
    if (e)
        w->ctx = e->ctx;
    sg_release();
    w->event = event;
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult child_work(const CUDA_CHILD_GRAPH_NODE_PARAMS *p, struct sg_work *w)
{
    CUresult rc = CUDA_SUCCESS;

    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, p->graph);
    w->moved = p->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (!g || (w->moved && (g->owner || g->captures)))
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (sg_graph_has_memory(g) || sg_graph_has_conditionals(g))
        rc = CUDA_ERROR_NOT_SUPPORTED;
    else
        w->child = w->moved ? g : sg_graph_copy_locked(g);
    sg_release();
    return rc;
}

static CUresult work_by_type(const CUgraphNodeParams *p, struct sg_work *w)
{
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_work(&p->kernel, w);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_work(&p->memcpy, w);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill_work(&p->memset, w);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_work(&p->host, w);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return memop_work(&p->memOp, w);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_work(p->eventWait.event, w);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_work(p->eventRecord.event, w);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_work(&p->graph, w);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* The context that the parameters name; NULL: the current one. */
static CUcontext context_of(const CUgraphNodeParams *p)
{
    return p->type == CU_GRAPH_NODE_TYPE_MEMCPY         ? p->memcpy.copyCtx
           : p->type == CU_GRAPH_NODE_TYPE_MEMSET       ? p->memset.ctx
           : p->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ? p->memOp.ctx
                                                        : NULL;
}

static bool needs_context(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

static CUresult place_locked(const CUgraphNodeParams *p, struct sg_work *w)
{
    CUcontext named = context_of(p);
    CUresult rc = CUDA_SUCCESS;

    if (!w->ctx && named)
        w->ctx = sg_handle_get_locked(SG_CTX, named);
    else if (!w->ctx)
        w->ctx = sg_current_locked(&rc);
    if (!needs_context(p->type))
        return CUDA_SUCCESS;
    if (!w->ctx)
        return rc ? rc : CUDA_ERROR_INVALID_CONTEXT;
    for (unsigned i = 0; i < w->nops && !rc; i++) {
        w->ops[i]->ctx = w->ctx;
        w->ops[i]->recorded = true;
        rc = sg_ranges_check_locked(w->ops[i], false);
    }
    return rc;
}

CUresult sg_work_of(const CUgraphNodeParams *p, struct sg_work *w)
{
    *w = (struct sg_work){.type = p->type};
    if (p->reserved0[0] || p->reserved0[1] || p->reserved0[2] || p->reserved2)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = work_by_type(p, w);
    sg_acquire();
    if (!rc)
        rc = place_locked(p, w);
    if (rc)
        sg_work_drop_locked(w);
    sg_release();
    return rc;
}

void sg_work_drop_locked(struct sg_work *w)
{
    for (unsigned i = 0; i < w->nops; i++)
        sg_op_free_locked(w->ops[i]);
    w->nops = 0;
    if (w->child && !w->moved)
        sg_graph_destroy_locked(w->child);
    w->child = NULL;
}

void sg_work_into_locked(struct sg_work *w, struct sg_node *n)
{
    sg_node_drop_ops_locked(n);
    for (unsigned i = 0; i < w->nops; i++)
        sg_node_op(n, w->ops[i]);
    w->nops = 0;
    n->ctx = w->ctx;
    n->event = w->event;
    if (!w->child)
        return;
    if (n->child)
        sg_graph_destroy_locked(n->child);
    n->child = w->child;
    n->child->owner = n;
    w->child = NULL;
}

/* ---- operations to parameters ---- */

static void *shown(struct sg_node *n, size_t bytes)
{
    free(n->shown);
    n->shown = calloc(1, bytes);
    if (!n->shown)
        abort();
    return n->shown;
}

static void show_kernel(struct sg_node *n, CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
    const struct sg_kernel *k = &n->ops[0]->u.kernel;
    void **args = shown(n, sizeof(*args));

    args[0] = k->args;
    *p = (CUDA_KERNEL_NODE_PARAMS_v3){.func = k->func,
                                      .gridDimX = k->grid[0],
                                      .gridDimY = k->grid[1],
                                      .gridDimZ = k->grid[2],
                                      .blockDimX = k->block[0],
                                      .blockDimY = k->block[1],
                                      .blockDimZ = k->block[2],
                                      .sharedMemBytes = k->shared_bytes,
                                      .kernelParams = args};
}

static bool on_device(const struct sg_op *op, uintptr_t p)
{
    for (unsigned i = 0; i < op->nranges; i++)
        if (op->ranges[i].ptr == p)
            return op->ranges[i].dev >= 0;
    return false;
}

CUmemorytype sg_copy_type(const struct sg_op *op, uintptr_t end)
{
    const struct sg_copy *c = &op->u.copy;
    const CUmemorytype named = end == c->dst ? c->dtype : c->stype;
    return named ? named : on_device(op, end) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static size_t lines(size_t slice, size_t pitch)
{
    return pitch ? slice / pitch : 0;
}

static void show_copy(const struct sg_node *n, CUDA_MEMCPY_NODE_PARAMS *p)
{
    const struct sg_copy *c = &n->ops[0]->u.copy;
    const CUmemorytype to = sg_copy_type(n->ops[0], c->dst), from = sg_copy_type(n->ops[0], c->src);
    const bool to_host = to == CU_MEMORYTYPE_HOST, from_host = from == CU_MEMORYTYPE_HOST;
    CUDA_MEMCPY3D *shown = &p->copyParams;

    p->copyCtx = n->ctx ? n->ctx->handle : NULL;
    *shown = (CUDA_MEMCPY3D){.srcMemoryType = from,
                             .srcHost = from_host ? (const void *)c->src : NULL,
                             .srcDevice = from_host ? 0 : c->src,
                             .dstMemoryType = to,
                             .dstHost = to_host ? (void *)c->dst : NULL,
                             .dstDevice = to_host ? 0 : c->dst,
                             .WidthInBytes = c->width,
                             .Height = c->rows,
                             .Depth = c->slices};
    if (from == CU_MEMORYTYPE_UNIFIED && to == from && c->rows == 1 && c->slices == 1)
        return; /* so does the driver show what cuMemcpyAsync has become */
    shown->srcPitch = c->spitch ? c->spitch : c->width;
    shown->srcHeight = c->slices > 1 ? lines(c->sslice, c->spitch) : c->rows;
    shown->dstPitch = c->dpitch ? c->dpitch : c->width;
    shown->dstHeight = c->slices > 1 ? lines(c->dslice, c->dpitch) : c->rows;
}

static void show_fill(const struct sg_node *n, CUDA_MEMSET_NODE_PARAMS_v2 *p)
{
    const struct sg_fill *f = &n->ops[0]->u.fill;

    *p = (CUDA_MEMSET_NODE_PARAMS_v2){
        f->dst, f->pitch, f->value, f->elem, f->width, f->rows, n->ctx ? n->ctx->handle : NULL};
}

static CUstreamBatchMemOpParams memop_params(const struct sg_op *op)
{
    const struct sg_memop *m = &op->u.memop;
    CUstreamBatchMemOpParams p = {0};

    if (op->kind == SG_OP_WAIT) {
        p.waitValue = (struct CUstreamMemOpWaitValueParams_st){.address = m->addr, .value64 = m->value};
        p.waitValue.operation = m->wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
        p.waitValue.flags = m->flags;
    } else if (op->kind == SG_OP_WRITE) {
        p.writeValue = (struct CUstreamMemOpWriteValueParams_st){.address = m->addr, .value64 = m->value};
        p.writeValue.operation = m->wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
        p.writeValue.flags = m->flags;
    } else {
        p.operation = CU_STREAM_MEM_OP_BARRIER;
    }
    return p;
}

static void show_memops(struct sg_node *n, CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p)
{
    CUstreamBatchMemOpParams *all = shown(n, n->nops * sizeof(*all));

    for (unsigned i = 0; i < n->nops; i++)
        all[i] = memop_params(n->ops[i]);
    *p = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v2){n->ctx ? n->ctx->handle : NULL, n->nops, all, 0};
}

CUresult sg_params_of_locked(struct sg_node *n, CUgraphNodeParams *p)
{
    memset(p, 0, sizeof(*p));
    p->type = n->type;
    switch (n->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        show_kernel(n, &p->kernel);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        show_copy(n, &p->memcpy);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        show_fill(n, &p->memset);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        p->host.fn = n->ops[0]->u.host.fn;
        p->host.userData = n->ops[0]->u.host.user;
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        show_memops(n, &p->memOp);
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        p->eventWait.event = n->event;
        break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        p->eventRecord.event = n->event;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
