/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the driver keeps its books of an allocation when one thread retains it by its address and releases it again
 * while another unmaps and releases it: the reason for cache/virtual.h. Needs a real GPU.
 *
 *   usage: retain_race [seconds per trial]
 *
 * Each trial is a process of its own, with four owners that map and unmap and four lookers beside them, with and
 * without a lock around a look and around an end. In some the owner does more, with and without the lock: it retains its
 * memory by its address as well, as XLA and NCCL do before they unmap it, maps it a second time, or exports it. Prints a
 * line for each. Exit status 0 when the locked trials survive.
 * Driver 580.159.04, H200: every trial without a lock ends by SIGSEGV or SIGABRT within three seconds, none with one,
 * whether that is around what the owner does besides or not.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                                   \
    X(cuInit)                                                                                                          \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemCreate)                                                                                                     \
    X(cuMemMap)                                                                                                        \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemRelease)                                                                                                    \
    X(cuMemGetAddressRange)                                                                                            \
    X(cuMemRetainAllocationHandle)                                                                                     \
    X(cuMemGetAllocationPropertiesFromHandle)                                                                          \
    X(cuMemExportToShareableHandle)
#include "driver.h"

enum { PAIRS = 4 };
enum look { LOOK_ADDRESS, LOOK_RETAIN, LOOK_PROPERTIES, LOOK_EXPORT, LOOKS };
static const char *const look_names[] = {"address queries", "retain, release", "retain, properties, release",
                                         "retain, export, release"};

/* What an owner does besides. */
enum also { ALSO_NOTHING, ALSO_RETAIN, ALSO_MAP, ALSO_EXPORT, ALSOS };
static const char *const also_names[] = {"", "; the owner retains it", "; the owner maps it twice",
                                         "; the owner exports it"};

static const size_t bytes = (size_t)2 << 20;
static enum look how;
static enum also also;
static bool locked;      /* looks and ends */
static bool also_locked; /* and what the owner does besides */
static CUcontext context;
static _Atomic(CUdeviceptr) mapped[PAIRS];
static _Atomic bool stop;
static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

static void lock(void)
{
    if (locked)
        pthread_mutex_lock(&books);
}

static void unlock(void)
{
    if (locked)
        pthread_mutex_unlock(&books);
}

static void use(CUmemGenericAllocationHandle memory)
{
    CUmemAllocationProp prop;
    int fd = -1;
    if (how == LOOK_PROPERTIES)
        cu.cuMemGetAllocationPropertiesFromHandle(&prop, memory);
    if (how == LOOK_EXPORT &&
        cu.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS)
        close(fd);
}

/* What is not mapped any more is refused, which is right. */
static void look_at(CUdeviceptr p)
{
    CUmemGenericAllocationHandle memory;
    CUdeviceptr base;
    size_t size;
    if (how == LOOK_ADDRESS) {
        cu.cuMemGetAddressRange(&base, &size, p);
        return;
    }
    lock();
    if (cu.cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)p) == CUDA_SUCCESS) {
        use(memory);
        cu.cuMemRelease(memory);
    }
    unlock();
}

static void *looker(void *arg)
{
    _Atomic(CUdeviceptr) *at = arg;
    CHECK(cu.cuCtxSetCurrent(context));
    while (!stop)
        if (*at)
            look_at(*at);
    return NULL;
}

/* Of what its owner does beside a look. */
static void do_also(CUmemGenericAllocationHandle memory, CUdeviceptr p, CUdeviceptr second)
{
    CUmemGenericAllocationHandle mine;
    int fd = -1;
    if (also_locked)
        lock();
    if (also == ALSO_RETAIN)
        CHECK(cu.cuMemRetainAllocationHandle(&mine, (void *)(uintptr_t)p));
    if (also == ALSO_MAP)
        CHECK(cu.cuMemMap(second, bytes, 0, memory, 0));
    if (also == ALSO_EXPORT)
        CHECK(cu.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (also_locked)
        unlock();
    if (fd >= 0)
        close(fd);
    lock();
    if (also == ALSO_RETAIN)
        CHECK(cu.cuMemRelease(mine));
    if (also == ALSO_MAP)
        CHECK(cu.cuMemUnmap(second, bytes));
    unlock();
}

static void *owner(void *arg)
{
    _Atomic(CUdeviceptr) *at = arg;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = here,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr p, second;
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuMemAddressReserve(&p, bytes, 0, 0, 0));
    CHECK(cu.cuMemAddressReserve(&second, bytes, 0, 0, 0));
    while (!stop) {
        CHECK(cu.cuMemCreate(&memory, bytes, &prop, 0));
        CHECK(cu.cuMemMap(p, bytes, 0, memory, 0));
        CHECK(cu.cuMemSetAccess(p, bytes, &access, 1));
        *at = p;
        if (also == ALSO_NOTHING)
            usleep((useconds_t)(rand() % 200));
        for (int i = rand() % 20; also != ALSO_NOTHING && i >= 0; i--)
            do_also(memory, p, second);
        lock();
        CHECK(cu.cuMemUnmap(p, bytes));
        CHECK(cu.cuMemRelease(memory));
        unlock();
    }
    return NULL;
}

static void run(unsigned seconds)
{
    pthread_t owners[PAIRS], lookers[PAIRS];
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    for (int i = 0; i < PAIRS; i++) {
        pthread_create(&owners[i], NULL, owner, &mapped[i]);
        pthread_create(&lookers[i], NULL, looker, &mapped[i]);
    }
    sleep(seconds);
    stop = true;
    for (int i = 0; i < PAIRS; i++) {
        pthread_join(owners[i], NULL);
        pthread_join(lookers[i], NULL);
    }
}

static int trial(unsigned seconds)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run(seconds);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("%s%s, %s: %s %d\n", look_names[how], also_names[also],
           !locked                ? "at once"
           : also == ALSO_NOTHING ? "locked"
           : also_locked          ? "all locked"
                                  : "ends locked",
           WIFSIGNALED(status) ? "killed by signal" : "exit status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return status;
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    int bad = 0;
    load_driver();
    for (how = 0; how < LOOKS; how++)
        for (int l = 0; l < 2; l++) {
            locked = l;
            bad += trial(seconds) != 0 && locked;
        }
    how = LOOK_PROPERTIES;
    for (also = ALSO_NOTHING + 1; also < ALSOS; also++)
        for (int l = 0; l < 2; l++) {
            also_locked = l;
            bad += trial(seconds) != 0 && also_locked;
        }
    return bad != 0;
}
