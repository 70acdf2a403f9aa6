/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management within a process: reservations, mappings, access. */
#include "../softgpu.h"
#include "test_vmm_util.h"
#include <dlfcn.h>

TestSuite(vmm, .timeout = 30, .init = watch_reports);

Test(vmm, arguments)
{
    CUmemAllocationProp prop = prop_of(0, 0), fabric = prop_of(0, CU_MEM_HANDLE_TYPE_FABRIC), none = prop_of(99, 0);
    CUmemGenericAllocationHandle h;
    CUdeviceptr p, q;
    size_t g = 0;
    int yes = 0;
    start(0);
    OK(cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_assert_eq(yes, 1);
    OK(cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    cr_assert_eq(yes, 1);
    OK(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert_eq(g, G);
    RC(cuMemCreate(&h, G + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuMemCreate(&h, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuMemCreate(&h, G, &fabric, 0), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuMemCreate(&h, G, &none, 0), CUDA_ERROR_INVALID_DEVICE);
    RC(cuMemAddressReserve(&p, 3, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuMemAddressReserve(&p, G, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&q, G, 64 * G, 0, 0));
    cr_assert_eq(q % (64 * G), 0);
    OK(cuMemAddressFree(q, G));
    p = reserve(4 * G);
    h = create(0, 2 * G);
    RC(cuMemMap(p + 1, 2 * G, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuMemMap(p, G, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED); /* as the real one: no part of an allocation */
    RC(cuMemMap(p, 2 * G, G, h, 0), CUDA_ERROR_NOT_SUPPORTED);
    RC(cuMemUnmap(p, 1), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
    RC(cuMemMap(p + 3 * G, 2 * G, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("which no reservation holds");
    OK(cuMemMap(p, 2 * G, 0, h, 0));
    RC(cuMemMap(p + G, 2 * G, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("cuMemMap over memory that is mapped");
    RC(allow(p, G, 0, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
    expect_report("which are not whole mappings");
    RC(allow(p, 4 * G, 0, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_VALUE);
    RC(allow(p, 2 * G, 99, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_DEVICE);
    RC(cuMemUnmap(p, G), CUDA_ERROR_INVALID_VALUE);
    expect_report("which are not whole mappings");
    RC(cuMemAddressFree(p, 4 * G), CUDA_ERROR_INVALID_VALUE);
    expect_report("a reservation in which memory is mapped");
    OK(cuMemUnmap(p, 4 * G)); /* gaps are allowed */
    expect_no_report();
    OK(cuMemUnmap(p, 2 * G));
    expect_report("where nothing is mapped");
    RC(cuMemAddressFree(p, 2 * G), CUDA_ERROR_INVALID_VALUE);
    expect_report("which is not a reservation");
    OK(cuMemAddressFree(p, 4 * G));
    OK(cuMemRelease(h));
    RC(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    expect_report("allocation");
}

Test(vmm, access_must_be_set_for_the_device_that_works)
{
    CUmemGenericAllocationHandle h;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    unsigned long long flags = 9;
    CUdeviceptr p, base, other;
    CUcontext c0 = start(0), c1;
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    p = reserve(G);
    h = create(0, G);
    OK(cuMemMap(p, G, 0, h, 0));
    OK(cuMemGetAccess(&flags, &here, p));
    cr_assert_eq(flags, 0);
    RC(cuMemGetAddressRange(&base, NULL, p), CUDA_ERROR_NOT_FOUND);
    RC(cuMemsetD8(p, 1, 16), CUDA_ERROR_INVALID_VALUE);
    expect_report("no write access");
    OK(allow(p, G, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    cr_assert_eq(word_at(p), 0);
    expect_no_report();
    RC(cuMemsetD8(p, 1, 16), CUDA_ERROR_INVALID_VALUE);
    expect_report("no write access");
    RC(cuStreamWriteValue32(0, p, 7, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("no write access");
    OK(allow(p, G, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuStreamWriteValue32(0, p, 7, 0));
    cr_assert_eq(word_at(p), 7);
    OK(cuCtxSetCurrent(c1));
    OK(cuCtxEnablePeerAccess(c0, 0)); /* is not what counts */
    OK(cuMemAlloc(&other, 64));
    RC(cuMemcpyDtoD(other, p, 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("no read access");
    OK(allow(p, G, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemcpyDtoD(other, p, 64));
    OK(cuCtxSynchronize());
    cr_assert_eq(word_at(other), 7);
    here.id = 1;
    OK(cuMemGetAccess(&flags, &here, p + 5));
    cr_assert_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(allow(p, G, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    RC(cuMemcpyDtoD(other, p, 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("no read access");
    OK(cuMemUnmap(p, G));
    RC(cuMemGetAccess(&flags, &here, p), CUDA_ERROR_INVALID_VALUE);
}

Test(vmm, mappings_side_by_side_are_one_buffer)
{
    CUmemGenericAllocationHandle a, b;
    CUdeviceptr p, base;
    size_t size;
    start(0);
    p = reserve(4 * G);
    a = create(0, G);
    b = create(0, 2 * G);
    map_rw(p, a, G, 0);
    OK(cuMemMap(p + G, 2 * G, 0, b, 0));
    OK(allow(p, 3 * G, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemRelease(a)); /* the mapping keeps it */
    OK(cuMemsetD32(p, 5, 3 * G / 4));
    OK(cuMemcpyDtoD(p + 2 * G - 64, p + G - 32, 64));
    OK(cuMemsetD32(p + G - 8, 6, 4)); /* over the border */
    OK(cuCtxSynchronize());
    cr_assert_eq(word_at(p + G - 12), 5);
    cr_assert_eq(word_at(p + G - 4), 6);
    cr_assert_eq(word_at(p + G + 4), 6);
    cr_assert_eq(word_at(p + G + 8), 5);
    OK(cuMemGetAddressRange(&base, &size, p + 2 * G));
    cr_assert(base == p + G && size == 2 * G);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 2 * G));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 2 * G));
    cr_assert(base == p && size == 4 * G);
    expect_no_report();
    RC(cuMemsetD8(p + 2 * G, 0, G + 1), CUDA_ERROR_INVALID_VALUE);
    expect_report("out of bounds");
    OK(cuMemUnmap(p, G));
    RC(cuMemsetD8(p, 0, 2 * G), CUDA_ERROR_INVALID_VALUE);
    expect_report("lies in the unmapped");
    a = create(0, G);
    map_rw(p, a, G, 0);
    OK(cuMemUnmap(p, 3 * G)); /* both at once */
    expect_no_report();
}

Test(vmm, what_it_is_and_is_not)
{
    CUpointer_attribute two[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MAPPED};
    unsigned values[2] = {0};
    void *data[] = {&values[0], &values[1]};
    CUipcMemHandle ipc;
    CUdeviceptr p, v;
    start(1);
    p = reserve(2 * G);
    RC(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MAPPED, p), CUDA_ERROR_INVALID_VALUE);
    CUmemGenericAllocationHandle h = create(1, G);
    OK(cuMemMap(p, G, 0, h, 0));
    RC(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p), CUDA_ERROR_INVALID_VALUE);
    OK(allow(p, G, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 8, p + 8);
    expect_attribute(CU_POINTER_ATTRIBUTE_CONTEXT, p, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p, CU_MEMORYTYPE_DEVICE);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p, 1);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p, 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    expect_attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    expect_attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, p, 0);
    OK(cuPointerGetAttributes(2, two, data, p + 5));
    cr_assert(values[0] == CU_MEMORYTYPE_DEVICE && values[1] == 1);
    RC(cuIpcGetMemHandle(&ipc, p), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
    RC(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    expect_report("cuMemFree of cuMemMap's memory");
    cr_assert_eq(word_at(p), 0);
}

Test(vmm, unmapping_under_queued_work_is_named)
{
    CUdeviceptr p, flag;
    CUstream s;
    start(0);
    uint32_t *w = flag_word(&flag);
    p = reserve(G);
    map_rw(p, create(0, G), G, 0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(p, 1, 64, s));
    OK(cuMemUnmap(p, G)); /* does not wait */
    expect_report("has cuMemsetD8Async on it");
    map_rw(p, create(0, G), G, 0);
    set_flag(w, 1);
    RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("was freed and its address used again");
}

Test(vmm, unmapping_under_a_running_operation_is_named)
{
    CUdeviceptr p;
    CUstream s;
    start(0);
    p = reserve(G);
    CUmemGenericAllocationHandle h = create(0, G);
    map_rw(p, h, G, 0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, p, 1, CU_STREAM_WAIT_VALUE_EQ));
    usleep(300000); /* it waits by now, also on a busy machine */
    OK(cuMemUnmap(p, G));
    cr_assert(reported("has cuStreamWaitValue32 on it"));
    OK(cuStreamSynchronize(s));
    expect_report("the memory was released while a stream waits on it");
    map_rw(p, h, G, 0); /* the place is free again */
    OK(cuMemsetD32(p, 3, 1));
    cr_assert_eq(word_at(p), 3);
    OK(cuMemUnmap(p, G));
    OK(cuMemRelease(h));
    cr_assert_eq(used(), 0);
    expect_no_report();
}

struct hold {
    CUdeviceptr p;
    _Atomic int *go; /* 0: not begun, 1: runs, 2: shall end */
};

static void hold(void *args)
{
    _Atomic int *go = ((struct hold *)args)->go;
    *go = 1;
    while (*go != 2)
        usleep(500);
}

static unsigned hold_access(const void *args, struct softgpu_access *out, unsigned max)
{
    if (max)
        out[0] = (struct softgpu_access){.ptr = ((const struct hold *)args)->p, .row_bytes = G, .rows = 1};
    return 1;
}

/* The end of that kernel must not take what is at its addresses by then. */
Test(vmm, a_place_used_again_under_a_running_kernel)
{
    static const struct softgpu_kernel_desc desc = {
        .name = "hold", .arg_bytes = sizeof(struct hold), .run = hold, .access = hold_access};
    _Atomic int go = 0;
    softgpuKernelRegister_t reg;
    CUfunction f;
    CUstream s;
    start(0);
    struct hold args = {reserve(G), &go};
    void *params[] = {&args};
    *(void **)&reg = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(reg(&desc, &f));
    CUmemGenericAllocationHandle h = create(0, G);
    map_rw(args.p, h, G, 0);
    OK(cuMemRelease(h));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
    while (go != 1)
        usleep(500);
    OK(cuMemUnmap(args.p, G));
    expect_report("has hold on it");
    map_rw(args.p, create(0, G), G, 0);
    OK(cuMemsetD32(args.p, 3, 1));
    cr_assert_eq(word_at(args.p), 3);
    go = 2;
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word_at(args.p), 3);
    cr_assert_eq(used(), G);
    expect_no_report();
}

Test(vmm, injected_faults)
{
    CUmemAllocationProp prop = prop_of(0, 0);
    CUmemGenericAllocationHandle h;
    CUdeviceptr p;
    int fd;
    setenv("SOFTGPU_FAIL", "cuMemCreate:2,cuMemMap:1,cuMemSetAccess:1=201,cuMemExportToShareableHandle:1+", 1);
    start(0);
    p = reserve(G);
    h = create(0, G);
    RC(cuMemCreate(&h, G, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    RC(cuMemMap(p, G, 0, h, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemMap(p, G, 0, h, 0));
    RC(allow(p, G, 0, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_ERROR_INVALID_CONTEXT);
    OK(allow(p, G, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    RC(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_OPERATING_SYSTEM);
    expect_no_report();
}
