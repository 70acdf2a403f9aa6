/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in the race oracle's file: sizes are rounded up to powers of two, each with a list of free pieces. */
#include "race.h"
#include "race_state.h"
#include <string.h>

#define UNIT 32
#define FIRST ((race_at)((sizeof(struct race_file) + UNIT - 1) / UNIT))

static bool full; /* of this process; under the file's lock */

void *race_ptr(race_at at)
{
    return (char *)race_file + (size_t)at * UNIT;
}

static unsigned class_of(size_t bytes)
{
    unsigned k = 0;
    while (((size_t)UNIT << k) < bytes)
        k++;
    return k;
}

race_at race_alloc(size_t bytes)
{
    struct race_file *f = race_file;
    unsigned k = class_of(bytes);
    race_at at = k < RACE_CLASSES ? f->free[k] : 0;

    if (at) {
        memcpy(&f->free[k], race_ptr(at), sizeof(at));
    } else if (k < RACE_CLASSES && ((size_t)f->top << 5) + ((size_t)UNIT << k) <= f->bytes) {
        at = f->top;
        f->top += (race_at)1 << k;
    }
    full |= !at;
    if (at)
        memset(race_ptr(at), 0, bytes);
    return at;
}

void race_free(race_at at, size_t bytes)
{
    unsigned k = class_of(bytes);
    if (!at)
        return;
    memcpy(race_ptr(at), &race_file->free[k], sizeof(at));
    race_file->free[k] = at;
}

bool race_is_full(void)
{
    return full;
}

/* Nothing that has run is remembered, so all of it must pass for ordered. */
void race_wipe(void)
{
    struct race_file *f = race_file;

    memset(f->free, 0, sizeof(f->free));
    memset(f->words, 0, sizeof(f->words));
    memset(f->blocks, 0, sizeof(f->blocks));
    f->suspended = 0;
    f->nsuspended = 0;
    f->top = FIRST;
    for (uint32_t q = 0; q < f->nqueues; q++)
        f->host[q] = f->queues[q].last;
    f->wipes++;
    full = false;
}

size_t race_bucket(struct race_key key, uint64_t offset)
{
    uint64_t h = (key.a * 0x9E3779B97F4A7C15ull ^ key.b) * 0xC2B2AE3D27D4EB4Full ^ offset * 0x165667B19E3779F9ull;
    return (h ^ h >> 29) % RACE_BUCKETS;
}
