/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the block cache share. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/log.h"
#include "base/real.h"
#include "base/settings.h"
#include "base/wait.h"
#include "cache/block_impl.h"

/* ---- devices ---- */

/* Primary contexts that were found to be so. What is written over is as true as what is written: no
 * lock. */
static _Atomic(CUcontext) primary[SLR_BLOCK_DEVICES];

bool slr_block_device_active(int device)
{
    unsigned flags;
    int active = 0;
    return slr_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* The driver says which context is the primary one only to who retains it. */
static bool is_primary(CUcontext ctx, int device)
{
    CUcontext real = NULL;
    if (!slr_block_device_active(device) || slr_real.cuDevicePrimaryCtxRetain(&real, device) != CUDA_SUCCESS)
        return false;
    /* At once: a reference that stays would keep the context when the application has let go of
     * it. */
    slr_real.cuDevicePrimaryCtxRelease(device);
    return real == ctx;
}

int slr_block_device_current(CUcontext *ctx)
{
    CUdevice device;
    if (slr_real.cuCtxGetCurrent(ctx) != CUDA_SUCCESS || !*ctx || slr_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        device < 0 || device >= SLR_BLOCK_DEVICES)
        return -1;
    if (atomic_load_explicit(&primary[device], memory_order_relaxed) == *ctx)
        return device;
    if (!is_primary(*ctx, device))
        return -1;
    atomic_store_explicit(&primary[device], *ctx, memory_order_relaxed);
    return device;
}

uint64_t slr_block_device_budget(int device)
{
    size_t total;
    if (slr_real.cuDeviceTotalMem(&total, device) != CUDA_SUCCESS)
        return 0;
    /* Divided first: the product may not fit. */
    uint64_t share = total / 100 * slr_get(SLR_S_ALLOC_FRACTION), bytes = slr_get(SLR_S_ALLOC_BYTES);
    return bytes < share ? bytes : share;
}

/* ---- the lock, and states ---- */

struct slr_block_device slr_block_devices[SLR_BLOCK_DEVICES];
struct slr_block_stats slr_block_totals;
uint64_t slr_block_served[SLR_BLOCK_POOLS + 1];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t returned = PTHREAD_COND_INITIALIZER; /* a device's `returning` went down */
/* The process that made the first block; 0: none. */
static _Atomic pid_t owner;

void slr_block_lock(void)
{
    pthread_mutex_lock(&lock);
}

void slr_block_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void slr_block_returned(void)
{
    pthread_cond_broadcast(&returned);
}

bool slr_block_wait_returned(const struct timespec *end)
{
    return pthread_cond_timedwait(&returned, &lock, end) == 0;
}

void slr_block_own(void)
{
    pid_t none = 0;
    atomic_compare_exchange_strong(&owner, &none, getpid());
}

bool slr_block_ours(void)
{
    /* The word changes once, from nobody to a process; a child after fork sees its parent there. */
    pid_t pid = atomic_load_explicit(&owner, memory_order_relaxed);
    return pid != 0 && pid == getpid();
}

bool slr_block_usable(void)
{
    pid_t pid = atomic_load_explicit(&owner, memory_order_relaxed);
    return pid == 0 || pid == getpid();
}

struct slr_place slr_block_find(CUdeviceptr p)
{
    struct slr_interval v;
    if (!slr_table_find(p, &v))
        return (struct slr_place){0};
    return (struct slr_place){.generation = v.generation,
                              .base = v.base,
                              .size = v.size,
                              .offset = p - v.base,
                              .ordinal = v.ordinal,
                              .collective = (v.flags & SLR_INTERVAL_COLLECTIVE) != 0};
}

static void count_peak(void)
{
    uint64_t now = slr_block_totals.used_bytes + slr_block_totals.kept_bytes;
    if (now > slr_block_totals.peak_bytes)
        slr_block_totals.peak_bytes = now;
}

void slr_block_to_used(struct slr_block *b)
{
    b->state = SLR_BLOCK_USED;
    slr_block_totals.used_bytes += b->size;
    slr_block_served[b->pool] += b->asked;
    count_peak();
}

void slr_block_to_free(struct slr_block *b)
{
    b->state = SLR_BLOCK_FREE;
    b->freed_ms = slr_now_ms();
    slr_free_list_add(&slr_block_devices[b->device].free, b);
    slr_block_totals.kept_bytes += b->size;
    count_peak();
}

void slr_block_to_busy(struct slr_block *b)
{
    if (b->state == SLR_BLOCK_USED) {
        slr_block_totals.used_bytes -= b->size;
        slr_block_served[b->pool] -= b->asked;
    } else if (b->state == SLR_BLOCK_FREE) {
        slr_free_list_remove(&slr_block_devices[b->device].free, b);
        slr_block_totals.kept_bytes -= b->size;
    }
    b->state = SLR_BLOCK_BUSY;
}

void slr_block_drop(struct slr_block *b)
{
    slr_block_totals.blocks--;
    free(b);
}

void slr_block_vanish(struct slr_block *b)
{
    slr_table_remove(b);
    /* Another thread is at work on it without the lock: that one drops it. */
    if (b->state == SLR_BLOCK_BUSY) {
        b->gone = true;
        return;
    }
    slr_block_to_busy(b);
    slr_block_drop(b);
}

uint64_t slr_block_new_generation(void)
{
    /* Never used again, also when the address is. */
    static uint64_t generations;
    return ++generations;
}

void slr_block_end_unregistered(struct slr_block *b)
{
    if (b->kind == SLR_BLOCK_REGISTERED && b->state == SLR_BLOCK_USED && !b->registrations && !b->pins)
        slr_block_vanish(b);
}

void slr_block_note_use(struct slr_block *b, size_t bytes)
{
    b->asked = bytes;
    b->use_before = b->last_use;
    b->last_use = ++slr_block_devices[b->device].free.clock;
}

bool slr_block_worth_keeping(const struct slr_block *b)
{
    uint64_t mode = slr_get(SLR_S_ALLOC);
    bool wanted =
        !slr_reach_past() && (mode == SLR_ALLOC_ALL || (mode == SLR_ALLOC_COLLECTIVE && (b->collective || b->pool)));
    return b->pins > 0 || (b->kind == SLR_BLOCK_CACHED && wanted && b->size <= slr_block_devices[b->device].budget);
}

void slr_block_stats(struct slr_block_stats *out)
{
    *out = (struct slr_block_stats){0};
    if (!slr_block_usable())
        return;
    slr_block_lock();
    *out = slr_block_totals;
    slr_block_unlock();
}

void slr_block_log_stats(void)
{
    struct slr_block_stats s;
    slr_block_stats(&s);
    if (s.hits + s.misses == 0)
        return;
    slr_log(SLR_LOG_INFO, "blocks",
            "hits=%llu misses=%llu evictions=%llu trims=%llu idle=%llu used_bytes=%llu kept_bytes=%llu peak_bytes=%llu "
            "async=%llu",
            (unsigned long long)s.hits, (unsigned long long)s.misses, (unsigned long long)s.evictions,
            (unsigned long long)s.trims, (unsigned long long)s.idle, (unsigned long long)s.used_bytes,
            (unsigned long long)s.kept_bytes, (unsigned long long)s.peak_bytes, (unsigned long long)s.async);
}
