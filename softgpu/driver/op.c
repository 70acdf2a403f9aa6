/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: what a queue holds, and the check of the memory that they touch. */
#include "device_code.h"
#include "sg.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sg_op *sg_op_new(enum sg_op_kind kind, const char *what)
{
    struct sg_op *op = calloc(1, sizeof(*op));
    if (!op)
        abort();
    op->kind = kind;
    op->what = what;
    return op;
}

static void *copy_of(const void *p, size_t n)
{
    void *q = p && n ? malloc(n) : NULL;
    if (q)
        memcpy(q, p, n);
    return q;
}

/* For the replay of a recorded operation: everything but its place in a queue. */
struct sg_op *sg_op_clone(const struct sg_op *src)
{
    struct sg_op *op = sg_op_new(src->kind, src->what);

    *op = *src;
    op->next = NULL;
    op->fence = NULL;
    op->deps = NULL;
    op->ndeps = 0;
    op->clock = (struct sg_clock){NULL, 0};
    op->ranges = copy_of(src->ranges, src->nranges * sizeof(*src->ranges));
    if (op->kind == SG_OP_KERNEL)
        op->u.kernel.args = copy_of(src->u.kernel.args, src->u.kernel.desc->arg_bytes);
    return op;
}

void sg_op_free_locked(struct sg_op *op)
{
    if (op->kind == SG_OP_COPY)
        free(op->u.copy.staged);
    if (op->kind == SG_OP_KERNEL)
        free(op->u.kernel.args);
    for (unsigned i = 0; i < op->ndeps; i++)
        sg_fence_put_locked(op->deps[i]);
    sg_fence_put_locked(op->fence);
    sg_clock_free(&op->clock);
    free(op->deps);
    free(op->ranges);
    free(op);
}

void sg_op_range(struct sg_op *op, uintptr_t ptr, size_t bytes, unsigned how)
{
    op->ranges = realloc(op->ranges, (op->nranges + 1) * sizeof(*op->ranges));
    if (!op->ranges)
        abort();
    op->ranges[op->nranges++] = (struct sg_range){.ptr = ptr, .bytes = bytes, .how = how};
}

void sg_op_dep_locked(struct sg_op *op, struct sg_fence *f)
{
    if (!f || (f->done && !sg_race_on))
        return;
    op->deps = realloc(op->deps, (op->ndeps + 1) * sizeof(struct sg_fence *));
    if (!op->deps)
        abort();
    op->deps[op->ndeps++] = sg_fence_ref_locked(f);
}

static const char *compare_name(unsigned flags)
{
    static const char *const names[] = {">=", "==", "&", "nor"};
    return names[flags & 3];
}

const char *sg_op_describe_locked(const struct sg_op *op, char *buf, size_t n)
{
    const struct sg_memop *w = &op->u.memop;

    for (unsigned i = 0; i < op->ndeps; i++)
        if (!op->deps[i]->done) {
            const struct sg_stream *s = op->deps[i]->stream;
            snprintf(buf, n, "%s, which waits for work of stream %p", op->what, s ? (void *)s->handle : NULL);
            return buf;
        }
    if (op->connection && op->connection->first != op)
        snprintf(buf, n, "%s, whose hardware queue is held by %s of stream %p", op->what, op->connection->first->what,
                 (void *)op->connection->first->fence->stream->handle);
    else if (op->kind == SG_OP_WAIT)
        snprintf(buf, n, "%s at %#lx until value %s %" PRIu64 " (%#" PRIx64 "), now %" PRIu64 " (%#" PRIx64 ")",
                 op->what, w->addr, compare_name(w->flags), w->value, w->value,
                 __atomic_load_n(&w->seen, __ATOMIC_RELAXED), __atomic_load_n(&w->seen, __ATOMIC_RELAXED));
    else
        snprintf(buf, n, "%s", op->what);
    return buf;
}

static CUresult bad_access(const struct sg_op *op)
{
    return op->kind == SG_OP_KERNEL ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_INVALID_VALUE;
}

/* Peer access of contexts says nothing of a pool's memory, nor a pool's access of other memory. */
static bool peer_allowed_locked(const struct sg_ctx *ctx, const struct sg_mem *m)
{
    if (m->kind == SG_MEM_POOL && m->pool)
        return sg_pool_allows_locked(m, ctx->dev);
    return (m->kind != SG_MEM_DEVICE && m->kind != SG_MEM_POOL) || (sg_root(ctx)->peers >> m->dev & 1);
}

static CUresult check_range_locked(struct sg_op *op, const struct sg_range *r, struct sg_mem *m, bool running)
{
    const char *when = running ? " (found when it ran)" : "";
    char what[192];

    if (!m) {
        sg_misuse("%s on device %d%s: %s", op->what, op->ctx->dev, when,
                  sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (running && m->id != r->id) {
        sg_misuse("%s on device %d%s: generation %lu was freed and its address used again: %s", op->what, op->ctx->dev,
                  when, r->id, sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (r->bytes > m->size - (r->ptr - m->base)) {
        sg_misuse("%s on device %d%s: %zu bytes out of bounds: %s", op->what, op->ctx->dev, when, r->bytes,
                  sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (!running && !op->recorded && !sg_graph_mem_usable(m)) {
        sg_misuse("%s on device %d: used while no launch of its graph has allocated it: %s", op->what, op->ctx->dev,
                  sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (m->freeing && !running) {
        sg_misuse("%s on device %d: used after it was given to a free: %s", op->what, op->ctx->dev,
                  sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (m->kind == SG_MEM_IMPORT && atomic_load(&m->hdr->freed)) {
        sg_misuse("%s on device %d%s: block imported from process %d was freed by its owner: %s", op->what,
                  op->ctx->dev, when, (int)m->owner, sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (m->dev != op->ctx->dev && !(r->how & SG_RANGE_PEER) && !peer_allowed_locked(op->ctx, m)) {
        sg_misuse("%s on device %d%s: memory of device %d without peer access: %s", op->what, op->ctx->dev, when,
                  m->dev, sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    if (m->kind == SG_MEM_MAPPING && !sg_vmm_allows(m, op->ctx->dev, r->how & SG_RANGE_WRITE)) {
        sg_misuse("%s on device %d%s: cuMemSetAccess gave this device no %s access: %s", op->what, op->ctx->dev, when,
                  r->how & SG_RANGE_WRITE ? "write" : "read", sg_mem_describe_locked(r->ptr, what, sizeof(what)));
        return bad_access(op);
    }
    return CUDA_SUCCESS;
}

/* Mappings that lie side by side are one buffer to the application: a range over several becomes one of each. */
static void split_range(struct sg_op *op, unsigned i, const struct sg_mem *m)
{
    struct sg_range r = op->ranges[i];
    size_t here = m->size - (r.ptr - m->base);
    const struct sg_mem *next = r.bytes > here ? sg_mem_find_locked(m->base + m->size) : NULL;

    if (!next || next->kind != SG_MEM_MAPPING)
        return;
    op->ranges[i].bytes = here;
    sg_op_range(op, r.ptr + here, r.bytes - here, r.how);
}

const struct sg_mem *sg_op_device_side(const struct sg_op *op, uintptr_t p)
{
    for (unsigned i = 0; i < op->nranges; i++) {
        const struct sg_mem *m = op->ranges[i].ptr == p ? op->ranges[i].mem : NULL;
        if (m)
            return sg_mem_is_device(m) && m->link ? m : NULL;
    }
    return NULL;
}

CUresult sg_ranges_check_locked(struct sg_op *op, bool pin)
{
    CUresult rc = CUDA_SUCCESS;

    for (unsigned i = 0; i < op->nranges; i++) {
        struct sg_mem *m = op->ranges[i].bytes ? sg_mem_find_locked(op->ranges[i].ptr) : NULL;
        if (m && m->kind == SG_MEM_MAPPING && !pin)
            split_range(op, i, m); /* moves the ranges */
        struct sg_range *r = &op->ranges[i];
        r->mem = NULL;
        if (!r->bytes)
            continue;
        if (m && !pin) {
            r->id = m->id;
            r->dev = sg_mem_is_device(m) ? m->dev : -1;
            r->access = m->kind == SG_MEM_MAPPING ? m->readers : 0;
            r->ctx = m->ctx;
        }
        if (check_range_locked(op, r, m, pin)) {
            rc = pin ? CUDA_ERROR_ILLEGAL_ADDRESS : bad_access(op);
        } else if (pin) {
            r->mem = m;
            sg_mem_pin_locked(m);
        }
    }
    return rc;
}

/* Mappings may change under their addresses, which is what they are for. */
static bool same_memory_locked(const struct sg_op *op, struct sg_range *r, const struct sg_mem *m)
{
    char what[192];

    if (!m || m->id == r->id)
        return true;
    if (m->kind == SG_MEM_MAPPING) {
        r->id = m->id;
        return true;
    }
    sg_misuse("%s on device %d: generation %lu, which the graph was made with, was freed and its address used again: "
              "%s",
              op->what, op->ctx->dev, r->id, sg_mem_describe_locked(r->ptr, what, sizeof(what)));
    return false;
}

CUresult sg_ranges_again_locked(struct sg_op *op)
{
    CUresult rc = CUDA_SUCCESS;

    if (op->kind == SG_OP_KERNEL && sg_module_gone_locked(op->u.kernel.desc)) {
        sg_misuse("%s on device %d: its module was unloaded, and a graph still has it", op->what, op->ctx->dev);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (unsigned i = 0; i < op->nranges; i++) {
        struct sg_range *r = &op->ranges[i];
        struct sg_mem *m = r->bytes ? sg_mem_find_locked(r->ptr) : NULL;
        if (r->bytes && (!same_memory_locked(op, r, m) || check_range_locked(op, r, m, false)))
            rc = bad_access(op);
    }
    return rc;
}

void sg_ranges_unpin_locked(struct sg_op *op)
{
    for (unsigned i = 0; i < op->nranges; i++) {
        if (op->ranges[i].mem)
            sg_mem_unpin_locked(op->ranges[i].mem);
        op->ranges[i].mem = NULL;
    }
}
