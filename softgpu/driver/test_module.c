/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of PTX whose kernels the stand-in driver has a model of (device_code.h). What the kernels compute is tested
 * with those who use them (tests/unit/test_reduce.c). */
#include "test_held.h"

TestSuite(module, .timeout = 60);

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"
#define ENTRY(name, bytes)                                                                                             \
    ".visible .entry " name "(\n\t.param .align 8 .b8 " name "_param_0[" bytes                                         \
    "]\n)\n.maxntid 512, 1, 1\n{\n\tret;\n}\n"
static const char known[] = "// a comment\n\n" HEAD ENTRY("slr_reduce_f32", "552") ENTRY("other", "8");

struct arguments {
    CUdeviceptr out, also, in[64];
    size_t count;
    double factor;
    int n;
};

static CUcontext ctx;
static CUstream held, stream;
static CUmodule module;
static CUfunction sum;
static CUdeviceptr memory;

static void setup(void)
{
    watch_reports();
    ctx = start(0);
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&memory, 65536));
    OK(cuMemsetD8Async(memory, 0, 65536, stream));
    OK(cuStreamSynchronize(stream));
}

static void load(void)
{
    OK(cuModuleLoadData(&module, known));
    OK(cuModuleGetFunction(&sum, module, "slr_reduce_f32"));
}

static CUresult launch(CUfunction f, struct arguments a, unsigned blocks, unsigned threads)
{
    void *params[] = {&a};
    return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

static struct arguments two_at(CUdeviceptr out)
{
    return (struct arguments){out, 0, {memory, memory + 4096}, 4, 1, 2};
}

Test(module, images_that_there_is_no_model_of, .init = setup)
{
    CUmodule m;
    RC(cuModuleLoadData(&m, "image"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    RC(cuModuleLoadData(&m, HEAD ENTRY("other", "8")), CUDA_ERROR_NO_BINARY_FOR_GPU);
    RC(cuModuleLoadData(&m, ".version 8.6\n.target sm_100\n" ENTRY("slr_reduce_f32", "552")),
       CUDA_ERROR_NO_BINARY_FOR_GPU);
    RC(cuModuleLoadData(NULL, known), CUDA_ERROR_INVALID_VALUE);
    RC(cuModuleLoadDataEx(&m, known, 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
    RC(cuModuleLoadData(&m, HEAD ENTRY("slr_reduce_f32", "528")), CUDA_ERROR_INVALID_PTX);
    expect_report("slr_reduce_f32 takes 528 bytes in this PTX");
}

Test(module, functions_by_their_names, .init = setup)
{
    CUfunction f;
    const char *name;
    load();
    RC(cuModuleGetFunction(&f, module, "slr_reduce_bf16"), CUDA_ERROR_NOT_FOUND);
    OK(cuFuncGetName(&name, sum));
    cr_assert_str_eq(name, "slr_reduce_f32");
    OK(launch(sum, two_at(memory + 8192), 2, 512));
    OK(cuModuleGetFunction(&f, module, "other"));
    RC(launch(f, two_at(memory + 8192), 1, 1), CUDA_ERROR_NO_BINARY_FOR_GPU);
    OK(cuStreamSynchronize(stream));
    OK(cuModuleUnload(module));
    expect_no_report();
}

Test(module, grids_and_blocks_that_can_not_be, .init = setup)
{
    load();
    RC(launch(sum, two_at(memory + 8192), 0, 512), CUDA_ERROR_INVALID_VALUE);
    RC(launch(sum, two_at(memory + 8192), 0x80000000u, 512), CUDA_ERROR_INVALID_VALUE);
    RC(launch(sum, two_at(memory + 8192), 1, 0), CUDA_ERROR_INVALID_VALUE);
    RC(launch(sum, two_at(memory + 8192), 1, 513), CUDA_ERROR_INVALID_VALUE); /* .maxntid */
    OK(launch(sum, two_at(memory + 8192), 1, 32));
    expect_no_report();
}

Test(module, what_is_gone_or_belongs_elsewhere, .init = setup)
{
    CUfunction f;
    CUcontext other;
    CUmodule gone;
    load();
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxSetCurrent(other));
    RC(cuModuleGetFunction(&f, module, "slr_reduce_f32"), CUDA_ERROR_INVALID_HANDLE);
    expect_report("used outside of its context");
    CUstream mine = stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    RC(launch(sum, two_at(memory + 8192), 1, 512), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSetCurrent(ctx));
    stream = mine;
    gone = module;
    OK(cuModuleUnload(module));
    RC(cuModuleUnload(gone), CUDA_ERROR_INVALID_HANDLE);
    expect_report("module");
    RC(launch(sum, two_at(memory + 8192), 1, 512), CUDA_ERROR_INVALID_HANDLE);
    expect_report("function");
}

Test(module, arguments_with_which_a_device_would_fault, .init = setup)
{
    struct arguments a = two_at(memory + 8192);
    load();
    a.n = 0;
    RC(launch(sum, a, 1, 512), CUDA_ERROR_INVALID_VALUE);
    expect_report("not 1 to 64 contributions");
    a = two_at(memory + 8193);
    RC(launch(sum, a, 1, 512), CUDA_ERROR_INVALID_VALUE);
    expect_report("the output is not aligned");
    a = two_at(memory + 8192);
    a.in[1] += 2;
    RC(launch(sum, a, 1, 512), CUDA_ERROR_INVALID_VALUE);
    expect_report("a contribution is not aligned");
    RC(launch(sum, two_at(memory + 4), 1, 512), CUDA_ERROR_INVALID_VALUE);
    expect_report("overlaps a part");
    OK(launch(sum, two_at(memory), 1, 512)); /* in place */
    expect_no_report();
    a = two_at(memory + 65536 - 8);
    RC(launch(sum, a, 1, 512), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_report("out of bounds");
}

/* Arguments are taken at the launch, memory is read when the stream is there. */
Test(module, runs_in_stream_order_with_the_launch_s_arguments, .init = setup)
{
    struct arguments a = two_at(memory + 8192);
    void *params[] = {&a};
    float result[4], three[4] = {3, 3, 3, 3};
    load();
    OK(cuFuncLoad(sum));
    hold(stream);
    OK(cuMemcpyHtoDAsync(memory, three, sizeof three, stream));
    OK(cuMemcpyHtoDAsync(memory + 4096, three, sizeof three, stream));
    OK(cuLaunchKernel(sum, 1, 1, 1, 512, 1, 1, 0, stream, params, NULL));
    memset(&a, 0, sizeof a);
    let_go();
    OK(cuMemcpyDtoHAsync(result, memory + 8192, sizeof result, stream));
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 4; i++)
        cr_assert_eq(result[i], 6);
    expect_no_report();
}

static void load_a_module(void)
{
    CUmodule m;
    OK(cuModuleLoadData(&m, known));
}

static void unload(void)
{
    OK(cuModuleUnload(module));
}

static void launch_it(void)
{
    OK(launch(sum, two_at(memory + 8192), 1, 512));
}

static void func_load(void)
{
    OK(cuFuncLoad(sum));
}

static void get_attribute(void)
{
    int n;
    OK(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, sum));
}

static void expect_loaded(bool loaded)
{
    CUfunctionLoadingState state;
    OK(cuFuncIsLoaded(&state, sum));
    cr_assert_eq(state == CU_FUNCTION_LOADING_STATE_LOADED, loaded);
}

Test(module, loading_and_unloading_wait_for_the_context, .init = setup)
{
    load();
    hold(held);
    expect_waits(ctx, load_a_module);
    hold(held);
    expect_waits(ctx, unload);
    expect_no_report();
}

static void loads_by(void (*first)(void))
{
    load();
    expect_loaded(false);
    hold(held);
    expect_waits(ctx, first);
    expect_loaded(true);
    hold(held);
    expect_goes_on(ctx, launch_it);
    let_go();
    OK(cuCtxSynchronize());
    expect_no_report();
}

Test(module, the_first_launch_loads_the_function, .init = setup)
{
    loads_by(launch_it);
}

Test(module, loaded_by_cuFuncLoad, .init = setup)
{
    loads_by(func_load);
}

Test(module, loaded_by_asking_for_an_attribute, .init = setup)
{
    loads_by(get_attribute);
}

Test(module, a_global_capture_forbids_loading, .init = setup)
{
    CUgraph g;
    CUmodule m;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    RC(cuModuleLoadData(&m, known), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    RC(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

Test(module, a_graph_that_outlives_the_module, .init = setup)
{
    CUgraph g;
    CUgraphExec e;
    load();
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_it();
    OK(cuStreamEndCapture(stream, &g));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphLaunch(e, stream));
    OK(cuStreamSynchronize(stream));
    expect_no_report();
    unload();
    RC(cuGraphLaunch(e, stream), CUDA_ERROR_INVALID_HANDLE);
    expect_report("its module was unloaded");
}

/* SOFTGPU_RACE: what a kernel reads and writes counts like a copy's. */
static void beside_a_copy(CUdeviceptr copied, const char *report)
{
    static const float values[4];
    char file[64];
    snprintf(file, sizeof file, "/tmp/softgpu-race-%d", (int)getpid());
    unlink(file);
    setenv("SOFTGPU_RACE", file, 1);
    setup();
    load();
    OK(cuFuncLoad(sum));
    OK(launch(sum, two_at(memory + 8192), 1, 512));
    OK(cuMemcpyHtoDAsync(memory + copied, values, sizeof values, held));
    OK(cuStreamSynchronize(held));
    OK(cuStreamSynchronize(stream));
    if (report)
        expect_report(report);
    expect_no_report();
    unlink(file);
}

Test(module, a_race_with_what_it_reads)
{
    beside_a_copy(4096, "read by slr_reduce_f32");
}

Test(module, a_race_with_what_it_writes)
{
    beside_a_copy(8192, "write by slr_reduce_f32");
}

Test(module, no_race_beside_it)
{
    beside_a_copy(16, NULL);
}
