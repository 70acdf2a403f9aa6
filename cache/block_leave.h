/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned blocks that the application has freed in the order of a stream, within the block cache;
 * blocks.h has what others call. Such a block is BUSY, so nobody is given it, until the stream has
 * come there; then it is kept. Thread-safe, without the lock. */
#ifndef SLR_CACHE_BLOCK_LEAVE_H
#define SLR_CACHE_BLOCK_LEAVE_H

#include "cache/block.h"

/* `stream` is to be of the current context; CUDA_SUCCESS, or it is none of those. */
CUresult slr_block_leave(struct slr_block *b, CUstream stream);

/* Keeps those whose streams have come to their free. What is not worth keeping goes as what is idle
 * does. */
void slr_block_keep_left(void);

#endif
