/* SPDX-License-Identifier: Apache-2.0 */
/* Which interval an address lies in: a sorted table with one writer at a time and any number of
 * readers.
 *
 * Readers take no lock: they search, and search again when a writer was at work meanwhile
 * (seqlock). All shared words are atomics. The table grows by publishing a larger copy; the old
 * ones stay, because a reader may still be in them: together they are never larger than the newest.
 */
#ifndef SLR_CACHE_INTERVALS_H
#define SLR_CACHE_INTERVALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slr_interval {
    uint64_t base, size;
    uint64_t generation;
    uint32_t ordinal, flags;
};

struct slr_interval_array;
struct slr_intervals {
    _Atomic uint64_t sequence; /* odd while a writer is at work */
    _Atomic size_t count;
    _Atomic(struct slr_interval_array *) array;
};

/* For readers. False: `address` is in no interval. */
bool slr_intervals_find(struct slr_intervals *t, uint64_t address, struct slr_interval *out);

/* For the writer; the caller sees to it that there is one at a time. `v` must overlap no interval
 * of the table. False: out of host memory, nothing changed. */
bool slr_intervals_put(struct slr_intervals *t, const struct slr_interval *v);
void slr_intervals_drop(struct slr_intervals *t, uint64_t base);
void slr_intervals_set_flags(struct slr_intervals *t, uint64_t base, uint32_t flags);

/* For the writer. The first interval that overlaps [base, base + size). */
bool slr_intervals_overlap(struct slr_intervals *t, uint64_t base, uint64_t size, struct slr_interval *out);

#endif
