/* SPDX-License-Identifier: Apache-2.0 */
#include "virtual.h"

#include "../programs/ranks.h"

#define GRANULARITY ((size_t)2 << 20)
#define DRIVER(call)                                                                                                   \
    do {                                                                                                               \
        CUresult e_ = (call);                                                                                          \
        if (e_ != CUDA_SUCCESS)                                                                                        \
            e_ = (call);                                                                                               \
        if (e_ != CUDA_SUCCESS)                                                                                        \
            DIE(3, "%s: %d", #call, (int)e_);                                                                          \
    } while (0)

static void allow(const struct virtual *v, int device)
{
    CUmemAccessDesc all = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(cuMemSetAccess(v->p, v->bytes, &all, 1));
}

/* The handles are not kept: the mappings hold the memory. */
static void map(const struct virtual *v)
{
    CUdevice device;
    size_t each = v->bytes / (size_t)v->parts;
    DRIVER(cuCtxGetDevice(&device));
    for (int i = 0; i < v->parts; i++) {
        CUmemGenericAllocationHandle h;
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = (CUmemAllocationHandleType)v->types,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
        DRIVER(cuMemCreate(&h, each, &prop, 0));
        DRIVER(cuMemMap(v->p + (size_t)i * each, each, 0, h, 0));
        DRIVER(cuMemRelease(h));
    }
    allow(v, device);
}

static void unmap(const struct virtual *v)
{
    size_t each = v->bytes / (size_t)v->parts;
    for (int i = 0; i < v->parts; i++)
        DRIVER(cuMemUnmap(v->p + (size_t)i * each, each));
}

void virtual_alloc(struct virtual *v, size_t bytes, int parts, int types, int devices)
{
    size_t each = (bytes / (size_t)parts + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    CUDA(cudaFree(NULL)); /* the runtime makes its context current */
    *v = (struct virtual){.bytes = each * (size_t)parts, .parts = parts, .types = types};
    DRIVER(cuMemAddressReserve(&v->p, v->bytes, 0, 0, 0));
    map(v);
    for (int d = 0; d < devices; d++)
        allow(v, d);
}

void virtual_free(struct virtual *v)
{
    unmap(v);
    DRIVER(cuMemAddressFree(v->p, v->bytes));
}

void virtual_remap(struct virtual *v)
{
    CUDA(cudaDeviceSynchronize());
    unmap(v);
    map(v);
}
