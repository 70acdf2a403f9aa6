/* SPDX-License-Identifier: Apache-2.0 */
/* One block of device memory that the cache knows of (blocks.h), and the states that it goes
 * through:
 *
 *   USED --freed--> BUSY --worth keeping--> FREE --a request fits--> USED
 *                    |                       |
 *                    |                       +--memory is short, over the budget, idle--> BUSY
 *                    |
 *                    +--given back to the driver--> the structure is freed
 *
 * A BUSY block belongs to the thread that made it so, which works on it without the lock.
 */
#ifndef SLR_CACHE_BLOCK_H
#define SLR_CACHE_BLOCK_H

#include "base/real.h"

enum slr_block_state {
    SLR_BLOCK_USED, /* the application holds it */
    SLR_BLOCK_BUSY, /* a thread or a stream is freeing it, or it is being given back to the driver */
    SLR_BLOCK_FREE  /* nobody holds it; it is in its device's free list */
};

enum slr_block_kind {
    SLR_BLOCK_CACHED,     /* made by the cache */
    SLR_BLOCK_REGISTERED, /* external (external.h): cuMemAlloc memory, while it is registered */
    SLR_BLOCK_VIRTUAL     /* external: a mapping of cuMemMap, until it is unmapped */
};

enum slr_block_handle { SLR_HANDLE_UNKNOWN, SLR_HANDLE_MADE, SLR_HANDLE_REFUSED };

struct slr_block {
    CUdeviceptr base;
    size_t size;  /* bytes of the physical block */
    size_t asked; /* bytes of the current or last request */
    uint64_t generation;
    uint32_t ordinal;
    int device;
    CUcontext ctx; /* the device's primary context */
    enum slr_block_state state;
    bool collective; /* took part in a substituted collective at least once */
    bool gone;       /* while BUSY: its memory went with the context; who is at it drops it */
    uint32_t pins;
    enum slr_block_kind kind;
    uint32_t registrations; /* that hold it (external.h) */
    enum slr_block_handle handle_state;
    CUipcMemHandle handle; /* when it was MADE */
    /* Its device's count of requests when it was last handed out, and the time before; 0: never. */
    uint64_t last_use, use_before;
    uint64_t freed_ms; /* when it was freed, in milliseconds of the monotonic clock */
    CUevent freed;     /* while BUSY: behind its free in the order of a stream (block_leave.h) */
    /* In its class's list; `next` also in a chain of blocks for the driver, or that leave. */
    struct slr_block *previous, *next;
};

#endif
