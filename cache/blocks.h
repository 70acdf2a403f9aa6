/* SPDX-License-Identifier: Apache-2.0 */
/* The persistent block cache: device memory that survives the application's cudaFree.
 *
 * A block is one real cuMemAlloc of the driver. When the application frees it, the block is kept
 * and given back for the next request of its size class (classes.h), so that a program that frees
 * and allocates in every iteration sees the same addresses, and what peers have mapped stays valid.
 * Among the kept blocks that fit, the one that last served the same size goes first, then the
 * smallest, then the oldest: what a request gets does not depend on the order of frees.
 *
 * Identity. A block is {ordinal, size, generation}, never its address: `generation` is unique in
 * the process for each physical allocation; `ordinal` counts the requests that made new blocks on
 * that device, which is equal on ranks that allocate alike. Free and malloc of the physical memory
 * at the same address is another generation.
 *
 * What is served. Requests of at least SLIPRING_ALLOC_MIN in a device's primary context, outside
 * slipring and outside vendor calls that slipring makes (slr_guard). All else is the driver's.
 * SLIPRING_ALLOC=collective makes new blocks as large as asked (rounded to the driver's page) and
 * keeps those that took part in a substituted collective; SLIPRING_ALLOC=all makes them as large as
 * their class and keeps all.
 *
 * Ordering. The driver's cuMemFree waits for the context's work, so freeing a kept block does as
 * well (cuCtxSynchronize): a program that reuses the address on another stream behind cudaFree
 * finds what it would have found without slipring. When that wait is refused (a failed context),
 * the block goes to the driver, whose answer the application gets.
 *
 * Captures. While a stream captures, CUDA refuses to synchronise its context, whatever the mode,
 * and breaks the capture. cuMemFree is another matter: the mode of the capture and the thread
 * decide, and it waits for the context's work all the same. So slipring synchronises nothing while
 * any stream of the process captures, and a free is the driver's: of the block, or, when that is
 * pinned, of some scratch memory in its stead, with the same wait and the same answer. A capture
 * that is about to begin waits for synchronisations that have not found it; frees of slipring's own
 * are made in a mode that no capture forbids.
 *
 * Bounds. Free blocks are kept within a budget for each device (bytes, and a fraction of the
 * device). Those that took no part in a collective go first; among equals the one whose last use
 * but one is longest ago (LRU-2), so sizes that come once do not drive out those that come in every
 * iteration. Before the application sees an out-of-memory error, unpinned free blocks go back to
 * the driver and the request is made again; that waits for the context's work.
 *
 * Idle memory. A block that has been kept for SLIPRING_ALLOC_IDLE without being handed out goes
 * back to the driver, so that other processes on the GPU can have it. Nothing may wait for that:
 * cuMemFree keeps other threads from the driver while it waits for the context's work, and that
 * work may wait for what they are about to launch. Nothing has used the block since it was freed,
 * so it is freed in the order of a stream that has no other work (cuMemFreeAsync). The
 * returning thread (plugin/lifecycle/threads.c) does it, and so do allocations and frees that
 * go through the cache, as a process without a communicator has no thread of slipring's. A block
 * that peers have mapped is revoked first (plugin/memory/exports.h). Not while anything captures.
 *
 * Pins. Who exports a block, or has a gather in flight on it, pins it: a pinned block may be kept
 * or handed out again, but not given back to the driver. Peers copy from where they expect a shard
 * also when it is elsewhere by now (kernels/ring.h), so memory that they have mapped may never be
 * the driver's again before they have closed it, whatever the application's calls say.
 *
 * Thread-safe. The look-up takes no lock; no lock is held while the driver is called. In a child
 * after fork everything is the driver's.
 */
#ifndef SLR_CACHE_BLOCKS_H
#define SLR_CACHE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/real.h"

/* What an address is part of. */
struct slr_place {
    uint64_t generation; /* 0: not in a block of the cache */
    CUdeviceptr base;
    size_t size, offset; /* size: of the physical block */
    uint32_t ordinal;
    bool collective; /* slr_block_mark_collective was called for it */
};

/* Looks an address up: O(log n), no lock, safe beside allocations and frees of other blocks. */
struct slr_place slr_block_find(CUdeviceptr p);

/* cuMemAlloc and cuMemFree as the application means them. The current context is the application's.
 */
CUresult slr_block_alloc(CUdeviceptr *out, size_t bytes);
CUresult slr_block_free(CUdeviceptr p);

/* The driver's cuMemFreeAsync. `stream`: as functions without _ptsz mean it. A block that is pinned
 * is kept in its stead, from when the stream comes to the free; any other is the driver's. */
typedef CUresult (*slr_block_free_async_fn)(CUdeviceptr p, CUstream stream);
CUresult slr_block_free_async(CUdeviceptr p, CUstream stream, slr_block_free_async_fn driver);

/* The driver's cuMemGetInfo, with what could be given back counted as free. */
CUresult slr_block_mem_info(size_t *free_bytes, size_t *total);

/* Gives unpinned free blocks of `device` (-1: that of the current context, or of all when that can
 * not be told) back to the driver until `bytes` are reached or none is left, and waits for those
 * that other threads are giving back. Returns the bytes; when it is not 0, an allocation that
 * failed is worth another try. For out-of-memory errors of other allocators (pools, virtual and
 * managed memory). */
size_t slr_block_trim(int device, size_t bytes);

/* Gives back what has been kept for too long; looks at most every few milliseconds. Waits for no
 * work but its own. */
void slr_block_return_idle(void);

/* Whether the block has been kept for too long, pinned or not. */
bool slr_block_idle(uint64_t generation);

/* A capture of the application is about to begin (1), has ended or did not begin (-1). Waits a
 * little for threads that are about to synchronise a context. */
void slr_block_captures(int change);

/* Pins by generation; false when no such block lives. Unpinning a block that nobody holds may free
 * it, which needs no context to be current. */
bool slr_block_pin(uint64_t generation);
void slr_block_unpin(uint64_t generation);

/* A gather that went to the ring has used the block: it is worth keeping. */
void slr_block_mark_collective(uint64_t generation);

/* The generation has not ended. */
bool slr_block_lives(uint64_t generation);

/* `unpin` is called when memory is short and pinned blocks may be among what is kept: who pins lets
 * go of what it can, waits a little, and returns whether it had anything. Called without locks, on
 * the thread that allocates. */
typedef bool (*slr_block_unpin_fn)(void);
void slr_block_on_shortage(slr_block_unpin_fn unpin);

struct slr_block_stats {
    uint64_t hits, misses;     /* requests that were served by a kept block, by a new one */
    uint64_t trims, evictions; /* blocks given back because memory ran out, because of the budget */
    uint64_t idle;             /* and because nobody asked for them */
    /* In use by the application; free but kept; largest sum of both. Bytes of physical blocks. */
    uint64_t used_bytes, kept_bytes, peak_bytes;
    uint64_t blocks;
};
void slr_block_stats(struct slr_block_stats *out);

/* One line "blocks" at level info. Nothing when the cache was not asked. */
void slr_block_log_stats(void);

#endif
