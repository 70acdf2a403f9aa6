/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: order, the default streams' rules, and that waiting is real. */
#include "test_util.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include "../softgpu.h"

TestSuite(streams, .timeout = 30);

static uint32_t read32(CUdeviceptr p)
{
    uint32_t v;
    OK(cuMemcpyDtoH(&v, p, 4));
    return v;
}

Test(streams, calls_before_init_fail)
{
    CUstream s;
    int n;
    RC(cuStreamCreate(&s, 0), CUDA_ERROR_NOT_INITIALIZED);
    RC(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    RC(cuStreamCreate(&s, 0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDeviceGetCount(&n));
    cr_assert_eq(n, 8);
}

Test(streams, a_stream_may_have_the_handle_of_one_that_is_gone)
{
    CUdeviceptr flag;
    CUstream gone, next, another;
    setenv("SOFTGPU_SAME_STREAM", "1", 1);
    start(0);
    uint32_t *word = flag_word(&flag);
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(gone, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamDestroy(gone));
    OK(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&another, CU_STREAM_NON_BLOCKING));
    cr_assert_eq(next, gone);
    cr_assert_neq(another, next);
    OK(cuStreamSynchronize(next)); /* it is another stream */
    set_flag(word, 5);
    OK(cuCtxSynchronize());
}

Test(streams, child_of_an_initialised_process_has_no_driver)
{
    start(0);
    pid_t pid = fork();
    if (!pid) {
        CUdeviceptr p;
        _exit(cuMemAlloc(&p, 16) != CUDA_ERROR_NOT_INITIALIZED || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED);
    }
    join_child(pid);
}

Test(streams, a_waiting_stream_waits_and_holds_back_what_follows)
{
    CUdeviceptr flag, data;
    CUstream s;
    CUevent e;
    start(0);
    uint32_t *word = flag_word(&flag);
    OK(cuMemAlloc(&data, 4096));
    OK(cuMemsetD32(data, 1, 16));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamWaitValue32(s, flag, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(data, 2, 16, s));
    OK(cuEventRecord(e, s));
    usleep(20000);
    RC(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    RC(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    cr_assert_eq(read32(data), 1, "the legacy stream must not wait for a non-blocking one");
    set_flag(word, 4);
    usleep(20000);
    RC(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    set_flag(word, 6);
    OK(cuEventSynchronize(e));
    OK(cuStreamQuery(s));
    cr_assert_eq(read32(data), 2);
}

/* A default stream's copy between two devices comes behind the blocking streams of both, and they behind it. */
Test(streams, a_copy_between_devices_comes_behind_the_work_of_both)
{
    CUdeviceptr flag, from, to;
    CUcontext c0 = start(0), c1;
    CUstream s;
    uint32_t *word = flag_word(&flag);
    OK(cuMemAlloc(&to, 64));
    OK(cuMemsetD32(to, 1, 16));
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxPushCurrent(c1));
    OK(cuMemAlloc(&from, 64));
    OK(cuMemsetD32(from, 2, 16));
    OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(from, 3, 16, s));
    OK(cuCtxPopCurrent(NULL));
    OK(cuMemcpyPeer(to, c0, from, c1, 64));
    OK(cuCtxPushCurrent(c1));
    OK(cuMemsetD32Async(from, 4, 16, s));
    OK(cuCtxPopCurrent(NULL));
    usleep(20000);
    set_flag(word, 1);
    cr_assert_eq(read32(to), 3);
    expect_no_report();
}

Test(streams, event_waits_refer_to_the_record_at_the_call)
{
    CUdeviceptr flag, flag2;
    CUstream a, b, c;
    CUevent e, never;
    start(0);
    uint32_t *w = flag_word(&flag), *w2 = flag_word(&flag2);
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&never, 0));
    OK(cuStreamWaitEvent(c, never, 0));
    OK(cuStreamSynchronize(c));
    OK(cuEventQuery(never));
    OK(cuStreamWaitValue32(a, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuStreamWaitValue32(a, flag2, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(e, a)); /* b still waits for the first record only */
    OK(cuStreamWaitEvent(c, e, 0));
    OK(cuEventDestroy(never));
    RC(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    set_flag(w, 1);
    OK(cuStreamSynchronize(b));
    RC(cuStreamQuery(c), CUDA_ERROR_NOT_READY);
    OK(cuEventDestroy(e)); /* deferred: c keeps waiting for it */
    RC(cuStreamQuery(c), CUDA_ERROR_NOT_READY);
    set_flag(w2, 1);
    OK(cuStreamSynchronize(c));
}

Test(streams, legacy_stream_and_blocking_streams_order_each_other)
{
    CUdeviceptr flag, data;
    CUstream blocking, other;
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuMemAlloc(&data, 64));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(cuStreamWaitValue32(blocking, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamQuery(other));
    OK(cuMemsetD32Async(data, 7, 1, 0));         /* follows the blocking stream ... */
    OK(cuMemsetD32Async(data + 4, 8, 1, other)); /* ... and is followed by all of them */
    usleep(10000);
    RC(cuStreamQuery(0), CUDA_ERROR_NOT_READY);
    RC(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    set_flag(w, 1);
    OK(cuStreamSynchronize(other));
    cr_assert_eq(read32(data), 7);
    cr_assert_eq(read32(data + 4), 8);
}

static CUcontext thread_ctx;
static void *id_in_thread(void *arg)
{
    unsigned long long *id = arg;
    OK(cuCtxSetCurrent(thread_ctx));
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
    return NULL;
}

Test(streams, per_thread_default_streams)
{
    CUdeviceptr flag;
    pthread_t t;
    unsigned long long mine, other = 0;
    thread_ctx = start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    pthread_create(&t, NULL, id_in_thread, &other);
    pthread_join(t, NULL);
    cr_assert_neq(other, mine);
    OK(cuStreamWaitValue32(CU_STREAM_PER_THREAD, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    RC(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    RC(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY); /* per-thread streams are blocking ones */
    set_flag(w, 1);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

static void append(void *arg)
{
    int *list = arg;
    list[0]++;
    list[list[0]] = list[0];
}

Test(streams, time_between_events)
{
    CUdeviceptr flag;
    CUstream s, other;
    CUevent a, b, untimed, never;
    float ms;
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuEventCreate(&never, 0));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(untimed, other));
    OK(cuEventRecord(a, other));
    OK(cuStreamSynchronize(other));
    double before = seconds();
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(b, s));
    RC(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
    while (seconds() < before + 0.02)
        ;
    set_flag(w, 1);
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&ms, a, b));
    cr_assert(ms >= 20 && ms < (seconds() - before) * 1e3 + 1000, "%f ms", (double)ms);
    float back;
    OK(cuEventElapsedTime(&back, b, a));
    cr_assert_eq(back, -ms, "the time between two events has a sign");
    RC(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
    RC(cuEventElapsedTime(&ms, untimed, b), CUDA_ERROR_INVALID_HANDLE);
    RC(cuEventElapsedTime(&ms, never, b), CUDA_ERROR_INVALID_HANDLE);
    RC(cuEventElapsedTime(NULL, a, b), CUDA_ERROR_INVALID_VALUE);
}

Test(streams, host_functions_run_in_order_and_destroy_does_not_wait)
{
    static int list[16];
    CUdeviceptr flag;
    CUstream s;
    CUevent e;
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, 0));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < 10; i++)
        OK(cuLaunchHostFunc(s, append, list));
    OK(cuEventRecord(e, s));
    OK(cuStreamDestroy(s));
    RC(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    set_flag(w, 1);
    OK(cuEventSynchronize(e));
    cr_assert_eq(list[0], 10);
    RC(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
}

Test(streams, properties)
{
    CUcontext ctx = start(3), got;
    CUstream s;
    unsigned flags;
    int priority, least, greatest;
    CUdevice dev;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    cr_assert(greatest < least);
    OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamGetFlags(s, &flags));
    OK(cuStreamGetPriority(s, &priority));
    OK(cuStreamGetCtx(s, &got));
    OK(cuStreamGetDevice(s, &dev));
    cr_assert(flags == CU_STREAM_NON_BLOCKING && priority == greatest && got == ctx && dev == 3);
    OK(cuStreamGetFlags(NULL, &flags));
    cr_assert_eq(flags, CU_STREAM_DEFAULT);
}

static void late_cleanup(void)
{
    if (cuCtxSynchronize() != CUDA_ERROR_DEINITIALIZED)
        _exit(3);
}

Test(streams, exit_with_a_stuck_stream_ends_the_process)
{
    pid_t pid = fork();
    if (!pid) {
        CUdeviceptr flag;
        CUstream s;
        atexit(late_cleanup); /* runs after the driver's own handler */
        start(0);
        flag_word(&flag);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
        OK(cuMemsetD8Async(flag, 1, 8, s));
        exit(0);
    }
    join_child(pid);
}

static void meet(void *gate)
{
    while (!atomic_load(*(atomic_int **)gate))
        usleep(1000);
}

/* cuda.h: when all blocks have begun, so not before what stands in front of the launch has ended. */
Test(streams, a_launch_records_the_events_of_its_attributes)
{
    static const struct softgpu_kernel_desc desc = {.name = "meet", .run = meet, .arg_bytes = sizeof(void *)};
    softgpuKernelRegister_t add = (softgpuKernelRegister_t)dlsym(RTLD_DEFAULT, "softgpuKernelRegister");
    atomic_int gate = 0, *arg = &gate;
    void *args[] = {&arg};
    CUfunction f;
    CUstream s;
    CUevent e, timed;
    start(0);
    OK(add(&desc, &f));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&timed, 0));
    for (int i = 0; i < 2; i++) {
        CUlaunchAttribute a = {.id = i ? CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                                       : CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
        CUlaunchConfig c = {1, 1, 1, 1, 1, 1, 0, s, &a, 1};
        CUevent *event = i ? &a.value.programmaticEvent.event : &a.value.launchCompletionEvent.event;
        atomic_store(&gate, 0);
        *event = timed;
        RC(cuLaunchKernelEx(&c, f, args, NULL), CUDA_ERROR_INVALID_VALUE);
        *event = e;
        OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
        OK(cuLaunchKernelEx(&c, f, args, NULL));
        RC(cuEventQuery(e), CUDA_ERROR_NOT_READY);
        atomic_store(&gate, 1);
        OK(cuEventSynchronize(e));
        OK(cuStreamSynchronize(s));
    }
}
