/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes. A node's bodies are graphs of its own, with a plan each in an executable graph. When the node's
 * turn comes, its operation reads the handle's value and launches the body that it asks for, as often as it does, on a
 * hidden stream, and ends when that has. So what is in a body is queued when it runs, not when the graph is launched.
 *
 * A handle's value is one for all: only one executable graph of a graph may exist. It is set in stream order, by the
 * kernel of softgpu.h and, with CU_GRAPH_COND_ASSIGN_DEFAULT, at the begin of each launch of the whole graph. */
#include "../softgpu.h"
#include "sg.h"
#include <stdlib.h>

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* ---- handles ---- */

struct handle {
    CUgraph graph;
    CUcontext ctx;
    unsigned standard, flags, value;
    bool used;
};
static struct handle *handles;
static size_t nhandles;
#define FIRST 0x5a0f00000001ull /* so that no small number is one by chance */

static struct handle *handle_locked(CUgraphConditionalHandle h)
{
    return h >= FIRST && h - FIRST < nhandles ? &handles[h - FIRST] : NULL;
}

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                                unsigned int defaultLaunchValue, unsigned int flags)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    SG_ENTER(cuGraphConditionalHandleCreate);
    if (!pHandle_out || flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)
        return rc;
    sg_acquire();
    struct sg_ctx *at = ctx ? sg_handle_get_locked(SG_CTX, ctx) : sg_current_locked(&rc);
    if (at && sg_handle_get_locked(SG_GRAPH, hGraph)) {
        handles = must(realloc(handles, (nhandles + 1) * sizeof(*handles)));
        handles[nhandles] = (struct handle){hGraph, at->handle, defaultLaunchValue, flags, 0, false};
        *pHandle_out = FIRST + nhandles++;
        rc = CUDA_SUCCESS;
    }
    sg_release();
    return rc;
}

/* ---- the kernel that sets a value ---- */

static void run_set(void *args)
{
    const struct softgpu_set_conditional *a = args;
    uint32_t value = a->value;

    if (a->word)
        value = *(uint32_t *)a->word -= a->value;
    sg_acquire();
    struct handle *h = handle_locked(a->handle);
    if (h && h->used)
        h->value = value;
    else
        sg_misuse("a kernel sets the value of a conditional handle that no node has");
    sg_release();
}

static unsigned set_accesses(const void *args, struct softgpu_access *out, unsigned max)
{
    const struct softgpu_set_conditional *a = args;

    if (a->word && max)
        *out = (struct softgpu_access){a->word, 4, 1, 4, 1};
    return a->word != 0;
}

CUresult softgpuKernelRegister(const struct softgpu_kernel_desc *desc, CUfunction *out);
CUresult softgpuSetConditional(CUfunction *out);
__attribute__((visibility("default"))) CUresult softgpuSetConditional(CUfunction *out)
{
    static const struct softgpu_kernel_desc desc = {.name = "softgpu_set_conditional",
                                                    .arg_bytes = sizeof(struct softgpu_set_conditional),
                                                    .run = run_set,
                                                    .access = set_accesses};
    return softgpuKernelRegister(&desc, out);
}

/* ---- nodes ---- */

/* The handle's graph is this one, or one that it is embedded in. */
static bool belongs_locked(const struct handle *h, const struct sg_graph *g)
{
    while (g->handle != h->graph && g->owner)
        g = g->owner->graph;
    return g->handle == h->graph;
}

static bool size_fits(const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
    return p->type == CU_GRAPH_COND_TYPE_IF       ? p->size == 1 || p->size == 2
           : p->type == CU_GRAPH_COND_TYPE_WHILE  ? p->size == 1
           : p->type == CU_GRAPH_COND_TYPE_SWITCH ? p->size > 0
                                                  : false;
}

static struct sg_cond *cond_new(unsigned size)
{
    struct sg_cond *c = must(calloc(1, sizeof(*c)));
    c->size = size;
    c->runs = must(calloc(size, sizeof(*c->runs)));
    c->shown = must(calloc(size, sizeof(*c->shown)));
    return c;
}

static void give_locked(struct sg_node *n, struct sg_cond *c)
{
    n->cond = c;
    for (unsigned i = 0; i < c->size; i++) {
        c->runs[i].graph->owner = n;
        c->shown[i] = c->runs[i].graph->handle;
    }
}

static void run(void *cond);

static CUresult add_locked(CUgraphNode *out, struct sg_graph *g, const CUgraphNode *deps, size_t n,
                           CUDA_CONDITIONAL_NODE_PARAMS *p)
{
    struct handle *h = handle_locked(p->handle);
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    struct sg_ctx *ctx = p->ctx ? sg_handle_get_locked(SG_CTX, p->ctx) : sg_current_locked(&rc);

    if (!h || h->used || !ctx || ctx->handle != h->ctx || !size_fits(p) || !belongs_locked(h, g) ||
        !sg_nodes_of_locked(g, deps, n) || g->instantiated)
        return rc;
    h->used = true;
    struct sg_node *node = sg_node_add_locked(g, CU_GRAPH_NODE_TYPE_CONDITIONAL, ctx);
    struct sg_cond *c = cond_new(p->size);
    c->handle = p->handle;
    c->type = p->type;
    for (unsigned i = 0; i < p->size; i++)
        c->runs[i].graph = sg_graph_new_locked();
    give_locked(node, c);
    sg_node_op(node, sg_host_op(run, c));
    node->ops[0]->u.host.inner = true;
    for (size_t i = 0; i < n; i++)
        sg_node_dep(node, sg_handle_get_locked(SG_NODE, deps[i]));
    p->phGraph_out = c->shown;
    *out = node->handle;
    return CUDA_SUCCESS;
}

CUresult sg_cond_add(CUgraphNode *out, CUgraph hGraph, const CUgraphNode *deps, size_t n,
                     CUDA_CONDITIONAL_NODE_PARAMS *p)
{
    if (!out || (n && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_graph *g = sg_handle_get_locked(SG_GRAPH, hGraph);
    CUresult rc = g ? add_locked(out, g, deps, n, p) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

void sg_cond_copy_locked(struct sg_node *to, const struct sg_cond *from)
{
    struct sg_cond *c = cond_new(from->size);

    c->handle = from->handle;
    c->type = from->type;
    for (unsigned i = 0; i < c->size; i++)
        c->runs[i].graph = sg_graph_copy_locked(from->runs[i].graph);
    give_locked(to, c);
    to->ops[0]->u.host.user = c;
}

static void drop_stream_locked(CUstream stream)
{
    struct sg_stream *s = stream ? sg_handle_peek_locked(SG_STREAM, stream) : NULL;
    if (s)
        sg_stream_retire_locked(s);
}

void sg_cond_free_locked(struct sg_cond *c)
{
    for (unsigned i = 0; i < c->size; i++) {
        struct sg_exec *e = &c->runs[i];
        for (unsigned k = 0; k < e->nlanes; k++)
            drop_stream_locked(e->lanes[k].stream);
        sg_plan_drop(e);
        sg_graph_destroy_locked(e->graph);
        sg_fence_put_locked(e->last);
        free(e->lanes);
    }
    drop_stream_locked(c->stream);
    free(c->runs);
    free(c->shown);
    free(c);
}

bool sg_graph_has_conditionals(const struct sg_graph *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->cond)
            return true;
    return false;
}

/* ---- instantiation ---- */

/* cuda.h, CUDA_CONDITIONAL_NODE_PARAMS. */
static bool may_be_in_body(const struct sg_node *n, const struct sg_ctx *ctx)
{
    switch (n->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return sg_root(n->ctx) == sg_root(ctx);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return true;
    default:
        return false;
    }
}

/* NULL: all of them are allowed, at any depth. */
static struct sg_node *wrong_locked(const struct sg_graph *g, const struct sg_ctx *ctx)
{
    struct sg_node *bad = NULL;

    for (size_t i = 0; i < g->count && !bad; i++) {
        struct sg_node *n = g->nodes[i];
        if (!may_be_in_body(n, ctx))
            return n;
        if (n->child)
            bad = wrong_locked(n->child, ctx);
        for (unsigned k = 0; n->cond && k < n->cond->size && !bad; k++)
            bad = wrong_locked(n->cond->runs[k].graph, ctx);
    }
    return bad;
}

static bool plan_node_locked(struct sg_node *n, struct sg_node **bad)
{
    for (unsigned i = 0; i < n->cond->size; i++) {
        struct sg_exec *e = &n->cond->runs[i];
        if ((*bad = wrong_locked(e->graph, n->ctx)) || !sg_plan_locked(e, bad) || !sg_cond_plan_locked(e->graph, bad))
            return false;
    }
    return true;
}

bool sg_cond_plan_locked(struct sg_graph *g, struct sg_node **bad)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->cond && !plan_node_locked(g->nodes[i], bad))
            return false;
    return true;
}

static bool has_unused_locked(const struct sg_graph *g)
{
    for (size_t i = 0; i < nhandles; i++)
        if (handles[i].graph == g->handle && !handles[i].used)
            return true;
    return false;
}

/* A body is captured into, or a handle has no node. */
bool sg_cond_unfinished_locked(const struct sg_graph *g)
{
    bool unfinished = has_unused_locked(g);

    for (size_t i = 0; i < g->count; i++)
        for (unsigned k = 0; g->nodes[i]->cond && k < g->nodes[i]->cond->size; k++)
            unfinished |= g->nodes[i]->cond->runs[k].graph->captures ||
                          sg_cond_unfinished_locked(g->nodes[i]->cond->runs[k].graph);
    return unfinished;
}

/* ---- a launch ---- */

/* What a launch gives the handles of the graph; a later update changes nothing of that. */
struct values {
    size_t n;
    CUgraphConditionalHandle handle[];
};

static struct values *collect_locked(struct values *v, const struct sg_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        const struct sg_cond *c = g->nodes[i]->cond;
        if (!c)
            continue;
        v = must(realloc(v, sizeof(*v) + (v->n + 1) * sizeof(v->handle[0])));
        v->handle[v->n++] = c->handle;
        for (unsigned k = 0; k < c->size; k++)
            v = collect_locked(v, c->runs[k].graph);
    }
    return v;
}

static void assign(void *values)
{
    struct values *v = values;

    sg_acquire();
    for (size_t i = 0; i < v->n; i++) {
        struct handle *h = handle_locked(v->handle[i]);
        if (h->flags & CU_GRAPH_COND_ASSIGN_DEFAULT)
            h->value = h->standard;
    }
    sg_release();
    free(v);
}

struct sg_op *sg_cond_begin_locked(const struct sg_graph *g)
{
    struct sg_op *op = sg_host_op(assign, collect_locked(must(calloc(1, sizeof(struct values))), g));
    op->u.host.inner = true;
    return op;
}

/* Which body is next; c->size: none. */
static unsigned next_locked(const struct sg_cond *c)
{
    const unsigned value = handle_locked(c->handle)->value;

    return c->type == CU_GRAPH_COND_TYPE_SWITCH  ? (value < c->size ? value : c->size)
           : c->type == CU_GRAPH_COND_TYPE_WHILE ? (value ? 0 : c->size)
           : value                               ? 0
                                                 : 1;
}

static struct sg_stream *stream_locked(struct sg_cond *c, struct sg_ctx *ctx)
{
    struct sg_stream *s = c->stream ? sg_handle_peek_locked(SG_STREAM, c->stream) : NULL;

    if (!s) {
        s = sg_stream_new_locked(ctx, CU_STREAM_NON_BLOCKING, 0);
        s->aside = true; /* the device launches bodies, while the host's later work may be in the queue */
        c->stream = s->handle;
    }
    return s;
}

/* False: what is in the body can not run. */
static bool turn_locked(struct sg_cond *c, unsigned body)
{
    struct sg_ctx *ctx = c->runs[body].graph->owner->ctx;
    CUresult rc = ctx->sticky;

    if (!rc)
        rc = sg_exec_launch_locked(&c->runs[body], stream_locked(c, ctx));
    if (!rc)
        sg_fence_sync_locked(c->runs[body].last);
    else
        ctx->sticky = rc;
    return !rc;
}

static void run(void *cond)
{
    struct sg_cond *c = cond;
    bool again = true;

    while (again) {
        sg_acquire();
        unsigned body = next_locked(c);
        again = body < c->size && turn_locked(c, body) && c->type == CU_GRAPH_COND_TYPE_WHILE;
        sg_release();
    }
}

/* ---- an update ---- */

static void name_sources_locked(struct sg_graph *g, const struct sg_graph *before)
{
    for (size_t i = 0; i < g->count; i++) {
        g->nodes[i]->source = before->nodes[i]->source;
        if (g->nodes[i]->child)
            name_sources_locked(g->nodes[i]->child, before->nodes[i]->child);
        for (unsigned k = 0; g->nodes[i]->cond && k < g->nodes[i]->cond->size; k++)
            name_sources_locked(g->nodes[i]->cond->runs[k].graph, before->nodes[i]->cond->runs[k].graph);
    }
}

/* The bodies that a launch before may still run go to `keep`; both graphs have one shape. */
void sg_cond_update_locked(struct sg_node *n, const struct sg_cond *from, struct sg_graph *keep)
{
    struct sg_node *old = sg_node_add_locked(keep, CU_GRAPH_NODE_TYPE_CONDITIONAL, n->ctx), *bad;
    struct sg_cond *before = n->cond;

    sg_cond_copy_locked(n, from);
    for (unsigned i = 0; i < before->size; i++)
        name_sources_locked(n->cond->runs[i].graph, before->runs[i].graph);
    give_locked(old, before);
    plan_node_locked(n, &bad);
}
