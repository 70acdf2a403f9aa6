/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver knows about an address. */
#include "sg.h"
#include <string.h>

static CUmemorytype memory_type(const struct sg_mem *m)
{
    return m->kind == SG_MEM_HOST || m->kind == SG_MEM_REGISTERED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

/* Of a mapping it is the reservation, unlike what cuMemGetAddressRange returns. */
static uintptr_t range_of_locked(const struct sg_mem *m, size_t *size)
{
    uintptr_t base = m->base;

    *size = m->size;
    if (m->alloc)
        sg_vmm_range_locked(m->base, &base, size);
    return base;
}

/* What the current context's device may do. */
static CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS access_locked(const struct sg_mem *m)
{
    CUresult rc;
    struct sg_ctx *ctx = m->alloc ? sg_current_locked(&rc) : NULL;

    if (!m->alloc)
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    if (!ctx || !sg_vmm_allows(m, ctx->dev, false))
        return CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
    return sg_vmm_allows(m, ctx->dev, true) ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                            : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
}

static CUresult one_locked(void *data, CUpointer_attribute attr, CUdeviceptr p, struct sg_mem *m)
{
    size_t size;

    switch ((int)attr) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* Memory of a pool and of cuMemMap belongs to no context. */
        *(CUcontext *)data = m->kind == SG_MEM_POOL || !m->ctx ? NULL : m->ctx->handle;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = memory_type(m);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (m->alloc && !m->readers)
            return CUDA_ERROR_INVALID_VALUE; /* mapped, and nobody may use it */
        *(CUdeviceptr *)data = p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (sg_mem_is_device(m))
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = m->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = m->kind == SG_MEM_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = m->dev;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = m->kind == SG_MEM_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range_of_locked(m, &size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        range_of_locked(m, &size);
        *(size_t *)data = size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = m->alloc ? m->alloc->prop.requestedHandleTypes : CU_MEM_HANDLE_TYPE_NONE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS *)data = access_locked(m);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = m->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Bytes that an attribute occupies in the caller's memory. */
static size_t width(CUpointer_attribute attr)
{
    switch ((int)attr) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return 8;
    default:
        return 4;
    }
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult rc;

    SG_ENTER(cuPointerGetAttribute);
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_mem *m = sg_mem_find_locked(ptr);
    rc = m ? one_locked(data, attribute, ptr, m) : CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}

/* Unlike the single query this succeeds for a pointer that CUDA does not know and sets the results to zero. */
CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                        CUdeviceptr ptr)
{
    SG_ENTER(cuPointerGetAttributes);
    if (!numAttributes || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_mem *m = sg_mem_find_locked(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        memset(data[i], 0, width(attributes[i]));
        if (m)
            one_locked(data[i], attributes[i], ptr, m);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = -2; /* what cuda.h calls an invalid device: CU_DEVICE_INVALID */
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
            *(void **)data[i] = (void *)(uintptr_t)ptr;
    }
    sg_release();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult rc = CUDA_SUCCESS;

    SG_ENTER(cuPointerSetAttribute);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    if (!sg_mem_find_locked(ptr))
        rc = CUDA_ERROR_INVALID_VALUE;
    sg_release();
    return rc;
}
