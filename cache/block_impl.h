/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the block cache (blocks.h), for this folder only: blocks and their states, the
 * table and the lists that hold them, size classes, and their way back to the driver. */
#ifndef SLR_CACHE_BLOCK_IMPL_H
#define SLR_CACHE_BLOCK_IMPL_H

#include <stdatomic.h>
#include <time.h>
#include "cache/blocks.h"

/* A block's states. One that is BUSY belongs to the thread that made it so, which works on it
 * without the lock.
 *
 *   USED --freed--> BUSY --worth keeping--> FREE --a request fits--> USED
 *                    |                       |
 *                    |                       +--memory is short, over the budget, idle--> BUSY
 *                    |
 *                    +--freed in a stream's order, a request on that stream fits--> USED
 *                    |
 *                    +--given back to the driver--> the structure is freed */
enum slr_block_state {
    SLR_BLOCK_USED, /* the application holds it */
    SLR_BLOCK_BUSY, /* a thread or a stream is freeing it, or it is being given back to the driver */
    SLR_BLOCK_FREE  /* nobody holds it; it is in its device's free list */
};

enum slr_block_kind {
    SLR_BLOCK_CACHED,     /* made by the cache */
    SLR_BLOCK_REGISTERED, /* external: cuMemAlloc memory, while it is registered */
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
    uint32_t registrations; /* that hold it */
    enum slr_block_handle handle_state;
    CUipcMemHandle handle; /* when it was MADE */
    uint64_t last_use,
        use_before;    /* its device's count of requests when it was last handed out; the time before; 0: never */
    uint64_t freed_ms; /* when it was freed, in milliseconds of the monotonic clock */
    CUevent freed;     /* while BUSY: behind its free in the order of a stream (slr_block_leave) */
    CUstream freed_on; /* that stream, of the block's context; CU_STREAM_PER_THREAD: it can not be told */
    uint64_t freed_nr; /* of the latest such free, from 1; 0: there was none */
    uint32_t pool;     /* number of the program's, whose request it serves, or served last (pools.c); 0: none */
    struct slr_block *previous, *next; /* in its class's list; `next` also in a chain for the driver, or that leaves */
};

/* ---- size classes: block_table.c ----
 *
 *   up to 4 KiB        multiples of 512 bytes
 *   up to 2 MiB        8 classes for each power of two
 *   up to 16 MiB       multiples of 2 MiB, the driver's page: what lies between is used up anyway
 *   above              8 classes for each power of two, all of them multiples of 2 MiB */
#define SLR_CLASSES (64 * 8)
#define SLR_CLASS_MAX ((size_t)1 << 62) /* larger requests have no class */

size_t slr_class_size(size_t bytes);    /* of the smallest class that holds `bytes` (1..SLR_CLASS_MAX) */
unsigned slr_class_index(size_t bytes); /* its number, below SLR_CLASSES; grows with the size */
size_t slr_class_exact(size_t bytes);   /* rounded to the driver's granularity only; never more than slr_class_size */

/* ---- the free blocks of one device, by size class: block_table.c. No locking: the caller's ---- */

struct slr_free_list {
    struct slr_block *head[SLR_CLASSES]; /* of each class's list */
    uint64_t bytes;
    uint64_t clock; /* counts the requests that blocks of the device served */
};

void slr_free_list_add(struct slr_free_list *list, struct slr_block *b);
void slr_free_list_remove(struct slr_free_list *list, struct slr_block *b);

/* Whether the request's class has any block, fitting or not. */
bool slr_free_list_has_class(const struct slr_free_list *list, size_t bytes);

/* Each still in its list, NULL: none. The block that serves a request best; the unpinned one that
 * is least worth keeping; an unpinned one that has been kept since `ms` or longer. */
struct slr_block *slr_free_list_fit(const struct slr_free_list *list, size_t bytes);
struct slr_block *slr_free_list_victim(const struct slr_free_list *list);
struct slr_block *slr_free_list_since(const struct slr_free_list *list, uint64_t ms);

uint64_t slr_free_list_unpinned(const struct slr_free_list *list); /* bytes of unpinned blocks */

/* ---- intervals.c: which interval an address lies in; one writer at a time, any number of readers
 * ---- */

/* Readers take no lock: they search, and search again when a writer was at work meanwhile
 * (seqlock). The table grows by publishing a larger copy; the old ones stay, because a reader may
 * still be in them. */
struct slr_interval {
    uint64_t base, size;
    uint64_t generation;
    uint32_t ordinal, flags;
};
enum { SLR_INTERVAL_COLLECTIVE = 1 };

struct slr_interval_array;
struct slr_intervals {
    _Atomic uint64_t sequence; /* odd while a writer is at work */
    _Atomic size_t count;
    _Atomic(struct slr_interval_array *) array;
};

/* For readers. False: `address` is in no interval. */
bool slr_intervals_find(struct slr_intervals *t, uint64_t address, struct slr_interval *out);

/* For the writer. `v` must overlap no interval of the table. False: out of host memory, nothing
 * changed. */
bool slr_intervals_put(struct slr_intervals *t, const struct slr_interval *v);
void slr_intervals_drop(struct slr_intervals *t, uint64_t base);
void slr_intervals_set_flags(struct slr_intervals *t, uint64_t base, uint32_t flags);

/* For the writer. The first interval that overlaps [base, base + size). */
bool slr_intervals_overlap(struct slr_intervals *t, uint64_t base, uint64_t size, struct slr_interval *out);

/* ---- block_table.c: all blocks that the application or the cache holds. Under the lock ---- */

bool slr_table_find(CUdeviceptr p, struct slr_interval *out); /* without the lock */
bool slr_table_insert(struct slr_block *b);                   /* false: out of host memory */
void slr_table_remove(struct slr_block *b);
void slr_table_update(const struct slr_block *b); /* after a change of `collective` */

struct slr_block *slr_table_by_generation(uint64_t generation);
struct slr_block *slr_table_overlap(CUdeviceptr base, size_t size); /* one that overlaps the memory, or NULL */

/* To visit all: blocks 0 .. count-1, by generation. */
size_t slr_table_count(void);
struct slr_block *slr_table_at(size_t i);

/* ---- block_state.c: the lock, the books, and how a block goes from one state to another ---- */

/* SLIPRING_ALLOC, as in settings.def. */
enum { SLR_ALLOC_OFF, SLR_ALLOC_COLLECTIVE, SLR_ALLOC_ALL };

struct slr_block_device {
    uint64_t budget;
    uint32_t ordinals, pool_ordinals;
    uint64_t returning; /* bytes that threads are giving back to the driver now */
    struct slr_free_list free;
};
extern struct slr_block_device slr_block_devices[SLR_BLOCK_DEVICES];
extern struct slr_block_stats slr_block_totals;

/* Bytes of the requests that blocks serve, of each pool by its number; [0]: of all others. */
#define SLR_BLOCK_POOLS 32
extern uint64_t slr_block_served[SLR_BLOCK_POOLS + 1];

/* Bytes that may be kept on the device, of the settings and its memory. A driver call: not under
 * the lock. */
uint64_t slr_block_device_budget(int device);

void slr_block_lock(void);
void slr_block_unlock(void);

/* The cache is this process's from the first block on. In a child after fork it is not: the lock
 * may be held by a thread that does not exist there. Ours: it has blocks, and they are this
 * process's. Usable: ours, or nobody's yet. */
void slr_block_own(void);
bool slr_block_ours(void);
bool slr_block_usable(void);

/* The rest under the lock. `returning` of a device went down; waits for that, false when the time
 * is over. */
void slr_block_returned(void);
bool slr_block_wait_returned(const struct timespec *end);

/* From BUSY to the state, or from any state to BUSY. */
void slr_block_to_used(struct slr_block *b);
void slr_block_to_free(struct slr_block *b);
void slr_block_to_busy(struct slr_block *b);

/* Enters new memory, of base, size, device and context (and pool) of `made`, as a block that the
 * application holds, for a request of `bytes`. Without host memory for that, it is the driver's.
 * Takes the lock. */
void slr_block_enter(const struct slr_block *made, size_t bytes);

size_t slr_block_new_size(int device, size_t bytes); /* of the block that is made for a request */

void slr_block_drop(struct slr_block *b); /* the end of a block that is BUSY and in no table */

/* A SLR_BLOCK_REGISTERED block ends when no registration holds it and nobody has pinned it. */
void slr_block_end_unregistered(struct slr_block *b);

/* Its memory went with the context, or the driver has given the address to somebody else. */
void slr_block_vanish(struct slr_block *b);

uint64_t slr_block_new_generation(void); /* a number that no other block of the process has */
void slr_block_note_use(struct slr_block *b, size_t bytes);
bool slr_block_worth_keeping(const struct slr_block *b);

/* ---- block_trim.c: blocks on their way back to the driver ---- */

/* Under the lock. Chains what goes now that the block was freed or unpinned: itself when only its
 * pins had kept it, else what is over the budget. The caller passes the chain on to
 * slr_block_give_back. */
struct slr_block *slr_block_unwanted(struct slr_block *b);

/* Without the lock: the driver may wait for the device. Gives a chain to the driver; returns the
 * bytes that it took. */
size_t slr_block_give_back(struct slr_block *chain);

/* ---- block_leave.c: blocks that leave in the order of a stream ---- */

/* A block that the application has freed in the order of a stream, of the current context. It is
 * BUSY until the stream has come there; then it is kept. CUDA_SUCCESS, or it is none of those.
 * Without the lock. */
CUresult slr_block_leave(struct slr_block *b, CUstream stream);

/* Keeps those whose streams have come to their free. Without the lock. */
void slr_block_keep_left(void);

/* Under the lock. The one that was freed last on this stream of the device's primary context, for a request
 * on the same, whether the stream has come there or not: the caller's, BUSY. NULL: none fits. */
struct slr_block *slr_block_take_freed_on(int device, size_t bytes, CUstream stream);

unsigned slr_block_leaving(int device, size_t bytes); /* under the lock: how many leave that fit a request */

/* The end of what the caller has taken so: of its event. Without the lock. */
void slr_block_taken(struct slr_block *b);

/* Memory is short: waits a while for the streams of those of a device, -1: of all. Whether there
 * were any. Without the lock. */
bool slr_block_await_left(int device);

/* ---- pools.c ---- */

/* Under the lock. The device's primary context is gone; -1: all are. */
void slr_pools_forget(int device);

#endif
