/* Virtual memory management: reservations, mappings, access, and memory handed over as a descriptor. */
#include "test_util.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

TestSuite(vmm, .timeout = 30, .init = watch_reports);

#define G ((size_t)2 << 20)

static CUmemAllocationProp prop_of(int device, CUmemAllocationHandleType types)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = types,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static CUmemGenericAllocationHandle create(int device, size_t size)
{
    CUmemAllocationProp prop = prop_of(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle h;
    OK(cuMemCreate(&h, size, &prop, 0));
    return h;
}

static CUdeviceptr reserve(size_t size)
{
    CUdeviceptr p;
    OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    return p;
}

static CUresult allow(CUdeviceptr p, size_t size, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc d = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, flags};
    return cuMemSetAccess(p, size, &d, 1);
}

static void map_rw(CUdeviceptr p, CUmemGenericAllocationHandle h, size_t size, int device)
{
    OK(cuMemMap(p, size, 0, h, 0));
    OK(allow(p, size, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

static size_t used(void)
{
    size_t free_bytes, total;
    OK(cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

static uint32_t word_at(CUdeviceptr p)
{
    uint32_t v = 0;
    OK(cuMemcpyDtoH(&v, p, 4));
    return v;
}

static int export_fd(CUmemGenericAllocationHandle h)
{
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    cr_assert_geq(fd, 0);
    return fd;
}

static CUresult import(CUmemGenericAllocationHandle *h, int fd)
{
    return cuMemImportFromShareableHandle(h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

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

static void expect_attribute(CUpointer_attribute what, CUdeviceptr p, unsigned long long value)
{
    unsigned long long v = 0;
    OK(cuPointerGetAttribute(&v, what, p));
    cr_assert_eq(v, value, "attribute %d is %#llx", (int)what, v);
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

Test(vmm, an_import_in_the_same_process_is_the_same_memory)
{
    CUmemGenericAllocationHandle h, i, r;
    CUmemAllocationProp prop;
    int pipes[2];
    start(0);
    CUdeviceptr p = reserve(2 * G);
    h = create(0, G);
    int fd = export_fd(h), again = export_fd(h);
    cr_assert_neq(fd, again);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    OK(import(&i, fd));
    cr_assert_neq(i, h);
    close(fd);
    close(again);
    map_rw(p, h, G, 0);
    map_rw(p + G, i, G, 0);
    OK(cuMemsetD32(p + 100, 77, 1));
    OK(cuCtxSynchronize());
    cr_assert_eq(word_at(p + G + 100), 77);
    expect_attribute(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p + G, 0);
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, h));
    cr_assert_eq(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    RC(cuMemExportToShareableHandle(&fd, i, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(h));
    OK(cuMemRetainAllocationHandle(&r, (void *)(p + 5)));
    cr_assert_eq(r, h);
    OK(cuMemRelease(r));
    OK(cuMemRetainAllocationHandle(&r, (void *)(p + G)));
    cr_assert_eq(r, i);
    OK(cuMemRelease(r));
    expect_no_report();
    RC(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    expect_report("used after it was released; only its mappings are left");
    RC(import(&r, -1), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(pipe(pipes), 0);
    RC(import(&r, pipes[0]), CUDA_ERROR_INVALID_VALUE);
    FILE *other = tmpfile();
    cr_assert(other && ftruncate(fileno(other), 8192) == 0);
    RC(import(&r, fileno(other)), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(p, G)); /* the import holds it */
    cr_assert_eq(word_at(p + G + 100), 77);
    expect_no_report();
}

Test(vmm, the_budget_counts_physical_memory_once)
{
    CUmemAllocationProp prop = prop_of(0, 0);
    CUmemGenericAllocationHandle a, b, i;
    CUdeviceptr p, q;
    setenv("SOFTGPU_MEM_BYTES", "8388608", 1);
    start(0);
    a = create(0, 2 * G);
    b = create(0, G);
    cr_assert_eq(used(), 3 * G);
    RC(cuMemCreate(&i, 2 * G, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    RC(cuMemAlloc(&q, 2 * G), CUDA_ERROR_OUT_OF_MEMORY);
    int fd = export_fd(a);
    OK(import(&i, fd));
    p = reserve(64 * G); /* addresses cost nothing */
    OK(cuMemMap(p, 2 * G, 0, a, 0));
    OK(cuMemMap(p + 2 * G, 2 * G, 0, i, 0));
    cr_assert_eq(used(), 3 * G);
    OK(cuMemRelease(b));
    cr_assert_eq(used(), 2 * G);
    OK(cuMemRelease(a));
    OK(cuMemUnmap(p, 2 * G));
    OK(cuMemRelease(i));
    close(fd);
    cr_assert_eq(used(), 2 * G); /* the import's mapping is left */
    fd = -1;
    OK(cuMemRetainAllocationHandle(&i, (void *)(p + 2 * G)));
    OK(cuMemUnmap(p + 2 * G, 2 * G));
    cr_assert_eq(used(), 2 * G); /* its handle */
    OK(cuMemRelease(i));
    cr_assert_eq(used(), 0);
    a = create(0, 4 * G);
    fd = export_fd(a);
    OK(cuMemRelease(a));
    RC(cuMemAlloc(&q, 64), CUDA_ERROR_OUT_OF_MEMORY); /* the descriptor */
    close(fd);
    OK(cuMemAlloc(&q, 4 * G));
    expect_no_report();
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
    usleep(20000);
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

/* ---- two processes ---- */

static void send_fd(int sock, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    cr_assert_eq(sendmsg(sock, &msg, 0), 1);
}

static int receive_fd(int sock)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    int fd = -1;

    cr_assert_eq(recvmsg(sock, &msg, 0), 1);
    cr_assert(CMSG_FIRSTHDR(&msg) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
    return fd;
}

struct mail {
    volatile int step;
    int sock[2];
};

/* Maps what the other process sent, for device `device` of this one. */
static CUdeviceptr take(struct mail *m, size_t size, int device)
{
    CUmemGenericAllocationHandle h;
    CUdeviceptr p = reserve(size);
    int fd = receive_fd(m->sock[1]);
    OK(import(&h, fd));
    close(fd);
    map_rw(p, h, size, device);
    OK(cuMemRelease(h));
    return p;
}

static pid_t spawn(void (*child)(struct mail *), struct mail *m)
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, m->sock), 0);
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test must not leave it behind */
        child(m);
        exit(0);
    }
    return pid;
}

static void reader(struct mail *m)
{
    CUstream s;
    start(1);
    CUdeviceptr p = take(m, 2 * G, 1);
    cr_assert_eq(used(), 0);
    expect_attribute(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p, 0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, p, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWriteValue32(s, p + 2 * G - 4, 2, 0));
    post(&m->step, 1);
    OK(cuStreamSynchronize(s));
    await(&m->step, 2); /* the owner has unmapped and released it */
    cr_assert_eq(word_at(p + G), 0x2a2a2a2a);
    OK(cuMemsetD8(p + G, 1, 64));
    OK(cuCtxSynchronize());
    cr_assert_eq(word_at(p + G), 0x01010101);
    post(&m->step, 3);
    await(&m->step, 4);
    OK(cuMemUnmap(p, 2 * G));
    post(&m->step, 5);
    await(&m->step, 6);
}

Test(vmm, memory_outlives_its_owner_s_handle_and_mapping)
{
    struct mail *m = shared_page();
    CUmemGenericAllocationHandle h;
    CUstream s;
    pid_t pid = spawn(reader, m);
    start(0);
    CUdeviceptr p = reserve(2 * G);
    h = create(0, 2 * G);
    map_rw(p, h, 2 * G, 0);
    OK(cuMemsetD8(p, 0, G));
    OK(cuMemsetD8(p + G, 42, G));
    OK(cuCtxSynchronize());
    int fd = export_fd(h);
    send_fd(m->sock[0], fd);
    close(fd);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    await(&m->step, 1);
    OK(cuStreamWriteValue32(s, p, 1, 0));
    OK(cuStreamWaitValue32(s, p + 2 * G - 4, 2, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamSynchronize(s));
    OK(cuMemRelease(h));
    OK(cuMemUnmap(p, 2 * G));
    OK(cuMemAddressFree(p, 2 * G));
    post(&m->step, 2);
    await(&m->step, 3);
    cr_assert_eq(used(), 2 * G); /* the importer has it */
    post(&m->step, 4);
    await(&m->step, 5);
    cr_assert_eq(used(), 0);
    post(&m->step, 6);
    join_child(pid);
    expect_no_report();
}

static void owner_that_dies(struct mail *m)
{
    start(0);
    CUmemGenericAllocationHandle h = create(0, G);
    CUdeviceptr p = reserve(G);
    map_rw(p, h, G, 0);
    OK(cuMemsetD8(p, 42, G));
    OK(cuCtxSynchronize());
    send_fd(m->sock[0], export_fd(h));
    raise(SIGKILL);
}

Test(vmm, memory_outlives_its_owner)
{
    struct mail *m = shared_page();
    pid_t pid = spawn(owner_that_dies, m);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    start(1);
    CUdeviceptr p = take(m, G, 1);
    cr_assert_eq(word_at(p + G - 4), 0x2a2a2a2a);
    OK(cuMemUnmap(p, G));
    expect_no_report();
}

static void importer_that_dies(struct mail *m)
{
    start(1);
    take(m, G, 1);
    post(&m->step, 1);
    for (;;)
        pause();
}

Test(vmm, a_dead_importer_gives_the_budget_back)
{
    struct mail *m = shared_page();
    pid_t pid = spawn(importer_that_dies, m);
    start(0);
    CUmemGenericAllocationHandle h = create(0, G);
    int fd = export_fd(h);
    send_fd(m->sock[0], fd);
    close(fd);
    OK(cuMemRelease(h));
    await(&m->step, 1);
    cr_assert_eq(used(), G);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_assert_eq(used(), 0);
}
