/* SPDX-License-Identifier: Apache-2.0 */
/* Memory handed over as a descriptor: what it is on the other side, how long it lives, and what it counts. */
#include "test_vmm_util.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

TestSuite(vmm_share, .timeout = 30, .init = watch_reports);

Test(vmm_share, an_import_in_the_same_process_is_the_same_memory)
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

Test(vmm_share, the_budget_counts_physical_memory_once)
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

Test(vmm_share, memory_outlives_its_owner_s_handle_and_mapping)
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

Test(vmm_share, memory_outlives_its_owner)
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

Test(vmm_share, a_dead_importer_gives_the_budget_back)
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

/* ---- the books of an allocation ---- */

static void *unmap(void *p)
{
    OK(cuMemUnmap(*(CUdeviceptr *)p, G));
    return NULL;
}

static void unmap_while_retained(bool other_thread)
{
    CUmemGenericAllocationHandle h, again;
    pthread_t t;
    start(0);
    CUdeviceptr p = reserve(G);
    h = create(0, G);
    map_rw(p, h, G, 0);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p));
    if (other_thread) {
        pthread_create(&t, NULL, unmap, &p);
        pthread_join(t, NULL);
    } else {
        unmap(&p);
    }
    OK(cuMemRelease(again));
    OK(cuMemRelease(h));
}

Test(vmm_share, unmapping_what_another_thread_has_retained_is_reported)
{
    unmap_while_retained(true);
    expect_report("cuMemUnmap of an allocation that another thread has retained");
}

Test(vmm_share, the_same_thread_may_unmap_what_it_has_retained)
{
    unmap_while_retained(false);
    expect_no_report();
}

Test(vmm_share, books_can_be_switched_off)
{
    setenv("SOFTGPU_BOOKS", "0", 1);
    unmap_while_retained(true);
    expect_no_report();
}
