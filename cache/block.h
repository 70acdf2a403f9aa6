/* One block of device memory that the cache knows of (blocks.h), and the states that it goes through:
 *
 *   USED --the application frees it--> BUSY --worth keeping--> FREE --a request fits--> USED
 *                                       |                       |
 *                                       |                       BUSY, when memory is short, over the
 *                                       |                       budget or idle for too long
 *                                       v                       v
 *                                     the driver's again, and the structure is freed
 *
 * A BUSY block belongs to the thread that made it so, which works on it without the lock.
 */
#ifndef SLR_CACHE_BLOCK_H
#define SLR_CACHE_BLOCK_H

#include "base/real.h"

enum slr_block_state {
    SLR_BLOCK_USED, /* the application holds it */
    SLR_BLOCK_BUSY, /* a thread is freeing it, or giving it back to the driver */
    SLR_BLOCK_FREE  /* nobody holds it; it is in its device's free list */
};

enum slr_block_kind {
    SLR_BLOCK_CACHED,     /* made by the cache */
    SLR_BLOCK_REGISTERED, /* cuMemAlloc memory of the application, known as long as it is registered (external.h) */
    SLR_BLOCK_VIRTUAL     /* a mapping of cuMemMap that can be shared by a descriptor, known until it is unmapped */
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
    CUipcMemHandle handle;             /* when it was MADE */
    uint64_t last_use, use_before;     /* when it was last handed out, and the time before; 0: never */
    uint64_t freed_ms;                 /* when it was freed, in milliseconds of the monotonic clock */
    struct slr_block *previous, *next; /* in its class's list; `next` also in a chain of blocks that leave */
};

#endif
