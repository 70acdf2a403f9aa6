/* The free blocks of one device, by size class: which one serves a request, and which one goes when there are too many.
 * No locking: the caller's. */
#ifndef SLR_CACHE_KEPT_H
#define SLR_CACHE_KEPT_H

#include "base/real.h"
#include "cache/classes.h"

enum slr_block_state {
    SLR_BLOCK_USED, /* the application holds it */
    SLR_BLOCK_BUSY, /* a thread is freeing it, or giving it back to the driver */
    SLR_BLOCK_KEPT
};

enum slr_block_kind {
    SLR_BLOCK_CACHED,  /* made by the cache */
    SLR_BLOCK_ADOPTED, /* cuMemAlloc memory of the application, known as long as it is registered (adopt.h) */
    SLR_BLOCK_VIRTUAL  /* a mapping of cuMemMap that can be shared by a descriptor, known until it is unmapped */
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
    uint32_t adopters; /* registrations that hold it */
    enum slr_block_handle handle_state;
    CUipcMemHandle handle;             /* when it was MADE */
    uint64_t last_use, use_before;     /* when it was last handed out, and the time before; 0: never */
    uint64_t kept_ms;                  /* when it was freed and kept, in milliseconds of the monotonic clock */
    struct slr_block *previous, *next; /* in its class's list; `next` also in a chain of blocks that leave */
};

struct slr_kept {
    struct slr_block *list[SLR_CLASSES];
    uint64_t bytes;
    uint64_t clock; /* counts the requests that blocks of the device served */
};

void slr_kept_add(struct slr_kept *k, struct slr_block *b);
void slr_kept_remove(struct slr_kept *k, struct slr_block *b);

/* The block that serves a request best, still in its list; NULL: none fits. */
struct slr_block *slr_kept_fit(const struct slr_kept *k, size_t bytes);

/* Whether the request's class has any block, fitting or not. */
bool slr_kept_has_class(const struct slr_kept *k, size_t bytes);

/* The unpinned block that is least worth keeping, still in its list; NULL: none. */
struct slr_block *slr_kept_victim(const struct slr_kept *k);

/* An unpinned block that has been kept since `ms` or longer, still in its list; NULL: none. */
struct slr_block *slr_kept_since(const struct slr_kept *k, uint64_t ms);

/* Bytes of unpinned blocks. */
uint64_t slr_kept_spare(const struct slr_kept *k);

#endif
