/* SPDX-License-Identifier: Apache-2.0 */
/* How many streams may wait before no other one goes on, as the driver was initialised; and that the program finds its own
 * CUDA_DEVICE_MAX_CONNECTIONS before and behind.
 *
 * usage: connections HELD goes|stands    so many streams wait; another one goes on, or does not. A cuInit that fails is
 *                                         tried once more
 *
 * MEANWHILE, in the environment: what another thread does while the driver is initialised. "init": the same; "set", "take",
 * "change": it sets NEW, takes OLD out or changes it (injection.c).
 */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME "CUDA_DEVICE_MAX_CONNECTIONS"
#define CU(call)                                                                                                       \
    do {                                                                                                               \
        CUresult r_ = (call);                                                                                          \
        if (r_ != CUDA_SUCCESS) {                                                                                      \
            fprintf(stderr, "%s: %d\n", #call, (int)r_);                                                               \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void *initialise(void *unused)
{
    (void)unused;
    CU(cuInit(0));
    return NULL;
}

/* A cuInit that fails is tried once more. */
static void initialise_all(const char *meanwhile)
{
    pthread_t other;
    const bool two = same(meanwhile, "init");
    if (two && pthread_create(&other, NULL, initialise, NULL))
        exit(2);
    if (cuInit(0) != CUDA_SUCCESS)
        CU(cuInit(0));
    if (two)
        pthread_join(other, NULL);
}

static void check(const char *name, const char *wanted)
{
    const char *is = getenv(name);
    if (same(wanted, is))
        return;
    fprintf(stderr, "%s should be %s and is %s\n", name, wanted ? wanted : "not set", is ? is : "not");
    exit(1);
}

static bool goes_on(CUstream stream, CUdeviceptr to, double patience)
{
    const double until = now() + patience;
    CU(cuMemsetD32Async(to, 1, 1, stream));
    CUresult r = CUDA_ERROR_NOT_READY;
    while (r == CUDA_ERROR_NOT_READY && now() < until)
        r = cuStreamQuery(stream);
    return r == CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
    const int held = argc > 2 ? atoi(argv[1]) : -1;
    static char *before; /* here it stays reachable */
    const char *meanwhile = getenv("MEANWHILE");
    CUcontext ctx;
    CUdeviceptr memory, word;
    CUstream stream[64];
    unsigned *host;
    if (held < 1 || held > 63)
        return 2;
    before = getenv(NAME) ? strdup(getenv(NAME)) : NULL;
    initialise_all(meanwhile);
    check(NAME, before);
    check("NEW", same(meanwhile, "set") ? "1" : NULL);
    check("OLD", !meanwhile || same(meanwhile, "take") ? NULL : same(meanwhile, "change") ? "changed" : "0");
    CU(cuDevicePrimaryCtxRetain(&ctx, 0));
    CU(cuCtxSetCurrent(ctx));
    CU(cuMemAlloc(&memory, 4096));
    CU(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    __atomic_store_n(host, 0, __ATOMIC_SEQ_CST);
    CU(cuMemHostGetDevicePointer(&word, host, 0));
    for (int i = 0; i <= held; i++)
        CU(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < held; i++)
        CU(cuStreamWaitValue32(stream[i], word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    const bool wanted = strcmp(argv[2], "goes") == 0, goes = goes_on(stream[held], memory, wanted ? 20 : 0.3);
    __atomic_store_n(host, 1, __ATOMIC_SEQ_CST);
    CU(cuCtxSynchronize());
    if (goes == wanted)
        return 0;
    fprintf(stderr, "behind %d streams that wait another one %s\n", held, goes ? "goes on" : "stands");
    return 1;
}
