/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is allocated in the order of a stream (cuMemAllocAsync, cuMemAllocFromPoolAsync) as
 * blocks of the cache. Other processes can not map a pool's memory for longer than until it is
 * freed, so what takes part in gathers does not come from the pool: a block serves the request, as
 * if it were the pool's.
 *
 * Which requests. The program's first ones are the driver's, and their shards are staged. A gather
 * that meets a pool's memory gives the pool *credit* for blocks of that size class:
 *
 *   credit 0 --met--> as many as were made of the class, at least 1, at most 64
 *   credit n --a request of the class, and no block fits--> n - 1, and a new block serves it
 *   credit 0 --a request of the class, and no block fits--> the driver's
 *   any --the driver has no memory for a new block--> 0, and closed for 10 s
 *
 * With SLIPRING_ALLOC=all a request needs no gather that has met the pool: credit is as good as
 * endless, but where a class is closed.
 *
 * Whatever shares a size with what is gathered takes blocks, too; so a class gets as many as the
 * program has in use at once, in a few calls, and no more: none is made while four of the class
 * leave (below), as the host may be far ahead, nor for more than may be kept (docs/memory.md).
 * Where nobody gathers no pool has credit and everything is the driver's (R7).
 *
 * Which pools. *Plain* ones: a device's default pool, and those that the program has made of
 * pinned memory of a device without handle types, largest size, usage, or what is newer. As long
 * as no other device has access: cuMemPoolSetAccess ends that for good. Pools of other processes
 * are never plain. The pool, the stream and the current context have to be of one device, that
 * context its primary one.
 *
 * Order. A block that is freed in the order of a stream leaves (block_leave.c): until the stream
 * has come to the free only a request on the same stream is served by it, which needs no wait, as
 * the stream's order is the program's. A request is served by what was freed last on its stream,
 * whether that has come there or not: where ranks do the same, in each iteration, they get the same
 * memory, however far the hosts are ahead. No stream ever waits for another one: gathers count on
 * allocations that wait for nothing (docs/protocol.md, Overtaking). So the attributes
 * REUSE_FOLLOW_EVENT_DEPENDENCIES and REUSE_ALLOW_INTERNAL_DEPENDENCIES change nothing for blocks.
 *
 * Books. What a pool has used and reserved counts the bytes that blocks serve, as asked for,
 * between the two calls. The high marks are taken at each request that a block serves, and when
 * they are asked for.
 *
 * While anything captures, in a child after fork, and from the moment that something bypasses
 * slipring, requests are the driver's. */
#ifndef SLR_CACHE_POOLS_H
#define SLR_CACHE_POOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/real.h"

/* Some pool has, or had, credit: looked at by each allocation, in one instruction as it is hidden. */
extern _Atomic bool slr_pools_credited __attribute__((visibility("hidden")));

static inline bool slr_pools_any(void)
{
    return __builtin_expect(atomic_load_explicit(&slr_pools_credited, memory_order_relaxed), 0);
}

/* Before anything is allocated: with SLIPRING_ALLOC=all the first request may be served. */
void slr_pools_install(void);

/* A gather has met memory at `p` that is no block. True: a pool's, which has got credit. Calls the
 * driver. */
bool slr_pool_met(CUdeviceptr p);

/* cuMemAllocAsync (`pool` NULL) and cuMemAllocFromPoolAsync, `stream` as without _ptsz. False: the
 * request is the driver's. */
bool slr_pool_serve(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);

/* ---- what the program does with its pools; the driver has done it ---- */

void slr_pool_made(CUmemoryPool pool, const CUmemPoolProps *props);
void slr_pool_gone(CUmemoryPool pool);

/* Before the driver does it. */
void slr_pool_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n);

/* Behind it: devices that have access to the pool's memory get it to all of its device's, which
 * blocks that serve requests of the pool are. */
void slr_pool_access_given(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n);

/* Of what the driver answers to cuMemPoolGetAttribute; a high mark is set back. */
void slr_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
void slr_pool_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute);

/* The pool whose request the block at `p` serves; NULL: none. */
CUmemoryPool slr_pool_of(CUdeviceptr p);

#endif
