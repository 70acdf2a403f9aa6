/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the block cache share: the lock, the books, and how a block goes from one state
 * to another. All but the first group under the lock. */
#ifndef SLR_CACHE_BLOCK_STATE_H
#define SLR_CACHE_BLOCK_STATE_H

#include <time.h>
#include "cache/block_device.h"
#include "cache/block_table.h"
#include "cache/blocks.h"

/* SLIPRING_ALLOC, as in settings.def. */
enum { SLR_ALLOC_OFF, SLR_ALLOC_COLLECTIVE, SLR_ALLOC_ALL };

void slr_block_lock(void);
void slr_block_unlock(void);

/* The cache is this process's from the first block on. In a child after fork it is not: the lock
 * may be held by a thread that does not exist there. Ours: it has blocks, and they are this
 * process's. Usable: ours, or nobody's yet. */
void slr_block_own(void);
bool slr_block_ours(void);
bool slr_block_usable(void);

extern struct slr_block_device slr_block_devices[SLR_BLOCK_DEVICES];
extern struct slr_block_stats slr_block_totals;

/* Milliseconds of the monotonic clock, to some milliseconds. */
uint64_t slr_block_now_ms(void);

/* `returning` of a device went down; waits for that, false when the time is over. */
void slr_block_returned(void);
bool slr_block_wait_returned(const struct timespec *end);

/* From BUSY to the state, or from any state to BUSY. */
void slr_block_to_used(struct slr_block *b);
void slr_block_to_free(struct slr_block *b);
void slr_block_to_busy(struct slr_block *b);

/* The end of a block that is BUSY and in no table. */
void slr_block_drop(struct slr_block *b);

/* A SLR_BLOCK_REGISTERED block ends when no registration holds it and nobody has pinned it. */
void slr_block_end_unregistered(struct slr_block *b);

/* A number that no other block of the process has. */
uint64_t slr_block_new_generation(void);

/* Its memory went with the context, or the driver has given the address to somebody else. */
void slr_block_vanish(struct slr_block *b);

void slr_block_note_use(struct slr_block *b, size_t bytes);

bool slr_block_worth_keeping(const struct slr_block *b);

#endif
