/* SPDX-License-Identifier: Apache-2.0 */
/* The address range that holds all device memory, imports and page-locked host memory. It is reserved once and never
 * given back, so an address of freed memory is never the address of anything else but a later block: a use after free
 * stays recognisable, faults when the CPU does it, and can not be confused with the application's own memory. Blocks
 * take the lowest place that fits, so a freed address is soon used again, as on a real device. */
#include "sg.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define SMALL_ADDRESS_SPACE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SMALL_ADDRESS_SPACE 1
#endif
#endif
#ifdef SMALL_ADDRESS_SPACE /* ThreadSanitizer leaves little more to applications */
#define MAX_BYTES ((size_t)256 << 30)
#else
#define MAX_BYTES ((size_t)4 << 40)
#endif
#define MIN_BYTES ((size_t)1 << 30)
#define HUGE_ALIGN ((size_t)2 << 20)

struct part { /* of the arena; blocks sorted by address */
    uintptr_t base, end;
    struct block {
        uintptr_t base;
        size_t len;
    } * blocks;
    size_t count, cap;
};
static struct part parts[2]; /* devices, host: neither takes an address that the other has given up */

/* No access until a block is placed there. A forked child does not see any of it: it has no use of the driver. */
static bool reserve(void *at, size_t len, int fixed)
{
    void *p = mmap(at, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    return p != MAP_FAILED && !madvise(p, len, MADV_DONTFORK);
}

static bool open_locked(void)
{
    size_t len = MAX_BYTES;
    void *p = MAP_FAILED;

    if (parts[0].end)
        return true;
    for (; len >= MIN_BYTES; len /= 2) { /* the address space may be limited */
        p = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED)
            break;
    }
    if (p == MAP_FAILED)
        return false;
    madvise(p, len, MADV_DONTFORK);
    parts[0].base = ((uintptr_t)p + HUGE_ALIGN - 1) & ~(HUGE_ALIGN - 1);
    parts[0].end = parts[1].base = (uintptr_t)p + len / 8 * 7;
    parts[1].end = (uintptr_t)p + len;
    return true;
}

bool sg_arena_holds_locked(uintptr_t p)
{
    return p >= parts[0].base && p < parts[1].end;
}

/* The lowest free place; `index` is where its block goes in the list. 0: none. */
static uintptr_t lowest_fit(const struct part *part, size_t len, size_t align, size_t *index)
{
    uintptr_t at = (part->base + align - 1) & ~(align - 1);
    size_t i;

    for (i = 0; i < part->count; i++) {
        const struct block *b = &part->blocks[i];
        if (at <= b->base && b->base - at >= len)
            break;
        at = (b->base + b->len + align - 1) & ~(align - 1);
    }
    *index = i;
    return at <= part->end && part->end - at >= len ? at : 0;
}

static void insert(struct part *part, size_t i, struct block b)
{
    if (part->count == part->cap) {
        part->cap = part->cap ? part->cap * 2 : 256;
        part->blocks = realloc(part->blocks, part->cap * sizeof(*part->blocks));
        if (!part->blocks)
            abort();
    }
    memmove(part->blocks + i + 1, part->blocks + i, (part->count - i) * sizeof(*part->blocks));
    part->blocks[i] = b;
    part->count++;
}

/* Device pointers of large blocks are aligned to 2 MiB on a real device and applications rely on some of it. */
uintptr_t sg_arena_map_locked(int fd, off_t offset, size_t size, size_t *mapped)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), len = (size + page - 1) & ~(page - 1), index;
    int flags = MAP_NORESERVE | MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    struct part *part = &parts[fd < 0];
    uintptr_t at;

    if (len < size || !open_locked())
        return 0;
    at = lowest_fit(part, len, len >= HUGE_ALIGN ? HUGE_ALIGN : page, &index);
    if (!at)
        return 0;
    if (mmap((void *)at, len, PROT_READ | PROT_WRITE, flags, fd, offset) == MAP_FAILED) {
        reserve((void *)at, len, MAP_FIXED); /* the failed call may have unmapped what was there */
        return 0;
    }
    madvise((void *)at, len, MADV_DONTFORK);
    insert(part, index, (struct block){at, len});
    *mapped = len;
    return at;
}

uintptr_t sg_arena_reserve_locked(size_t size, size_t align)
{
    size_t index;
    uintptr_t at = open_locked() ? lowest_fit(&parts[0], size, align > HUGE_ALIGN ? align : HUGE_ALIGN, &index) : 0;

    if (at)
        insert(&parts[0], index, (struct block){at, size});
    return at;
}

/* The CPU may read and write it whatever the devices may: applications have no use of that, kernels here are checked
 * before they run. */
bool sg_arena_place_locked(int fd, off_t offset, uintptr_t at, size_t size)
{
    if (mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, offset) ==
        MAP_FAILED) {
        reserve((void *)at, size, MAP_FIXED);
        return false;
    }
    madvise((void *)at, size, MADV_DONTFORK);
    return true;
}

void sg_arena_clear_locked(uintptr_t at, size_t size)
{
    reserve((void *)at, size, MAP_FIXED);
}

void sg_arena_unmap_locked(uintptr_t p)
{
    struct part *part = &parts[p >= parts[1].base];
    size_t lo = 0, hi = part->count;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (part->blocks[mid].base < p)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (!reserve((void *)p, part->blocks[lo].len, MAP_FIXED))
        return; /* its address is lost, but stays ours */
    memmove(part->blocks + lo, part->blocks + lo + 1, (part->count - lo - 1) * sizeof(*part->blocks));
    part->count--;
}
