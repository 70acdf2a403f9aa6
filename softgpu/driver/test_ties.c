/* SPDX-License-Identifier: Apache-2.0 */
/* SOFTGPU_TIES: which contexts count a queued copy between two devices of the process as their work. The streams that
 * are held belong to device 1; the question is always whether device 0 goes on. */
#include "../softgpu.h"
#include "test_held.h"
#include "test_vmm_util.h"
#include <dlfcn.h>

TestSuite(ties, .timeout = 60);

static CUcontext ctx[2];
static CUstream held;
static CUdeviceptr legacy[2], more[2], mapped[2], scratch;

static CUdeviceptr for_both(int device)
{
    CUdeviceptr p = reserve(G);
    map_rw(p, create(device, G), G, device);
    OK(allow(p, G, 1 - device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return p;
}

static void start_two(const char *ties, bool peer_access)
{
    setenv("SOFTGPU_TIES", ties, 1);
    setenv("SOFTGPU_LAZY", "1", 1);
    watch_reports();
    for (int d = 0; d < 2; d++) {
        ctx[d] = start(d);
        OK(cuMemAlloc(&legacy[d], G));
        OK(cuMemAlloc(&more[d], G));
        mapped[d] = for_both(d);
    }
    for (int d = 0; d < 2 && peer_access; d++) {
        OK(cuCtxSetCurrent(ctx[d]));
        OK(cuCtxEnablePeerAccess(ctx[1 - d], 0));
    }
    OK(cuCtxSetCurrent(ctx[0]));
    OK(cuMemAlloc(&scratch, G));
    OK(cuCtxSetCurrent(ctx[1]));
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
}

enum how { ASYNC, DTOD, TWO_D, PEER, PEER_3D, KERNEL };

static void copy_2d(CUdeviceptr dst, CUdeviceptr src)
{
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = src, .srcPitch = 1024};
    c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    c.dstDevice = dst;
    c.dstPitch = 1024;
    c.WidthInBytes = 512;
    c.Height = 4;
    OK(cuMemcpy2DAsync(&c, held));
}

static void copy_3d_peer(CUdeviceptr dst, CUcontext dctx, CUdeviceptr src, CUcontext sctx)
{
    CUDA_MEMCPY3D_PEER c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = src, .srcContext = sctx};
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = dst;
    c.dstContext = dctx;
    c.WidthInBytes = 4096;
    c.Height = c.Depth = 1;
    OK(cuMemcpy3DPeerAsync(&c, held));
}

struct ends {
    CUdeviceptr dst, src;
};

static void copy_bytes(void *args)
{
    const struct ends *e = args;
    memcpy((void *)e->dst, (const void *)e->src, 4096);
}

static unsigned access_of(const void *args, struct softgpu_access *out, unsigned max)
{
    const struct ends *e = args;
    if (max > 1) {
        out[0] = (struct softgpu_access){e->dst, 4096, 1, 4096, 1};
        out[1] = (struct softgpu_access){e->src, 4096, 1, 4096, 0};
    }
    return 2;
}

static void copy_by_kernel(CUdeviceptr dst, CUdeviceptr src)
{
    static const struct softgpu_kernel_desc desc = {
        .name = "copy", .arg_bytes = sizeof(struct ends), .run = copy_bytes, .access = access_of};
    struct ends e = {dst, src};
    void *params[] = {&e};
    softgpuKernelRegister_t add;
    CUfunction f;
    *(void **)&add = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(add(&desc, &f));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, held, params, NULL));
}

/* A held copy from device `from` to the other one, queued on device 1's stream. */
static void copy_held(enum how how, CUdeviceptr dst, CUdeviceptr src, int from)
{
    OK(cuCtxSetCurrent(ctx[1]));
    hold(held);
    switch (how) {
    case ASYNC:
        OK(cuMemcpyAsync(dst, src, 4096, held));
        break;
    case DTOD:
        OK(cuMemcpyDtoDAsync(dst, src, 4096, held));
        break;
    case TWO_D:
        copy_2d(dst, src);
        break;
    case PEER:
        OK(cuMemcpyPeerAsync(dst, ctx[1 - from], src, ctx[from], 4096, held));
        break;
    case KERNEL:
        copy_by_kernel(dst, src);
        break;
    case PEER_3D:
        copy_3d_peer(dst, ctx[1 - from], src, ctx[from]);
        break;
    }
}

static void synchronise(void)
{
    OK(cuCtxSynchronize());
}

static void allocate_and_free(void)
{
    CUdeviceptr p;
    OK(cuMemAlloc(&p, G));
    OK(cuMemFree(p));
}

static void fills_and_other_streams(void)
{
    CUstream s;
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4096));
    OK(cuMemsetD8(scratch, 1, 4096));
    OK(cuStreamSynchronize(0));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD8Async(scratch, 1, 4096, s));
    OK(cuMemcpyDtoDAsync(scratch + 4096, scratch, 4096, s));
    OK(cuStreamSynchronize(s));
}

static void (*const whole_device[])(void) = {synchronise, allocate_and_free};
#define WHOLE_DEVICE (sizeof(whole_device) / sizeof(*whole_device))

static void finish(void)
{
    let_go();
    OK(cuCtxSetCurrent(ctx[1]));
    OK(cuStreamSynchronize(held));
}

static void expect_tied(enum how how, CUdeviceptr dst, CUdeviceptr src, int from)
{
    copy_held(how, dst, src, from);
    expect_goes_on(ctx[0], fills_and_other_streams);
    finish();
    for (size_t i = 0; i < WHOLE_DEVICE; i++) {
        copy_held(how, dst, src, from);
        expect_waits(ctx[0], whole_device[i]);
        finish();
    }
}

static void expect_free(enum how how, CUdeviceptr dst, CUdeviceptr src, int from)
{
    copy_held(how, dst, src, from);
    expect_goes_on(ctx[0], fills_and_other_streams);
    for (size_t i = 0; i < WHOLE_DEVICE; i++)
        expect_goes_on(ctx[0], whole_device[i]);
    finish();
}

Test(ties, memory_of_cuMemAlloc_ties_its_context)
{
    start_two("1", true);
    for (enum how how = ASYNC; how <= PEER_3D; how++) {
        expect_tied(how, legacy[1], legacy[0], 0);
        expect_tied(how, mapped[1], legacy[0], 0);
    }
    expect_tied(ASYNC, legacy[0], legacy[1], 1); /* pushed */
    expect_tied(ASYNC, legacy[0], mapped[1], 1);
    expect_no_report();
}

Test(ties, mapped_memory_is_tied_by_peer_calls_only)
{
    start_two("1", true);
    for (enum how how = ASYNC; how <= TWO_D; how++) {
        expect_free(how, legacy[1], mapped[0], 0);
        expect_free(how, mapped[1], mapped[0], 0);
        expect_free(how, mapped[0], mapped[1], 1);
    }
    expect_tied(PEER, legacy[1], mapped[0], 0);
    expect_tied(PEER, mapped[1], mapped[0], 0);
    expect_tied(PEER_3D, mapped[0], mapped[1], 1);
    expect_no_report();
}

Test(ties, peer_access_makes_no_difference)
{
    start_two("1", false);
    expect_free(ASYNC, mapped[1], mapped[0], 0);
    expect_tied(PEER, legacy[1], legacy[0], 0);
    expect_tied(PEER, mapped[1], mapped[0], 0);
    expect_no_report();
}

Test(ties, copies_within_a_device_and_work_behind_one_tie_nothing)
{
    start_two("1", true);
    OK(cuMemcpyAsync(legacy[1], legacy[0], 4096, held)); /* done before the stream is held */
    OK(cuStreamSynchronize(held));
    expect_free(ASYNC, legacy[1], more[1], 1);
    expect_no_report();
}

Test(ties, kernels_tie_nothing)
{
    start_two("1", true);
    expect_free(KERNEL, legacy[1], legacy[0], 0);
    expect_free(KERNEL, legacy[0], legacy[1], 1);
    expect_no_report();
}

static CUgraphExec recorded_copy(void)
{
    CUgraphExec exec;
    CUgraph g;
    OK(cuStreamBeginCapture(held, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemcpyAsync(legacy[1], legacy[0], 4096, held));
    OK(cuStreamEndCapture(held, &g));
    OK(cuGraphInstantiate(&exec, g, 0));
    return exec;
}

Test(ties, a_graph_ties_when_it_is_launched)
{
    start_two("1", true);
    CUgraphExec exec = recorded_copy();
    hold(held);
    expect_goes_on(ctx[0], synchronise);
    OK(cuGraphLaunch(exec, held));
    expect_waits(ctx[0], synchronise);
    finish();
    expect_no_report();
}

Test(ties, off_means_that_nothing_is_tied)
{
    start_two("0", true);
    expect_free(ASYNC, legacy[1], legacy[0], 0);
    expect_free(PEER, mapped[1], mapped[0], 0);
    expect_no_report();
}
