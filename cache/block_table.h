/* SPDX-License-Identifier: Apache-2.0 */
/* All blocks of the process that the application or the cache holds: by generation for pins, by
 * address for everybody. No locking except where it says so: the caller's. */
#ifndef SLR_CACHE_BLOCK_TABLE_H
#define SLR_CACHE_BLOCK_TABLE_H

#include "cache/intervals.h"
#include "cache/free_list.h"

/* Without the lock. */
bool slr_table_find(CUdeviceptr p, struct slr_interval *out);

/* False: out of host memory. */
bool slr_table_insert(struct slr_block *b);
void slr_table_remove(struct slr_block *b);

struct slr_block *slr_table_by_generation(uint64_t generation);

/* A block that overlaps the memory, or NULL. */
struct slr_block *slr_table_overlap(CUdeviceptr base, size_t size);

/* To visit all: blocks 0 .. count-1, by generation. */
size_t slr_table_count(void);
struct slr_block *slr_table_at(size_t i);

/* To be called after a change of `collective`. */
void slr_table_update(const struct slr_block *b);

enum { SLR_INTERVAL_COLLECTIVE = 1 };

#endif
