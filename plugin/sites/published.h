/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank publishes of each call: the record that the analysis of call sites reads
 * (symmetry.h).
 *
 * Every rank has a ring of SLR_PUBLISHED records in the control block, written by that rank only,
 * by one thread at a time. For call number c (equal on all ranks, from 1) it writes record c modulo
 * SLR_PUBLISHED:
 *
 *   call     c - 512 (or 0: never written) -> 0 (being written) -> c
 *   word[]   shard, whether a reduce-scatter, whether in place; for each buffer {ordinal and generation, size of the
 *            block, offset}
 *
 * A record is one cache line, so of the generation only 32 bits are there; 0: the buffer is in no
 * block of the cache, and its address stands for the offset.
 *
 * A reader takes the record of call c only if `call` is c before and after it has read the words.
 * Words are stored with release and loaded with acquire: who meets a new word meets the new `call`
 * as well, so a torn record is never taken (which needs no fence; ThreadSanitizer would not
 * understand one). Neither side waits; there are no locks.
 */
#ifndef SLR_PLUGIN_SITES_PUBLISHED_H
#define SLR_PLUGIN_SITES_PUBLISHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "plugin/comm/control.h"

struct slr_place;
struct slr_use;

/* Publishes a call: `ring` is the rank's own. A place whose generation is 0: only its offset
 * counts. */
void slr_published_write(struct slr_published *ring, uint64_t call, bool scatter, uint64_t shard, bool in_place,
                         const struct slr_place *send, const struct slr_place *recv);

/* Reads call `call` of rank `rank`. SLR_PUBLISHED_GONE: *newer is the call that has taken its
 * record. */
enum slr_published_result { SLR_PUBLISHED_OK, SLR_PUBLISHED_NOT_YET, SLR_PUBLISHED_GONE };
enum slr_published_result slr_published_read(const struct slr_published *ring, uint64_t call, int rank,
                                             struct slr_use *use, uint64_t *newer);

#endif
