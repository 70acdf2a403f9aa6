/* SPDX-License-Identifier: Apache-2.0 */
/* Small strict rules, on and off: a primary context's handle, synchronising a context that captures, and peer-to-peer
 * that is broken. */
#include "test_held.h"
#include "test_vmm_util.h"

TestSuite(strict, .timeout = 60);

/* ---- SOFTGPU_SAME_PRIMARY ---- */

static CUcontext again(void)
{
    CUcontext ctx;
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

static void use_context(void)
{
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    OK(cuMemsetD32Async(p, 1, 16, CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemFree(p));
}

Test(strict, a_primary_context_keeps_its_handle)
{
    CUdeviceptr p;
    CUstream s;
    CUevent e;
    setenv("SOFTGPU_SAME_PRIMARY", "1", 1);
    watch_reports();
    CUcontext first = start(0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, 0));
    use_context();
    OK(cuDevicePrimaryCtxReset(0));
    RC(cuMemAlloc(&p, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    expect_report("was destroyed");
    cr_assert_eq(again(), first);
    RC(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
    expect_report("used after it was destroyed");
    use_context();
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRelease(0));
    cr_assert_eq(again(), first, "a release by the last user ends it as well");
    use_context();
    expect_no_report();
}

Test(strict, off_means_that_each_primary_context_has_a_handle_of_its_own)
{
    setenv("SOFTGPU_SAME_PRIMARY", "0", 1);
    watch_reports();
    CUcontext first = start(0);
    OK(cuDevicePrimaryCtxReset(0));
    cr_assert_neq(again(), first);
    use_context();
    RC(cuCtxSetCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
    expect_report("used after it was destroyed");
}

/* ---- SOFTGPU_CTXSYNC ---- */

static void synchronise(void)
{
    OK(cuCtxSynchronize());
}

Test(strict, off_means_that_the_mode_decides_who_synchronises)
{
    CUstream s;
    CUgraph g;
    setenv("SOFTGPU_CTXSYNC", "0", 1);
    CUcontext ctx = start(0);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    expect_goes_on(ctx, synchronise);
    OK(cuStreamEndCapture(s, &g));
}

/* ---- SOFTGPU_P2P_BROKEN ---- */

#define N 100000

static unsigned char want[N], got[N];
static CUdeviceptr mem[2], more[2], shared;

static void start_two(const char *broken)
{
    setenv("SOFTGPU_P2P_BROKEN", broken, 1);
    for (int d = 1; d >= 0; d--) {
        start(d);
        OK(cuMemAlloc(&mem[d], N));
        OK(cuMemAlloc(&more[d], N));
    }
    shared = reserve(G);
    map_rw(shared, create(1, G), G, 1);
    OK(allow(shared, G, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (int i = 0; i < N; i++)
        want[i] = (unsigned char)(i * 7);
    OK(cuMemcpyHtoD(mem[0], want, N));
    OK(cuMemcpyDtoH(got, mem[0], N));
    cr_assert_arr_eq(got, want, N, "copies to and from the host are whole");
}

static int wrong_bytes(CUdeviceptr p)
{
    int n = 0;
    OK(cuMemcpyDtoH(got, p, N));
    for (int i = 0; i < N; i++)
        n += got[i] != want[i];
    return n;
}

Test(strict, broken_peer_to_peer_gives_a_few_wrong_bytes)
{
    uint32_t word = 5;
    start_two("1");
    OK(cuMemcpyDtoD(more[0], mem[0], N));
    cr_assert_eq(wrong_bytes(more[0]), 0, "copies within a device are whole");
    for (int i = 0; i < 100; i++) {
        OK(cuMemcpyDtoD(i & 1 ? shared : mem[1], mem[0], N));
        int n = wrong_bytes(i & 1 ? shared : mem[1]);
        cr_assert(n > 0 && n <= 3, "%d wrong bytes", n);
    }
    OK(cuMemcpyHtoD(mem[0], &word, 4));
    OK(cuMemcpyDtoD(mem[1], mem[0], 4));
    cr_assert_eq(word_at(mem[1]), 5, "a word that may be waited for arrives");
}

Test(strict, without_the_variable_peer_to_peer_works)
{
    start_two("");
    OK(cuMemcpyDtoD(mem[1], mem[0], N));
    OK(cuMemcpyDtoD(shared, mem[0], N));
    cr_assert_eq(wrong_bytes(mem[1]), 0);
    cr_assert_eq(wrong_bytes(shared), 0);
}
