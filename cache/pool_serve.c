/* SPDX-License-Identifier: Apache-2.0 */
/* Pools' credit, and the requests that blocks serve. */
#include "cache/pools.h"

#include <stdlib.h>
#include "base/settings.h"
#include "base/wait.h"
#include "cache/captures.h"
#include "cache/pools_impl.h"

enum { MOST_CREDIT = 64, MOST_LEAVING = 4 };
#define CLOSED_MS 10000

/* ---- credit ---- */

static bool supported(void)
{
    return slr_get(SLR_S_ALLOC) != SLR_ALLOC_OFF && slr_get(SLR_S_ZERO_COPY) && !slr_reach_past() &&
           slr_real.cuDeviceGetMemPool && slr_real.cuMemGetAddressRange && slr_real.cuStreamGetCtx &&
           slr_real.cuEventQuery;
}

/* Under the lock. */
static bool give_credit(struct slr_pool *p, size_t bytes)
{
    if (!p->classes)
        p->classes = calloc(SLR_CLASSES, sizeof *p->classes);
    if (!p->classes)
        return false;
    struct slr_credit *c = &p->classes[slr_class_index(bytes)];
    if (c->credit == 0 && slr_now_ms() >= c->closed_until)
        c->credit = c->made < 1 ? 1 : c->made < MOST_CREDIT ? c->made : MOST_CREDIT;
    atomic_store(&slr_pools_credited, true);
    return true;
}

static bool meet(CUmemoryPool handle, int device, size_t bytes)
{
    const bool own = slr_pool_is_default(handle, device);
    slr_block_own();
    if (!slr_block_ours())
        return false;
    slr_block_lock();
    struct slr_pool *p = slr_pool_find(handle);
    if (!p && own)
        p = slr_pool_add(handle, device, true);
    const bool given = slr_pool_is_plain(p) && p->device == device && give_credit(p, bytes);
    slr_block_unlock();
    return given;
}

bool slr_pool_met(CUdeviceptr p)
{
    CUmemoryPool pool = NULL;
    CUcontext ctx;
    CUdeviceptr base;
    size_t size;
    if (!supported() || slr_real.cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p) != CUDA_SUCCESS ||
        !pool || slr_real.cuMemGetAddressRange(&base, &size, p) != CUDA_SUCCESS)
        return false;
    const int device = slr_block_device_current(&ctx);
    return device >= 0 && size >= slr_get(SLR_S_ALLOC_MIN) && size <= SLR_CLASS_MAX && meet(pool, device, size);
}

/* ---- requests ---- */

struct request {
    size_t bytes;
    CUmemoryPool pool;
    uint32_t number;
    CUstream stream; /* NULL: the legacy default stream */
    int device;
    CUcontext ctx;
};

static bool is_of(CUstream stream, CUcontext ctx)
{
    CUcontext own = NULL;
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
           (slr_real.cuStreamGetCtx(stream, &own) == CUDA_SUCCESS && own == ctx);
}

/* Whether the pool may have blocks of that size at all: most requests end here. Under the lock. */
static bool is_known(struct request *q)
{
    const struct slr_pool *p = slr_pool_find(q->pool);
    if (!slr_pool_is_plain(p) || p->device != q->device || !p->classes)
        return false;
    const struct slr_credit *c = &p->classes[slr_class_index(q->bytes)];
    q->number = slr_pool_number(p);
    return c->credit || c->made;
}

static bool is_served(struct request *q)
{
    q->device = slr_block_device_current(&q->ctx);
    if (q->device < 0 || (!q->pool && slr_real.cuDeviceGetMemPool(&q->pool, q->device) != CUDA_SUCCESS))
        return false;
    slr_block_lock();
    const bool known = is_known(q);
    slr_block_unlock();
    return known && is_of(q->stream, q->ctx) && !slr_block_capturing() && !slr_stream_may_capture(q->stream);
}

/* Under the lock: one that is kept, or leaves on this very stream; the caller's, BUSY. */
static struct slr_block *take(const struct request *q)
{
    struct slr_block *b = slr_free_list_fit(&slr_block_devices[q->device].free, q->bytes);
    if (!b)
        return slr_block_take_left(q->device, q->bytes, q->stream);
    slr_block_to_busy(b);
    return b;
}

static struct slr_block *find_block(const struct request *q)
{
    slr_block_lock();
    struct slr_block *b = take(q);
    slr_block_unlock();
    if (b)
        return b;
    slr_block_return_idle(); /* asks the driver of each that leaves */
    slr_block_lock();
    b = take(q);
    slr_block_unlock();
    return b;
}

static CUdeviceptr hand_out(struct slr_block *b, const struct request *q)
{
    CUdeviceptr base = 0;
    slr_block_taken(b);
    slr_block_lock();
    if (b->gone) {
        slr_block_drop(b);
    } else {
        b->pool = q->number;
        slr_block_note_use(b, q->bytes);
        slr_block_to_used(b);
        slr_block_totals.hits++;
        slr_block_totals.async++;
        base = b->base;
    }
    slr_block_unlock();
    return base;
}

/* ---- new blocks ---- */

/* Under the lock. What blocks serve comes back, and is kept then. */
static bool fits_budget(const struct request *q, size_t size, uint64_t budget)
{
    return slr_block_devices[q->device].free.bytes + slr_pools_served(q->device) + size <= budget;
}

/* The size of the block to be made; 0: none. */
static size_t spend(const struct request *q)
{
    const uint64_t budget = slr_block_device_budget(q->device);
    size_t size = 0;
    slr_block_lock();
    const struct slr_pool *p = slr_pool_find(q->pool);
    struct slr_credit *c = slr_pool_is_plain(p) && p->classes ? &p->classes[slr_class_index(q->bytes)] : NULL;
    const size_t want = slr_block_new_size(q->device, q->bytes);
    if (c && c->credit && fits_budget(q, want, budget) && slr_block_leaving(q->device, q->bytes) < MOST_LEAVING) {
        c->credit--;
        c->made++;
        slr_block_totals.misses++;
        slr_block_totals.async++;
        size = want;
    }
    slr_block_unlock();
    return size;
}

/* Memory is short. The pool may have it still. */
static void close_class(const struct request *q)
{
    slr_block_lock();
    const struct slr_pool *p = slr_pool_find(q->pool);
    struct slr_credit *c = p && p->classes ? &p->classes[slr_class_index(q->bytes)] : NULL;
    if (c)
        *c = (struct slr_credit){.made = c->made > 0 ? c->made - 1 : 0, .closed_until = slr_now_ms() + CLOSED_MS};
    slr_block_totals.misses--;
    slr_block_totals.async--;
    slr_block_unlock();
}

static CUdeviceptr make(const struct request *q)
{
    CUdeviceptr base = 0;
    const size_t size = spend(q);
    if (!size)
        return 0;
    if (slr_real.cuMemAlloc(&base, size) != CUDA_SUCCESS) {
        close_class(q);
        return 0;
    }
    const struct slr_block made = {.base = base, .size = size, .device = q->device, .ctx = q->ctx, .pool = q->number};
    slr_block_enter(&made, q->bytes);
    return base;
}

bool slr_pool_serve(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct request q = {.bytes = bytes, .pool = pool, .stream = stream == CU_STREAM_LEGACY ? NULL : stream};
    if (!out || bytes == 0 || bytes > SLR_CLASS_MAX || slr_guard != 0 || !slr_block_ours() || !supported() ||
        !is_served(&q))
        return false;
    struct slr_block *b = find_block(&q);
    const CUdeviceptr base = b ? hand_out(b, &q) : make(&q);
    if (!base)
        return false;
    if (!slr_pool_note_high(q.pool)) { /* another device has got access meanwhile, and not to this */
        slr_block_free(base);
        return false;
    }
    *out = base;
    return true;
}
