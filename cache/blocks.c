/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "cache/block_impl.h"
#include "cache/blocks.h"
#include "cache/captures.h"

/* The driver's cuMemAlloc. Before it says that memory ran out, what is kept goes back: as much as
 * is asked for, then all. */
static CUresult driver_alloc(CUdeviceptr *out, size_t bytes, int device)
{
    CUresult r = slr_real.cuMemAlloc(out, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && slr_block_trim(device, bytes) > 0)
        r = slr_real.cuMemAlloc(out, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && slr_block_trim(device, SIZE_MAX) > 0)
        r = slr_real.cuMemAlloc(out, bytes);
    return r;
}

size_t slr_block_new_size(int device, size_t bytes)
{
    /* A class whose blocks are too small gets one that holds all of its sizes. */
    bool whole =
        slr_get(SLR_S_ALLOC) == SLR_ALLOC_ALL || slr_free_list_has_class(&slr_block_devices[device].free, bytes);
    return whole ? slr_class_size(bytes) : slr_class_exact(bytes);
}

/* A kept block that fits, handed out; else 0, and `*want` is the size of the block to be made. */
static CUdeviceptr take_kept(int device, size_t bytes, size_t *want)
{
    CUdeviceptr base = 0;
    slr_block_lock();
    struct slr_free_list *list = &slr_block_devices[device].free;
    struct slr_block *b = slr_free_list_fit(list, bytes);
    if (b) {
        /* Through BUSY, which takes it out of the free list and of the sums. */
        slr_block_to_busy(b);
        b->pool = 0;
        slr_block_note_use(b, bytes);
        slr_block_to_used(b);
        base = b->base;
        slr_block_totals.hits++;
    } else {
        *want = slr_block_new_size(device, bytes);
        slr_block_totals.misses++;
    }
    slr_block_unlock();
    return base;
}

/* The driver has just made this memory, so blocks that overlap it can not live any more: they went
 * by a way that is not hooked. */
static void forget_overlapping(const struct slr_block *made)
{
    struct slr_block *b;
    while ((b = slr_table_overlap(made->base, made->size)) != NULL) {
        slr_log(SLR_LOG_DEBUG, "block_vanished", "device=%d generation=%llu size=%zu", b->device,
                (unsigned long long)b->generation, b->size);
        slr_block_vanish(b);
    }
}

void slr_block_enter(const struct slr_block *made, size_t bytes)
{
    /* Asking for it calls the driver, which the lock forbids. */
    uint64_t budget = slr_block_device_budget(made->device);
    struct slr_block *b = calloc(1, sizeof(*b));
    if (!b)
        return;
    *b = *made;
    b->state = SLR_BLOCK_BUSY;
    slr_block_own();
    slr_block_lock();
    struct slr_block_device *d = &slr_block_devices[b->device];
    d->budget = budget;
    b->ordinal = b->pool ? SLR_ORDINAL_POOL | d->pool_ordinals++ : d->ordinals++;
    b->generation = slr_block_new_generation();
    forget_overlapping(b);
    slr_block_totals.blocks++;
    if (slr_table_insert(b)) {
        slr_block_note_use(b, bytes);
        slr_block_to_used(b);
    } else {
        slr_block_drop(b);
    }
    slr_block_unlock();
}

static CUresult make(CUdeviceptr *out, size_t bytes, size_t want, int device, CUcontext ctx)
{
    size_t size = want;
    /* A process without a communicator has no thread of slipring's that would do it. */
    slr_block_return_idle();
    CUresult r = driver_alloc(out, size, device);
    /* The last resort: not a byte more than was asked for. */
    if (r == CUDA_ERROR_OUT_OF_MEMORY && size > bytes) {
        size = bytes;
        r = slr_real.cuMemAlloc(out, size);
    }
    if (r == CUDA_SUCCESS)
        slr_block_enter(&(struct slr_block){.base = *out, .size = size, .device = device, .ctx = ctx}, bytes);
    return r;
}

static bool served(const CUdeviceptr *out, size_t bytes)
{
    return out && bytes > 0 && bytes <= SLR_CLASS_MAX && bytes >= slr_get(SLR_S_ALLOC_MIN) && slr_guard == 0 &&
           slr_get(SLR_S_ALLOC) != SLR_ALLOC_OFF && slr_block_usable();
}

CUresult slr_block_alloc(CUdeviceptr *out, size_t bytes)
{
    CUcontext ctx = NULL;
    size_t want = 0;
    int device = served(out, bytes) ? slr_block_device_current(&ctx) : -1;
    if (device < 0)
        return driver_alloc(out, bytes, -1);
    CUdeviceptr base = take_kept(device, bytes, &want);
    if (!base)
        return make(out, bytes, want, device, ctx);
    *out = base;
    return CUDA_SUCCESS;
}

/* ---- free ---- */

/* What is allocated and freed so that the driver waits: less when memory is short. */
#define SCRATCH_MOST ((size_t)1 << 20)
#define SCRATCH_LEAST ((size_t)2 << 10)

static CUresult scratch(CUdeviceptr *p, int device)
{
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t bytes = SCRATCH_MOST; r == CUDA_ERROR_OUT_OF_MEMORY && bytes >= SCRATCH_LEAST; bytes /= 8)
        r = slr_real.cuMemAlloc(p, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && slr_block_trim(device, SCRATCH_MOST) > 0)
        r = slr_real.cuMemAlloc(p, SCRATCH_LEAST);
    return r;
}

static CUresult free_scratch(int device)
{
    CUdeviceptr p;
    CUresult r = scratch(&p, device);
    if (r != CUDA_SUCCESS)
        return r;
    r = slr_real.cuMemFree(p);
    if (r != CUDA_SUCCESS) /* a capture that forbids it has begun meanwhile */
        slr_block_driver_free(p);
    return r;
}

/* Waits for all that is queued in the context, as the driver's cuMemFree does. What that would
 * answer in the application's place, too: an error when the context has failed, or when a capture
 * forbids the calling thread to free. */
static CUresult await_queued(CUcontext ctx, int device)
{
    CUcontext old;
    CUresult r = slr_real.cuCtxPushCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!slr_block_synchronise(&r))
        r = free_scratch(device);
    slr_real.cuCtxPopCurrent(&old);
    return r;
}

/* Marks the block as being freed. NULL: the application does not hold it; `*known` whether it is a
 * block at all. */
static struct slr_block *begin_free(uint64_t generation, bool *keep, bool *known)
{
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b && b->kind == SLR_BLOCK_VIRTUAL) /* an error that the driver is to report */
        b = NULL;
    *known = b != NULL;
    if (b && b->state == SLR_BLOCK_USED) {
        /* While something captures the driver has to see the free (docs/memory.md). */
        *keep = slr_block_worth_keeping(b) && !slr_block_capturing();
        slr_block_to_busy(b);
    } else {
        b = NULL;
    }
    slr_block_unlock();
    return b;
}

/* False: it was pinned meanwhile, and has to stay. */
static bool remove_unpinned(struct slr_block *b)
{
    slr_block_lock();
    bool leaves = b->pins == 0 || b->gone;
    if (leaves)
        slr_table_remove(b);
    slr_block_unlock();
    return leaves;
}

/* The application's free was the driver's. When that has failed the application still holds the
 * block. */
static CUresult freed_for_good(struct slr_block *b, CUresult r)
{
    slr_block_lock();
    /* What is gone is not the application's any more, whatever the driver answers. */
    if (r != CUDA_SUCCESS && !b->gone && slr_table_insert(b))
        slr_block_to_used(b);
    else
        slr_block_drop(b);
    slr_block_unlock();
    return r;
}

static CUresult free_and_keep(struct slr_block *b)
{
    struct slr_block *chain = NULL;
    slr_block_lock();
    if (b->gone) {
        slr_block_drop(b);
    } else {
        slr_block_to_free(b);
        chain = slr_block_unwanted(b);
    }
    slr_block_unlock();
    slr_block_give_back(chain);
    slr_block_return_idle();
    return CUDA_SUCCESS;
}

/* Neither kept nor freed. */
static CUresult still_used(struct slr_block *b, CUresult r)
{
    slr_block_lock();
    if (b->gone)
        slr_block_drop(b);
    else
        slr_block_to_used(b);
    slr_block_unlock();
    return r;
}

CUresult slr_block_free(CUdeviceptr p)
{
    struct slr_place at = slr_block_find(p);
    bool keep = false, known = false;
    /* No block, or not the beginning of one: the driver's to answer. */
    if (!at.generation || at.offset || !slr_block_ours())
        return slr_real.cuMemFree(p);
    struct slr_block *b = begin_free(at.generation, &keep, &known);
    if (!b)
        return known ? CUDA_ERROR_INVALID_VALUE : slr_real.cuMemFree(p);
    if (!keep && remove_unpinned(b))
        return freed_for_good(b, slr_real.cuMemFree(b->base));
    /* The block is BUSY, so nobody is given it before the wait is over. */
    CUresult r = await_queued(b->ctx, b->device);
    if (r == CUDA_SUCCESS)
        return free_and_keep(b);
    /* The driver knows better; only a pinned block can not go there. */
    return remove_unpinned(b) ? freed_for_good(b, slr_real.cuMemFree(b->base)) : still_used(b, r);
}

/* ---- free in the order of a stream ---- */

/* A free that is captured belongs to the graph: the block is the application's until a launch of
 * that, and then the driver's. Nobody is told of that, so from now on it is no block. */
static CUresult free_in_graph(CUdeviceptr p, CUstream stream, uint64_t generation, slr_block_free_async_fn driver)
{
    CUresult r = driver(p, stream);
    slr_block_lock();
    struct slr_block *b = r == CUDA_SUCCESS ? slr_table_by_generation(generation) : NULL;
    if (b && b->state == SLR_BLOCK_USED && b->kind != SLR_BLOCK_VIRTUAL)
        slr_block_vanish(b);
    slr_block_unlock();
    return r;
}

CUresult slr_block_free_async(CUdeviceptr p, CUstream stream, slr_block_free_async_fn driver)
{
    struct slr_place at = slr_block_find(p);
    bool keep, known = false;
    if (!at.generation || at.offset || !slr_block_ours())
        return driver(p, stream);
    if (slr_stream_captures(stream))
        return free_in_graph(p, stream, at.generation, driver);
    struct slr_block *b = begin_free(at.generation, &keep, &known);
    if (!b)
        return known ? CUDA_ERROR_INVALID_VALUE : driver(p, stream);
    if (!(keep && b->pool) && remove_unpinned(b))
        return freed_for_good(b, driver(p, stream));
    CUresult r = slr_block_leave(b, stream);
    if (r == CUDA_SUCCESS)
        return r;
    /* A stream of another context than the current one, perhaps: later than asked for is right. */
    r = await_queued(b->ctx, b->device);
    return r == CUDA_SUCCESS ? free_and_keep(b) : still_used(b, r);
}

CUresult slr_block_mem_info(size_t *free_bytes, size_t *total)
{
    CUcontext ctx;
    if (slr_block_ours())
        slr_block_keep_left();
    CUresult r = slr_real.cuMemGetInfo(free_bytes, total);
    int device = r == CUDA_SUCCESS && free_bytes && slr_block_ours() ? slr_block_device_current(&ctx) : -1;
    if (device < 0)
        return r;
    slr_block_lock();
    /* What would go back before an allocation fails is as good as free. */
    *free_bytes += slr_free_list_unpinned(&slr_block_devices[device].free) + slr_block_devices[device].returning;
    slr_block_unlock();
    return r;
}

/* ---- pins: what keeps a block from the driver while peers or a gather use it ---- */

bool slr_block_pin(uint64_t generation)
{
    if (!slr_block_ours())
        return false;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b)
        b->pins++;
    slr_block_unlock();
    return b != NULL;
}

void slr_block_unpin(uint64_t generation)
{
    struct slr_block *chain = NULL;
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b && b->pins > 0 && --b->pins == 0) {
        if (b->state == SLR_BLOCK_FREE)
            chain = slr_block_unwanted(b);
        else
            slr_block_end_unregistered(b);
    }
    /* Behind the lock: giving back waits for the device. */
    slr_block_unlock();
    slr_block_give_back(chain);
}

void slr_block_mark_collective(uint64_t generation)
{
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b && !b->collective) {
        b->collective = true;
        slr_table_update(b);
    }
    slr_block_unlock();
}

bool slr_block_lives(uint64_t generation)
{
    if (!slr_block_ours())
        return false;
    slr_block_lock();
    bool lives = slr_table_by_generation(generation) != NULL;
    slr_block_unlock();
    return lives;
}
