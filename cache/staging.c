/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/staging.h"

#include "base/log.h"
#include "base/status.h"
#include "cache/blocks.h"
#include "cache/virtual.h"

static _Atomic uint64_t held;

static bool reserve(uint64_t bytes, uint64_t budget)
{
    uint64_t now = atomic_load(&held);
    do {
        if (bytes > budget || now > budget - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&held, &now, now + bytes));
    return true;
}

static struct slr_virtual_devices near_devices(const struct slr_staging_want *want)
{
    return (struct slr_virtual_devices){
        .on = want->near ? want->device[0] : 0, .count = want->near, .device = want->device};
}

static CUresult make_once(struct slr_staging *s, const struct slr_staging_want *want)
{
    /* The driver's, not the block cache's: staging has a budget of its own. */
    CUresult r = want->far ? slr_real.cuMemAlloc(&s->far, s->far_bytes) : CUDA_SUCCESS;
    const struct slr_virtual_devices near = near_devices(want);
    if (r == CUDA_SUCCESS && want->near && (r = slr_virtual_make(&near, s->near_bytes, &s->near)) != CUDA_SUCCESS &&
        s->far)
        slr_cu_status(slr_real.cuMemFree(s->far), "cuMemFree");
    if (r != CUDA_SUCCESS)
        s->far = 0;
    return r;
}

/* SLR_NOMEM: a smaller slot may fit. Running out is an answer here, not an error: what the
 * application has freed goes first, then the slot shrinks. */
static enum slr_status try_make(struct slr_staging *s, const struct slr_staging_want *want)
{
    size_t bytes = slr_staging_bytes(s);
    /* Counted before it is made, so that two threads together do not exceed the budget. */
    if (!reserve(bytes, want->budget))
        return SLR_NOMEM;
    CUresult r = make_once(s, want);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && slr_block_trim(-1, bytes) > 0)
        r = make_once(s, want);
    if (r == CUDA_SUCCESS)
        return SLR_OK;
    atomic_fetch_sub(&held, bytes);
    return r == CUDA_ERROR_OUT_OF_MEMORY || want->far ? SLR_NOMEM : SLR_ABSENT;
}

enum slr_status slr_staging_make(struct slr_staging *s, const struct slr_staging_want *want)
{
    const struct slr_virtual_devices near = near_devices(want);
    size_t page = want->near ? slr_virtual_granularity(&near) : 1;
    if (!page)
        return SLR_ABSENT;
    for (size_t slot = want->slot & ~(SLR_SLOT_MIN - 1); slot >= SLR_SLOT_MIN;
         slot = (slot / 2) & ~(SLR_SLOT_MIN - 1)) {
        size_t bytes = want->slots * slot;
        *s = (struct slr_staging){.slot = slot, .far_bytes = want->far ? bytes : 0};
        s->near_bytes = want->near ? (bytes + page - 1) / page * page : 0;
        enum slr_status made = try_make(s, want);
        if (made == SLR_OK && slot < want->slot)
            slr_log(SLR_LOG_INFO, "staging_shrunk", "slot_bytes=%zu wanted=%zu budget=%llu held=%llu", slot, want->slot,
                    (unsigned long long)want->budget, (unsigned long long)atomic_load(&held));
        if (made == SLR_OK)
            return made;
        *s = (struct slr_staging){0};
        if (made != SLR_NOMEM)
            return made;
    }
    slr_log(SLR_LOG_WARN, "no_staging", "wanted=%zu budget=%llu held=%llu msg=%s", want->slot,
            (unsigned long long)want->budget, (unsigned long long)atomic_load(&held),
            "no staging memory within SLIPRING_CACHE_BYTES and the device's free memory");
    return SLR_NOMEM;
}

void slr_staging_forget(struct slr_staging *s)
{
    atomic_fetch_sub(&held, slr_staging_bytes(s));
    *s = (struct slr_staging){0};
}

void slr_staging_free(struct slr_staging *s)
{
    if (s->far)
        slr_cu_status(slr_real.cuMemFree(s->far), "cuMemFree");
    slr_virtual_free(s->near, s->near_bytes);
    slr_staging_forget(s);
}

uint64_t slr_staging_held(void)
{
    return atomic_load(&held);
}

enum slr_status slr_staging_export(const struct slr_staging *s, struct slr_staging_export *offer)
{
    offer->near = s->near;
    return s->far ? SLR_CU(cuIpcGetMemHandle, &offer->handle, s->far) : SLR_OK;
}

enum slr_status slr_staging_import(const struct slr_staging_export *offer, bool same_process, CUdeviceptr *out)
{
    if (!same_process)
        return SLR_CU(cuIpcOpenMemHandle, out, offer->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    *out = offer->near;
    return SLR_OK;
}

#define CLOSE_TRIES 8

bool slr_staging_close(CUdeviceptr base)
{
    bool closed = !base;
    /* Tried again, because the owner can not free its memory while a mapping stays open. */
    for (int i = 0; i < CLOSE_TRIES && !closed; i++)
        closed = slr_cu_status(slr_real.cuIpcCloseMemHandle(base), "cuIpcCloseMemHandle") == SLR_OK;
    return closed;
}
