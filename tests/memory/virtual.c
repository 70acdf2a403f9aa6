/* SPDX-License-Identifier: Apache-2.0 */
#include "virtual.h"

#include "../programs/ranks.h"

#define DRIVER(call)                                                                                                   \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS)                                                                                        \
            e_ = (call);                                                                                               \
        if (e_ != CUDA_SUCCESS)                                                                                        \
            DIE(3, "%s: %d", #call, (int)e_);                                                                          \
    } while (0)

static void allow(CUdeviceptr p, size_t bytes, int device)
{
    CUmemAccessDesc all = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(cuMemSetAccess(p, bytes, &all, 1));
}

/* The handles are not kept: the mappings hold the memory. */
void virtual_map_parts(const struct virtual *v, int first, int parts)
{
    CUdevice device;
    size_t each = v->bytes / (size_t)v->parts;
    DRIVER(cuCtxGetDevice(&device));
    for (int i = first; i < first + parts; i++) {
        CUmemGenericAllocationHandle h;
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = (CUmemAllocationHandleType)v->types,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
        DRIVER(cuMemCreate(&h, each, &prop, 0));
        DRIVER(cuMemMap(v->p + (size_t)i * each, each, 0, h, 0));
        DRIVER(cuMemRelease(h));
    }
    allow(v->p + (size_t)first * each, (size_t)parts * each, device);
}

void virtual_unmap_parts(const struct virtual *v, int first, int parts)
{
    size_t each = v->bytes / (size_t)v->parts;
    for (int i = first; i < first + parts; i++)
        DRIVER(cuMemUnmap(v->p + (size_t)i * each, each));
}

void virtual_reserve(struct virtual *v, int parts)
{
    CUDA(cudaFree(NULL)); /* the runtime makes its context current */
    *v = (struct virtual){
        .bytes = (size_t)parts * GRANULARITY, .parts = parts, .types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    DRIVER(cuMemAddressReserve(&v->p, v->bytes, 0, 0, 0));
}

void virtual_alloc(struct virtual *v, size_t bytes, int parts, int types, int devices)
{
    size_t each = (bytes / (size_t)parts + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    CUDA(cudaFree(NULL)); /* the runtime makes its context current */
    *v = (struct virtual){.bytes = each * (size_t)parts, .parts = parts, .types = types};
    DRIVER(cuMemAddressReserve(&v->p, v->bytes, 0, 0, 0));
    virtual_map_parts(v, 0, parts);
    for (int d = 0; d < devices; d++)
        allow(v->p, v->bytes, d);
}

void virtual_free(struct virtual *v)
{
    virtual_unmap_parts(v, 0, v->parts);
    DRIVER(cuMemAddressFree(v->p, v->bytes));
}

void virtual_remap(struct virtual *v)
{
    CUDA(cudaDeviceSynchronize());
    virtual_unmap_parts(v, 0, v->parts);
    virtual_map_parts(v, 0, v->parts);
}
