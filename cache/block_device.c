/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/block_device.h"

#include "base/settings.h"

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
