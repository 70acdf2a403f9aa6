/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the block cache did not make, entered among its blocks so that gathers can use it where it lies.
 *
 * What this relies on was seen on an H200 with driver 580: cuMemGetAddressRange tells the one
 * mapping and not the reservation; memory of pools and managed memory refuse
 * cuMemRetainAllocationHandle, plain memory as well; it works after the application has released
 * its own handle; a small cuMemAlloc that shares a page with others is opened by itself.
 *
 * Life. Registered memory is the application's: when it frees it while peers may have it open,
 * cuMemFree is the cache's (with SLIPRING_ALLOC=off it is not; then only the end of the
 * registration waits for the peers). A virtual mapping goes when the application says so. Other
 * processes that have mapped its memory keep the memory, not the address; so the generation has to
 * end before the address can mean other memory, and no block may be entered that ended meanwhile:
 *
 *   unmapping                                       entering
 *   1  count, list the range, end the generations   1  read the count
 *      in it
 *   2  the driver's cuMemUnmap                      2  ask the driver what is there
 *   3  count, take the range off the list           3  enter, unless the count has changed, or the
 *                                                      memory is in a range of the list
 *
 * Whoever asks before 2 ends is counted out, or kept out by the list. Nothing is ended in 3: by
 * then the address may be another buffer's, which has been mapped and entered by another thread.
 * cuMemRelease and cuMemAddressFree need nothing: the mapping keeps the memory, and an address
 * range can only be freed when nothing is mapped there. ncclMemFree goes through cuMemUnmap. */
#include "base/hash.h"
#include "cache/blocks.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/wait.h"
#include "cache/block_impl.h"
#include "cache/handles.h"
#include "cache/virtual.h"

#define PATIENCE_MS 1000
#define RANGES 32
#define RUN_PIECES 64 /* to which a run grows: of PyTorch's 1.25 GiB. Exporting and mapping a piece takes 0.2 ms */
#define RESTLESS 16

static uint32_t ordinals;
/* Under the lock. */
static uint64_t unmapped; /* counts cuMemUnmap's beginnings and ends */
static struct range {
    CUdeviceptr p;
    size_t bytes;         /* 0: none */
} leaving[RANGES];        /* that are being unmapped */
static unsigned unlisted; /* more of them, for which there was no room */
/* Where a part of a block was unmapped: in the reservations of these addresses a block is no larger than it must be. */
static CUdeviceptr restless[RESTLESS];
static unsigned next_restless;

void slr_not_shared(const char *why)
{
    uint64_t key = 0;
    for (const char *c = why; *c; c++)
        key = slr_mix(key, (uint64_t)(unsigned char)*c);
    if (slr_log_enabled(SLR_LOG_INFO) && slr_log_first(key))
        slr_log(SLR_LOG_INFO, "not_shared", "reason=%s msg=%s", why, "shards in this memory are staged");
}

/* Nobody says when virtual memory is unmapped: it is known as long as it is registered, as it is registered. */
static bool ends_unseen(void)
{
    return slr_get(SLR_S_ALLOC) == SLR_ALLOC_OFF;
}

bool slr_external_ends_with_registration(uint64_t generation)
{
    slr_block_lock();
    const struct slr_block *b = slr_table_by_generation(generation);
    bool foreign = b && (b->kind == SLR_BLOCK_REGISTERED || (b->kind == SLR_BLOCK_VIRTUAL && ends_unseen()));
    slr_block_unlock();
    return foreign;
}

static bool attribute(void *out, CUpointer_attribute what, CUdeviceptr p)
{
    return slr_real.cuPointerGetAttribute(out, what, p) == CUDA_SUCCESS;
}

/* Not to be told: the next gather that meets the memory asks again. */
static const char later[] = "";
static const char spans[] = "the buffer spans several allocations";

/* Pools, managed memory and the like have no handle to retain. */
static const char *look_virtual(CUdeviceptr base, int device)
{
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp prop = {0};
    enum slr_retain_result retained = slr_virtual_supported() ? slr_retain(base, &memory) : SLR_RETAIN_REFUSED;
    if (retained == SLR_RETAIN_LATER)
        return later;
    if (retained == SLR_RETAIN_REFUSED)
        return "its kind of memory can not be shared between processes (pools, managed memory)";
    CUresult r = slr_real.cuMemGetAllocationPropertiesFromHandle(&prop, memory);
    slr_retain_end(memory);
    bool shareable = r == CUDA_SUCCESS && prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                     prop.location.id == device &&
                     (prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return shareable ? NULL : "virtual memory that was made without a handle type of file descriptors";
}

/* ---- runs of mappings ---- */

/* Mappings of one reservation, one behind the other, that can all be shared: what a block of virtual memory is. Its
 * addresses from `base` up to `end`. */
struct run {
    int device;
    unsigned pieces;
    CUdeviceptr base, end;
    CUdeviceptr first, last; /* of the reservation */
};

static bool range_of(CUdeviceptr p, CUdeviceptr *base, CUdeviceptr *end)
{
    size_t size = 0;
    if (!slr_real.cuMemGetAddressRange || slr_real.cuMemGetAddressRange(base, &size, p) != CUDA_SUCCESS || *base > p ||
        p - *base >= size)
        return false;
    *end = *base + size;
    return true;
}

/* Else the mapping itself. */
static void find_reservation(struct run *run)
{
    CUdeviceptr first = 0;
    size_t bytes = 0;
    const bool known = attribute(&first, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, run->base) &&
                       attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, run->base) && first <= run->base &&
                       bytes >= run->end - first;
    run->first = known ? first : run->base;
    run->last = (known ? first + bytes : run->end) - 1;
}

/* The mapping in front of the run, or behind it. NULL: added; else why not. */
static const char *add_piece(struct run *run, bool in_front)
{
    CUdeviceptr base, end;
    if (run->pieces == SLR_PIECES || (in_front ? run->base <= run->first : run->end > run->last) ||
        !range_of(in_front ? run->base - 1 : run->end, &base, &end) || (in_front ? end != run->base : base != run->end))
        return spans;
    const char *why = look_virtual(base, run->device);
    if (why)
        return why;
    *(in_front ? &run->base : &run->end) = in_front ? base : end;
    run->pieces++;
    return NULL;
}

static const char *cover(struct run *run, CUdeviceptr base, CUdeviceptr end)
{
    const char *why = NULL;
    while (!why && run->base > base)
        why = add_piece(run, true);
    while (!why && run->end < end)
        why = add_piece(run, false);
    return why;
}

/* No two blocks have a mapping in common: one that the run cuts at an edge becomes part of it. */
static const char *cover_cut(struct run *run)
{
    const struct slr_place first = slr_block_find(run->base), last = slr_block_find(run->end - 1);
    const char *why = first.generation ? cover(run, first.base, run->end) : NULL;
    return !why && last.generation ? cover(run, run->base, last.base + last.size) : why;
}

static bool is_restless(const struct run *run)
{
    bool any = false;
    slr_block_lock();
    for (int i = 0; i < RESTLESS; i++)
        any |= restless[i] >= run->first && restless[i] <= run->last && restless[i];
    slr_block_unlock();
    return any;
}

/* Neighbours that are not used by gathers yet soon will be: PyTorch's expandable segments map 20 MiB at a time, one
 * behind the other, and a block for each would be many. Who makes a reservation for each buffer gets a block for each. */
static void widen(struct run *run)
{
    for (int in_front = 0; in_front < 2; in_front++)
        for (;;) {
            struct run more = *run;
            if (add_piece(&more, in_front) || cover_cut(&more) || more.pieces > RUN_PIECES)
                break;
            *run = more;
        }
}

/* The run that becomes the block of a buffer; b->base and b->size are its first mapping. */
static const char *find_run(CUdeviceptr p, size_t bytes, struct slr_block *b)
{
    struct run run = {.device = b->device, .pieces = 1, .base = b->base, .end = b->base + b->size};
    const char *why = look_virtual(b->base, b->device);
    find_reservation(&run);
    if (!why)
        why = cover(&run, b->base, p + bytes);
    if (!why)
        why = cover_cut(&run);
    if (!why && !ends_unseen() && !is_restless(&run))
        widen(&run);
    b->base = run.base;
    b->size = run.end - run.base;
    return why;
}

/* What the driver says of the memory at `p`. NULL: it can be entered; else why not. */
static const char *ask_driver(CUdeviceptr p, size_t bytes, struct slr_block *b)
{
    int device = -1, legacy = 0;
    CUdeviceptr end;
    b->device = slr_block_device_current(&b->ctx);
    if (b->device < 0 || !attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p) || device != b->device)
        return "it is not memory of the communicator's device";
    if (!range_of(p, &b->base, &end))
        return "the driver does not say how large its allocation is";
    b->size = end - b->base;
    b->kind = attribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p) && legacy ? SLR_BLOCK_REGISTERED
                                                                                               : SLR_BLOCK_VIRTUAL;
    if (b->kind == SLR_BLOCK_VIRTUAL)
        return find_run(p, bytes, b);
    return bytes > end - p ? spans : NULL; /* a peer maps the whole allocation, so the buffer has to lie in it */
}

/* Under the lock. */
static bool is_leaving(const struct slr_block *b)
{
    bool leaves = unlisted > 0;
    for (int i = 0; i < RANGES && !leaves; i++)
        leaves = leaving[i].bytes && leaving[i].p < b->base + b->size && b->base < leaving[i].p + leaving[i].bytes;
    return leaves;
}

static bool same_shape(const struct slr_block *a, const struct slr_block *b)
{
    return a->base == b->base && a->size == b->size && a->kind == b->kind;
}

/* Under the lock. Makes room: smaller runs become part of this one, so their generations end. What lies in them is
 * staged until the peers have mapped the new one; they close the old ones then, behind the calls that use them. Who has
 * registered them follows (plugin/memory/registration.c). False: there is a block that this one can not replace. */
static bool replace_smaller(const struct slr_block *seen)
{
    struct slr_block *b;
    while ((b = slr_table_overlap(seen->base, seen->size)) != NULL) {
        const bool within = b->base >= seen->base && b->base + b->size <= seen->base + seen->size;
        if (!within || b->kind != SLR_BLOCK_VIRTUAL || seen->kind != SLR_BLOCK_VIRTUAL || ends_unseen())
            return false;
        slr_block_vanish(b);
    }
    return true;
}

/* Under the lock. */
static struct slr_block *enter_block(const struct slr_block *seen)
{
    struct slr_block *b = slr_table_overlap(seen->base, seen->size);
    if (b && same_shape(b, seen)) /* entered meanwhile */
        return b;
    if (!replace_smaller(seen))
        return NULL;
    b = malloc(sizeof *b);
    if (!b)
        return NULL;
    *b = *seen;
    b->state = SLR_BLOCK_BUSY;
    b->generation = slr_block_new_generation();
    b->ordinal = SLR_ORDINAL_EXTERNAL | ordinals++;
    slr_block_totals.blocks++;
    if (!slr_table_insert(b)) {
        slr_block_drop(b);
        return NULL;
    }
    slr_block_to_used(b);
    return b;
}

/* Under the lock. */
static bool enter_at(const struct slr_block *seen, bool registered, CUdeviceptr p, struct slr_place *out)
{
    struct slr_block *b = enter_block(seen);
    if (b) {
        b->registrations += registered;
        *out = slr_block_find(p);
    }
    return b != NULL;
}

/* LATER: the program is unmapping something, perhaps this. */
enum entering { ENTERED, REFUSED, LATER };

static enum entering enter_unless_unmapped(const struct slr_block *seen, uint64_t before, bool registered,
                                           CUdeviceptr p, struct slr_place *out)
{
    /* The first block of a process may be one that it did not make. */
    slr_block_own();
    slr_block_lock();
    const bool may = before == unmapped && !is_leaving(seen);
    const bool entered = may && enter_at(seen, registered, p, out);
    slr_block_unlock();
    return entered ? ENTERED : may ? REFUSED : LATER;
}

static uint64_t count_now(void)
{
    slr_block_lock();
    uint64_t now = unmapped;
    slr_block_unlock();
    return now;
}

enum purpose { MET, REGISTERED, AGAIN };

static enum entering enter_seen(CUdeviceptr p, size_t bytes, enum purpose purpose, struct slr_place *out)
{
    const bool registered = purpose == REGISTERED;
    struct slr_block seen = {.handle_state = SLR_HANDLE_UNKNOWN};
    /* Before the driver is asked: an unmapping that begins meanwhile is noticed when the block is
     * to be entered. */
    uint64_t before = count_now();
    const char *why = ask_driver(p, bytes, &seen);
    if (!why && seen.kind == SLR_BLOCK_REGISTERED && !registered)
        why = "it is neither kept by SLIPRING_ALLOC nor registered with NCCL";
    if (why == later)
        return LATER;
    if (why && purpose != AGAIN)
        slr_not_shared(why);
    return why ? REFUSED : enter_unless_unmapped(&seen, before, registered, p, out);
}

bool slr_external_hold_again(uint64_t generation)
{
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b)
        b->registrations++;
    slr_block_unlock();
    return b != NULL;
}

/* Not for ever: the program's cuMemUnmap may wait for a device that waits for this thread's program. */
static bool enter_patiently(CUdeviceptr p, size_t bytes, struct slr_place *out)
{
    const uint64_t end = slr_now_ms() + PATIENCE_MS;
    enum entering entered;
    while ((entered = enter_seen(p, bytes, REGISTERED, out)) == LATER && slr_now_ms() < end)
        slr_sleep_ms(1);
    return entered == ENTERED;
}

bool slr_external_hold(CUdeviceptr p, size_t bytes, struct slr_place *out)
{
    if (!slr_block_usable())
        return false;
    *out = slr_block_find(p);
    if (!out->generation || bytes > out->size - out->offset)
        return enter_patiently(p, bytes, out);
    return slr_external_hold_again(out->generation);
}

bool slr_external_enter(CUdeviceptr p, size_t bytes, struct slr_place *out)
{
    return slr_block_usable() && enter_seen(p, bytes, MET, out) == ENTERED;
}

bool slr_external_enter_again(CUdeviceptr p, size_t bytes, struct slr_place *out)
{
    return slr_block_usable() && enter_seen(p, bytes, AGAIN, out) == ENTERED;
}

void slr_external_release(uint64_t generation)
{
    if (!slr_block_ours())
        return;
    slr_block_lock();
    struct slr_block *b = slr_table_by_generation(generation);
    if (b && b->registrations > 0)
        b->registrations--;
    if (b)
        slr_block_end_unregistered(b);
    slr_block_unlock();
}

/* ---- unmapping ---- */

/* The entry of such a range, or -1. `bytes` 0: an empty entry. */
static int range_at(CUdeviceptr p, size_t bytes)
{
    for (int i = 0; i < RANGES; i++)
        if (leaving[i].p == p && leaving[i].bytes == bytes)
            return i;
    return -1;
}

static void begin_range(CUdeviceptr p, size_t bytes)
{
    const int i = range_at(0, 0);
    unmapped++;
    if (i >= 0)
        leaving[i] = (struct range){p, bytes};
    else
        unlisted++;
}

static void end_range(CUdeviceptr p, size_t bytes)
{
    const int i = range_at(p, bytes);
    unmapped++;
    if (i >= 0)
        leaving[i] = (struct range){0, 0};
    else
        unlisted--;
}

void slr_external_unmap_begin(CUdeviceptr p, size_t bytes)
{
    struct slr_block *b;
    if (!slr_block_usable() || !bytes)
        return;
    slr_block_lock();
    begin_range(p, bytes);
    /* cuMemUnmap may cover several mappings. */
    while ((b = slr_table_overlap(p, bytes)) != NULL && b->kind == SLR_BLOCK_VIRTUAL) {
        if (b->base < p || b->base + b->size > p + bytes)
            restless[next_restless++ % RESTLESS] = p;
        slr_block_vanish(b);
    }
    slr_block_unlock();
}

void slr_external_unmap_end(CUdeviceptr p, size_t bytes)
{
    if (!slr_block_usable() || !bytes)
        return;
    slr_block_lock();
    end_range(p, bytes);
    slr_block_unlock();
}
