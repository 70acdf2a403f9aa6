/* SPDX-License-Identifier: Apache-2.0 */
/* What an application must not do is named, and answered with a documented error. */
#include "../softgpu.h"
#include "test_util.h"
#include <dlfcn.h>
#include <signal.h>

TestSuite(misuse, .timeout = 30);

static void setup(void)
{
    watch_reports();
}

struct args {
    CUdeviceptr p;
    size_t n;
    int delta;
};

static void run(void *a)
{
    struct args *k = a;
    for (size_t i = 0; i < k->n; i++)
        ((int *)k->p)[i] += k->delta;
}

static unsigned access_of(const void *a, struct softgpu_access *out, unsigned max)
{
    const struct args *k = a;
    if (max)
        out[0] = (struct softgpu_access){.ptr = k->p, .row_bytes = k->n * 4, .rows = 1, .write = 1};
    return 1;
}

static const struct softgpu_kernel_desc add = {
    .name = "add", .arg_bytes = sizeof(struct args), .run = run, .access = access_of};

static CUfunction kernel(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    softgpuKernelRegister_t reg;
    CUfunction f;
    *(void **)&reg = dlsym(lib, "softgpuKernelRegister");
    cr_assert(reg);
    OK(reg(&add, &f));
    return f;
}

static CUresult launch(CUfunction f, CUstream s, CUdeviceptr p, size_t n, int delta)
{
    struct args a = {p, n, delta};
    void *params[] = {&a};
    return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

Test(misuse, kernels_run_and_their_memory_is_checked, .init = setup)
{
    CUdeviceptr p, q;
    int v = 0;
    start(0);
    CUfunction f = kernel();
    OK(cuMemAlloc(&p, 400));
    OK(cuMemsetD32(p, 1, 100));
    OK(launch(f, 0, p, 100, 5));
    OK(cuMemcpyDtoH(&v, p + 396, 4));
    cr_assert_eq(v, 6);
    expect_no_report();
    RC(launch(f, 0, p, 101, 5), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("add on device 0: 404 bytes out of bounds");
    OK(cuMemAlloc(&q, 64));
    OK(cuMemFree(q));
    RC(launch(f, 0, q, 1, 5), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("lies in the freed 64 byte allocation");
    RC(cuLaunchKernel((CUfunction)&v, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    expect_report("unknown function handle");
    RC(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

Test(misuse, memory_freed_under_a_queued_operation, .init = setup)
{
    CUdeviceptr p, flag;
    CUcontext c1;
    CUstream s;
    CUcontext c0 = start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuMemAlloc(&p, 64));
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxSetCurrent(c1));
    OK(cuCtxEnablePeerAccess(c0, 0));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(p, 1, 64, s));
    OK(cuMemFree(p)); /* waits for the owner's context only */
    set_flag(w, 1);
    RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("(found when it ran)");
    RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS); /* the context stays poisoned */
}

Test(misuse, address_used_again_under_a_queued_operation, .init = setup)
{
    CUdeviceptr p, q, flag;
    CUcontext c1;
    CUstream s;
    CUcontext c0 = start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuMemAlloc(&p, 64));
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxSetCurrent(c1));
    OK(cuCtxEnablePeerAccess(c0, 0));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD8Async(p, 1, 64, s));
    OK(cuCtxSetCurrent(c0));
    OK(cuMemFree(p));
    OK(cuMemAlloc(&q, 64));
    cr_assert_eq(p, q);
    set_flag(w, 1);
    OK(cuCtxSetCurrent(c1));
    RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("was freed and its address used again");
}

/* Of another device's memory, as long as they run. */
Test(misuse, kernels_without_peer_access, .init = setup)
{
    CUdeviceptr p, flag;
    CUcontext c1;
    CUstream s;
    CUcontext c0 = start(0);
    uint32_t *w = flag_word(&flag);
    CUfunction f = kernel();
    OK(cuMemAlloc(&p, 64));
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxSetCurrent(c1));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    RC(launch(f, s, p, 1, 5), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("memory of device 0 without peer access");
    OK(cuCtxEnablePeerAccess(c0, 0));
    OK(launch(f, s, p, 1, 5));
    OK(cuStreamSynchronize(s));
    expect_no_report();
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(launch(f, s, p, 1, 5));
    OK(cuCtxDisablePeerAccess(c0));
    set_flag(w, 1);
    RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("(found when it ran): memory of device 0 without peer access");
    RC(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS); /* the context stays poisoned */
}

Test(misuse, frees, .init = setup)
{
    CUdeviceptr p;
    start(0);
    OK(cuMemAlloc(&p, 4096));
    RC(cuMemFree(p + 16), CUDA_ERROR_INVALID_VALUE);
    expect_report("free of what is not a base address");
    OK(cuMemFree(p));
    RC(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    expect_report("double free");
    RC(cuMemFreeHost(&p), CUDA_ERROR_INVALID_VALUE);
    expect_report("cuMemFreeHost");
    OK(cuMemAllocAsync(&p, 64, 0));
    OK(cuMemFreeAsync(p, 0));
    RC(cuMemFreeAsync(p, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("double free");
}

Test(misuse, handles, .init = setup)
{
    CUstream s;
    CUevent e;
    CUcontext ctx;
    int local;
    start(0);
    RC(cuStreamSynchronize((CUstream)&local), CUDA_ERROR_INVALID_HANDLE);
    expect_report("unknown stream handle");
    OK(cuStreamCreate(&s, 0));
    OK(cuStreamDestroy(s));
    RC(cuStreamDestroy(s), CUDA_ERROR_INVALID_HANDLE);
    expect_report("used after it was destroyed");
    OK(cuEventCreate(&e, 0));
    OK(cuEventDestroy(e));
    RC(cuEventRecord(e, 0), CUDA_ERROR_INVALID_HANDLE);
    expect_report("used after it was destroyed");
    RC(cuEventQuery((CUevent)s), CUDA_ERROR_INVALID_HANDLE);
    expect_report("unknown event handle");
    OK(cuCtxCreate(&ctx, NULL, 0, 1));
    OK(cuCtxDestroy(ctx));
    RC(cuCtxSetCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
    expect_report("context");
}

static void slow(void *unused)
{
    (void)unused;
    usleep(50000);
}

Test(misuse, context_destroyed_with_work, .init = setup)
{
    CUstream s;
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuCtxCreate(&ctx, NULL, 0, 1));
    OK(cuStreamCreate(&s, 0));
    OK(cuLaunchHostFunc(s, slow, NULL));
    OK(cuCtxDestroy(ctx));
    expect_report("destroyed while stream");
}

Test(misuse, a_wait_that_does_not_end_shows_every_queue, .init = setup)
{
    CUdeviceptr flag;
    CUstream a, b;
    CUevent e;
    setenv("SOFTGPU_HANG_SECONDS", "0.2", 1);
    start(0);
    uint32_t *w = flag_word(&flag);
    set_flag(w, 3);
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, 0));
    OK(cuStreamWaitValue32(a, flag, 7, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    usleep(600000);
    cr_assert(reported("until value >= 7 (0x7), now 3 (0x3)"));
    cr_assert(reported("event wait, which waits for work of stream"));
    set_flag(w, 7);
    OK(cuStreamSynchronize(b)); /* it goes on after the report */
    unlink(report_path);
}

Test(misuse, abort_on_misuse, .init = setup, .signal = SIGABRT)
{
    setenv("SOFTGPU_MISUSE", "abort", 1);
    unsetenv("SOFTGPU_REPORT");
    start(0);
    cuMemFree(4096);
}
