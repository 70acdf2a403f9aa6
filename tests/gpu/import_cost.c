/* SPDX-License-Identifier: Apache-2.0 */
/* What a miss in the handle cache costs: exporting a block, mapping it in another process, and closing the mapping
 * again, by size; median and 99th percentile in microseconds. Legacy CUDA IPC handles, and file descriptors of virtual
 * memory.
 *
 * Two processes, one device. The owner makes a block for each round, so that no mapping is found in a cache of the
 * driver's. Plain driver calls.
 *
 * usage: import_cost [ROUNDS [LARGEST-MIB]]
 */
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDeviceGet)                                                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuIpcGetMemHandle)                                                                                               \
    X(cuIpcOpenMemHandle)                                                                                              \
    X(cuIpcCloseMemHandle)                                                                                             \
    X(cuMemCreate)                                                                                                     \
    X(cuMemRelease)                                                                                                    \
    X(cuMemExportToShareableHandle)                                                                                    \
    X(cuMemImportFromShareableHandle)                                                                                  \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemMap)                                                                                                        \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemSetAccess)
#include "driver.h"

#define MAX_ROUNDS 1000

struct side {
    int peer; /* socket */
    CUdevice device;
    int rounds;
    double export[MAX_ROUNDS], open[MAX_ROUNDS], close[MAX_ROUNDS];
};

struct message {
    CUipcMemHandle handle;
    double us;
};

static void broken(const char *what)
{
    fprintf(stderr, "import_cost: the other process is gone (%s)\n", what);
    exit(1);
}

static void tell(const struct side *s, const struct message *m, int fd)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)m, sizeof *m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        h.msg_control = &control;
        h.msg_controllen = sizeof control;
        control.head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    if (sendmsg(s->peer, &h, MSG_NOSIGNAL) != sizeof *m)
        broken("send");
}

static struct message hear(const struct side *s, int *fd)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct message m;
    struct iovec part = {&m, sizeof m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(s->peer, &h, 0) != sizeof m)
        broken("receive");
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    if (fd && c && c->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return m;
}

/* ---- legacy handles ---- */

static void owner_legacy(struct side *s, size_t bytes, int i)
{
    CUdeviceptr p;
    struct message m = {0};
    CHECK(cu.cuMemAlloc(&p, bytes));
    double start = now_us();
    CHECK(cu.cuIpcGetMemHandle(&m.handle, p));
    m.us = now_us() - start;
    tell(s, &m, -1);
    hear(s, NULL);
    CHECK(cu.cuMemFree(p));
    (void)i;
}

static void reader_legacy(struct side *s, size_t bytes, int i)
{
    CUdeviceptr p;
    struct message m = hear(s, NULL);
    double a = now_us();
    CHECK(cu.cuIpcOpenMemHandle(&p, m.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    double b = now_us();
    CHECK(cu.cuIpcCloseMemHandle(p));
    s->export[i] = m.us, s->open[i] = b - a, s->close[i] = now_us() - b;
    tell(s, &m, -1);
    (void)bytes;
}

/* ---- descriptors ---- */

static CUmemAllocationProp shareable(const struct side *s)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device}};
}

static void owner_virtual(struct side *s, size_t bytes, int i)
{
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp properties = shareable(s);
    struct message m = {0};
    int fd = -1;
    CHECK(cu.cuMemCreate(&memory, bytes, &properties, 0));
    double start = now_us();
    CHECK(cu.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    m.us = now_us() - start;
    tell(s, &m, fd);
    close(fd);
    hear(s, NULL);
    CHECK(cu.cuMemRelease(memory));
    (void)i;
}

static void reader_virtual(struct side *s, size_t bytes, int i)
{
    CUmemGenericAllocationHandle memory;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr p;
    int fd = -1;
    struct message m = hear(s, &fd);
    double a = now_us();
    CHECK(cu.cuMemImportFromShareableHandle(&memory, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK(cu.cuMemAddressReserve(&p, bytes, 0, 0, 0));
    CHECK(cu.cuMemMap(p, bytes, 0, memory, 0));
    CHECK(cu.cuMemSetAccess(p, bytes, &access, 1));
    double b = now_us();
    CHECK(cu.cuMemUnmap(p, bytes));
    CHECK(cu.cuMemAddressFree(p, bytes));
    CHECK(cu.cuMemRelease(memory));
    s->export[i] = m.us, s->open[i] = b - a, s->close[i] = now_us() - b;
    close(fd);
    tell(s, &m, -1);
}

/* ---- both ---- */

typedef void round_fn(struct side *s, size_t bytes, int i);

static void print_column(const struct side *s, double *us)
{
    qsort(us, (size_t)s->rounds, sizeof *us, ascending);
    printf(" %.1f | %.1f |", us[s->rounds / 2], us[s->rounds * 99 / 100]);
}

static void measure(struct side *s, const char *kind, size_t mib, round_fn *body, bool reports)
{
    for (int i = -3; i < s->rounds; i++)
        body(s, mib << 20, i < 0 ? 0 : i);
    if (!reports)
        return;
    printf("| %s | %zu |", kind, mib);
    print_column(s, s->export);
    print_column(s, s->open);
    print_column(s, s->close);
    printf("\n");
}

static void run(struct side *s, bool reader, size_t largest)
{
    CUcontext ctx;
    load_driver();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&s->device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&ctx, s->device));
    CHECK(cu.cuCtxSetCurrent(ctx));
    if (reader)
        printf("| kind | MiB | export us | p99 | map us | p99 | close us | p99 |\n"
               "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t mib = 2; mib <= largest; mib *= 8)
        measure(s, "IPC handle", mib, reader ? reader_legacy : owner_legacy, reader);
    for (size_t mib = 2; mib <= largest; mib *= 8)
        measure(s, "descriptor", mib, reader ? reader_virtual : owner_virtual, reader);
}

int main(int argc, char **argv)
{
    static struct side s;
    int pair[2], status = 0;
    s.rounds = argc > 1 ? atoi(argv[1]) : 100;
    size_t largest = argc > 2 ? (size_t)atoi(argv[2]) : 1024;
    if (s.rounds < 1 || s.rounds > MAX_ROUNDS || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        fprintf(stderr, "usage: import_cost [ROUNDS, at most %d [LARGEST-MIB]]\n", MAX_ROUNDS);
        return 2;
    }
    pid_t child = fork(); /* before CUDA is initialised: a context does not survive a fork */
    if (child < 0)
        return 1;
    s.peer = pair[child == 0];
    close(pair[child != 0]);
    run(&s, child != 0, largest);
    fflush(stdout);
    if (child == 0)
        _exit(0);
    close(s.peer);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
