/* SPDX-License-Identifier: Apache-2.0 */
/* Several contexts of one device: green ones and created ones, and which objects of one may be used with the other. */
#include "test_util.h"

TestSuite(contexts, .timeout = 30);

struct green {
    CUgreenCtx green;
    CUcontext ctx;
    CUstream stream;
};

static struct green new_green(void)
{
    struct green g;
    CUdevResource all, part;
    CUdevResourceDesc desc;
    unsigned n = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &n, &all, NULL, 0, 20));
    cr_assert_eq(n, 1);
    cr_assert_eq(part.sm.smCount, 24, "in eights");
    OK(cuDevResourceGenerateDesc(&desc, &part, 1));
    OK(cuGreenCtxCreate(&g.green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&g.ctx, g.green));
    OK(cuGreenCtxStreamCreate(&g.stream, g.green, CU_STREAM_NON_BLOCKING, 0));
    return g;
}

static void end_green(const struct green *g)
{
    OK(cuStreamDestroy(g->stream));
    OK(cuGreenCtxDestroy(g->green));
}

Test(contexts, a_stream_of_a_green_context_names_both)
{
    CUcontext primary = start(0), ctx;
    struct green g = new_green();
    CUgreenCtx green;
    CUdevResource left;
    cr_assert_neq(g.ctx, primary);
    OK(cuStreamGetCtx(g.stream, &ctx));
    cr_assert_eq(ctx, g.ctx);
    OK(cuStreamGetCtx_v2(g.stream, &ctx, &green));
    cr_assert(ctx == primary && green == g.green);
    OK(cuStreamGetCtx_v2(NULL, &ctx, &green));
    cr_assert(ctx == primary && !green);
    OK(cuCtxPushCurrent(g.ctx));
    OK(cuStreamGetCtx_v2(NULL, &ctx, &green));
    cr_assert(ctx == primary && green == g.green);
    RC(cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &ctx, &green), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamGetGreenCtx(NULL, &green));
    cr_assert_eq(green, g.green);
    OK(cuCtxGetDevResource(g.ctx, &left, CU_DEV_RESOURCE_TYPE_SM));
    cr_assert_eq(left.sm.smCount, 24);
    OK(cuCtxPopCurrent(&ctx));
    end_green(&g);
}

Test(contexts, what_a_green_context_refuses)
{
    CUcontext ctx;
    CUgreenCtx green;
    CUstream s;
    start(0);
    struct green g = new_green();
    RC(cuGreenCtxCreate(&green, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuGreenCtxStreamCreate(&s, g.green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    RC(cuCtxDestroy(g.ctx), CUDA_ERROR_INVALID_CONTEXT);
    watch_reports();
    RC(cuCtxSetCurrent((CUcontext)g.green), CUDA_ERROR_INVALID_CONTEXT);
    end_green(&g);
    RC(cuCtxFromGreenCtx(&ctx, g.green), CUDA_ERROR_INVALID_CONTEXT);
}

/* Of three streams that wait for a word: which of them a call of the host's waits for. */
struct held {
    CUdeviceptr flag;
    uint32_t *word;
    CUevent e;
};

static struct held hold(CUstream s)
{
    struct held h;
    h.word = flag_word(&h.flag);
    OK(cuEventCreate(&h.e, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamWaitValue32(s, h.flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    return h;
}

Test(contexts, a_green_context_waits_for_its_own_streams_only)
{
    CUcontext old;
    CUstream plain;
    start(0);
    struct green g = new_green();
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    struct held h = hold(plain);
    OK(cuCtxPushCurrent(g.ctx));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent(&old));
    OK(cuGreenCtxRecordEvent(g.green, h.e));
    OK(cuEventSynchronize(h.e));
    OK(cuCtxRecordEvent(g.ctx, h.e));
    OK(cuEventSynchronize(h.e));
    set_flag(h.word, 1);
    OK(cuStreamSynchronize(plain));
    end_green(&g);
}

Test(contexts, the_primary_context_records_and_awaits_its_green_ones)
{
    CUcontext primary = start(0);
    struct green g = new_green();
    struct held h = hold(g.stream);
    OK(cuCtxRecordEvent(primary, h.e));
    RC(cuEventQuery(h.e), CUDA_ERROR_NOT_READY);
    set_flag(h.word, 1);
    OK(cuCtxSynchronize());
    OK(cuEventQuery(h.e));
    OK(cuStreamQuery(g.stream));
    end_green(&g);
}

Test(contexts, all_later_work_of_a_context_waits)
{
    CUcontext primary = start(0);
    CUstream plain, later;
    struct green g = new_green();
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    struct held h = hold(plain);
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 256));
    OK(cuEventRecord(h.e, plain));
    OK(cuGreenCtxWaitEvent(g.green, h.e));
    OK(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32Async(p, 1, 4, later));
    OK(cuStreamSynchronize(later)); /* of the primary context */
    OK(cuMemsetD32Async(p, 2, 4, g.stream));
    RC(cuStreamQuery(g.stream), CUDA_ERROR_NOT_READY);
    OK(cuCtxWaitEvent(primary, h.e));
    OK(cuMemsetD32Async(p, 3, 4, later));
    RC(cuStreamQuery(later), CUDA_ERROR_NOT_READY);
    set_flag(h.word, 1);
    OK(cuCtxSynchronize());
    end_green(&g);
}

Test(contexts, an_event_is_recorded_in_its_context_and_waited_for_anywhere)
{
    CUcontext primary = start(0), other, old;
    CUstream plain, foreign;
    CUevent e, f;
    struct green g = new_green();
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
    RC(cuEventRecord(e, foreign), CUDA_ERROR_INVALID_HANDLE);
    RC(cuEventRecord(f, plain), CUDA_ERROR_INVALID_HANDLE);
    RC(cuCtxRecordEvent(primary, f), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventRecord(f, foreign));
    OK(cuStreamWaitEvent(plain, f, 0));
    OK(cuStreamWaitEvent(g.stream, f, 0));
    OK(cuCtxPopCurrent(&old));
    OK(cuEventRecord(e, g.stream));
    OK(cuStreamWaitEvent(foreign, e, 0));
    OK(cuCtxDestroy(other));
    RC(cuStreamWaitEvent(plain, f, 0), CUDA_ERROR_INVALID_HANDLE);
    end_green(&g);
}

Test(contexts, a_green_context_may_have_events_of_its_own)
{
    CUevent e;
    setenv("SOFTGPU_GREEN_EVENTS", "0", 1);
    start(0);
    struct green g = new_green();
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    RC(cuEventRecord(e, g.stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxPushCurrent(g.ctx));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(e, g.stream));
}

/* Unified addressing: whatever context of the device. */
Test(contexts, memory_is_the_devices)
{
    CUcontext other, old;
    CUdeviceptr mine, foreign, green;
    uint32_t word = 7;
    start(0);
    struct green g = new_green();
    OK(cuMemAlloc(&mine, 256));
    OK(cuCtxPushCurrent(g.ctx));
    OK(cuMemAlloc(&green, 256));
    OK(cuCtxPopCurrent(&old));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAlloc(&foreign, 256));
    OK(cuMemcpyHtoD(foreign, &word, 4));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent(&old));
    OK(cuMemcpyDtoDAsync(mine, foreign, 4, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemcpyDtoDAsync(green, mine, 4, g.stream));
    OK(cuStreamSynchronize(g.stream));
    end_green(&g);
    word = 0;
    OK(cuMemcpyDtoH(&word, green, 4)); /* it is the primary context's */
    cr_assert_eq(word, 7);
}
