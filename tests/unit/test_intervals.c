/* SPDX-License-Identifier: Apache-2.0 */
/* The address table and the size classes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include "cache/block_impl.h"

static struct slr_interval interval(uint64_t n)
{
    return (struct slr_interval){
        .base = n * 0x1000, .size = 0x800, .generation = n, .ordinal = (uint32_t)n, .flags = (uint32_t)(n & 1)};
}

static bool has(struct slr_intervals *t, uint64_t n)
{
    struct slr_interval v, want = interval(n);
    bool first = slr_intervals_find(t, want.base, &v) && v.generation == n;
    bool last = slr_intervals_find(t, want.base + want.size - 1, &v) && v.generation == n;
    cr_assert_eq(first, last);
    if (first) {
        cr_assert(v.base == want.base && v.size == want.size);
        cr_assert(v.ordinal == want.ordinal && v.flags == want.flags);
        cr_assert(!slr_intervals_find(t, want.base + want.size, &v));
        cr_assert(!slr_intervals_find(t, want.base - 1, &v));
    }
    return first;
}

Test(intervals, empty_table_holds_nothing)
{
    static struct slr_intervals t;
    struct slr_interval v;
    cr_assert(!slr_intervals_find(&t, 0, &v));
    cr_assert(!slr_intervals_find(&t, UINT64_MAX, &v));
    cr_assert(!slr_intervals_overlap(&t, 0, UINT64_MAX, &v));
    slr_intervals_drop(&t, 0x1000);
}

Test(intervals, random_puts_and_drops_agree_with_a_list)
{
    static struct slr_intervals t;
    static bool there[500];
    srand(1);
    for (int step = 0; step < 20000; step++) {
        uint64_t n = 1 + (uint64_t)rand() % 499;
        struct slr_interval v = interval(n);
        if (there[n])
            slr_intervals_drop(&t, v.base);
        else
            cr_assert(slr_intervals_put(&t, &v));
        there[n] = !there[n];
        if (step % 500 == 0)
            for (uint64_t i = 1; i < 500; i++)
                cr_assert_eq(has(&t, i), there[i], "%lu after %d steps", i, step);
    }
}

Test(intervals, overlaps_are_found)
{
    static struct slr_intervals t;
    struct slr_interval v, one = interval(4), two = interval(6);
    cr_assert(slr_intervals_put(&t, &two) && slr_intervals_put(&t, &one));
    cr_assert(!slr_intervals_overlap(&t, 0x3000, 0x1000, &v));
    cr_assert(slr_intervals_overlap(&t, 0x3000, 0x1001, &v) && v.generation == 4);
    cr_assert(slr_intervals_overlap(&t, 0x47ff, 1, &v) && v.generation == 4);
    cr_assert(!slr_intervals_overlap(&t, 0x4800, 0x1800, &v));
    cr_assert(slr_intervals_overlap(&t, 0x4800, 0x1801, &v) && v.generation == 6);
    cr_assert(!slr_intervals_overlap(&t, 0x7000, UINT64_MAX - 0x7000, &v));
}

Test(intervals, flags_change_in_place)
{
    static struct slr_intervals t;
    struct slr_interval v, one = interval(4);
    cr_assert(slr_intervals_put(&t, &one));
    slr_intervals_set_flags(&t, one.base, 7);
    cr_assert(slr_intervals_find(&t, one.base, &v) && v.flags == 7 && v.ordinal == 4);
}

/* Readers beside a writer that puts and drops every odd interval: the even ones are always there, and what is found of
 * the odd ones is whole. */
static struct slr_intervals shared;
static _Atomic bool done;
enum { SHARED = 400 };

static void *reader(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    uint64_t looked = 0;
    for (; !atomic_load(&done) || looked < 1000; looked++) {
        uint64_t n = 1 + (uint64_t)rand_r(&seed) % (SHARED - 1);
        struct slr_interval v, want = interval(n);
        bool found = slr_intervals_find(&shared, want.base + 5, &v);
        if ((n % 2 == 0 && !found) ||
            (found && (v.base != want.base || v.generation != n || v.ordinal != n || v.size != want.size)))
            return (void *)1;
    }
    return NULL;
}

Test(intervals, readers_beside_a_writer_see_whole_entries)
{
    pthread_t thread[3];
    for (uint64_t n = 2; n < SHARED; n += 2) {
        struct slr_interval v = interval(n);
        cr_assert(slr_intervals_put(&shared, &v));
    }
    for (uintptr_t i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, reader, (void *)(i + 1)), 0);
    for (int round = 0; round < 60; round++) {
        for (uint64_t n = 1; n < SHARED; n += 2) {
            struct slr_interval v = interval(n);
            cr_assert(slr_intervals_put(&shared, &v));
        }
        for (uint64_t n = 1; n < SHARED; n += 2)
            slr_intervals_drop(&shared, n * 0x1000);
    }
    atomic_store(&done, true);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        cr_assert_null(wrong);
    }
}

static void check_class(size_t bytes)
{
    size_t size = slr_class_size(bytes), exact = slr_class_exact(bytes);
    size_t page = bytes <= (size_t)2 << 20 ? 512 : (size_t)2 << 20;
    cr_assert(size >= bytes && exact >= bytes && exact <= size, "%zu", bytes);
    cr_assert(size % 512 == 0 && exact % page == 0 && exact - bytes < page, "%zu", bytes);
    cr_assert(size - exact < bytes / 8 + 1, "%zu has class %zu", bytes, size);
    cr_assert_eq(slr_class_size(size), size);
    cr_assert_eq(slr_class_index(size), slr_class_index(bytes));
    cr_assert_eq(slr_class_index(exact), slr_class_index(bytes));
    cr_assert_lt(slr_class_index(bytes), SLR_CLASSES);
    if (size < SLR_CLASS_MAX)
        cr_assert_gt(slr_class_index(size + 1), slr_class_index(size), "%zu", size);
}

Test(classes, waste_is_bounded_and_numbers_grow_with_sizes)
{
    for (size_t bytes = 1; bytes < 20000; bytes++)
        check_class(bytes);
    for (unsigned k = 10; k < 62; k++)
        for (int d = -3; d <= 3; d++)
            for (size_t eighth = 0; eighth < 8; eighth++) {
                size_t bytes = ((size_t)1 << k) + (((size_t)1 << k) / 8) * eighth + (size_t)d;
                check_class(bytes);
            }
    check_class(SLR_CLASS_MAX);
}
