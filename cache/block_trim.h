/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on their way back to the driver, within the block cache; blocks.h has what others call. */
#ifndef SLR_CACHE_BLOCK_TRIM_H
#define SLR_CACHE_BLOCK_TRIM_H

#include "cache/block.h"

/* Under the lock. Chains what goes now that the block was freed or unpinned: itself when only its
 * pins had kept it, else what is over the budget. The caller passes the chain on to
 * slr_block_give_back. */
struct slr_block *slr_block_unwanted(struct slr_block *b);

/* Without the lock: the driver may wait for the device. Gives the blocks of a chain to the driver;
 * returns the bytes that it took. */
size_t slr_block_give_back(struct slr_block *chain);

#endif
