/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/pools.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cache/pools_impl.h"

_Atomic bool slr_pools_credited;

/* Under the blocks' lock. */
static struct slr_pool pools[SLR_BLOCK_POOLS + 1]; /* by number, from 1 */
static bool unlisted;                              /* one that is not plain had no room: so none is */

/* ---- the list. Under the lock ---- */

struct slr_pool *slr_pool_find(CUmemoryPool handle)
{
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++)
        if (pools[i].handle && pools[i].handle == handle)
            return &pools[i];
    return NULL;
}

uint32_t slr_pool_number(const struct slr_pool *p)
{
    return (uint32_t)(p - pools);
}

uint64_t slr_pool_served(const struct slr_pool *p)
{
    return slr_block_served[slr_pool_number(p)];
}

uint64_t slr_pools_served(int device)
{
    uint64_t sum = 0;
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++)
        if (pools[i].handle && pools[i].device == device)
            sum += slr_pool_served(&pools[i]);
    return sum;
}

static void drop(struct slr_pool *p)
{
    free(p->classes);
    *p = (struct slr_pool){0};
}

struct slr_pool *slr_pool_add(CUmemoryPool handle, int device, bool plain)
{
    for (int i = 1; i <= SLR_BLOCK_POOLS; i++) {
        if (pools[i].handle || slr_pool_served(&pools[i]))
            continue;
        pools[i] = (struct slr_pool){.handle = handle, .device = device, .plain = plain};
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

bool slr_pool_is_plain(const struct slr_pool *p)
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
    struct slr_pool *p = slr_pool_find(pool);
    if (p) /* its end went by a way that is not hooked */
        drop(p);
    if (made_plain(props))
        slr_pool_add(pool, props->location.id, true);
    slr_block_unlock();
}

void slr_pool_gone(CUmemoryPool pool)
{
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct slr_pool *p = slr_pool_find(pool);
    if (p)
        drop(p);
    slr_block_unlock();
}

bool slr_pool_is_default(CUmemoryPool pool, int device)
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
    return owner >= 0 ? d->location.id != owner : !slr_pool_is_default(pool, d->location.id);
}

static int owner_of(CUmemoryPool pool)
{
    slr_block_lock();
    const struct slr_pool *p = slr_pool_find(pool);
    const int owner = p ? p->device : -1;
    slr_block_unlock();
    return owner;
}

static void not_plain(CUmemoryPool pool)
{
    slr_block_lock();
    struct slr_pool *p = slr_pool_find(pool);
    if (!p)
        p = slr_pool_add(pool, -1, false);
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
    const struct slr_pool *p = slr_pool_find(pool);
    const int device = p && slr_pool_served(p) ? p->device : -1;
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

static void raise_high(struct slr_pool *p, const cuuint64_t bytes[2])
{
    for (int i = 0; i < 2; i++)
        if (p->high[i] < slr_pool_served(p) + bytes[i])
            p->high[i] = slr_pool_served(p) + bytes[i];
}

bool slr_pool_note_high(CUmemoryPool pool)
{
    cuuint64_t bytes[2];
    read_current(pool, bytes);
    slr_block_lock();
    struct slr_pool *p = slr_pool_find(pool);
    if (p)
        raise_high(p, bytes);
    const bool plain = slr_pool_is_plain(p);
    slr_block_unlock();
    return plain;
}

void slr_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    cuuint64_t *bytes = value;
    if (!slr_pools_any() || !slr_block_ours())
        return;
    if (is_high(attribute))
        slr_pool_note_high(pool);
    slr_block_lock();
    const struct slr_pool *p = slr_pool_find(pool);
    if (p && (attribute == current[0] || attribute == current[1]))
        *bytes += slr_pool_served(p);
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
    struct slr_pool *p = slr_pool_find(pool);
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
