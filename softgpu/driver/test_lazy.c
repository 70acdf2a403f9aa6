/* SPDX-License-Identifier: Apache-2.0 */
/* SOFTGPU_LAZY: the first launch of a lazily loaded kernel in a thread synchronises its context. */
#include "../softgpu.h"
#include "test_held.h"
#include <dlfcn.h>

TestSuite(lazy, .timeout = 60);

static CUcontext ctx[2];
static CUstream held, other[2];
static CUfunction lazy, eager;

static void nothing(void *args)
{
    (void)args;
}

static const struct softgpu_kernel_desc lazy_kernel = {.name = "lazy", .run = nothing, .lazy = 1};
static const struct softgpu_kernel_desc eager_kernel = {.name = "eager", .run = nothing};

static void start_held(const char *rule)
{
    softgpuKernelRegister_t reg;
    setenv("SOFTGPU_LAZY", rule, 1);
    setenv("SOFTGPU_TIES", "1", 1);
    watch_reports();
    for (int d = 1; d >= 0; d--) {
        ctx[d] = start(d);
        OK(cuStreamCreate(&other[d], CU_STREAM_NON_BLOCKING));
    }
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    *(void **)&reg = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(reg(&lazy_kernel, &lazy));
    OK(reg(&eager_kernel, &eager));
    hold(held);
}

static void launch(CUfunction f, CUstream s)
{
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    OK(cuStreamSynchronize(s));
}

static void launch_lazy(void)
{
    launch(lazy, other[0]);
}

static void launch_eager(void)
{
    launch(eager, other[0]);
}

static void launch_on_the_other_device(void)
{
    launch(lazy, other[1]);
}

static void end(void)
{
    let_go();
    OK(cuCtxSynchronize());
    expect_no_report();
}

Test(lazy, the_first_launch_in_a_thread_waits_for_its_context)
{
    start_held("1");
    expect_goes_on(ctx[0], launch_eager);
    expect_goes_on(ctx[1], launch_on_the_other_device);
    expect_waits(ctx[0], launch_lazy);
    launch_lazy(); /* in this thread, nothing held */
    hold(held);
    launch_lazy();
    RC(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    expect_waits(ctx[0], launch_lazy); /* a new thread */
    end();
}

Test(lazy, a_copy_that_is_tied_to_the_context_holds_it_up_too)
{
    CUdeviceptr from, to;
    start_held("1");
    OK(cuMemAlloc(&to, 4096));
    OK(cuCtxSetCurrent(ctx[1]));
    OK(cuMemAlloc(&from, 4096));
    OK(cuCtxSetCurrent(ctx[0]));
    OK(cuCtxEnablePeerAccess(ctx[1], 0));
    OK(cuMemcpyAsync(to, from, 4096, held));
    expect_waits(ctx[1], launch_on_the_other_device);
    end();
}

static void record_a_launch(void)
{
    CUgraph g;
    OK(cuStreamBeginCapture(other[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuLaunchKernel(lazy, 1, 1, 1, 1, 1, 1, 0, other[0], NULL, NULL));
    OK(cuStreamEndCapture(other[0], &g));
    OK(cuGraphDestroy(g));
}

Test(lazy, a_launch_that_is_recorded_waits_for_nothing)
{
    start_held("1");
    expect_goes_on(ctx[0], record_a_launch);
    end();
}

Test(lazy, off_means_that_no_launch_waits)
{
    start_held("0");
    expect_goes_on(ctx[0], launch_lazy);
    end();
}
