/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of two devices with short queues, for ThreadSanitizer (no Criterion): queues fill up, copies tie the other
 * device's context, contexts are synchronised and kernels loaded meanwhile, and streams come and go. */
#include "../softgpu.h"
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 40
#define BYTES 4096

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult rc_ = (call);                                                                                         \
        if (rc_) {                                                                                                     \
            fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, (int)rc_);                           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static CUcontext ctx[2];
static CUdeviceptr mem[2], word;
static uint32_t *clock_word;
static int ended;
static CUfunction kernel;

static void nothing(void *args)
{
    (void)args;
}

static const struct softgpu_kernel_desc desc = {.name = "lazy", .run = nothing, .lazy = 1};

/* Time goes on whatever the others wait for, so each wait in a queue ends. */
static void *tick(void *arg)
{
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
        __atomic_fetch_add(clock_word, 1, __ATOMIC_RELEASE);
        usleep(1000);
    }
    return arg;
}

static void fill_the_queue(CUstream s, int dev, CUdeviceptr own, CUevent e)
{
    uint32_t now = __atomic_load_n(clock_word, __ATOMIC_ACQUIRE);
    OK(cuStreamWaitValue32(s, word, now + 2, CU_STREAM_WAIT_VALUE_GEQ));
    for (int i = 0; i < 12; i++) {
        OK(cuMemcpyAsync(own, mem[1 - dev], BYTES, s));
        OK(cuEventRecord(e, s));
        OK(cuStreamWaitEvent(s, e, 0));
    }
}

static void round_of(int dev, CUdeviceptr own, int i)
{
    CUstream s;
    CUevent e;
    uint32_t got = 0;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD32Async(own, 0, BYTES / 4, s));
    fill_the_queue(s, dev, own, e);
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    if (i % 4 == 0)
        OK(cuCtxSynchronize());
    OK(cuMemcpyDtoHAsync(&got, own + BYTES - 4, 4, s));
    if (got != 100u + (unsigned)(1 - dev)) {
        fprintf(stderr, "device %d read %u\n", dev, got);
        exit(1);
    }
    OK(cuEventDestroy(e));
    OK(cuStreamDestroy(s));
}

static void *work(void *arg)
{
    int dev = (int)(intptr_t)arg & 1;
    CUdeviceptr own;
    OK(cuCtxSetCurrent(ctx[dev]));
    OK(cuMemAlloc(&own, BYTES));
    for (int i = 0; i < ROUNDS; i++)
        round_of(dev, own, i);
    OK(cuMemFree(own));
    return NULL;
}

static void prepare(void)
{
    softgpuKernelRegister_t reg;
    void *p;
    setenv("SOFTGPU_QUEUE", "8", 1);
    setenv("SOFTGPU_TIES", "1", 1);
    setenv("SOFTGPU_LAZY", "1", 1);
    OK(cuInit(0));
    for (int d = 0; d < 2; d++) {
        OK(cuDevicePrimaryCtxRetain(&ctx[d], d));
        OK(cuCtxSetCurrent(ctx[d]));
        OK(cuMemAlloc(&mem[d], BYTES));
        OK(cuMemsetD32(mem[d], 100u + (unsigned)d, BYTES / 4));
        OK(cuCtxSynchronize());
    }
    OK(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_PORTABLE));
    memset(p, 0, 4096);
    clock_word = p;
    word = (CUdeviceptr)p;
    *(void **)&reg = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(reg(&desc, &kernel));
}

int main(void)
{
    pthread_t threads[THREADS], ticker;
    prepare();
    if (pthread_create(&ticker, NULL, tick, NULL))
        return 1;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    pthread_join(ticker, NULL);
    return 0;
}
