/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks as the library calls them (kernels/scatter.h), on the software GPU: it loads the PTX, knows its kernels
 * by their names, and has its own model of what they do (softgpu/driver/device_reduce.c). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>
#include "kernels/scatter.h"
#include "tests/unit/reduce_cases.h"

TestSuite(reduce, .timeout = 100);
TestSuite(reduce_held, .timeout = 20); /* what loads something there waits for ever */

#define OK(call) cr_assert_eq((int)(call), 0, "%s", #call)

static char report[64];
static CUcontext ctx;
static CUstream stream;
static struct slr_reduce kernels;

static void real_functions(void)
{
#define REAL(fn) slr_real.fn = fn
    REAL(cuGetErrorName);
    REAL(cuThreadExchangeStreamCaptureMode);
    REAL(cuModuleLoadData);
    REAL(cuModuleUnload);
    REAL(cuModuleGetFunction);
    REAL(cuFuncLoad);
    REAL(cuFuncGetAttribute);
    REAL(cuLaunchKernel);
}

static void start(void)
{
    snprintf(report, sizeof report, "/tmp/slr-reduce-%d", (int)getpid());
    unlink(report);
    setenv("SOFTGPU_REPORT", report, 1);
    real_functions();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void start_loaded(void)
{
    start();
    OK(slr_reduce_load(&kernels));
}

/* No misuse was reported, as every test but some ends. */
static void end(void)
{
    OK(cuStreamSynchronize(stream));
    slr_reduce_unload(&kernels);
    cr_assert_null(kernels.module);
    cr_assert_neq(access(report, F_OK), 0, "misuse was reported: %s", report);
}

static void run_case(const struct reduce_case *c, unsigned char *arena, size_t bytes)
{
    const void *in[CASE_RANKS];
    CUdeviceptr device;
    OK(cuMemAlloc(&device, bytes));
    OK(cuMemcpyHtoDAsync(device, arena, bytes, stream));
    for (int r = 0; r < c->n; r++)
        in[r] = (const void *)(device + case_at(c, r));
    OK(slr_reduce(&kernels, stream, (enum slr_reduce_type)c->type, (void *)(device + case_at(c, c->n)),
                  c->also ? (void *)(device + case_at(c, c->n + 1)) : NULL, in, c->n, c->count, c->divisor, c->blocks));
    OK(cuMemcpyDtoHAsync(arena, device, bytes, stream));
    OK(cuMemFree(device));
}

static void all_cases(int type)
{
    start_loaded();
    const char *wrong = case_try_all(type, run_case);
    cr_assert(!wrong, "%s", wrong);
    end();
}

Test(reduce, bf16)
{
    all_cases(CASE_BF16);
}

Test(reduce, f16)
{
    all_cases(CASE_F16);
}

Test(reduce, f32)
{
    all_cases(CASE_F32);
}

Test(reduce, copy)
{
    all_cases(CASE_BYTE);
}

/* 2^24 + 1 - 2^24 is 1 from the right, and 0 from the left; of 16-bit types, with what they have. */
Test(reduce, from_the_left)
{
    const struct {
        enum slr_reduce_type type;
        uint32_t big, one, minus;
    } of[] = {{SLR_REDUCE_F32, 0x4b800000, 0x3f800000, 0xcb800000},
              {SLR_REDUCE_BF16, 0x4b80, 0x3f80, 0xcb80},
              {SLR_REDUCE_F16, 0x7800, 0x0001, 0xf800}};
    CUdeviceptr m;
    start_loaded();
    OK(cuMemAlloc(&m, 4096));
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const void *in[] = {(void *)m, (void *)(m + 64), (void *)(m + 128)}, *back[] = {in[0], in[2], in[1]};
        uint32_t left = 7, other = 7, first = of[i].big, second = of[i].one, third = of[i].minus;
        OK(cuMemcpyHtoDAsync(m, &first, 4, stream));
        OK(cuMemcpyHtoDAsync(m + 64, &second, 4, stream));
        OK(cuMemcpyHtoDAsync(m + 128, &third, 4, stream));
        OK(cuMemsetD8Async(m + 192, 0, 128, stream));
        OK(slr_reduce(&kernels, stream, of[i].type, (void *)(m + 192), NULL, in, 3, 1, 1, 0));
        OK(slr_reduce(&kernels, stream, of[i].type, (void *)(m + 256), NULL, back, 3, 1, 1, 0));
        OK(cuMemcpyDtoHAsync(&left, m + 192, 4, stream));
        OK(cuMemcpyDtoHAsync(&other, m + 256, 4, stream));
        cr_assert_eq(left, 0, "type %d: %#x", (int)of[i].type, left);
        cr_assert_eq(other, of[i].one, "type %d: %#x", (int)of[i].type, other);
    }
    end();
}

/* Enqueues a sum of `count` values of m with those half a MiB behind, into the place behind them. */
static enum slr_status sum_at(CUdeviceptr m, CUstream s, size_t count, unsigned blocks)
{
    const void *in[] = {(void *)m, (void *)(m + (512 << 10))};
    return slr_reduce(&kernels, s, SLR_REDUCE_F32, (void *)(m + (1024 << 10)), NULL, in, 2, count, 2, blocks);
}

Test(reduce, any_number_of_blocks_gives_the_same_bits)
{
    enum { COUNT = 100003 };
    static uint32_t values[2][COUNT], first[COUNT], again[COUNT];
    uint64_t seed = 1;
    CUdeviceptr m;
    start_loaded();
    for (int i = 0; i < COUNT; i++)
        values[0][i] = case_spread(CASE_F32, case_random(&seed)),
        values[1][i] = case_spread(CASE_F32, case_random(&seed));
    OK(cuMemAlloc(&m, 2 << 20));
    for (size_t r = 0; r < 2; r++)
        OK(cuMemcpyHtoDAsync(m + (r << 19), values[r], sizeof values[r], stream));
    for (unsigned blocks = 0; blocks < 20; blocks++) {
        OK(sum_at(m, stream, COUNT, blocks));
        OK(cuMemcpyDtoHAsync(blocks ? again : first, m + (1024 << 10), sizeof first, stream));
        OK(cuMemsetD8Async(m + (1024 << 10), 0x55, sizeof first, stream));
        cr_assert(!blocks || !memcmp(first, again, sizeof first));
    }
    end();
}

/* ---- what the header says beside the sum ---- */

static unsigned blocks_seen;
static CUresult see_blocks(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, CUstream s, void **params, void **extra)
{
    cr_assert(gy == 1 && gz == 1 && bx == 512 && by == 1 && bz == 1 && shared == 0);
    blocks_seen = gx;
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, extra);
}

Test(reduce, no_more_blocks_than_have_work)
{
    const struct {
        size_t count;
        unsigned blocks, expected;
    } of[] = {{1, 0, 1},      {2048, 0, 1},      {2049, 0, 2}, {100000, 0, SLR_REDUCE_BLOCKS},
              {100000, 3, 3}, {100000, 1000, 49}};
    CUdeviceptr m;
    start_loaded();
    OK(cuMemAlloc(&m, 2 << 20));
    OK(cuMemsetD8Async(m, 0, 2 << 20, stream));
    slr_real.cuLaunchKernel = see_blocks;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        OK(sum_at(m, stream, of[i].count, of[i].blocks));
        cr_assert_eq(blocks_seen, of[i].expected, "%zu elements: %u", of[i].count, blocks_seen);
    }
    blocks_seen = 0;
    OK(sum_at(m, stream, 0, 0));
    cr_assert_eq(blocks_seen, 0);
    end();
}

Test(reduce, what_there_is_no_kernel_for)
{
    const void *in[SLR_REDUCE_TYPES] = {(void *)64};
    struct slr_reduce not_loaded = {0};
    start_loaded();
    cr_assert_eq(slr_reduce(&not_loaded, stream, SLR_REDUCE_F32, (void *)64, NULL, in, 1, 1, 1, 0), SLR_ABSENT);
    cr_assert_eq(slr_reduce(&kernels, stream, SLR_REDUCE_TYPES, (void *)64, NULL, in, 1, 1, 1, 0), SLR_ABSENT);
    cr_assert_eq(slr_reduce(&kernels, stream, SLR_REDUCE_F32, (void *)64, NULL, in, 0, 1, 1, 0), SLR_ABSENT);
    cr_assert_eq(slr_reduce(&kernels, stream, SLR_REDUCE_BYTE, (void *)64, NULL, in, 2, 1, 1, 0), SLR_ABSENT);
    cr_assert_eq(slr_reduce(&kernels, stream, SLR_REDUCE_BYTE, (void *)64, (void *)64, in, 1, 1, 1, 0), SLR_ABSENT);
    cr_assert_eq(slr_reduce(&kernels, stream, SLR_REDUCE_F32, (void *)64, NULL, in, 65, 1, 1, 0), SLR_ABSENT);
    end();
}

static CUresult no_image(CUmodule *m, const void *image)
{
    (void)m, (void)image;
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult no_function(CUfunction f)
{
    (void)f;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static int unloaded;
static CUresult count_unload(CUmodule m)
{
    unloaded++;
    return cuModuleUnload(m);
}

Test(reduce, a_driver_that_can_not_load_it)
{
    start();
    slr_real.cuModuleLoadData = NULL;
    cr_assert_eq(slr_reduce_load(&kernels), SLR_ABSENT);
    slr_real.cuModuleLoadData = no_image;
    cr_assert_eq(slr_reduce_load(&kernels), SLR_CUDA);
    cr_assert_null(kernels.module);
    slr_real.cuModuleLoadData = cuModuleLoadData;
    slr_real.cuModuleUnload = count_unload;
    slr_real.cuFuncLoad = no_function;
    cr_assert_eq(slr_reduce_load(&kernels), SLR_NOMEM);
    cr_assert(!kernels.module && unloaded == 1, "half of it is left");
    slr_real.cuFuncLoad = NULL;
    OK(slr_reduce_load(&kernels));
    CUmodule loaded = kernels.module;
    OK(slr_reduce_load(&kernels));
    cr_assert_eq(kernels.module, loaded, "loaded twice");
    slr_real.cuFuncGetAttribute = NULL;
    slr_reduce_unload(&kernels);
    cr_assert_eq(slr_reduce_load(&kernels), SLR_ABSENT);
    end();
}

/* With either way to load: a launch behind a stream that is held returns, as it loads nothing. */
static void launches_while_held(void)
{
    CUdeviceptr m, word;
    CUstream held;
    void *page;
    OK(cuMemAlloc(&m, 2 << 20));
    OK(cuMemsetD8Async(m, 0, 2 << 20, stream));
    OK(cuMemHostAlloc(&page, 4096, 0));
    memset(page, 0, 4096);
    OK(cuMemHostGetDevicePointer(&word, page, 0));
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(held, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int t = 0; t < SLR_REDUCE_TYPES; t++) {
        const void *in[] = {(void *)m};
        OK(slr_reduce(&kernels, stream, (enum slr_reduce_type)t, (void *)(m + 4096), NULL, in, 1, 100, 1, 0));
    }
    OK(cuStreamSynchronize(stream));
    __atomic_store_n((uint32_t *)page, 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(held));
    end();
}

Test(reduce_held, no_launch_loads_anything)
{
    start_loaded();
    launches_while_held();
}

Test(reduce_held, no_launch_loads_anything_with_older_drivers)
{
    start();
    slr_real.cuFuncLoad = NULL;
    OK(slr_reduce_load(&kernels));
    launches_while_held();
}

Test(reduce, loading_breaks_no_capture)
{
    CUstream other;
    CUgraph graph;
    start();
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(slr_reduce_load(&kernels));
    slr_reduce_unload(&kernels);
    OK(cuStreamEndCapture(other, &graph));
    end();
}

Test(reduce, in_a_graph)
{
    const float values[3] = {3, 5, 0};
    float result[2] = {0};
    CUdeviceptr m;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    start_loaded();
    OK(cuMemAlloc(&m, 2 << 20));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(sum_at(m, stream, 1, 0));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    cr_assert_eq(nodes, 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuMemcpyHtoDAsync(m, &values[i], 4, stream));
        OK(cuMemcpyHtoDAsync(m + (512 << 10), &values[i + 1], 4, stream));
        OK(cuGraphLaunch(exec, stream));
        OK(cuMemcpyDtoHAsync(&result[i], m + (1024 << 10), 4, stream));
    }
    cr_assert(result[0] == 4 && result[1] == 2.5f);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    end();
}
