/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/block_impl.h"

/* ---- size classes ---- */

#define GRAIN ((size_t)512)
#define PAGE ((size_t)2 << 20)

static size_t round_up(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

/* The k with 2^k < bytes <= 2^(k+1); 0 for 1. */
static unsigned octave(size_t bytes)
{
    return bytes < 2 ? 0 : 63 - (unsigned)__builtin_clzl(bytes - 1);
}

static size_t step_of(size_t bytes)
{
    size_t step = ((size_t)1 << octave(bytes)) / 8;
    size_t least = bytes <= PAGE ? GRAIN : PAGE;
    return step > least ? step : least;
}

size_t slr_class_size(size_t bytes)
{
    return round_up(bytes, step_of(bytes));
}

/* Counts eighths of octaves; where steps are coarser than that, numbers are left out. */
unsigned slr_class_index(size_t bytes)
{
    size_t size = slr_class_size(bytes);
    unsigned k = octave(size);
    size_t base = (size_t)1 << k;
    return k * 8 + (unsigned)((size - base) / (base / 8)) - 1;
}

size_t slr_class_exact(size_t bytes)
{
    return round_up(bytes, bytes <= PAGE ? GRAIN : PAGE);
}

/* ---- free blocks ---- */

enum { STALE_INTERVALS = 8, STALE_REQUESTS = 64 };

void slr_free_list_add(struct slr_free_list *list, struct slr_block *b)
{
    struct slr_block **head = &list->head[slr_class_index(b->size)];
    b->previous = NULL;
    b->next = *head;
    if (*head)
        (*head)->previous = b;
    *head = b;
    list->bytes += b->size;
}

void slr_free_list_remove(struct slr_free_list *list, struct slr_block *b)
{
    if (b->previous)
        b->previous->next = b->next;
    else
        list->head[slr_class_index(b->size)] = b->next;
    if (b->next)
        b->next->previous = b->previous;
    b->previous = b->next = NULL;
    list->bytes -= b->size;
}

static bool fits_better(const struct slr_block *a, const struct slr_block *b, size_t bytes)
{
    bool same_a = a->asked == bytes, same_b = b->asked == bytes;
    if (same_a != same_b)
        return same_a;
    if (a->size != b->size)
        return a->size < b->size;
    return a->ordinal < b->ordinal;
}

struct slr_block *slr_free_list_fit(const struct slr_free_list *list, size_t bytes)
{
    struct slr_block *best = NULL;
    for (struct slr_block *b = list->head[slr_class_index(bytes)]; b; b = b->next)
        if (b->size >= bytes && (!best || fits_better(b, best, bytes)))
            best = b;
    return best;
}

bool slr_free_list_has_class(const struct slr_free_list *list, size_t bytes)
{
    return list->head[slr_class_index(bytes)] != NULL;
}

/* The last use but one; 0 for a block that has not been asked for again, or not for long when
 * compared with how often it was: its call site is no more. */
static uint64_t steady_since(const struct slr_block *b, uint64_t now)
{
    uint64_t usual = b->last_use - b->use_before, idle = now - b->last_use;
    return idle > STALE_INTERVALS * usual + STALE_REQUESTS ? 0 : b->use_before;
}

static bool goes_before(const struct slr_block *a, const struct slr_block *b, uint64_t now)
{
    uint64_t since_a = steady_since(a, now), since_b = steady_since(b, now);
    if (a->collective != b->collective)
        return b->collective;
    if (since_a != since_b)
        return since_a < since_b;
    return a->last_use < b->last_use;
}

struct slr_block *slr_free_list_victim(const struct slr_free_list *list)
{
    struct slr_block *worst = NULL;
    for (unsigned c = 0; c < SLR_CLASSES; c++)
        for (struct slr_block *b = list->head[c]; b; b = b->next)
            /* A pinned block can not go, however little it is worth. */
            if (b->pins == 0 && (!worst || goes_before(b, worst, list->clock)))
                worst = b;
    return worst;
}

struct slr_block *slr_free_list_since(const struct slr_free_list *list, uint64_t ms)
{
    if (list->bytes == 0) /* asked of every possible device, many times a second */
        return NULL;
    for (unsigned c = 0; c < SLR_CLASSES; c++)
        for (struct slr_block *b = list->head[c]; b; b = b->next)
            if (b->pins == 0 && b->freed_ms <= ms)
                return b;
    return NULL;
}

uint64_t slr_free_list_unpinned(const struct slr_free_list *list)
{
    uint64_t bytes = 0;
    for (unsigned c = 0; c < SLR_CLASSES; c++)
        for (const struct slr_block *b = list->head[c]; b; b = b->next)
            bytes += b->pins == 0 ? b->size : 0;
    return bytes;
}
