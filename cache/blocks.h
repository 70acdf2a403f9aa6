/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that gathers use where it lies: blocks of the cache, which survive the
 * application's cudaFree, and memory that the cache did not make. docs/memory.md has the rules:
 * what is served and kept, which block a request gets, budgets, idle memory, order, captures.
 *
 * A block is {ordinal, size, generation}, never its address: `generation` is unique in the process
 * for each physical allocation, `ordinal` counts the requests that made new blocks on that device,
 * equal on ranks that allocate alike.
 *
 * Thread-safe. The look-up takes no lock; no lock is held while the driver is called. In a child
 * after fork everything is the driver's. */
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

/* Looks an address up: O(log n), no lock, safe beside changes of other blocks. */
struct slr_place slr_block_find(CUdeviceptr p);

/* cuMemAlloc and cuMemFree as the application means them, in its current context. */
CUresult slr_block_alloc(CUdeviceptr *out, size_t bytes);
CUresult slr_block_free(CUdeviceptr p);

/* The driver's cuMemFreeAsync, `stream` as without _ptsz; of a block that is pinned, or that serves
 * a request in the order of a stream (pools.h): keeps it from there on. */
typedef CUresult (*slr_block_free_async_fn)(CUdeviceptr p, CUstream stream);
CUresult slr_block_free_async(CUdeviceptr p, CUstream stream, slr_block_free_async_fn driver);

/* A stream is about to end: a new one may get its handle. */
void slr_block_stream_ends(CUstream stream);

/* The driver's cuMemGetInfo, with what could be given back counted as free. */
CUresult slr_block_mem_info(size_t *free_bytes, size_t *total);

/* Gives unpinned free blocks of `device` (-1: the current context's, or all when that can not be
 * told) back to the driver until `bytes` are reached, and waits for those that other threads give
 * back. Returns the bytes; not 0: an allocation that failed is worth another try. */
size_t slr_block_trim(int device, size_t bytes);

/* Gives back what has been kept for longer than SLIPRING_ALLOC_IDLE, waiting for no other work. */
void slr_block_return_idle(void);

bool slr_block_idle(uint64_t generation); /* whether the block has been kept for too long, pinned or not */

/* A capture is about to begin (1), has ended or did not begin (-1). Waits for who synchronises,
 * briefly. */
void slr_block_captures(int change);

/* Who exports a block, or has a gather in flight on it, pins it: then it is kept or handed out
 * again, but not given back to the driver. Peers copy from where they expect a shard also when it
 * is elsewhere by now. False: no such block lives. Unpinning may free it, which needs no context to
 * be current. */
bool slr_block_pin(uint64_t generation);
void slr_block_unpin(uint64_t generation);

/* A gather that went to the ring has used the block: it is worth keeping. */
void slr_block_mark_collective(uint64_t generation);

bool slr_block_lives(uint64_t generation); /* the generation has not ended */

/* `unpin` is called, without locks, on the thread that allocates, when memory is short: who pins
 * lets go of what it can, waits a little, and returns whether it had anything. */
typedef bool (*slr_block_unpin_fn)(void);
void slr_block_on_shortage(slr_block_unpin_fn unpin);

struct slr_block_stats {
    uint64_t hits, misses;                       /* requests that were served by a kept block, by a new one */
    uint64_t trims, evictions;                   /* blocks given back because memory ran out, because of the budget */
    uint64_t idle;                               /* and because nobody asked for them */
    uint64_t used_bytes, kept_bytes, peak_bytes; /* of physical blocks: in use; free but kept; largest sum of both */
    uint64_t blocks;
    uint64_t async; /* requests in the order of a stream, of those above */
};
void slr_block_stats(struct slr_block_stats *out);

/* One line "blocks" at level info. Nothing when the cache was not asked. */
void slr_block_log_stats(void);

/* ---- memory that the cache did not make: external.c ---- */

/* Entered among the blocks: memory of cuMemAlloc while it is registered with NCCL, and mappings of
 * cuMemMap that a file descriptor can share, until they are unmapped; each one allocation, as
 * cuMemGetAddressRange tells. Ordinals count by themselves: when a gather meets memory must not
 * change those of allocations. */
#define SLR_ORDINAL_EXTERNAL 0x80000000u
#define SLR_ORDINAL_POOL 0x40000000u /* so do those of blocks that are made for pools */

/* The block of a buffer that is being registered: found, or entered. The device's primary context
 * is current. Waits, at most a second, while the program unmaps memory. False: it stays unknown,
 * and the log says why. There may be several holds on a block. */
bool slr_external_hold(CUdeviceptr p, size_t bytes, struct slr_place *out);
bool slr_external_hold_again(uint64_t generation);
void slr_external_release(uint64_t generation);

/* The same for a buffer that a gather has met, without a hold: virtual memory only. */
bool slr_external_enter(CUdeviceptr p, size_t bytes, struct slr_place *out);

/* The same where there was such a block before, and may be again. */
bool slr_external_enter_again(CUdeviceptr p, size_t bytes, struct slr_place *out);

/* Around the driver's cuMemUnmap, or what calls it; they nest. */
void slr_external_unmap_begin(CUdeviceptr p, size_t bytes);
void slr_external_unmap_end(CUdeviceptr p, size_t bytes);

/* The application may free the memory when its registration has ended, held up by no hook. */
bool slr_external_ends_with_registration(uint64_t generation);

void slr_not_shared(const char *why); /* one line "not_shared" for each reason */

/* ---- devices ---- */

#define SLR_BLOCK_DEVICES 64

/* The device whose primary context is current, or -1; `*ctx` is that context. Whether the device's
 * primary context exists. Driver calls: not under a lock. */
int slr_block_device_current(CUcontext *ctx);
bool slr_block_device_active(int device);

/* The device's primary context is about to be destroyed, or has just been. From here on nothing of
 * it is freed, unregistered or closed by address: that may soon be other memory's. Waits, at most a
 * second, for frees on their way. */
void slr_device_reset(int device);

/* How often that was. Who keeps addresses of a context compares the number before they are used,
 * between slr_device_freeing(1) and slr_device_freeing(-1). */
uint32_t slr_device_resets(int device);
void slr_device_freeing(int change);

/* Its blocks are gone, and forgotten without being freed; -1: all. Released: if it was the last
 * release. */
void slr_device_forget(int device);
void slr_device_forget_released(int device);

#endif
