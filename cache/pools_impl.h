/* SPDX-License-Identifier: Apache-2.0 */
/* The program's pools as pools.c lists them, for pool_serve.c. */
#ifndef SLR_CACHE_POOLS_IMPL_H
#define SLR_CACHE_POOLS_IMPL_H

#include "cache/block_impl.h"
#include "cache/pools.h"

/* Of a size class. */
struct slr_credit {
    uint32_t credit, made;
    uint64_t closed_until;
};

/* A program's pool that is plain, or was; or one that never was and may be met: a device's default one. */
struct slr_pool {
    CUmemoryPool handle; /* NULL: none */
    int device;
    bool plain;
    uint64_t high[2];           /* with the driver's: used, reserved */
    struct slr_credit *classes; /* SLR_CLASSES of them; NULL: never met */
};

/* Under the blocks' lock. `handle` NULL: none. A number is used again when no block serves a request of the pool that
 * had it; NULL: there are too many. */
struct slr_pool *slr_pool_find(CUmemoryPool handle);
struct slr_pool *slr_pool_add(CUmemoryPool handle, int device, bool plain);
uint32_t slr_pool_number(const struct slr_pool *p); /* from 1 */
uint64_t slr_pool_served(const struct slr_pool *p); /* bytes of the requests that blocks serve */
uint64_t slr_pools_served(int device);              /* of all pools of a device */
bool slr_pool_is_plain(const struct slr_pool *p);

/* Without the lock. Whether it is the device's default pool; takes its high marks, and whether it is plain. */
bool slr_pool_is_default(CUmemoryPool pool, int device);
bool slr_pool_note_high(CUmemoryPool pool);

#endif
