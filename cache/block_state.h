/* What the files of the block cache share: the lock, the books, and how a block goes from one state to another. All but
 * the first group under the lock. */
#ifndef SLR_CACHE_BLOCK_STATE_H
#define SLR_CACHE_BLOCK_STATE_H

#include <time.h>
#include "cache/block_device.h"
#include "cache/block_table.h"
#include "cache/blocks.h"

enum { SLR_ALLOC_OFF, SLR_ALLOC_COLLECTIVE, SLR_ALLOC_ALL }; /* SLIPRING_ALLOC, as in settings.def */

void slr_block_lock(void);
void slr_block_unlock(void);

/* The cache is this process's from the first block on. In a child after fork it is not: the lock may be held by a
 * thread that does not exist there. Ours: it has blocks, and they are this process's. Usable: ours, or nobody's yet. */
void slr_block_own(void);
bool slr_block_ours(void);
bool slr_block_usable(void);

/* Gives the blocks of a chain to the driver; returns the bytes that it took. Without the lock. */
size_t slr_block_give_back(struct slr_block *chain);

bool slr_block_capturing(void);

/* Waits for all that is queued in the context, as the driver's cuMemFree does. What that would answer in the
 * application's place, too: an error when the context has failed, or when a capture forbids the calling thread to free.
 */
CUresult slr_block_settle(CUcontext ctx, int device);

/* The driver's cuMemFree on slipring's own account, which no capture forbids. */
CUresult slr_block_driver_free(CUdeviceptr p);

extern struct slr_block_device slr_block_devices[SLR_BLOCK_DEVICES];
extern struct slr_block_stats slr_block_totals;

/* Milliseconds of the monotonic clock, to some milliseconds. */
uint64_t slr_block_ms(void);

/* `leaving` of a device went down; waits for that, false when the time is over. */
void slr_block_left(void);
bool slr_block_wait_left(const struct timespec *end);

/* From BUSY to the state, or from any state to BUSY. */
void slr_block_to_used(struct slr_block *b);
void slr_block_to_kept(struct slr_block *b);
void slr_block_to_busy(struct slr_block *b);

/* The end of a block that is BUSY and in no table. */
void slr_block_drop(struct slr_block *b);

/* Adopted memory that no registration holds and nobody has pinned is the driver's again. */
void slr_block_unadopt(struct slr_block *b);

/* A number that no other block of the process has. */
uint64_t slr_block_new_generation(void);

/* Its memory went with the context, or the driver has given the address to somebody else. */
void slr_block_vanish(struct slr_block *b);

void slr_block_note_use(struct slr_block *b, size_t bytes);

bool slr_block_worth_keeping(const struct slr_block *b);

/* Chains what goes now that the kept block was freed or unpinned: itself when only its pins had kept it, else what is
 * over the budget. */
struct slr_block *slr_block_unwanted(struct slr_block *b);

#endif
