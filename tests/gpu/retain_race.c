/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the driver keeps its books of an allocation when one thread retains it by its address and releases it again
 * while another unmaps and releases it: the reason for cache/virtual.h. Needs a real GPU.
 *
 *   usage: retain_race [seconds per trial]
 *
 * Each trial is a process of its own, with four owners that map and unmap and four lookers beside them, with and
 * without a lock around a look and around an end. Prints a line for each. Exit status 0 when the locked trials survive.
 * Driver 580.159.04, H200: every trial without a lock ends by SIGSEGV or SIGABRT within three seconds, none with one.
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

static const size_t bytes = (size_t)2 << 20;
static enum look how;
static bool locked;
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

static void *owner(void *arg)
{
    _Atomic(CUdeviceptr) *at = arg;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = here,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemAccessDesc access = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr p;
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuMemAddressReserve(&p, bytes, 0, 0, 0));
    while (!stop) {
        CHECK(cu.cuMemCreate(&memory, bytes, &prop, 0));
        CHECK(cu.cuMemMap(p, bytes, 0, memory, 0));
        CHECK(cu.cuMemSetAccess(p, bytes, &access, 1));
        *at = p;
        usleep((useconds_t)(rand() % 200));
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
    if (WIFSIGNALED(status))
        printf("%s, %s: killed by signal %d\n", look_names[how], locked ? "locked" : "at once", WTERMSIG(status));
    else
        printf("%s, %s: exit status %d\n", look_names[how], locked ? "locked" : "at once", WEXITSTATUS(status));
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
    return bad != 0;
}
