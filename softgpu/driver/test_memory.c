/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: allocation, copies of all shapes, pointer queries. */
#include "test_util.h"

#include <pthread.h>
#include <signal.h>

TestSuite(memory, .timeout = 30);

Test(memory, round_trip_and_ranges)
{
    CUdeviceptr p, base;
    size_t size, before, after, total;
    unsigned char in[1000], out[1000];
    start(1);
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemAlloc(&p, 1000));
    OK(cuMemGetInfo(&after, &total));
    cr_assert_eq(before - after, 1000);
    for (int i = 0; i < 1000; i++)
        in[i] = (unsigned char)(i * 7);
    OK(cuMemcpyHtoD(p, in, 1000));
    OK(cuMemcpyDtoH(out, p, 1000));
    cr_assert_arr_eq(in, out, 1000);
    OK(cuMemGetAddressRange(&base, &size, p + 999));
    cr_assert(base == p && size == 1000);
    RC(cuMemGetAddressRange(&base, &size, p + 1000), CUDA_ERROR_NOT_FOUND);
    OK(cuMemFree(p));
    RC(cuMemGetAddressRange(&base, &size, p), CUDA_ERROR_NOT_FOUND);
    OK(cuMemFree(0));
    RC(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, blocks_beyond_4_gib_and_the_device_limit)
{
    CUdeviceptr p, q;
    uint32_t v = 0;
    setenv("SOFTGPU_MEM_BYTES", "8589934592", 1);
    start(0);
    OK(cuMemAlloc(&p, (size_t)6 << 30));
    cr_assert_eq(p % (2 << 20), 0);
    RC(cuMemAlloc(&q, (size_t)3 << 30), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemsetD32(p + ((size_t)5 << 30), 0xabcd, 4));
    OK(cuMemcpyDtoD(p, p + ((size_t)5 << 30), 16));
    OK(cuMemcpyDtoH(&v, p + 4, 4));
    cr_assert_eq(v, 0xabcd);
    OK(cuMemFree(p));
    OK(cuMemAlloc(&q, (size_t)7 << 30));
}

Test(memory, pageable_source_may_be_reused_at_once)
{
    CUdeviceptr p, flag;
    CUstream s;
    uint32_t v = 1, out = 0;
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuMemAlloc(&p, 64));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemcpyHtoDAsync(p, &v, 4, s));
    v = 2;
    set_flag(w, 1);
    OK(cuMemcpyDtoHAsync(&out, p, 4, s)); /* complete when it returns: pageable */
    cr_assert_eq(out, 1);
}

Test(memory, rectangles_and_boxes)
{
    CUdeviceptr p;
    size_t pitch;
    unsigned char in[4][5] = {"abcd", "efgh", "ijkl", "mnop"}, out[4][5] = {""};
    start(0);
    OK(cuMemAllocPitch(&p, &pitch, 5, 8, 4));
    OK(cuMemsetD8(p, 0xee, pitch * 8));
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = 5,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = p,
                       .dstPitch = pitch,
                       .dstY = 2,
                       .WidthInBytes = 5,
                       .Height = 4};
    OK(cuMemcpy2D(&c));
    CUDA_MEMCPY3D d = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = p,
                       .srcPitch = pitch,
                       .srcY = 2,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = out,
                       .dstPitch = 5,
                       .WidthInBytes = 5,
                       .Height = 4,
                       .Depth = 1};
    OK(cuMemcpy3D(&d));
    cr_assert_arr_eq(in, out, sizeof(in));
    unsigned char edge[2];
    OK(cuMemcpyDtoH(edge, p + 2 * pitch + 4, 2));
    cr_assert(edge[0] == 0 && edge[1] == 0xee, "nothing beside the rectangle is touched");
    c.dstPitch = 3;
    RC(cuMemcpy2D(&c), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD2D16(p, pitch, 0x1234, 2, 3));
    uint16_t h[3];
    OK(cuMemcpyDtoH(h, p + 2 * pitch, 6));
    cr_assert(h[0] == 0x1234 && h[1] == 0x1234 && h[2] != 0x1234);
}

Test(memory, pointer_attributes)
{
    CUcontext ctx = start(2), got;
    CUdeviceptr p, pool, start_addr;
    size_t size;
    unsigned type = 0, capable = 9;
    int dev;
    unsigned long long id1, id2;
    int local;
    OK(cuMemAlloc(&p, 4096));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
    OK(cuPointerGetAttribute(&dev, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    OK(cuPointerGetAttribute(&start_addr, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 5));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 5));
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
    OK(cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    cr_assert(type == CU_MEMORYTYPE_DEVICE && dev == 2 && got == ctx && start_addr == p && size == 4096 &&
              capable == 1);
    OK(cuMemFree(p));
    OK(cuMemAlloc(&p, 4096));
    OK(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    cr_assert_neq(id1, id2, "a block at the same address is another block");
    OK(cuMemAllocAsync(&pool, 4096, 0));
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pool));
    cr_assert_eq(capable, 0);
    RC(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&local), CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute attrs[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *data[] = {&type, &size};
    OK(cuPointerGetAttributes(2, attrs, data, (CUdeviceptr)&local));
    cr_assert(type == 0 && size == 0);
    OK(cuPointerGetAttributes(2, attrs, data, p));
    cr_assert(type == CU_MEMORYTYPE_DEVICE && size == 4096);
}

Test(memory, registered_host_memory)
{
    CUdeviceptr d;
    unsigned flags;
    start(0);
    char *p = aligned_alloc(4096, 8192);
    OK(cuMemHostRegister(p, 8192, CU_MEMHOSTREGISTER_PORTABLE));
    RC(cuMemHostRegister(p + 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostGetDevicePointer(&d, p + 100, 0));
    cr_assert_eq(d, (CUdeviceptr)(uintptr_t)(p + 100));
    OK(cuMemHostGetFlags(&flags, p));
    cr_assert(flags & CU_MEMHOSTREGISTER_PORTABLE);
    OK(cuMemHostUnregister(p));
    RC(cuMemHostGetDevicePointer(&d, p, 0), CUDA_ERROR_INVALID_VALUE);
    free(p);
}

Test(memory, pool_memory_is_freed_in_stream_order)
{
    CUdeviceptr p, flag;
    CUstream s;
    size_t free1, free2, total;
    watch_reports();
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemGetInfo(&free1, &total));
    OK(cuMemAllocAsync(&p, 1 << 20, s));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(p, 1, 1 << 20, s));
    OK(cuMemFreeAsync(p, s));
    OK(cuMemGetInfo(&free2, &total));
    cr_assert_eq(free1 - free2, 1 << 20);
    set_flag(w, 1);
    OK(cuStreamSynchronize(s));
    OK(cuMemGetInfo(&free2, &total));
    cr_assert_eq(free1, free2);
    expect_no_report();
}

static cuuint64_t bytes_of(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t bytes = 0;
    OK(cuMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
}

Test(memory, the_books_of_a_pool)
{
    CUdeviceptr p, q, flag;
    CUmemoryPool pool, other;
    CUstream s;
    cuuint64_t none = 0, some = 1;
    watch_reports();
    start(0);
    uint32_t *w = flag_word(&flag);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolCreate(&other, &props));
    OK(cuMemAllocAsync(&p, 4096, s));
    OK(cuMemAllocFromPoolAsync(&q, 8192, other, s));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemFreeAsync(p, s));
    cr_assert_eq(bytes_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0, "from the call on");
    cr_assert_eq(bytes_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4096, "until the stream comes there");
    cr_assert_eq(bytes_of(other, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8192);
    set_flag(w, 1);
    OK(cuStreamSynchronize(s));
    cr_assert_eq(bytes_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    cr_assert_eq(bytes_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 4096);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
    cr_assert_eq(bytes_of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    RC(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &some), CUDA_ERROR_INVALID_VALUE);
    RC(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &none), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolDestroy(other));
    OK(cuMemsetD8Async(q, 1, 8192, s)); /* it outlives its pool */
    OK(cuMemFree(q));
    expect_no_report();
}

Test(memory, other_devices_reach_a_pool_by_its_own_access)
{
    CUcontext c0, c1;
    CUdeviceptr p;
    CUmemoryPool pool;
    watch_reports();
    c0 = start(0);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&p, 4096, NULL));
    OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxPushCurrent(c1));
    OK(cuCtxEnablePeerAccess(c0, 0));
    RC(cuMemsetD8(p, 1, 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("without peer access");
    CUmemAccessDesc to = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess(pool, &to, 1));
    OK(cuMemsetD8(p, 1, 64));
    OK(cuCtxSynchronize());
    to.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemPoolSetAccess(pool, &to, 1));
    RC(cuMemsetD8(p, 1, 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("without peer access");
    to.location.id = 0;
    RC(cuMemPoolSetAccess(pool, &to, 1), CUDA_ERROR_INVALID_VALUE); /* its own device */
}

Test(memory, peer_copies_and_peer_access)
{
    CUcontext c0, c1;
    CUdeviceptr a, b;
    int can = 0;
    uint32_t v = 0;
    watch_reports();
    c0 = start(0);
    OK(cuMemAlloc(&a, 64));
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxPushCurrent(c1));
    OK(cuMemAlloc(&b, 64));
    OK(cuMemsetD32(b, 77, 16));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent(NULL));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    cr_assert(can);
    OK(cuMemcpyPeer(a, c0, b, c1, 64));
    OK(cuMemcpyDtoH(&v, a, 4));
    cr_assert_eq(v, 77);
    expect_no_report();
    RC(cuMemsetD32(b, 1, 1), CUDA_ERROR_INVALID_VALUE);
    expect_report("without peer access");
    OK(cuCtxEnablePeerAccess(c1, 0));
    RC(cuCtxEnablePeerAccess(c1, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuMemsetD32(b, 1, 1));
    OK(cuCtxSynchronize());
    OK(cuCtxDisablePeerAccess(c1));
    RC(cuCtxDisablePeerAccess(c1), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    expect_no_report();
}

static void *release_later(void *word)
{
    usleep(50000);
    set_flag(word, 1);
    return NULL;
}

Test(memory, free_waits_for_the_work_of_the_context)
{
    CUdeviceptr p, flag;
    CUstream s;
    pthread_t t;
    watch_reports();
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuMemAlloc(&p, 4096));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(p, 1, 4096, s));
    double begin = seconds();
    pthread_create(&t, NULL, release_later, w);
    OK(cuMemFree(p));
    cr_assert(seconds() - begin >= 0.045);
    pthread_join(t, NULL);
    OK(cuStreamSynchronize(s));
    expect_no_report();
}

Test(memory, a_freed_address_is_used_again_by_another_generation)
{
    static const size_t sizes[] = {64, 5000, 3 << 20};
    start(0);
    for (int i = 0; i < 3; i++) {
        CUdeviceptr first, below, again;
        unsigned long long id1, id2;
        OK(cuMemAlloc(&below, sizes[i]));
        OK(cuMemAlloc(&first, sizes[i]));
        OK(cuPointerGetAttribute(&id1, CU_POINTER_ATTRIBUTE_BUFFER_ID, first));
        OK(cuMemFree(first));
        OK(cuMemAlloc(&again, sizes[i]));
        cr_assert_eq(again, first);
        OK(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
        cr_assert_neq(id1, id2);
        OK(cuMemFree(below));
        OK(cuMemAlloc(&below, sizes[i]));
        cr_assert_lt(below, again, "the lowest place that fits");
    }
}

/* Host memory is never taken for freed device memory: it gets no address that was one. */
Test(memory, freed_addresses_are_not_given_to_the_host)
{
    enum { N = 64, BYTES = 1 << 20 };
    CUdeviceptr dev[N], live;
    void *pinned[N], *host[N];
    watch_reports();
    start(0);
    OK(cuMemAlloc(&live, BYTES));
    for (int i = 0; i < N; i++) {
        OK(cuMemAlloc(&dev[i], BYTES));
        OK(cuMemHostAlloc(&pinned[i], BYTES, 0));
    }
    for (int i = 0; i < N; i++) {
        OK(cuMemFree(dev[i]));
        OK(cuMemFreeHost(pinned[i]));
    }
    for (int i = 0; i < N; i++) {
        host[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq(host[i], MAP_FAILED);
        OK(cuMemcpyHtoD(live, host[i], BYTES));
        OK(cuMemcpyDtoH(host[i], live, BYTES));
        OK(cuMemHostRegister(host[i], BYTES, 0));
        OK(cuMemHostUnregister(host[i]));
        OK(cuMemcpyHtoD(live, host[i], BYTES));
    }
    expect_no_report();
    RC(cuMemcpyHtoD(live, (void *)(uintptr_t)dev[N - 1], 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("lies in the freed 1048576 byte allocation");
    RC(cuMemsetD8((CUdeviceptr)(uintptr_t)host[0], 1, 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("is not memory of this process's devices");
    RC(cuMemcpyHtoD(live, pinned[0], 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("lies in the freed 1048576 byte allocation");
    RC(cuMemcpyHtoD(live, (void *)(uintptr_t)(live + ((size_t)1 << 30)), 64), CUDA_ERROR_INVALID_VALUE);
    expect_report("is not allocated");
}

static bool faults(volatile char *p)
{
    int status;
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL); /* not the sanitizers' or Criterion's */
        signal(SIGBUS, SIG_DFL);
        (void)*p;
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status);
}

/* The child has no use of the driver: the parent's memory is not there, so it can not be damaged. */
Test(memory, a_forked_child_does_not_see_the_memory)
{
    CUdeviceptr p;
    void *pinned;
    int local = 0;
    start(0);
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    *(char *)pinned = *(char *)p = 1; /* here the CPU reaches both */
    cr_assert(faults((char *)p));
    cr_assert(faults(pinned));
    cr_assert(!faults((char *)&local));
}

Test(memory, freed_memory_is_out_of_reach, .signal = SIGSEGV)
{
    CUdeviceptr p;
    start(0);
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemFree(p));
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)p = 1;
}
