/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads on one device: streams come and go, events chain them, memory is allocated and freed meanwhile. */
#include "test_util.h"
#include <pthread.h>

#define THREADS 4
#define ROUNDS 60

TestSuite(stress, .timeout = 100);

static CUcontext ctx;
static int counters[THREADS];

static void count(void *arg)
{
    ++*(int *)arg;
}

/* One chain over two streams; what arrives at the end shows that every link held. */
static void round_of(int id, int i)
{
    CUstream a, b;
    CUevent e;
    CUdeviceptr p, pool;
    uint32_t v[256];
    OK(cuStreamCreate(&a, i & 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&p, 8192));
    OK(cuMemsetD32Async(p, (unsigned)(id * 1000 + i), 1024, a));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuEventDestroy(e));
    OK(cuMemcpyDtoDAsync(p + 4096, p, 4096, b));
    OK(cuStreamWriteValue32(b, p + 4096, 1, 0));
    OK(cuLaunchHostFunc(b, count, &counters[id]));
    OK(cuMemAllocAsync(&pool, 4096, b));
    OK(cuMemFreeAsync(pool, b));
    OK(cuStreamDestroy(a));
    OK(cuMemcpyDtoHAsync(v, p + 4096, sizeof(v), b));
    cr_assert(v[0] == 1 && v[1] == (uint32_t)(id * 1000 + i) && v[255] == v[1]);
    OK(cuStreamDestroy(b));
    OK(cuMemsetD8(p, 0, 16));
    OK(cuMemFree(p));
}

static void *work(void *arg)
{
    int id = (int)(intptr_t)arg;
    OK(cuCtxSetCurrent(ctx));
    for (int i = 0; i < ROUNDS; i++)
        round_of(id, i);
    return NULL;
}

Test(stress, threads_share_a_context)
{
    pthread_t t[THREADS];
    watch_reports();
    ctx = start(0);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, work, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    OK(cuCtxSynchronize());
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(counters[i], ROUNDS);
    expect_no_report();
}

Test(stress, many_small_blocks)
{
    static CUdeviceptr p[3000];
    start(0);
    for (int i = 0; i < 3000; i++)
        OK(cuMemAlloc(&p[i], 256));
    for (int i = 0; i < 3000; i += 2)
        OK(cuMemFree(p[i]));
    for (int i = 1; i < 3000; i += 2)
        OK(cuMemFree(p[i]));
}
