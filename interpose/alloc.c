/* SPDX-License-Identifier: Apache-2.0 */
#include "interpose/install.h"

#include "base/real.h"
#include "base/settings.h"
#include "cache/blocks.h"
#include "cache/virtual.h"
#include "interpose/gate_table.h"
#include "plugin/comm/stream.h"

/* cuda.h turns them into the second forms. */
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset

/* Requests below this go to the driver at once. */
static size_t threshold;

#define REAL(sym) ((__typeof__(&hook_##sym))slr_gate_found[SLR_GATE_IX_##sym])

/* What is kept of the current device's memory goes back; whether an attempt that failed is worth
 * repeating. */
static bool out_of_memory(CUresult r, int device)
{
    return __builtin_expect(r == CUDA_ERROR_OUT_OF_MEMORY, 0) && slr_block_trim(device, SIZE_MAX) > 0;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);

/* Apart, so that the common way saves no more registers than it must. */
__attribute__((noinline, cold)) static CUresult alloc_again(CUdeviceptr *out, size_t bytes)
{
    return slr_block_trim(-1, SIZE_MAX) > 0 ? REAL(cuMemAlloc_v2)(out, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    if (__builtin_expect(bytes >= threshold, 0))
        return slr_block_alloc(out, bytes);
    CUresult r = REAL(cuMemAlloc_v2)(out, bytes);
    return __builtin_expect(r == CUDA_ERROR_OUT_OF_MEMORY, 0) ? alloc_again(out, bytes) : r;
}

static CUresult hook_cuMemFree_v2(CUdeviceptr p)
{
    return slr_block_free(p);
}

static CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    return slr_block_mem_info(free_bytes, total);
}

static CUresult hook_cuMemFreeAsync(CUdeviceptr p, CUstream stream)
{
    return slr_block_free_async(p, stream, REAL(cuMemFreeAsync));
}

static CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream)
{
    return slr_block_free_async(p, stream ? stream : CU_STREAM_PER_THREAD, REAL(cuMemFreeAsync_ptsz));
}

static CUresult hook_cuMemUnmap(CUdeviceptr p, size_t bytes)
{
    slr_external_unmap_begin(p, bytes);
    slr_retain_program_begin();
    CUresult r = REAL(cuMemUnmap)(p, bytes);
    slr_retain_program_end();
    slr_external_unmap_end(p, bytes);
    return r;
}

static CUresult hook_cuMemRelease(CUmemGenericAllocationHandle memory)
{
    slr_retain_program_begin();
    CUresult r = REAL(cuMemRelease)(memory);
    slr_retain_program_end();
    return r;
}

/* Known before it happens: from then on nothing of the context is freed by its address any more. */
#define RESET(sym)                                                                                                     \
    static CUresult hook_##sym(CUdevice device)                                                                        \
    {                                                                                                                  \
        slr_stream_ends();                                                                                             \
        slr_device_reset(device);                                                                                      \
        CUresult r = REAL(sym)(device);                                                                                \
        if (r == CUDA_SUCCESS)                                                                                         \
            slr_device_forget(device);                                                                                 \
        return r;                                                                                                      \
    }
RESET(cuDevicePrimaryCtxReset)
RESET(cuDevicePrimaryCtxReset_v2)

/* The last one destroys it; what slipring holds counts as well, so then slipring holds nothing
 * there. */
#define RELEASE(sym)                                                                                                   \
    static CUresult hook_##sym(CUdevice device)                                                                        \
    {                                                                                                                  \
        slr_stream_ends();                                                                                             \
        CUresult r = REAL(sym)(device);                                                                                \
        if (r == CUDA_SUCCESS && !slr_block_device_active(device))                                                     \
            slr_device_reset(device);                                                                                  \
        if (r == CUDA_SUCCESS)                                                                                         \
            slr_device_forget_released(device);                                                                        \
        return r;                                                                                                      \
    }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)

#define RETRY(sym, device, params, args)                                                                               \
    static CUresult hook_##sym params                                                                                  \
    {                                                                                                                  \
        CUresult r = REAL(sym) args;                                                                                   \
        return out_of_memory(r, device) ? REAL(sym) args : r;                                                          \
    }
RETRY(cuMemAllocAsync, -1, (CUdeviceptr * out, size_t bytes, CUstream stream), (out, bytes, stream))
RETRY(cuMemAllocAsync_ptsz, -1, (CUdeviceptr * out, size_t bytes, CUstream stream), (out, bytes, stream))
RETRY(cuMemAllocFromPoolAsync, -1, (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),
      (out, bytes, pool, stream))
RETRY(cuMemAllocFromPoolAsync_ptsz, -1, (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),
      (out, bytes, pool, stream))
RETRY(cuMemAllocManaged, -1, (CUdeviceptr * out, size_t bytes, unsigned flags), (out, bytes, flags))
RETRY(cuMemAllocPitch_v2, -1, (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned element),
      (out, pitch, width, height, element))
RETRY(cuMemCreate, prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : -1,
      (CUmemGenericAllocationHandle * out, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags),
      (out, bytes, prop, flags))

static bool driver_has_all(void)
{
    return slr_real.cuCtxSynchronize && slr_real.cuDevicePrimaryCtxGetState && slr_real.cuDevicePrimaryCtxRetain &&
           slr_real.cuDevicePrimaryCtxRelease_v2 && slr_real.cuDeviceTotalMem && slr_real.cuMemGetInfo &&
           slr_real.cuMemAlloc && slr_real.cuMemFree && slr_real.cuCtxGetCurrent && slr_real.cuCtxGetDevice &&
           slr_real.cuCtxPushCurrent && slr_real.cuCtxPopCurrent && slr_real.cuThreadExchangeStreamCaptureMode;
}

void slr_alloc_install(void)
{
    if (!slr_get(SLR_S_ENABLE))
        return;
    /* Also with SLIPRING_ALLOC=off: gathers may use virtual memory that the cache did not make. */
    if (slr_get(SLR_S_ZERO_COPY) && slr_gate_found[SLR_GATE_IX_cuMemUnmap] &&
        slr_gate_found[SLR_GATE_IX_cuMemRelease]) {
        slr_gate_real[SLR_GATE_IX_cuMemUnmap] = (void *)hook_cuMemUnmap;
        slr_gate_real[SLR_GATE_IX_cuMemRelease] = (void *)hook_cuMemRelease;
    }
#define A(sym)                                                                                                         \
    if (slr_gate_found[SLR_GATE_IX_##sym])                                                                             \
        slr_gate_real[SLR_GATE_IX_##sym] = (void *)hook_##sym;
    if (slr_real.cuDevicePrimaryCtxGetState) {
        A(cuDevicePrimaryCtxReset)
        A(cuDevicePrimaryCtxReset_v2)
        A(cuDevicePrimaryCtxRelease)
        A(cuDevicePrimaryCtxRelease_v2)
    }
    if (!slr_get(SLR_S_ALLOC) || !driver_has_all())
        return;
    /* Read once: the hook compares with it at every allocation. */
    threshold = slr_get(SLR_S_ALLOC_MIN);
#include "interpose/alloc.def"
#undef A
}
