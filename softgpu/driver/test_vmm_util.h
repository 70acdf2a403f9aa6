/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of virtual memory management. */
#ifndef SOFTGPU_TEST_VMM_UTIL_H
#define SOFTGPU_TEST_VMM_UTIL_H

#include "test_util.h"

#define G ((size_t)2 << 20)

static inline CUmemAllocationProp prop_of(int device, CUmemAllocationHandleType types)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = types,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static inline CUmemGenericAllocationHandle create(int device, size_t size)
{
    CUmemAllocationProp prop = prop_of(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle h;
    OK(cuMemCreate(&h, size, &prop, 0));
    return h;
}

static inline CUdeviceptr reserve(size_t size)
{
    CUdeviceptr p;
    OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    return p;
}

static inline CUresult allow(CUdeviceptr p, size_t size, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc d = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, flags};
    return cuMemSetAccess(p, size, &d, 1);
}

static inline void map_rw(CUdeviceptr p, CUmemGenericAllocationHandle h, size_t size, int device)
{
    OK(cuMemMap(p, size, 0, h, 0));
    OK(allow(p, size, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static inline size_t used(void)
{
    size_t free_bytes, total;
    OK(cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

static inline uint32_t word_at(CUdeviceptr p)
{
    uint32_t v = 0;
    OK(cuMemcpyDtoH(&v, p, 4));
    return v;
}

static inline int export_fd(CUmemGenericAllocationHandle h)
{
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    cr_assert_geq(fd, 0);
    return fd;
}

static inline CUresult import(CUmemGenericAllocationHandle *h, int fd)
{
    return cuMemImportFromShareableHandle(h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static inline void expect_attribute(CUpointer_attribute what, CUdeviceptr p, unsigned long long value)
{
    unsigned long long v = 0;
    OK(cuPointerGetAttribute(&v, what, p));
    cr_assert_eq(v, value, "attribute %d is %#llx", (int)what, v);
}

#endif
