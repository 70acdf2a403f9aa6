/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered allocation. A pool hands out memory of its device and keeps nothing back: memory is used from the call
 * that allocates it to the call that frees it, and reserved until the stream has come to the free. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>

struct pool {
    CUmemoryPool handle;
    CUdevice dev;
    cuuint64_t threshold, used, used_high, reserved, reserved_high;
    int reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES + 1];
    uint64_t access; /* a bit for each other device */
};

static struct pool *pool_new_locked(CUdevice dev)
{
    struct pool *p = calloc(1, sizeof(*p));
    if (!p)
        abort();
    p->dev = dev;
    for (int i = 0; i <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++)
        p->reuse[i] = 1;
    p->handle = sg_handle_new_locked(SG_POOL, p);
    return p;
}

static CUmemoryPool default_pool_locked(CUdevice dev)
{
    if (!sg_devices[dev].pool)
        sg_devices[dev].pool = pool_new_locked(dev)->handle;
    return sg_devices[dev].pool;
}

static CUmemoryPool current_pool_locked(CUdevice dev)
{
    return sg_devices[dev].current_pool ? sg_devices[dev].current_pool : default_pool_locked(dev);
}

static CUresult get_pool(CUmemoryPool *out, CUdevice dev, CUmemoryPool (*which)(CUdevice))
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    *out = which(dev);
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    SG_ENTER(cuDeviceGetDefaultMemPool);
    return get_pool(pool_out, dev, default_pool_locked);
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    SG_ENTER(cuDeviceGetMemPool);
    return get_pool(pool, dev, current_pool_locked);
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuDeviceSetMemPool);
    if (!sg_device(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    sg_acquire();
    struct pool *p = sg_handle_get_locked(SG_POOL, pool);
    if (p && p->dev == dev)
        sg_devices[dev].current_pool = pool;
    else
        rc = CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    SG_ENTER(cuMemPoolCreate);
    if (!pool || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sg_device(poolProps->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    sg_acquire();
    *pool = pool_new_locked(poolProps->location.id)->handle;
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuMemPoolDestroy);
    sg_acquire();
    struct pool *p = sg_handle_get_locked(SG_POOL, pool);
    if (!p || pool == sg_devices[p->dev].pool) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        if (sg_devices[p->dev].current_pool == pool)
            sg_devices[p->dev].current_pool = NULL;
        sg_handle_drop_locked(pool);
        free(p);
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    SG_ENTER(cuMemPoolTrimTo);
    (void)minBytesToKeep;
    sg_acquire();
    bool ok = sg_handle_get_locked(SG_POOL, pool);
    sg_release();
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_locked(struct pool *p, CUmemPool_attribute attr, const void *value)
{
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        p->reuse[attr] = *(const int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        p->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        p->used_high = p->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        p->reserved_high = p->reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    SG_ENTER(cuMemPoolSetAttribute);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct pool *p = sg_handle_get_locked(SG_POOL, pool);
    CUresult rc = p ? set_locked(p, attr, value) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

static CUresult read_locked(const struct pool *p, CUmemPool_attribute attr, void *value)
{
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = p->reuse[attr];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = p->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = p->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = p->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = p->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = p->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    SG_ENTER(cuMemPoolGetAttribute);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct pool *p = sg_handle_get_locked(SG_POOL, pool);
    CUresult rc = p ? read_locked(p, attr, value) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

static CUresult give_access_locked(struct pool *p, const CUmemAccessDesc *d)
{
    if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !sg_device(d->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (d->location.id == p->dev) /* always has it */
        return d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (d->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        p->access &= ~((uint64_t)1 << d->location.id);
    else if (d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        p->access |= (uint64_t)1 << d->location.id;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuMemPoolSetAccess);
    sg_acquire();
    struct pool *p = sg_handle_get_locked(SG_POOL, pool);
    if (!p || (!map && n))
        rc = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n && !rc; i++)
        rc = give_access_locked(p, &map[i]);
    sg_release();
    return rc;
}

bool sg_pool_allows_locked(const struct sg_mem *m, CUdevice dev)
{
    const struct pool *p = m->pool ? sg_handle_peek_locked(SG_POOL, m->pool) : NULL;
    return p && (p->access >> dev & 1);
}

/* ---- books: of memory whose pool still is there ---- */

static void grow(cuuint64_t *now, cuuint64_t *high, size_t bytes)
{
    *now += bytes;
    if (*now > *high)
        *high = *now;
}

static void count_alloc_locked(const struct sg_mem *m)
{
    struct pool *p = sg_handle_peek_locked(SG_POOL, m->pool);
    grow(&p->used, &p->used_high, m->size);
    grow(&p->reserved, &p->reserved_high, m->size);
}

static void count_free_locked(const struct sg_mem *m)
{
    struct pool *p = m->pool ? sg_handle_peek_locked(SG_POOL, m->pool) : NULL;
    if (p)
        p->used -= m->size;
}

void sg_pool_memory_freed_locked(struct sg_mem *m)
{
    if (!m->freeing)
        count_free_locked(m);
    m->freeing = true;
}

static void not_freed_locked(struct sg_mem *m)
{
    struct pool *p = m->pool ? sg_handle_peek_locked(SG_POOL, m->pool) : NULL;
    m->freeing = false;
    if (p)
        p->used += m->size;
}

void sg_pool_memory_ends_locked(struct sg_mem *m)
{
    struct pool *p = m->pool ? sg_handle_peek_locked(SG_POOL, m->pool) : NULL;
    sg_pool_memory_freed_locked(m);
    if (p)
        p->reserved -= m->size;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct sg_mem *m = NULL;
    CUresult rc;

    if (!dptr || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(stream, &rc);
    if (s && !pool)
        pool = current_pool_locked(s->ctx->dev);
    struct pool *p = s ? sg_handle_get_locked(SG_POOL, pool) : NULL;
    if (s && (!p || p->dev != s->ctx->dev))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc && s->capture) {
        rc = sg_capture_alloc_locked(s, bytes, dptr);
        sg_release();
        return rc;
    }
    if (!rc)
        rc = sg_mem_new_locked(&m, SG_MEM_POOL, s->ctx, bytes);
    if (!rc) {
        m->pool = pool;
        count_alloc_locked(m);
        struct sg_op *op = sg_op_new(SG_OP_ORDER, "cuMemAllocAsync");
        op->u.memop = (struct sg_memop){.addr = m->base, .value = m->id};
        rc = sg_submit_locked(s, op);
        if (rc)
            sg_mem_retire_locked(m);
        else
            *dptr = m->base;
    }
    sg_release();
    return rc;
}

static CUresult cuMemAllocAsync_on(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return alloc_async(dptr, bytesize, NULL, hStream);
}
SG_PAIR(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream), (dptr, bytesize, hStream),
        (dptr, bytesize, SG_PT(hStream)))

static CUresult cuMemAllocFromPoolAsync_on(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    return pool ? alloc_async(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}
SG_PAIR(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
        (dptr, bytesize, pool, hStream), (dptr, bytesize, pool, SG_PT(hStream)))

static CUresult free_locked(struct sg_stream *s, CUdeviceptr dptr)
{
    CUresult rc = sg_mem_check_free_locked(dptr);

    if (rc)
        return rc;
    struct sg_op *op = sg_op_new(SG_OP_FREE, "cuMemFreeAsync");
    struct sg_mem *m = op->u.mem = sg_mem_find_locked(dptr);
    sg_pool_memory_freed_locked(m);
    sg_mem_pin_locked(m); /* the object outlives its context until this runs */
    rc = sg_submit_locked(s, op);
    if (rc) {
        not_freed_locked(m);
        sg_mem_unpin_locked(m);
    }
    return rc;
}

/* Memory of an allocation node: it stays, for the next launch. */
static CUresult free_of_graph_locked(struct sg_stream *s, struct sg_mem *m)
{
    CUresult rc = sg_mem_check_free_locked(m->base);

    if (!rc)
        rc = sg_submit_locked(s, sg_graph_mem_op(m, "cuMemFreeAsync"));
    if (!rc)
        sg_graph_mem_freed_locked(m);
    return rc;
}

static CUresult cuMemFreeAsync_on(CUdeviceptr dptr, CUstream hStream)
{
    CUresult rc;

    if (!dptr)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_stream *s = sg_stream_enter_locked(hStream, &rc);
    struct sg_mem *m = s ? sg_mem_find_base_locked(dptr) : NULL;
    if (s)
        rc = s->capture      ? sg_capture_free_locked(s, dptr)
             : m && m->graph ? free_of_graph_locked(s, m)
                             : free_locked(s, dptr);
    sg_release();
    return rc;
}
SG_PAIR(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream), (dptr, SG_PT(hStream)))
