/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that graphs allocate and free. It has its address and its pages from the node on, and counts as allocated
 * between the launch that allocates it and what frees it, in the order of the calls. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

struct sg_graph_mem {
    struct sg_mem *mem;
    unsigned refs; /* nodes that name it, and one while it is allocated */
    bool live;
    bool freed_here, freed_elsewhere; /* by a node of its own graph, or of another */
    CUgraph owner;
};

static struct {
    cuuint64_t used, used_high, reserved, reserved_high;
} books[SG_MAX_DEVICES];

/* ---- the memory ---- */

static void count(cuuint64_t *now, cuuint64_t *high, cuuint64_t bytes, bool more)
{
    *now = more ? *now + bytes : *now - bytes;
    if (*now > *high)
        *high = *now;
}

static void reserve(const struct sg_mem *m, bool more)
{
    count(&books[m->dev].reserved, &books[m->dev].reserved_high, m->size, more);
}

static CUresult new_memory_locked(struct sg_graph_mem **out, struct sg_ctx *ctx, size_t bytes, CUgraph owner)
{
    struct sg_graph_mem *gm = calloc(1, sizeof(*gm));
    CUresult rc;

    if (!gm)
        abort();
    if ((rc = sg_mem_new_locked(&gm->mem, SG_MEM_POOL, ctx, bytes))) {
        free(gm);
        return rc;
    }
    gm->owner = owner;
    gm->mem->graph = gm;
    sg_mem_pin_locked(gm->mem); /* the object outlives its context */
    reserve(gm->mem, true);
    *out = gm;
    return CUDA_SUCCESS;
}

void sg_graph_mem_ref_locked(struct sg_graph_mem *gm)
{
    if (gm)
        gm->refs++;
}

void sg_graph_mem_unref_locked(struct sg_graph_mem *gm)
{
    if (!gm || --gm->refs)
        return;
    reserve(gm->mem, false);
    gm->mem->graph = NULL;
    if (!gm->mem->dead) {
        sg_race_forget_locked(gm->mem); /* all that used it is before its end */
        sg_mem_retire_locked(gm->mem);
    }
    sg_mem_unpin_locked(gm->mem);
    free(gm);
}

static void set_live_locked(struct sg_graph_mem *gm, bool live)
{
    if (gm->live == live)
        return;
    gm->live = live;
    count(&books[gm->mem->dev].used, &books[gm->mem->dev].used_high, gm->mem->size, live);
    if (live)
        sg_graph_mem_ref_locked(gm);
    else
        sg_graph_mem_unref_locked(gm);
}

bool sg_graph_mem_usable(const struct sg_mem *m)
{
    return !m->graph || m->graph->live;
}

struct sg_op *sg_graph_mem_op(const struct sg_mem *m, const char *what)
{
    struct sg_op *op = sg_op_new(SG_OP_ORDER, what);
    op->u.memop = (struct sg_memop){.addr = m->base, .value = m->id};
    return op;
}

void sg_graph_mem_freed_locked(struct sg_mem *m)
{
    set_live_locked(m->graph, false);
}

/* ---- nodes ---- */

bool sg_graph_has_memory(const struct sg_graph *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->memory)
            return true;
    return false;
}

static void name_locked(struct sg_node *n, struct sg_graph_mem *gm, const char *what)
{
    n->memory = gm;
    sg_graph_mem_ref_locked(gm);
    sg_node_op(n, sg_graph_mem_op(gm->mem, what));
}

static struct sg_ctx *context_on_locked(CUdevice dev, CUresult *rc)
{
    struct sg_ctx *ctx = sg_current_locked(rc);
    if (ctx && ctx->dev != dev)
        ctx = sg_devices[dev].primary;
    if (!*rc && !ctx)
        *rc = CUDA_ERROR_INVALID_CONTEXT;
    return ctx;
}

CUresult sg_graph_add_alloc(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n,
                            CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
    const CUmemPoolProps *pool = &p->poolProps;
    struct sg_graph_mem *gm = NULL;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    if (!out || (n && !deps) || !p->bytesize || pool->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        pool->handleTypes != CU_MEM_HANDLE_TYPE_NONE || pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !sg_device(pool->location.id))
        return rc;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    struct sg_ctx *ctx = g ? context_on_locked(pool->location.id, &rc) : NULL;
    if (ctx && (g->owner || !sg_nodes_of_locked(g, deps, n)))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (ctx && !rc)
        rc = new_memory_locked(&gm, ctx, p->bytesize, hGraph);
    if (!rc) {
        struct sg_node *node = sg_node_add_locked(g, CU_GRAPH_NODE_TYPE_MEM_ALLOC, ctx);
        name_locked(node, gm, "memory allocation node");
        for (size_t i = 0; i < n; i++)
            sg_node_dep(node, sg_handle_get_locked(SG_NODE, deps[i]));
        p->dptr = gm->mem->base;
        *out = node->handle;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                        size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    SG_ENTER(cuGraphAddMemAllocNode);
    return nodeParams ? sg_graph_add_alloc(phGraphNode, hGraph, dependencies, numDependencies, nodeParams)
                      : CUDA_ERROR_INVALID_VALUE;
}

/* The memory of a graph that a node of `g` may free: once in all, in its own graph or in others. */
static struct sg_graph_mem *freeable_locked(const struct sg_graph *g, CUdeviceptr p)
{
    struct sg_mem *m = sg_mem_find_base_locked(p);
    struct sg_graph_mem *gm = m ? m->graph : NULL;

    if (!gm || gm->freed_here || (gm->owner == g->handle && gm->freed_elsewhere))
        return NULL;
    if (gm->owner == g->handle)
        gm->freed_here = true;
    else
        gm->freed_elsewhere = true;
    return gm;
}

CUresult sg_graph_add_free(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n, CUdeviceptr p)
{
    if (!out || (n && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    bool ok = g && !g->owner && sg_nodes_of_locked(g, deps, n);
    struct sg_graph_mem *gm = ok ? freeable_locked(g, p) : NULL;
    if (gm) {
        struct sg_node *node = sg_node_add_locked(g, CU_GRAPH_NODE_TYPE_MEM_FREE, gm->mem->ctx);
        name_locked(node, gm, "memory free node");
        for (size_t i = 0; i < n; i++)
            sg_node_dep(node, sg_handle_get_locked(SG_NODE, deps[i]));
        *out = node->handle;
    }
    sg_release();
    return gm ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                       size_t numDependencies, CUdeviceptr dptr)
{
    SG_ENTER(cuGraphAddMemFreeNode);
    return sg_graph_add_free(phGraphNode, hGraph, dependencies, numDependencies, dptr);
}

CUresult sg_capture_alloc_locked(struct sg_stream *s, size_t bytes, CUdeviceptr *out)
{
    struct sg_graph_mem *gm;

    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult rc = new_memory_locked(&gm, s->ctx, bytes, s->capture->graph->handle);
    if (rc)
        return rc;
    name_locked(sg_capture_node_locked(s, CU_GRAPH_NODE_TYPE_MEM_ALLOC), gm, "memory allocation node");
    *out = gm->mem->base;
    return CUDA_SUCCESS;
}

CUresult sg_capture_free_locked(struct sg_stream *s, CUdeviceptr p)
{
    if (s->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct sg_graph_mem *gm = freeable_locked(s->capture->graph, p);
    if (!gm)
        return sg_capture_break_locked(s->capture, CUDA_ERROR_INVALID_VALUE);
    name_locked(sg_capture_node_locked(s, CU_GRAPH_NODE_TYPE_MEM_FREE), gm, "memory free node");
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    SG_ENTER(cuGraphMemAllocNodeGetParams);
    if (!params_out)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    const struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    bool ok = n && n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    if (ok) {
        const struct sg_mem *m = n->memory->mem;
        *params_out = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = m->size, .dptr = m->base};
        params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params_out->poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = m->dev};
    }
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    SG_ENTER(cuGraphMemFreeNodeGetParams);
    if (!dptr_out)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    const struct sg_node *n = sg_handle_get_locked(SG_NODE, hNode);
    bool ok = n && n->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (ok)
        *dptr_out = n->memory->mem->base;
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- launches ---- */

CUresult sg_graph_mem_may_launch_locked(const struct sg_exec *e)
{
    for (size_t i = 0; i < e->graph->count; i++) {
        const struct sg_node *n = e->graph->nodes[i];
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->memory->live &&
            !(e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
            return CUDA_ERROR_INVALID_VALUE; /* a launch before this one has allocated it */
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !n->memory->freed_here && !n->memory->live) {
            sg_misuse("a graph is launched that frees %#lx, which no graph has allocated now", n->memory->mem->base);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

void sg_graph_mem_launched_locked(const struct sg_exec *e)
{
    for (size_t i = 0; i < e->graph->count; i++) {
        const struct sg_node *n = e->graph->nodes[i];
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !n->memory->freed_here)
            set_live_locked(n->memory, true);
        else if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !n->memory->freed_here)
            set_live_locked(n->memory, false);
    }
}

/* ---- books: nothing is kept beyond what the nodes name ---- */

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device)
{
    SG_ENTER(cuDeviceGraphMemTrim);
    return sg_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    SG_ENTER(cuDeviceGetGraphMemAttribute);
    if (!sg_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || (unsigned)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    *(cuuint64_t *)value = attr == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT       ? books[device].used
                           : attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH        ? books[device].used_high
                           : attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? books[device].reserved
                                                                            : books[device].reserved_high;
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    SG_ENTER(cuDeviceSetGraphMemAttribute);
    if (!sg_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(cuuint64_t *)value ||
        (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE; /* the high marks can be set to 0 */
    sg_acquire();
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        books[device].used_high = books[device].used;
    else
        books[device].reserved_high = books[device].reserved;
    sg_release();
    return CUDA_SUCCESS;
}
