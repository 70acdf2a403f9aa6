/* SPDX-License-Identifier: Apache-2.0 */
/* Page-locked host memory: the device address is the host address. */
#include "sg.h"
#include <stdlib.h>
#include <unistd.h>

static CUresult alloc_host(void **pp, size_t bytes, unsigned flags)
{
    struct sg_mem *m = NULL;
    CUresult rc;

    if (!pp ||
        flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx)
        rc = sg_capture_unsafe_locked();
    if (!rc)
        rc = sg_mem_new_locked(&m, SG_MEM_HOST, ctx, bytes);
    if (!rc) {
        m->flags = flags;
        *pp = (void *)m->base;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    SG_ENTER(cuMemHostAlloc);
    return alloc_host(pp, bytesize, Flags);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    SG_ENTER(cuMemAllocHost_v2);
    return alloc_host(pp, bytesize, 0);
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
    char what[160];
    CUresult rc;

    SG_ENTER(cuMemFreeHost);
    if (!p)
        return CUDA_SUCCESS;
    sg_acquire();
    struct sg_mem *m = sg_current_locked(&rc) ? sg_mem_find_base_locked((uintptr_t)p) : NULL;
    if (!rc && (!m || m->kind != SG_MEM_HOST || m->freeing)) {
        sg_misuse("cuMemFreeHost: %s", sg_mem_describe_locked((uintptr_t)p, what, sizeof(what)));
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (!rc) {
        m->freeing = true;
        sg_ctx_sync_locked(m->ctx);
        m = sg_mem_find_base_locked((uintptr_t)p);
        if (m)
            sg_mem_retire_locked(m);
    }
    sg_release();
    return rc;
}

static bool overlaps_locked(uintptr_t p, size_t n)
{
    struct sg_mem *m;
    for (size_t i = 0; (m = sg_mem_at_locked(i)); i++)
        if (m->base < p + n && p < m->base + m->size)
            return true;
    return false;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                     CU_MEMHOSTREGISTER_READ_ONLY;
    struct sg_mem *m;
    CUresult rc;

    SG_ENTER(cuMemHostRegister_v2);
    if (!p || !bytesize || Flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
        return CUDA_ERROR_NOT_SUPPORTED;
    sg_acquire();
    struct sg_ctx *ctx = sg_current_locked(&rc);
    if (ctx)
        rc = sg_capture_unsafe_locked();
    if (!rc && overlaps_locked((uintptr_t)p, bytesize))
        rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    m = rc ? NULL : calloc(1, sizeof(*m));
    if (m) {
        *m = (struct sg_mem){.base = (uintptr_t)p,
                             .size = bytesize,
                             .kind = SG_MEM_REGISTERED,
                             .dev = ctx->dev,
                             .ctx = ctx,
                             .flags = Flags,
                             .fd = -1,
                             .owner = getpid()};
        sg_mem_insert_locked(m);
    } else if (!rc) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
    CUresult rc;

    SG_ENTER(cuMemHostUnregister);
    sg_acquire();
    struct sg_mem *m = sg_current_locked(&rc) ? sg_mem_find_base_locked((uintptr_t)p) : NULL;
    if (!rc && (!m || m->kind != SG_MEM_REGISTERED)) {
        sg_misuse("cuMemHostUnregister of %p, which is not registered", p);
        rc = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    } else if (!rc) {
        if (m->pins)
            sg_misuse("cuMemHostUnregister of %p while an operation runs on it", p);
        sg_mem_retire_locked(m);
    }
    sg_release();
    return rc;
}

static struct sg_mem *host_locked(const void *p)
{
    struct sg_mem *m = sg_mem_find_locked((uintptr_t)p);
    return m && (m->kind == SG_MEM_HOST || m->kind == SG_MEM_REGISTERED) ? m : NULL;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    CUresult rc;

    SG_ENTER(cuMemHostGetDevicePointer_v2);
    if (!pdptr || Flags)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    if (sg_current_locked(&rc) && !host_locked(p))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        *pdptr = (uintptr_t)p;
    sg_release();
    return rc;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    CUresult rc;

    SG_ENTER(cuMemHostGetFlags);
    if (!pFlags)
        return CUDA_ERROR_INVALID_VALUE;
    sg_acquire();
    struct sg_mem *m = sg_current_locked(&rc) ? host_locked(p) : NULL;
    if (!rc && !m)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        *pFlags = m->flags | CU_MEMHOSTALLOC_DEVICEMAP; /* with unified addressing all of it is mapped */
    sg_release();
    return rc;
}
