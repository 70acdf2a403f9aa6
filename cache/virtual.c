/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include "base/status.h"
#include "base/wait.h"
#include "cache/block_impl.h"
#include "cache/blocks.h"
#include "cache/virtual.h"

bool slr_virtual_supported(void)
{
    return slr_real.cuMemRetainAllocationHandle && slr_real.cuMemGetAllocationPropertiesFromHandle &&
           slr_real.cuMemExportToShareableHandle && slr_real.cuMemImportFromShareableHandle &&
           slr_real.cuMemAddressReserve && slr_real.cuMemAddressFree && slr_real.cuMemMap && slr_real.cuMemUnmap &&
           slr_real.cuMemSetAccess && slr_real.cuMemGetAccess && slr_real.cuMemRelease;
}

/* ---- a look at the program's ---- */

#define LOOK_TRIES 10 /* a millisecond apart */

/* What ends an allocation, the program's or slipring's, is its reader, a look is its writer. */
static pthread_rwlock_t books = PTHREAD_RWLOCK_INITIALIZER;

static bool begin_look(void)
{
    /* Not a plain wait: the program may be inside cuMemUnmap, which may wait for its device. */
    for (int i = 0; i < LOOK_TRIES; i++) {
        if (pthread_rwlock_trywrlock(&books) == 0)
            return true;
        slr_sleep_ms(1);
    }
    return false;
}

enum slr_retain_result slr_retain(CUdeviceptr p, CUmemGenericAllocationHandle *memory)
{
    if (!begin_look())
        return SLR_RETAIN_LATER;
    if (slr_real.cuMemRetainAllocationHandle(memory, (void *)(uintptr_t)p) == CUDA_SUCCESS)
        return SLR_RETAINED;
    pthread_rwlock_unlock(&books);
    return SLR_RETAIN_REFUSED;
}

void slr_retain_end(CUmemGenericAllocationHandle memory)
{
    slr_cu_status(slr_real.cuMemRelease(memory), "cuMemRelease");
    pthread_rwlock_unlock(&books);
}

/* A child after fork may have the lock of a thread that is not there. */
void slr_retain_shut(void)
{
    if (slr_block_usable())
        pthread_rwlock_rdlock(&books);
}

void slr_retain_open(void)
{
    if (slr_block_usable())
        pthread_rwlock_unlock(&books);
}

/* ---- slipring's own ---- */

static CUmemAllocationProp prop_of(CUdevice device)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static enum slr_status unmap(CUdeviceptr base, size_t bytes)
{
    slr_retain_shut();
    const enum slr_status s = slr_cu_status(slr_real.cuMemUnmap(base, bytes), "cuMemUnmap");
    slr_retain_open();
    return s;
}

void slr_virtual_release(CUmemGenericAllocationHandle memory)
{
    slr_retain_shut();
    slr_cu_status(slr_real.cuMemRelease(memory), "cuMemRelease");
    slr_retain_open();
}

static bool has_virtual_memory(CUdevice device)
{
    int has = 0;
    return slr_real.cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ==
               CUDA_SUCCESS &&
           has;
}

size_t slr_virtual_granularity(const struct slr_virtual_devices *devices)
{
    size_t most = 0;
    if (!slr_virtual_supported() || !slr_real.cuMemCreate || !slr_real.cuMemGetAllocationGranularity)
        return 0;
    for (unsigned i = 0; i < devices->count; i++) {
        const CUmemAllocationProp prop = prop_of(devices->device[i]);
        size_t one = 0;
        if (!has_virtual_memory(devices->device[i]) ||
            slr_real.cuMemGetAllocationGranularity(&one, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
            return 0;
        most = one > most ? one : most;
    }
    return most;
}

static CUresult give_access(const struct slr_virtual_devices *devices, CUdeviceptr base, size_t bytes)
{
    CUresult r = CUDA_SUCCESS;
    for (unsigned i = 0; i < devices->count && r == CUDA_SUCCESS; i++) {
        const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = devices->device[i]},
                                        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        r = slr_real.cuMemSetAccess(base, bytes, &access, 1);
    }
    return r;
}

CUresult slr_virtual_map(const struct slr_virtual_devices *devices, const struct slr_virtual_piece *piece,
                         unsigned count, CUdeviceptr *base)
{
    size_t bytes = 0, mapped = 0;
    for (unsigned i = 0; i < count; i++)
        bytes += piece[i].bytes;
    CUresult r = slr_real.cuMemAddressReserve(base, bytes, 0, 0, 0);
    if (r != CUDA_SUCCESS)
        return r;
    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++) {
        r = slr_real.cuMemMap(*base + mapped, piece[i].bytes, 0, piece[i].memory, 0);
        mapped += r == CUDA_SUCCESS ? piece[i].bytes : 0;
    }
    if (r == CUDA_SUCCESS)
        r = give_access(devices, *base, bytes);
    if (r != CUDA_SUCCESS && mapped)
        unmap(*base, mapped);
    if (r != CUDA_SUCCESS)
        slr_cu_status(slr_real.cuMemAddressFree(*base, bytes), "cuMemAddressFree");
    return r;
}

/* Memory that is mapped is kept by its mapping; the handle goes at once. */
CUresult slr_virtual_make(const struct slr_virtual_devices *devices, size_t bytes, CUdeviceptr *out)
{
    const CUmemAllocationProp prop = prop_of(devices->on);
    struct slr_virtual_piece all = {.bytes = bytes};
    *out = 0;
    CUresult r = slr_real.cuMemCreate(&all.memory, bytes, &prop, 0);
    if (slr_cu_status(r, "cuMemCreate") != SLR_OK)
        return r;
    CUdeviceptr base = 0;
    r = slr_virtual_map(devices, &all, 1, &base);
    slr_virtual_release(all.memory);
    if (r == CUDA_SUCCESS)
        *out = base;
    return r;
}

bool slr_virtual_free(CUdeviceptr base, size_t bytes)
{
    if (!base || unmap(base, bytes) != SLR_OK)
        return false;
    slr_cu_status(slr_real.cuMemAddressFree(base, bytes), "cuMemAddressFree");
    return true;
}
