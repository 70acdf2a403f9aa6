/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "cache/block_impl.h"
#include "cache/blocks.h"
#include "cache/handles.h"

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

/* ---- a device that is reset, or whose context is released ---- */

static _Atomic uint32_t resets[SLR_BLOCK_DEVICES];
static _Atomic int freeing;

#define RESET_WAIT_MS 1000

/* Counted first, then waited: whoever begins to free later sees the new number. */
void slr_device_reset(int device)
{
    if (device < 0 || device >= SLR_BLOCK_DEVICES)
        return;
    atomic_fetch_add(&resets[device], 1);
    /* Mappings first: nobody closes one by its address from here on. */
    slr_imports_forget(device);
    for (int ms = 0; ms < RESET_WAIT_MS && atomic_load(&freeing) > 0; ms++)
        slr_sleep_ms(1);
}

uint32_t slr_device_resets(int device)
{
    return device >= 0 && device < SLR_BLOCK_DEVICES ? atomic_load(&resets[device]) : 0;
}

void slr_device_freeing(int change)
{
    atomic_fetch_add(&freeing, change);
}

void slr_device_forget(int device)
{
    slr_imports_forget(device);
    if (!slr_block_ours())
        return;
    slr_block_lock();
    /* Backwards, as vanishing takes a block out of the table. */
    for (size_t i = slr_table_count(); i-- > 0;) {
        struct slr_block *b = slr_table_at(i);
        if (device < 0 || b->device == device)
            slr_block_vanish(b);
    }
    slr_block_unlock();
}

void slr_device_forget_released(int device)
{
    if (slr_block_ours() && !slr_block_device_active(device))
        slr_device_forget(device);
}
