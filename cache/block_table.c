/* SPDX-License-Identifier: Apache-2.0 */
/* Where blocks are found: all by address and by generation, kept ones by size. */
#include "cache/block_impl.h"

#include <stdlib.h>
#include <string.h>

static struct slr_intervals by_address;
static struct slr_block **by_generation; /* sorted */
static size_t count, room;

bool slr_table_find(CUdeviceptr p, struct slr_interval *out)
{
    return slr_intervals_find(&by_address, p, out);
}

/* Index of the first block whose generation is not below. */
static size_t position(uint64_t generation)
{
    size_t lo = 0, hi = count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (by_generation[mid]->generation < generation)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool grow(void)
{
    if (count < room)
        return true;
    size_t larger = room ? room * 2 : 64;
    struct slr_block **p = realloc(by_generation, larger * sizeof(*p));
    if (!p)
        return false;
    by_generation = p;
    room = larger;
    return true;
}

static uint32_t flags_of(const struct slr_block *b)
{
    return b->collective ? SLR_INTERVAL_COLLECTIVE : 0;
}

bool slr_table_insert(struct slr_block *b)
{
    struct slr_interval v = {
        .base = b->base, .size = b->size, .generation = b->generation, .ordinal = b->ordinal, .flags = flags_of(b)};
    /* Room first: when the second step fails nothing has been entered. */
    if (!grow() || !slr_intervals_put(&by_address, &v))
        return false;
    size_t at = position(b->generation);
    memmove(by_generation + at + 1, by_generation + at, (count - at) * sizeof(*by_generation));
    by_generation[at] = b;
    count++;
    return true;
}

void slr_table_remove(struct slr_block *b)
{
    size_t at = position(b->generation);
    if (at == count || by_generation[at] != b)
        return;
    memmove(by_generation + at, by_generation + at + 1, (count - at - 1) * sizeof(*by_generation));
    count--;
    slr_intervals_drop(&by_address, b->base);
}

struct slr_block *slr_table_by_generation(uint64_t generation)
{
    size_t at = position(generation);
    return at < count && by_generation[at]->generation == generation ? by_generation[at] : NULL;
}

struct slr_block *slr_table_overlap(CUdeviceptr base, size_t size)
{
    struct slr_interval v;
    return slr_intervals_overlap(&by_address, base, size, &v) ? slr_table_by_generation(v.generation) : NULL;
}

size_t slr_table_count(void)
{
    return count;
}

struct slr_block *slr_table_at(size_t i)
{
    return by_generation[i];
}

void slr_table_update(const struct slr_block *b)
{
    slr_intervals_set_flags(&by_address, b->base, flags_of(b));
}

/* ---- kept blocks: size classes ---- */

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
