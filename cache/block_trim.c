/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that nobody holds any more, on their way back to the driver. */
#include <stdatomic.h>
#include <time.h>
#include "base/real.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/wait.h"
#include "cache/block_impl.h"
#include "cache/captures.h"

/* ---- to the driver ---- */

/* A thread that gives blocks back waits for the context's work; who runs out of memory meanwhile
 * waits for it, but not for ever: that work may depend on the waiting thread. */
#define RETURN_WAIT_S 2

/* Takes the block off the books and adds it to a chain for give_back. */
static void start_return(struct slr_block *b, struct slr_block **chain)
{
    /* Out of the table before the driver has it: the address may be other memory's as soon as
     * cuMemFree returns. */
    slr_block_to_busy(b);
    slr_table_remove(b);
    slr_block_devices[b->device].returning += b->size;
    b->next = *chain;
    *chain = b;
}

static struct slr_block *over_budget(int device)
{
    struct slr_block *chain = NULL, *b;
    while (slr_block_devices[device].free.bytes > slr_block_devices[device].budget &&
           (b = slr_free_list_victim(&slr_block_devices[device].free))) {
        slr_block_totals.evictions++;
        start_return(b, &chain);
    }
    return chain;
}

struct slr_block *slr_block_unwanted(struct slr_block *b)
{
    struct slr_block *chain = NULL;
    if (slr_block_worth_keeping(b))
        return over_budget(b->device);
    start_return(b, &chain);
    return chain;
}

static CUresult driver_free(const struct slr_block *b)
{
    CUcontext old;
    /* The thread's own context may be another device's. */
    if (slr_real.cuCtxPushCurrent(b->ctx) != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* the context is gone, and the memory with it */
    CUresult r = slr_block_driver_free(b->base);
    slr_real.cuCtxPopCurrent(&old);
    return r;
}

/* The driver refused to free it: it is kept, whatever the budget says. Without memory for that it
 * is lost. */
static void keep_after_all(struct slr_block *b)
{
    if (slr_table_insert(b))
        slr_block_to_free(b);
    else
        slr_block_drop(b);
}

/* The end of a block's way; returns the bytes that the driver took. */
static size_t returned(struct slr_block *b, CUresult r)
{
    size_t bytes = r == CUDA_SUCCESS ? b->size : 0;
    slr_block_lock();
    slr_block_devices[b->device].returning -= b->size;
    if (r == CUDA_SUCCESS)
        slr_block_drop(b);
    else
        keep_after_all(b);
    slr_block_returned();
    slr_block_unlock();
    return bytes;
}

size_t slr_block_give_back(struct slr_block *chain)
{
    size_t bytes = 0;
    while (chain) {
        struct slr_block *b = chain;
        chain = b->next;
        b->next = NULL;
        bytes += returned(b, driver_free(b));
    }
    return bytes;
}

/* Chains blocks of the device until `bytes` are reached. */
static size_t collect(int device, size_t bytes, struct slr_block **chain)
{
    struct slr_block *b;
    size_t sum = 0;
    while (sum < bytes && (b = slr_free_list_victim(&slr_block_devices[device].free))) {
        slr_block_totals.trims++;
        sum += b->size;
        start_return(b, chain);
    }
    return sum;
}

/* Waits until no other thread is giving back blocks of the device; returns the bytes that it waited
 * for. */
static size_t wait_returning(int device)
{
    struct timespec end;
    size_t bytes = slr_block_devices[device].returning;
    if (!bytes)
        return 0;
    /* The clock of a condition variable that was initialised statically. */
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += RETURN_WAIT_S;
    while (slr_block_devices[device].returning && slr_block_wait_returned(&end))
        ;
    return bytes - (slr_block_devices[device].returning < bytes ? slr_block_devices[device].returning : bytes);
}

/* ---- idle memory ---- */

#define IDLE_LOOK_MS 20

static bool idle_since(uint64_t *ms)
{
    const bool past = slr_reach_past(); /* whoever allocates there finds nothing of what is kept */
    uint64_t limit = past ? 0 : slr_get(SLR_S_ALLOC_IDLE), now = slr_now_ms();
    *ms = limit < now ? now - limit : 0;
    return (limit != 0 || past) && slr_real.cuMemFreeAsync;
}

bool slr_block_idle(uint64_t generation)
{
    uint64_t since;
    if (!idle_since(&since) || !slr_block_ours())
        return false;
    slr_block_lock();
    const struct slr_block *b = slr_table_by_generation(generation);
    bool idle = b && b->state == SLR_BLOCK_FREE && b->freed_ms <= since;
    slr_block_unlock();
    return idle;
}

static struct slr_block *collect_idle(int device, uint64_t since)
{
    struct slr_block *chain = NULL, *b;
    slr_block_lock();
    while ((b = slr_free_list_since(&slr_block_devices[device].free, since))) {
        slr_block_totals.idle++;
        start_return(b, &chain);
    }
    slr_block_unlock();
    return chain;
}

/* In the order of a stream of its own: cuMemFree would keep other threads from the driver while it waits
 * for the context's work, and that may wait for what they are about to launch. */
static void free_on_stream(struct slr_block *chain)
{
    CUstream stream = NULL;
    CUresult made = slr_real.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
    while (chain) {
        struct slr_block *b = chain;
        chain = b->next;
        b->next = NULL;
        CUresult r = made == CUDA_SUCCESS ? slr_real.cuMemFreeAsync(b->base, stream) : made;
        if (r == CUDA_SUCCESS)
            slr_real.cuStreamSynchronize(stream); /* `returning` is what is not yet free */
        returned(b, r);
    }
    if (made == CUDA_SUCCESS)
        slr_real.cuStreamDestroy(stream);
}

/* Blocks of one device. Their context may be gone, and the memory with it. */
static void return_chain(struct slr_block *chain)
{
    CUcontext old;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (slr_real.cuCtxPushCurrent(chain->ctx) != CUDA_SUCCESS) {
        slr_block_give_back(chain);
        return;
    }
    slr_swap_capture_mode(&mode);
    free_on_stream(chain);
    slr_swap_capture_mode(&mode);
    slr_real.cuCtxPopCurrent(&old);
}

void slr_block_return_idle(void)
{
    static _Atomic uint64_t looked;
    uint64_t since, now = slr_now_ms(), last = atomic_load(&looked);
    if (!slr_block_ours() || slr_block_capturing())
        return;
    slr_block_keep_left();
    /* One thread looks at a time, and nobody waits for it. */
    if (!idle_since(&since) || now - last < IDLE_LOOK_MS || !atomic_compare_exchange_strong(&looked, &last, now))
        return;
    for (int d = 0; d < SLR_BLOCK_DEVICES; d++) {
        struct slr_block *chain = collect_idle(d, since);
        if (chain)
            return_chain(chain);
    }
}

/* ---- memory is short ---- */

static _Atomic(slr_block_unpin_fn) ask_to_unpin;

void slr_block_on_shortage(slr_block_unpin_fn unpin)
{
    atomic_store(&ask_to_unpin, unpin);
}

static size_t trim(int first, int last, size_t bytes)
{
    struct slr_block *chain = NULL;
    size_t sum = 0;
    slr_block_lock();
    for (int d = first; d <= last && sum < bytes; d++)
        sum += collect(d, bytes - sum, &chain);
    slr_block_unlock();
    /* Without the lock: cuMemFree waits for the device, and other threads allocate meanwhile. */
    sum = slr_block_give_back(chain);
    if (sum >= bytes)
        return sum;
    slr_block_lock();
    for (int d = first; d <= last; d++)
        sum += wait_returning(d);
    slr_block_unlock();
    return sum;
}

/* The driver's memory, too, would be there again when a stream has come to its free. */
static size_t trim_left(int device, int first, int last, size_t bytes)
{
    return slr_block_await_left(device) ? trim(first, last, bytes) : 0;
}

size_t slr_block_trim(int device, size_t bytes)
{
    CUcontext ctx;
    if (!slr_block_usable() || device >= SLR_BLOCK_DEVICES)
        return 0;
    slr_block_own(); /* who has no blocks yet may have staging, which `unpin` gives back */
    if (device < 0)
        device = slr_block_device_current(&ctx);
    slr_block_keep_left();
    int first = device < 0 ? 0 : device, last = device < 0 ? SLR_BLOCK_DEVICES - 1 : device;
    size_t sum = trim(first, last, bytes);
    if (sum < bytes)
        sum += trim_left(device, first, last, bytes - sum);
    /* What is left is pinned, most likely because peers have it mapped. */
    slr_block_unpin_fn unpin = atomic_load(&ask_to_unpin);
    if (sum >= bytes || !unpin || !unpin())
        return sum;
    sum += trim(first, last, bytes - sum);
    /* What was unpinned may have gone at once, because of the budget, on the thread that did it. */
    return sum ? sum : 1;
}
