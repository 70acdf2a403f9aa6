/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/block_impl.h"

#include <sched.h>
#include <stdlib.h>

#define FIRST_ROOM 64
#define SPINS 64

struct row {
    _Atomic uint64_t size, generation, numbers; /* numbers: ordinal, flags */
};

struct slr_interval_array {
    struct slr_interval_array *older; /* kept for readers, and for leak checkers */
    size_t room;
    struct row *row;
    _Atomic uint64_t base[]; /* apart from the rest: the search touches nothing else */
};

/* Readers load data with acquire and the sequence after it; writers store the odd sequence before
 * data, which they store with release. So a reader that meets a writer's data meets its sequence as
 * well, and no fence is needed (which ThreadSanitizer would not understand). */
static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static void write_begin(struct slr_intervals *t)
{
    uint64_t s = atomic_load_explicit(&t->sequence, memory_order_relaxed);
    atomic_store_explicit(&t->sequence, s + 1, memory_order_relaxed);
}

static void write_end(struct slr_intervals *t)
{
    uint64_t s = atomic_load_explicit(&t->sequence, memory_order_relaxed);
    atomic_store_explicit(&t->sequence, s + 1, memory_order_release);
}

static struct slr_interval_array *array_of(struct slr_intervals *t)
{
    return atomic_load_explicit(&t->array, memory_order_acquire);
}

/* How many of the first n bases are not above `address`. Ends whatever a writer does to them. */
static size_t rank_of(const struct slr_interval_array *a, size_t n, uint64_t address)
{
    const _Atomic uint64_t *at = a->base;
    while (n > 1) {
        size_t half = n / 2;
        at = get(&at[half]) <= address ? at + half : at;
        n -= half;
    }
    return (size_t)(at - a->base) + (n && get(at) <= address);
}

static void read_row(const struct slr_interval_array *a, size_t i, struct slr_interval *out)
{
    uint64_t numbers = get(&a->row[i].numbers);
    *out = (struct slr_interval){.base = get(&a->base[i]),
                                 .size = get(&a->row[i].size),
                                 .generation = get(&a->row[i].generation),
                                 .ordinal = (uint32_t)(numbers >> 32),
                                 .flags = (uint32_t)numbers};
}

static bool search(struct slr_intervals *t, uint64_t address, struct slr_interval *out)
{
    struct slr_interval_array *a = array_of(t);
    size_t n = atomic_load_explicit(&t->count, memory_order_acquire);
    if (!a || n == 0)
        return false;
    size_t i = rank_of(a, n < a->room ? n : a->room, address);
    if (i == 0)
        return false;
    read_row(a, i - 1, out);
    return address - out->base < out->size;
}

bool slr_intervals_find(struct slr_intervals *t, uint64_t address, struct slr_interval *out)
{
    for (unsigned tries = 1;; tries++) {
        uint64_t before = atomic_load_explicit(&t->sequence, memory_order_acquire);
        if ((before & 1) == 0) {
            bool found = search(t, address, out);
            if (atomic_load_explicit(&t->sequence, memory_order_relaxed) == before)
                return found;
        }
        if (tries % SPINS == 0)
            sched_yield();
    }
}

static struct slr_interval_array *array_new(size_t room)
{
    struct slr_interval_array *a = calloc(1, sizeof(*a) + room * sizeof(a->base[0]));
    struct row *rows = calloc(room, sizeof(*rows));
    if (!a || !rows) {
        free(a);
        free(rows);
        return NULL;
    }
    a->room = room;
    a->row = rows;
    return a;
}

static void write_row(struct slr_interval_array *a, size_t i, const struct slr_interval *v)
{
    set(&a->base[i], v->base);
    set(&a->row[i].size, v->size);
    set(&a->row[i].generation, v->generation);
    set(&a->row[i].numbers, (uint64_t)v->ordinal << 32 | v->flags);
}

static void copy_row(struct slr_interval_array *to, size_t i, const struct slr_interval_array *from, size_t j)
{
    struct slr_interval v;
    read_row(from, j, &v);
    write_row(to, i, &v);
}

/* The array with room for one more, published; NULL: no memory. */
static struct slr_interval_array *with_room(struct slr_intervals *t, size_t n)
{
    struct slr_interval_array *a = array_of(t);
    if (a && n < a->room)
        return a;
    struct slr_interval_array *larger = array_new(a ? a->room * 2 : FIRST_ROOM);
    if (!larger)
        return NULL;
    larger->older = a;
    for (size_t i = 0; i < n; i++)
        copy_row(larger, i, a, i);
    write_begin(t);
    atomic_store_explicit(&t->array, larger, memory_order_release);
    write_end(t);
    return larger;
}

bool slr_intervals_put(struct slr_intervals *t, const struct slr_interval *v)
{
    size_t n = atomic_load_explicit(&t->count, memory_order_relaxed);
    struct slr_interval_array *a = with_room(t, n);
    if (!a)
        return false;
    size_t at = rank_of(a, n, v->base);
    write_begin(t);
    for (size_t i = n; i > at; i--)
        copy_row(a, i, a, i - 1);
    write_row(a, at, v);
    atomic_store_explicit(&t->count, n + 1, memory_order_release);
    write_end(t);
    return true;
}

/* Index of the interval that begins at `base`, or -1. */
static ptrdiff_t index_of(struct slr_intervals *t, uint64_t base)
{
    size_t n = atomic_load_explicit(&t->count, memory_order_relaxed);
    struct slr_interval_array *a = array_of(t);
    size_t i = n ? rank_of(a, n, base) : 0;
    return i && get(&a->base[i - 1]) == base ? (ptrdiff_t)i - 1 : -1;
}

void slr_intervals_drop(struct slr_intervals *t, uint64_t base)
{
    ptrdiff_t at = index_of(t, base);
    if (at < 0)
        return;
    struct slr_interval_array *a = array_of(t);
    size_t n = atomic_load_explicit(&t->count, memory_order_relaxed);
    write_begin(t);
    for (size_t i = (size_t)at; i + 1 < n; i++)
        copy_row(a, i, a, i + 1);
    atomic_store_explicit(&t->count, n - 1, memory_order_release);
    write_end(t);
}

void slr_intervals_set_flags(struct slr_intervals *t, uint64_t base, uint32_t flags)
{
    ptrdiff_t at = index_of(t, base);
    if (at < 0)
        return;
    _Atomic uint64_t *numbers = &array_of(t)->row[at].numbers;
    write_begin(t);
    set(numbers, (get(numbers) & ~(uint64_t)UINT32_MAX) | flags);
    write_end(t);
}

bool slr_intervals_overlap(struct slr_intervals *t, uint64_t base, uint64_t size, struct slr_interval *out)
{
    size_t n = atomic_load_explicit(&t->count, memory_order_relaxed);
    struct slr_interval_array *a = array_of(t);
    if (n == 0)
        return false;
    /* The interval before may reach into the memory, the one at i may begin in it. */
    size_t i = rank_of(a, n, base);
    if (i > 0) {
        read_row(a, i - 1, out);
        if (base - out->base < out->size)
            return true;
    }
    if (i == n)
        return false;
    read_row(a, i, out);
    return out->base - base < size;
}
