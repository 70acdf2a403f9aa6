/* SPDX-License-Identifier: Apache-2.0 */
/* The timing model. Lower bounds are exact; upper bounds are generous, since the machine may be busy. */
#include "../softgpu.h"
#include "test_util.h"
#include <dlfcn.h>

TestSuite(timing, .timeout = 60);

static void setup(void)
{
    setenv("SOFTGPU_TIMING", "1", 1);
    setenv("SOFTGPU_COMPUTE", "0", 1);
    setenv("SOFTGPU_LINK_GBS", "100", 1);
    setenv("SOFTGPU_HBM_GBS", "1000", 1);
    setenv("SOFTGPU_LAUNCH_US", "0", 1);
    watch_reports();
}

#define GB 1000000000ull

/* Times work between two events on a stream of the current context, in modelled milliseconds. */
static float timed_copy(CUstream s, CUdeviceptr dst, CUdeviceptr src, size_t n, int times)
{
    CUevent a, b;
    float ms;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuEventRecord(a, s));
    for (int i = 0; i < times; i++)
        OK(cuMemcpyDtoDAsync(dst, src, n, s));
    OK(cuEventRecord(b, s));
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&ms, a, b));
    return ms;
}

Test(timing, a_copy_takes_bytes_over_bandwidth, .init = setup)
{
    CUcontext c0, c1;
    CUdeviceptr a, a2, b;
    CUstream s;
    c0 = start(0);
    OK(cuMemAlloc(&a, 4 * GB));
    OK(cuMemAlloc(&a2, 4 * GB));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuDevicePrimaryCtxRetain(&c1, 1));
    OK(cuCtxSetCurrent(c1));
    OK(cuMemAlloc(&b, 4 * GB));
    OK(cuCtxSetCurrent(c0));
    float peer = timed_copy(s, a, b, 4 * GB, 2); /* 8 GB over 100 GB/s: 80 ms */
    cr_assert(peer >= 79.5f && peer < 120, "peer copy %f ms", (double)peer);
    float local = timed_copy(s, a, a2, 4 * GB, 2); /* 16 GB read and written at 1000 GB/s */
    cr_assert(local >= 15.5f && local < 40, "local copy %f ms", (double)local);
    expect_no_report();
}

Test(timing, two_readers_share_an_egress_and_dilation_scales, .init = setup)
{
    CUdeviceptr src, dst[2];
    CUcontext ctx[3];
    CUstream s[2];
    CUevent begin, end[2];
    float ms[2];
    setenv("SOFTGPU_TIME_SCALE", "2", 1);
    ctx[2] = start(2);
    OK(cuMemAlloc(&src, GB));
    double real = 0;
    for (int i = 0; i < 2; i++) {
        OK(cuDevicePrimaryCtxRetain(&ctx[i], i));
        OK(cuCtxSetCurrent(ctx[i]));
        OK(cuMemAlloc(&dst[i], GB));
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&end[i], 0));
    }
    CUevent begins[2];
    real = seconds();
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(ctx[i]));
        OK(cuEventCreate(&begin, 0));
        begins[i] = begin;
        OK(cuEventRecord(begin, s[i]));
        OK(cuMemcpyDtoDAsync(dst[i], src, GB, s[i]));
        OK(cuEventRecord(end[i], s[i]));
    }
    for (int i = 0; i < 2; i++) {
        OK(cuEventSynchronize(end[i]));
        OK(cuEventElapsedTime(&ms[i], begins[i], end[i]));
    }
    real = seconds() - real;
    float slower = ms[0] > ms[1] ? ms[0] : ms[1];
    cr_assert(slower >= 19 && slower < 40, "the second reader waits for the first: %f ms", (double)slower);
    cr_assert(real >= 0.038, "one modelled second takes two: %f s", real);
}

static void post_word(void *word)
{
    post(word, 1);
}

/* Enqueues a copy and returns when it has very likely booked its engines. */
static void start_copy(CUstream s, CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    int begun = 0;
    OK(cuLaunchHostFunc(s, post_word, &begun));
    OK(cuMemcpyDtoDAsync(dst, src, n, s));
    await(&begun, 1);
    usleep(40000);
}

enum { D0, D1, D2, D3, DEVICES };

/* Device 1 fills device 0's ingress for 400 ms; a copy from 2 to 0 waits for it and then takes 100 ms; a copy from 2 to
 * 3 comes last and needs the egress of 2, which the second copy holds while it waits. */
static float behind_a_waiting_copy(const CUdeviceptr *mem)
{
    CUstream s[3];
    CUevent begin, end;
    float ms;
    for (int i = 0; i < 3; i++)
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, s[0]));
    start_copy(s[0], mem[D0], mem[D1], 4 * GB);
    start_copy(s[1], mem[D0], mem[D2], GB);
    OK(cuMemcpyDtoDAsync(mem[D3], mem[D2], GB, s[2]));
    OK(cuEventRecord(end, s[2]));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, begin, end));
    OK(cuCtxSynchronize());
    return ms;
}

Test(timing, a_copy_that_waits_for_the_ingress_holds_the_egress, .init = setup)
{
    CUdeviceptr mem[DEVICES];
    CUcontext ctx;
    float ms = 0;
    setenv("SOFTGPU_LINK_GBS", "10", 1);
    start(0);
    for (int i = 0; i < DEVICES; i++) {
        OK(cuDevicePrimaryCtxRetain(&ctx, i));
        OK(cuCtxSetCurrent(ctx));
        OK(cuMemAlloc(&mem[i], 4 * GB));
    }
    /* On a very busy machine the copies may book in another order: then again. */
    for (int tries = 0; tries < 3 && ms < 599; tries++)
        ms = behind_a_waiting_copy(mem);
    cr_assert(ms >= 599 && ms < 900, "%f ms", (double)ms);
}

struct mail {
    volatile int step;
    CUipcMemHandle h;
};

Test(timing, egress_is_shared_between_processes, .init = setup)
{
    struct mail *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t owner = fork(), reader[2];
    if (!owner) {
        CUdeviceptr p;
        start(7);
        OK(cuMemAlloc(&p, 4 * GB));
        OK(cuIpcGetMemHandle(&m->h, p));
        post(&m->step, 1);
        await(&m->step, 2);
        exit(0);
    }
    for (int i = 0; i < 2; i++) {
        reader[i] = fork();
        if (!reader[i]) {
            CUdeviceptr p, q;
            CUstream s;
            start(i);
            OK(cuMemAlloc(&q, 4 * GB));
            OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
            await(&m->step, 1);
            OK(cuIpcOpenMemHandle(&p, m->h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            float ms = timed_copy(s, q, p, 4 * GB, 10); /* alone: 400 ms */
            OK(cuIpcCloseMemHandle(p));
            exit(ms > 500 && ms < 1500 ? 0 : 1);
        }
    }
    for (int i = 0; i < 2; i++)
        join_child(reader[i]);
    post(&m->step, 2);
    join_child(owner);
}

static double hundred_ms_of_flops(const void *args)
{
    (void)args;
    return 100e9; /* at 1 TFLOP/s */
}

static void nothing(void *args)
{
    (void)args;
}

static CUfunction kernel(const struct softgpu_kernel_desc *desc)
{
    softgpuKernelRegister_t reg;
    CUfunction f;
    *(void **)&reg = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "softgpuKernelRegister");
    OK(reg(desc, &f));
    return f;
}

static const struct softgpu_kernel_desc big_gemm = {.name = "big", .run = nothing, .flops = hundred_ms_of_flops};

/* Modelled milliseconds from the start of a GEMM to the end of a copy that another stream begins meanwhile. */
static float copy_beside_a_gemm(CUdeviceptr dst, CUdeviceptr src)
{
    CUfunction f = kernel(&big_gemm);
    CUevent begin, end;
    CUstream s[2];
    float ms;
    int begun = 0;
    for (int i = 0; i < 2; i++)
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuLaunchHostFunc(s[0], post_word, &begun));
    OK(cuEventRecord(begin, s[0]));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s[0], NULL, NULL));
    await(&begun, 1);
    usleep(20000); /* it has very likely booked its engine */
    OK(cuMemcpyDtoDAsync(dst, src, GB / 100, s[1]));
    OK(cuEventRecord(end, s[1]));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, begin, end));
    OK(cuCtxSynchronize());
    return ms;
}

Test(timing, a_copy_within_a_device_is_a_kernel_and_waits_for_a_gemm, .init = setup)
{
    CUdeviceptr a, b, far;
    CUcontext ctx;
    float local = 0, peer = 1000;
    setenv("SOFTGPU_TFLOPS", "1", 1);
    start(1);
    OK(cuMemAlloc(&far, GB));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemAlloc(&a, GB));
    OK(cuMemAlloc(&b, GB));
    /* On a very busy machine they may come in another order: then again. */
    for (int tries = 0; tries < 5 && !(local >= 99.5f && peer < 99.5f); tries++) {
        local = copy_beside_a_gemm(b, a);
        peer = copy_beside_a_gemm(b, far);
    }
    cr_assert(local >= 99.5f, "a local copy was done after %f ms", (double)local);
    cr_assert(peer < 99.5f, "copy engines are beside the multiprocessors: %f ms", (double)peer);
}

static double ten_ms_of_flops(const void *args)
{
    (void)args;
    return 10e9; /* at 1 TFLOP/s */
}

static const struct softgpu_kernel_desc busy = {.name = "busy", .run = nothing, .flops = ten_ms_of_flops};

Test(timing, kernels_of_one_device_take_turns, .init = setup)
{
    CUstream s[2];
    setenv("SOFTGPU_TFLOPS", "1", 1);
    start(0);
    CUfunction f = kernel(&busy);
    for (int i = 0; i < 2; i++)
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    double t = seconds();
    for (int i = 0; i < 4; i++)
        OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s[i & 1], NULL, NULL));
    OK(cuCtxSynchronize());
    t = seconds() - t;
    cr_assert(t >= 0.0395 && t < 0.2, "four kernels of 10 ms took %f s", t);
}

static double ten_ms_of_link(const void *args)
{
    (void)args;
    return 1e9; /* at 100 GB/s */
}

static const struct softgpu_kernel_desc collective = {
    .name = "collective", .run = nothing, .link_bytes = ten_ms_of_link};

/* Ten collectives on one stream, ten GEMMs as long on another. */
static double gemms_beside_collectives(const char *share)
{
    CUstream s[2];
    setenv("SOFTGPU_TFLOPS", "1", 1);
    setenv("SOFTGPU_COLLECTIVE_SHARE", share, 1);
    start(0);
    CUfunction gemm = kernel(&busy), beside = kernel(&collective);
    for (int i = 0; i < 2; i++)
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    double t = seconds();
    for (int i = 0; i < 10; i++) {
        OK(cuLaunchKernel(beside, 1, 1, 1, 1, 1, 1, 0, s[0], NULL, NULL));
        OK(cuLaunchKernel(gemm, 1, 1, 1, 1, 1, 1, 0, s[1], NULL, NULL));
    }
    OK(cuStreamSynchronize(s[1]));
    t = seconds() - t;
    OK(cuCtxSynchronize());
    return t;
}

static double half_of_link(const void *args)
{
    return ten_ms_of_link(args) / 2;
}

static double four_collectives(const struct softgpu_kernel_desc *desc, const char *net)
{
    CUstream s;
    setenv("SOFTGPU_NET_GBS", net, 1);
    start(0);
    CUfunction f = kernel(desc);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    double t = seconds();
    for (int i = 0; i < 4; i++)
        OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    OK(cuCtxSynchronize());
    return seconds() - t;
}

/* Half of it at 100 GB/s over links, half at 25 over the network, at the same time; without one all is over links. */
static const struct softgpu_kernel_desc over_hosts = {
    .name = "over hosts", .run = nothing, .link_bytes = half_of_link, .net_bytes = half_of_link};

Test(timing, a_collective_crosses_link_and_network, .init = setup)
{
    double t = four_collectives(&over_hosts, "25");
    cr_assert(t >= 0.0795 && t < 0.2, "four of 20 ms took %f s", t);
}

Test(timing, without_a_network_all_crosses_links, .init = setup)
{
    double t = four_collectives(&over_hosts, "0");
    cr_assert(t >= 0.0395 && t < 0.2, "four of 10 ms took %f s", t);
}

/* The last collective may come behind the last GEMM. */
Test(timing, a_collective_takes_multiprocessors_from_gemms, .init = setup)
{
    double t = gemms_beside_collectives("0.5");
    cr_assert(t >= 0.139 && t < 0.3, "%f s", t);
}

static int yes(const void *args)
{
    (void)args;
    return 1;
}

static const struct softgpu_kernel_desc busy_but_for_some = {
    .name = "busy", .run = nothing, .flops = hundred_ms_of_flops, .leaves_room = yes};

/* Seconds from the launch of a GEMM of 100 ms to the end of a collective of 10 ms that is launched meanwhile. */
static double collective_beside(const struct softgpu_kernel_desc *gemm)
{
    CUstream s[2];
    int begun = 0;
    setenv("SOFTGPU_TFLOPS", "1", 1);
    setenv("SOFTGPU_GEMMS_FULL", "1", 1);
    start(0);
    CUfunction f = kernel(gemm), beside = kernel(&collective);
    for (int i = 0; i < 2; i++)
        OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(s[0], post_word, &begun));
    double t = seconds();
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s[0], NULL, NULL));
    await(&begun, 1);
    usleep(20000); /* it has very likely begun */
    OK(cuLaunchKernel(beside, 1, 1, 1, 1, 1, 1, 0, s[1], NULL, NULL));
    OK(cuStreamSynchronize(s[1]));
    t = seconds() - t;
    OK(cuCtxSynchronize());
    return t;
}

Test(timing, a_collective_waits_for_a_gemm_that_has_all_multiprocessors, .init = setup)
{
    double t = collective_beside(&big_gemm);
    cr_assert(t >= 0.109, "%f s", t);
}

Test(timing, a_gemm_leaves_a_collective_room, .init = setup)
{
    double t = collective_beside(&busy_but_for_some);
    cr_assert(t < 0.1, "%f s", t);
}

Test(timing, a_collective_alone_is_no_later, .init = setup)
{
    CUstream s;
    setenv("SOFTGPU_COLLECTIVE_SHARE", "0.5", 1);
    start(0);
    CUfunction f = kernel(&collective);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    double t = seconds();
    for (int i = 0; i < 10; i++)
        OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    OK(cuCtxSynchronize());
    t = seconds() - t;
    cr_assert(t >= 0.099 && t < 0.14, "%f s", t);
}

Test(timing, without_compute_only_small_blocks_are_copied, .init = setup)
{
    static unsigned char host[8192], back[8192];
    CUdeviceptr p;
    start(0);
    OK(cuMemAlloc(&p, 8192));
    memset(host, 7, sizeof(host));
    OK(cuMemcpyHtoD(p, host, 8192));
    OK(cuMemcpyDtoH(back, p, 16));
    cr_assert_eq(back[0], 0, "a large block is not touched");
    OK(cuMemcpyHtoD(p, host, 16));
    OK(cuMemcpyDtoH(back, p, 16));
    cr_assert_eq(back[0], 7, "control words arrive");
}

Test(timing, a_blocking_copy_waits_for_pinned_memory_only, .init = setup)
{
    enum { N = 1 << 16 };
    static unsigned char pageable[N], back[N];
    unsigned char *pinned;
    CUdeviceptr p;
    setenv("SOFTGPU_COMPUTE", "1", 1);
    setenv("SOFTGPU_PCIE_GBS", "0.0002", 1); /* 0.3 s */
    start(0);
    OK(cuMemAlloc(&p, N));
    OK(cuMemAllocHost((void **)&pinned, N));
    memset(pageable, 7, N);
    memset(pinned, 9, N);
    OK(cuMemcpyHtoD(p, pageable, N));
    RC(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    memset(pageable, 8, N); /* it was staged */
    OK(cuMemcpyDtoH(back, p, N));
    cr_assert(back[0] == 7 && back[N - 1] == 7);
    OK(cuMemcpyHtoD(p, pinned, N));
    OK(cuStreamQuery(CU_STREAM_LEGACY));
}
