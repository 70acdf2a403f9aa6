/* SPDX-License-Identifier: Apache-2.0 */
/* Stream memory operations: comparisons, widths, batches, refused addresses. */
#include "test_util.h"

TestSuite(memop, .timeout = 30);

static CUstream s;
static CUdeviceptr flag;
static uint32_t *word;

static void setup(void)
{
    watch_reports();
    start(0);
    word = flag_word(&flag);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
}

/* Whether a wait for `value` passes while the word holds `held`; `release` lets it go in the end. Where that is the same
 * it has to pass, however long a busy machine takes for it. */
static bool passes(uint32_t held, uint32_t value, unsigned flags, uint32_t release)
{
    set_flag(word, held);
    OK(cuStreamWaitValue32(s, flag, value, flags));
    bool passed = false;
    for (int ms = 0; !passed && ms < (held == release ? 5000 : 5); ms++) {
        usleep(1000);
        passed = cuStreamQuery(s) == CUDA_SUCCESS;
    }
    set_flag(word, release);
    OK(cuStreamSynchronize(s));
    return passed;
}

Test(memop, comparisons_of_32_bits, .init = setup)
{
    cr_assert(passes(5, 5, CU_STREAM_WAIT_VALUE_GEQ, 5));
    cr_assert(!passes(4, 5, CU_STREAM_WAIT_VALUE_GEQ, 5));
    cr_assert(passes(2, 0xfffffff0u, CU_STREAM_WAIT_VALUE_GEQ, 2), "the comparison is cyclic");
    cr_assert(!passes(0xfffffff0u, 2, CU_STREAM_WAIT_VALUE_GEQ, 2));
    cr_assert(passes(9, 9, CU_STREAM_WAIT_VALUE_EQ, 9));
    cr_assert(!passes(10, 9, CU_STREAM_WAIT_VALUE_EQ, 9));
    cr_assert(passes(6, 2, CU_STREAM_WAIT_VALUE_AND, 6));
    cr_assert(!passes(4, 2, CU_STREAM_WAIT_VALUE_AND, 2));
    cr_assert(passes(0xf0, 0x0f, CU_STREAM_WAIT_VALUE_NOR, 0xf0));
    cr_assert(!passes(0xffff0000u, 0x0000ffffu, CU_STREAM_WAIT_VALUE_NOR, 0));
}

Test(memop, words_of_64_bits_and_batches, .init = setup)
{
    uint64_t *wide = (uint64_t *)(word + 2);
    OK(cuStreamWaitValue64(s, flag + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_GEQ));
    __atomic_store_n(wide, 1ull << 39, __ATOMIC_RELEASE);
    usleep(5000);
    RC(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    __atomic_store_n(wide, (1ull << 40) + 1, __ATOMIC_RELEASE);
    OK(cuStreamSynchronize(s));
    CUstreamBatchMemOpParams p[3];
    memset(p, 0, sizeof(p));
    p[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    p[0].waitValue.address = flag;
    p[0].waitValue.value = 3;
    p[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH;
    p[1].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    p[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    p[2].writeValue.address = flag + 16;
    p[2].writeValue.value64 = 0x123456789abcull;
    OK(cuStreamBatchMemOp(s, 3, p, 0));
    set_flag(word, 3);
    OK(cuStreamSynchronize(s));
    cr_assert_eq(*(uint64_t *)(word + 4), 0x123456789abcull);
    p[2].writeValue.address = 8;
    RC(cuStreamBatchMemOp(s, 3, p, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamQuery(s));
    expect_report("is not memory of this process's devices");
}

Test(memop, bad_addresses_are_named, .init = setup)
{
    static uint32_t plain;
    RC(cuStreamWriteValue32(s, flag + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("is not aligned");
    RC(cuStreamWriteValue64(s, flag + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("is not aligned");
    RC(cuStreamWaitValue32(s, (CUdeviceptr)(uintptr_t)&plain, 1, 0), CUDA_ERROR_INVALID_VALUE);
    expect_report("is not memory of this process's devices");
    RC(cuStreamWaitValue32(s, flag, 1, 0x100), CUDA_ERROR_INVALID_VALUE);
    expect_no_report();
}

/* A word that a stream waits for may be written by a copy or a fill of another stream, which writes it as a unit. */
Test(memop, copies_and_fills_may_write_the_word, .init = setup)
{
    static const uint64_t values[] = {1, 2, 3};
    static const uint32_t four = 4;
    CUdeviceptr dev;
    CUstream writer;
    OK(cuMemAlloc(&dev, 8));
    OK(cuMemcpyHtoD(dev, &values[2], 8));
    OK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < 5; i++) {
        OK(cuStreamWaitValue32(s, flag, i + 1, CU_STREAM_WAIT_VALUE_GEQ));
        usleep(1000);
        if (i < 2)
            OK(cuMemcpyHtoDAsync(flag, &values[i], 8, writer));
        else if (i == 2)
            OK(cuMemcpyDtoDAsync(flag, dev, 8, writer));
        else if (i == 3)
            OK(cuMemcpyHtoDAsync(flag, &four, 4, writer));
        else
            OK(cuMemsetD32Async(flag, 5, 1, writer));
        OK(cuStreamSynchronize(s));
        OK(cuStreamSynchronize(writer));
    }
    expect_no_report();
}
