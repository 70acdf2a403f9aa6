/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_DEVICE_MAX_CONNECTIONS: which streams a held one holds. */
#include "../softgpu.h"
#include "test_held.h"
#include <dlfcn.h>

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"
#define STREAMS 9

TestSuite(connections, .timeout = 60);

static CUstream stream[STREAMS];
static CUdeviceptr mem;
static CUfunction kernel, spinner;
static volatile int spins, spinning; /* whether a kernel should go on, and whether it runs */

static void nothing(void *args)
{
    (void)args;
}

static void spin(void *args)
{
    (void)args;
    post(&spinning, 1);
    while (__atomic_load_n(&spins, __ATOMIC_ACQUIRE))
        usleep(500);
    post(&spinning, 0);
}

static const struct softgpu_kernel_desc kernel_desc = {.name = "nothing", .run = nothing};
static const struct softgpu_kernel_desc spinner_desc = {.name = "spin", .run = spin};

static void prepare(void)
{
    softgpuKernelRegister_t reg;
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&mem, 8192));
    OK(cuMemsetD32(mem, 0, 2048));
    *(void **)&reg = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(reg(&kernel_desc, &kernel));
    OK(reg(&spinner_desc, &spinner));
    OK(cuCtxSynchronize());
}

/* NULL: not set. */
static void set(const char *value)
{
    if (value)
        setenv(VARIABLE, value, 1);
    else
        unsetenv(VARIABLE);
}

static void start_with(const char *value)
{
    set(value);
    watch_reports();
    start(0);
    prepare();
}

static void launch(CUfunction f, CUstream s)
{
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
}

static void copy(CUstream s)
{
    OK(cuMemcpyDtoDAsync(mem + 4096, mem, 4096, s));
}

static void hold_first(int n)
{
    for (int i = 0; i < n; i++)
        hold(stream[i]);
}

static void end(void)
{
    let_go();
    OK(cuCtxSynchronize());
    expect_no_report();
}

static void expect_free(CUstream s)
{
    launch(kernel, s);
    OK(cuStreamSynchronize(s));
    copy(s);
    OK(cuStreamSynchronize(s));
}

static void expect_still_busy(CUstream s)
{
    usleep(HOLDS_MS * 1000);
    RC(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
}

/* Whether `s` is held, with a kernel and then with a copy, while the first n streams are. */
static void expect(int n, CUstream s, bool held)
{
    hold_first(n);
    if (held) {
        launch(kernel, s);
        expect_still_busy(s);
        let_go();
        OK(cuCtxSynchronize());
        hold_first(n);
        copy(s);
        expect_still_busy(s);
    } else {
        expect_free(s);
    }
    let_go();
    OK(cuCtxSynchronize());
}

Test(connections, with_one_a_held_stream_holds_what_comes_later)
{
    start_with("1");
    expect(1, stream[1], true);
    expect(1, NULL, true);
    end();
}

static void expect_done(CUevent e)
{
    for (int i = 0; i < 4000 && cuEventQuery(e) == CUDA_ERROR_NOT_READY; i++)
        usleep(1000);
    RC(cuEventQuery(e), CUDA_SUCCESS);
}

static CUevent record(CUstream s)
{
    CUevent e;
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(e, s));
    return e;
}

Test(connections, with_one_what_came_earlier_goes_on)
{
    start_with("1");
    post(&spins, 1);
    launch(spinner, stream[1]);
    await(&spinning, 1);
    launch(kernel, stream[1]); /* neither has begun when the stream is held */
    copy(stream[1]);
    CUevent e = record(stream[1]);
    hold(stream[0]);
    launch(kernel, stream[1]);
    post(&spins, 0);
    expect_done(e);
    expect_still_busy(stream[1]);
    end();
}

Test(connections, with_one_a_kernel_that_runs_holds_no_other_stream)
{
    start_with("1");
    post(&spins, 1);
    launch(spinner, stream[0]);
    await(&spinning, 1);
    expect_free(stream[1]);
    expect_free(NULL);
    cr_assert_eq(spinning, 1);
    post(&spins, 0);
    OK(cuCtxSynchronize());
    expect_no_report();
}

Test(connections, with_two_one_held_stream_holds_none_and_two_hold_all)
{
    start_with("2");
    for (int i = 1; i < STREAMS; i++)
        expect(1, stream[i], false);
    expect(1, NULL, false);
    expect(2, stream[2], true);
    expect(2, NULL, true);
    end();
}

Test(connections, a_stream_that_waits_for_the_event_of_a_held_one_is_held_too)
{
    start_with("2");
    hold(stream[0]);
    OK(cuStreamWaitEvent(stream[1], record(stream[0]), 0));
    launch(kernel, stream[2]);
    expect_still_busy(stream[2]);
    end();
}

Test(connections, with_eight_two_held_streams_hold_none_and_eight_hold_all)
{
    start_with("8");
    expect(2, stream[8], false);
    expect(7, NULL, false);
    expect(8, stream[8], true);
    end();
}

static void expect_eight(const char *value)
{
    pid_t pid = fork(); /* the driver reads it once */
    if (!pid) {
        start_with(value);
        expect(7, stream[8], false);
        expect(8, stream[8], true);
        end();
        _exit(0);
    }
    join_child(pid);
}

Test(connections, there_are_eight_where_nothing_is_said)
{
    const char *values[] = {NULL, "", "0", "-1", "many"};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        expect_eight(values[i]);
}

Test(connections, there_may_be_more)
{
    start_with("32");
    expect(8, stream[8], false);
    end();
}

Test(connections, the_number_is_read_by_cuInit)
{
    set("1");
    OK(cuInit(0));
    start_with("8"); /* too late */
    expect(1, stream[1], true);
    end();
}

Test(connections, what_is_set_behind_cuInit_is_for_children)
{
    set("8");
    OK(cuInit(0));
    start_with("1");
    expect(2, stream[2], false);
    end();
}

Test(connections, devices_have_their_own)
{
    CUcontext ctx, other;
    CUdeviceptr p;
    start_with("1");
    OK(cuCtxGetCurrent(&ctx));
    hold(stream[0]);
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemsetD32(p, 1, 1));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(ctx));
    end();
}

static void prepare_timing(void)
{
    setenv("SOFTGPU_TIMING", "1", 1);
    setenv("SOFTGPU_LAUNCH_US", "1000", 1);
    start_with("1");
}

Test(connections, what_was_held_begins_when_the_wait_ends_in_modelled_time, .init = prepare_timing)
{
    CUevent begin, end_of_it;
    float ms;
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end_of_it, 0));
    OK(cuEventRecord(begin, stream[1]));
    hold(stream[0]);
    launch(kernel, stream[1]);
    OK(cuEventRecord(end_of_it, stream[1]));
    expect_still_busy(stream[1]);
    end();
    OK(cuEventElapsedTime(&ms, begin, end_of_it));
    cr_assert_geq(ms, HOLDS_MS, "%f ms", (double)ms);
}
