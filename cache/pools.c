/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/pools.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"
#include "cache/captures.h"
#include "cache/block_impl.h"

_Atomic bool slr_pools_credited;

/* Of a size class. */
struct credit {
    uint32_t credit, made;
    uint64_t closed_until;
};

/* A program's pool that is plain, or was; or one that never was and may be met: a device's default one. */
struct pool {
    CUmemoryPool handle; /* NULL: none */
    int device;
    bool plain;
    uint64_t high[2];       /* with the driver's: used, reserved */
    struct credit *classes; /* SLR_CLASSES of them; NULL: never met */
};

/* Under the blocks' lock. */
static struct pool pools[SLR_BLOCK_POOLS + 1]; /* by number, from 1 */
static bool unlisted;                          /* one that is not plain had no room: so none is */

/* ---- the list. Under the lock ---- */

static struct pool *find_pool(CUmemoryPool handle)
{
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++)
        if (pools[i].handle && pools[i].handle == handle)
            return &pools[i];
    return NULL;
}

static uint32_t number_of(const struct pool *p)
{
    return (uint32_t)(p - pools);
}

/* Bytes of the requests that blocks serve. */
static uint64_t served_of(const struct pool *p)
{
    return slr_block_served[number_of(p)];
}

static uint64_t served_on(int device)
{
    uint64_t sum = 0;
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++)
        if (pools[i].handle && pools[i].device == device)
            sum += served_of(&pools[i]);
    return sum;
}

static void drop(struct pool *p)
{
    free(p->classes);
    *p = (struct pool){0};
}

/* A number is used again when no block serves a request of the pool that had it; NULL: there are too many. */
static struct pool *add_pool(CUmemoryPool handle, int device, bool plain)
{
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++) {
        if (pools[i].handle || served_of(&pools[i]))
            continue;
        pools[i] = (struct pool){.handle = handle, .device = device, .plain = plain};
        return &pools[i];
    }
    return NULL;
}

/* What is not plain stays so: the driver's pool may outlive the context. */
void slr_pools_forget(int device)
{
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++)
        if (pools[i].plain && (device < 0 || pools[i].device == device))
            drop(&pools[i]);
}

static bool is_plain(const struct pool *p)
{
    return p && p->plain && !unlisted;
}

/* ---- what the program does with its pools ---- */

/* What stands behind the fields that are known is newer than this file, or makes the pool a special one: its largest
 * size, and its usage. */
static bool made_plain(const CUmemPoolProps *props)
{
    static const unsigned char none[sizeof *props];
    const size_t known = offsetof(CUmemPoolProps, win32SecurityAttributes) + sizeof props->win32SecurityAttributes;
    return props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && props->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
           props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && props->location.id >= 0 &&
           props->location.id < SLR_BLOCK_DEVICES && !props->win32SecurityAttributes &&
           memcmp((const char *)props + known, none, sizeof *props - known) == 0;
}

void slr_pool_made(CUmemoryPool pool, const CUmemPoolProps *props)
{
    slr_block_own();
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct pool *p = find_pool(pool);
    if (p) /* its end went by a way that is not hooked */
        drop(p);
    if (made_plain(props))
        add_pool(pool, props->location.id, true);
    slr_block_unlock();
}

void slr_pool_gone(CUmemoryPool pool)
{
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct pool *p = find_pool(pool);
    if (p)
        drop(p);
    slr_block_unlock();
}

static bool is_default(CUmemoryPool pool, int device)
{
    CUmemoryPool own = NULL;
    return slr_real.cuDeviceGetDefaultMemPool && slr_real.cuDeviceGetDefaultMemPool(&own, device) == CUDA_SUCCESS &&
           own == pool;
}

/* Whether it gives access to a device that had none. `owner`: -1 where the pool is not listed. */
static bool gives(CUmemoryPool pool, int owner, const CUmemAccessDesc *d)
{
    if (d->location.type != CU_MEM_LOCATION_TYPE_DEVICE || d->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return false;
    return owner >= 0 ? d->location.id != owner : !is_default(pool, d->location.id);
}

static int owner_of(CUmemoryPool pool)
{
    slr_block_lock();
    const struct pool *p = find_pool(pool);
    const int owner = p ? p->device : -1;
    slr_block_unlock();
    return owner;
}

static void not_plain(CUmemoryPool pool)
{
    slr_block_lock();
    struct pool *p = find_pool(pool);
    if (!p)
        p = add_pool(pool, -1, false);
    if (p)
        p->plain = false;
    else
        unlisted = true;
    slr_block_unlock();
}

void slr_pool_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n)
{
    slr_block_own();
    if (!slr_block_ours() || !map)
        return;
    const int owner = owner_of(pool);
    for (size_t i = 0; i < n; i++)
        if (gives(pool, owner, &map[i]))
            not_plain(pool);
}

/* The device that blocks serve requests of the pool on, -1: none do. */
static int serves_on(CUmemoryPool pool)
{
    slr_block_lock();
    const struct pool *p = find_pool(pool);
    const int device = p && served_of(p) ? p->device : -1;
    slr_block_unlock();
    return device;
}

/* As cudaMalloc memory needs it. A context that does not exist yet has no way to get it. */
static void enable(int from, int to)
{
    CUcontext own = NULL, other = NULL, old;
    CUresult r = CUDA_ERROR_INVALID_CONTEXT;
    if (slr_real.cuCtxEnablePeerAccess && slr_block_device_active(from) && slr_block_device_active(to) &&
        slr_real.cuDevicePrimaryCtxRetain(&other, from) == CUDA_SUCCESS) {
        if (slr_real.cuDevicePrimaryCtxRetain(&own, to) == CUDA_SUCCESS) {
            if (slr_real.cuCtxPushCurrent(other) == CUDA_SUCCESS) {
                r = slr_real.cuCtxEnablePeerAccess(own, 0);
                slr_real.cuCtxPopCurrent(&old);
            }
            slr_real.cuDevicePrimaryCtxRelease(to);
        }
        slr_real.cuDevicePrimaryCtxRelease(from);
    }
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        slr_log(SLR_LOG_WARN, "pool_access", "device=%d owner=%d cuda=%d msg=%s", from, to, (int)r,
                "memory that the pool has given before can not be reached from the device");
}

void slr_pool_access_given(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n)
{
    if (!slr_block_ours() || !map)
        return;
    const int owner = serves_on(pool);
    for (size_t i = 0; i < n && owner >= 0; i++)
        if (gives(pool, owner, &map[i]))
            enable(map[i].location.id, owner);
}

/* ---- books ---- */

static bool is_high(CUmemPool_attribute a)
{
    return a == CU_MEMPOOL_ATTR_USED_MEM_HIGH || a == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
}

static const CUmemPool_attribute current[2] = {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT};

/* Of the driver's own memory of the pool. */
static void read_current(CUmemoryPool pool, cuuint64_t bytes[2])
{
    for (int i = 0; i < 2; i++)
        if (!slr_real.cuMemPoolGetAttribute ||
            slr_real.cuMemPoolGetAttribute(pool, current[i], &bytes[i]) != CUDA_SUCCESS)
            bytes[i] = 0;
}

static void raise_high(struct pool *p, const cuuint64_t bytes[2])
{
    for (int i = 0; i < 2; i++)
        if (p->high[i] < served_of(p) + bytes[i])
            p->high[i] = served_of(p) + bytes[i];
}

static bool note_high(CUmemoryPool pool)
{
    cuuint64_t bytes[2];
    read_current(pool, bytes);
    slr_block_lock();
    struct pool *p = find_pool(pool);
    if (p)
        raise_high(p, bytes);
    const bool plain = is_plain(p);
    slr_block_unlock();
    return plain;
}

void slr_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    cuuint64_t *bytes = value;
    if (!slr_pools_any() || !slr_block_ours())
        return;
    if (is_high(attribute))
        note_high(pool);
    slr_block_lock();
    const struct pool *p = find_pool(pool);
    if (p && (attribute == current[0] || attribute == current[1]))
        *bytes += served_of(p);
    const uint64_t high = p && is_high(attribute) ? p->high[attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] : 0;
    if (high > 0 && *bytes < high)
        *bytes = high;
    slr_block_unlock();
}

void slr_pool_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    if (!slr_pools_any() || !slr_block_ours() || !is_high(attribute))
        return;
    slr_block_lock();
    struct pool *p = find_pool(pool);
    if (p)
        p->high[attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] = 0;
    slr_block_unlock();
}

CUmemoryPool slr_pool_of(CUdeviceptr address)
{
    const struct slr_place at = slr_block_find(address);
    if (!at.generation || !slr_block_ours())
        return NULL;
    slr_block_lock();
    const struct slr_block *b = slr_table_by_generation(at.generation);
    const CUmemoryPool handle = b && b->state == SLR_BLOCK_USED ? pools[b->pool].handle : NULL;
    slr_block_unlock();
    return handle;
}

/* ---- requests that blocks serve ---- */

enum { MOST_CREDIT = 64, MOST_LEAVING = 4 };
#define CLOSED_MS 10000

/* ---- credit ---- */

static bool supported(void)
{
    return slr_get(SLR_S_ALLOC) != SLR_ALLOC_OFF && slr_get(SLR_S_ZERO_COPY) && !slr_reach_past() &&
           slr_real.cuDeviceGetMemPool && slr_real.cuMemGetAddressRange && slr_real.cuStreamGetCtx &&
           slr_real.cuEventQuery;
}

static bool always(void)
{
    return slr_get(SLR_S_ALLOC) == SLR_ALLOC_ALL;
}

void slr_pools_install(void)
{
    atomic_store(&slr_pools_credited, always());
}

/* Under the lock. */
static bool give_credit(struct pool *p, size_t bytes)
{
    if (!p->classes)
        p->classes = calloc(SLR_CLASSES, sizeof *p->classes);
    if (!p->classes)
        return false;
    struct credit *c = &p->classes[slr_class_index(bytes)];
    if (c->credit == 0 && slr_now_ms() >= c->closed_until)
        c->credit = c->made < 1 ? 1 : c->made < MOST_CREDIT ? c->made : MOST_CREDIT;
    atomic_store(&slr_pools_credited, true);
    return true;
}

static bool meet(CUmemoryPool handle, int device, size_t bytes)
{
    const bool own = is_default(handle, device);
    slr_block_own();
    if (!slr_block_ours())
        return false;
    slr_block_lock();
    struct pool *p = find_pool(handle);
    if (!p && own)
        p = add_pool(handle, device, true);
    const bool given = is_plain(p) && p->device == device && give_credit(p, bytes);
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
    const struct pool *p = find_pool(q->pool);
    if (!is_plain(p) || p->device != q->device || !p->classes)
        return false;
    const struct credit *c = &p->classes[slr_class_index(q->bytes)];
    q->number = number_of(p);
    return c->credit || c->made;
}

static bool is_served(struct request *q)
{
    q->device = slr_block_device_current(&q->ctx);
    if (q->device < 0 || (!q->pool && slr_real.cuDeviceGetMemPool(&q->pool, q->device) != CUDA_SUCCESS))
        return false;
    slr_block_lock();
    bool known = is_known(q);
    slr_block_unlock();
    if (!known && always() && meet(q->pool, q->device, q->bytes)) {
        slr_block_lock();
        known = is_known(q);
        slr_block_unlock();
    }
    return known && is_of(q->stream, q->ctx) && !slr_block_capturing() && !slr_stream_may_capture(q->stream);
}

/* Under the lock: one that was freed on this very stream, or that is kept; the caller's, BUSY. */
static struct slr_block *take(const struct request *q)
{
    struct slr_block *b = slr_block_take_freed_on(q->device, q->bytes, q->stream);
    if (b)
        return b;
    b = slr_free_list_fit(&slr_block_devices[q->device].free, q->bytes);
    if (b)
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
    return slr_block_devices[q->device].free.bytes + served_on(q->device) + size <= budget;
}

/* The size of the block to be made; 0: none. */
static size_t spend(const struct request *q)
{
    const uint64_t budget = slr_block_device_budget(q->device);
    size_t size = 0;
    slr_block_lock();
    const struct pool *p = find_pool(q->pool);
    struct credit *c = is_plain(p) && p->classes ? &p->classes[slr_class_index(q->bytes)] : NULL;
    const size_t want = slr_block_new_size(q->device, q->bytes);
    if (c && !c->credit && always() && slr_now_ms() >= c->closed_until)
        c->credit = 1;
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
    const struct pool *p = find_pool(q->pool);
    struct credit *c = p && p->classes ? &p->classes[slr_class_index(q->bytes)] : NULL;
    if (c)
        *c = (struct credit){.made = c->made > 0 ? c->made - 1 : 0, .closed_until = slr_now_ms() + CLOSED_MS};
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

/* As for cuMemAlloc, the first request may say whose the blocks are. */
static bool ours(void)
{
    if (always())
        slr_block_own();
    return slr_block_ours();
}

bool slr_pool_serve(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct request q = {.bytes = bytes, .pool = pool, .stream = stream == CU_STREAM_LEGACY ? NULL : stream};
    if (!out || bytes == 0 || bytes > SLR_CLASS_MAX || slr_guard != 0 || !ours() || !supported() || !is_served(&q))
        return false;
    struct slr_block *b = find_block(&q);
    const CUdeviceptr base = b ? hand_out(b, &q) : make(&q);
    if (!base)
        return false;
    if (!note_high(q.pool)) { /* another device has got access meanwhile, and not to this */
        slr_block_free(base);
        return false;
    }
    *out = base;
    return true;
}
