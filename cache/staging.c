#include "cache/staging.h"

#include "base/cu.h"
#include "base/log.h"
#include "cache/blocks.h"

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

static bool try_make(struct slr_staging *s, size_t bytes, uint64_t budget)
{
    if (!reserve(bytes, budget))
        return false;
    /* Running out is an answer here, not an error: what the application has freed goes first, then the slot shrinks. */
    CUresult r = slr_real.cuMemAlloc(&s->base, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY && slr_block_trim(-1, bytes) > 0)
        r = slr_real.cuMemAlloc(&s->base, bytes);
    if (r == CUDA_SUCCESS)
        return true;
    atomic_fetch_sub(&held, bytes);
    return false;
}

enum slr_status slr_staging_make(struct slr_staging *s, unsigned slots, size_t wanted, uint64_t budget)
{
    for (size_t slot = wanted & ~(SLR_SLOT_MIN - 1); slot >= SLR_SLOT_MIN; slot = (slot / 2) & ~(SLR_SLOT_MIN - 1)) {
        if (!try_make(s, slots * slot, budget))
            continue;
        s->slot = slot;
        s->bytes = slots * slot;
        if (slot < wanted)
            slr_log(SLR_LOG_INFO, "staging_shrunk", "slot_bytes=%zu wanted=%zu budget=%llu held=%llu", slot, wanted,
                    (unsigned long long)budget, (unsigned long long)atomic_load(&held));
        return SLR_OK;
    }
    slr_log(SLR_LOG_WARN, "no_staging", "wanted=%zu budget=%llu held=%llu msg=%s", wanted, (unsigned long long)budget,
            (unsigned long long)atomic_load(&held),
            "no staging memory within SLIPRING_CACHE_BYTES and the device's free memory");
    return SLR_NOMEM;
}

void slr_staging_free(struct slr_staging *s)
{
    if (!s->base)
        return;
    slr_cu_status(slr_real.cuMemFree(s->base), "cuMemFree");
    atomic_fetch_sub(&held, s->bytes);
    *s = (struct slr_staging){0};
}

uint64_t slr_staging_held(void)
{
    return atomic_load(&held);
}

enum slr_status slr_staging_offer(const struct slr_staging *s, struct slr_staging_offer *offer)
{
    offer->base = s->base;
    return SLR_CU(cuIpcGetMemHandle, &offer->handle, s->base);
}

static enum slr_status enable_peer(CUcontext owner_ctx)
{
    CUresult r = slr_real.cuCtxEnablePeerAccess(owner_ctx, 0);
    return r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? SLR_OK : slr_cu_status(r, "cuCtxEnablePeerAccess");
}

enum slr_status slr_staging_import(const struct slr_staging_offer *offer, bool same_process, CUcontext owner_ctx,
                                   CUdeviceptr *out)
{
    if (same_process) {
        *out = offer->base;
        return enable_peer(owner_ctx);
    }
    return SLR_CU(cuIpcOpenMemHandle, out, offer->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

#define CLOSE_TRIES 8

bool slr_staging_unimport(CUdeviceptr base, bool same_process)
{
    bool closed = !base || same_process;
    for (int i = 0; i < CLOSE_TRIES && !closed; i++)
        closed = slr_cu_status(slr_real.cuIpcCloseMemHandle(base), "cuIpcCloseMemHandle") == SLR_OK;
    return closed;
}
