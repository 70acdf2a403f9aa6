/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared between processes, and stream memory operations across them. */
#include "test_util.h"
#include <signal.h>

TestSuite(ipc, .timeout = 60);

struct mail {
    volatile int step;
    CUipcMemHandle handle[2];
    int result;
};

/* Runs `owner` in a child that initialises the driver itself; returns its process id. */
static pid_t spawn(void (*child)(struct mail *), struct mail *m)
{
    pid_t pid = fork();
    if (!pid) {
        child(m);
        exit(0);
    }
    return pid;
}

static void owner(struct mail *m)
{
    CUdeviceptr p, q;
    start(0);
    OK(cuMemAlloc(&p, (size_t)5 << 30));
    OK(cuMemAlloc(&q, 4096));
    OK(cuMemsetD32(p + ((size_t)4 << 30), 42, 4));
    OK(cuMemsetD8(q, 0, 4096));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&m->handle[0], p));
    OK(cuIpcGetMemHandle(&m->handle[1], q));
    post(&m->step, 1);
    await(&m->step, 2);
    uint32_t v = 0;
    OK(cuMemcpyDtoH(&v, p, 4));
    m->result = (int)v;
    OK(cuMemFree(p)); /* the importer has closed it */
    post(&m->step, 3);
    await(&m->step, 4);
}

Test(ipc, import_refcount_and_stale_handles)
{
    struct mail *m = shared_page();
    CUdeviceptr a, b, c;
    CUcontext own, other;
    uint32_t v = 0;
    watch_reports();
    pid_t pid = spawn(owner, m);
    start(1);
    await(&m->step, 1);
    RC(cuIpcOpenMemHandle(&a, m->handle[0], 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcOpenMemHandle(&a, m->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle(&b, m->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle(&c, m->handle[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    cr_assert_eq(a, b);
    cr_assert_neq(a, c);
    OK(cuCtxGetCurrent(&own));
    OK(cuDevicePrimaryCtxRetain(&other, 2));
    OK(cuCtxSetCurrent(other));
    OK(cuIpcOpenMemHandle(&b, m->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    cr_assert_neq(a, b); /* of another context */
    OK(cuIpcCloseMemHandle(b));
    OK(cuCtxSetCurrent(own));
    OK(cuMemcpyDtoH(&v, a + ((size_t)4 << 30) + 4, 4));
    cr_assert_eq(v, 42);
    OK(cuMemsetD32(a, 1234, 1));
    OK(cuCtxSynchronize());
    OK(cuIpcCloseMemHandle(a));
    OK(cuMemcpyDtoH(&v, a, 4)); /* one reference is left */
    OK(cuIpcCloseMemHandle(a));
    expect_no_report();
    RC(cuMemcpyDtoH(&v, a, 4), CUDA_ERROR_INVALID_VALUE);
    expect_report("lies in the freed");
    RC(cuIpcCloseMemHandle(a), CUDA_ERROR_INVALID_VALUE);
    expect_report("not an open import");
    post(&m->step, 2);
    await(&m->step, 3);
    RC(cuIpcOpenMemHandle(&a, m->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
    RC(cuMemFree(c), CUDA_ERROR_INVALID_VALUE);
    expect_report("cuMemFree of imported memory");
    OK(cuIpcCloseMemHandle(c));
    post(&m->step, 4);
    join_child(pid);
    cr_assert_eq(m->result, 1234);
}

Test(ipc, own_handle_is_refused)
{
    CUdeviceptr p, q;
    CUipcMemHandle h;
    watch_reports();
    start(0);
    OK(cuMemAlloc(&p, 100));
    OK(cuIpcGetMemHandle(&h, p));
    RC(cuIpcOpenMemHandle(&q, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    expect_report("own block");
    OK(cuMemAllocAsync(&q, 100, 0));
    RC(cuIpcGetMemHandle(&h, q), CUDA_ERROR_INVALID_VALUE);
}

static void importer(struct mail *m)
{
    CUdeviceptr p;
    start(1);
    await(&m->step, 1);
    OK(cuIpcOpenMemHandle(&p, m->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    post(&m->step, 2);
    for (;;)
        pause();
}

Test(ipc, freeing_a_block_that_is_open_elsewhere_names_the_importer)
{
    struct mail *m = shared_page();
    CUdeviceptr p;
    char text[64];
    watch_reports();
    pid_t pid = spawn(importer, m);
    start(0);
    OK(cuMemAlloc(&p, 4096));
    OK(cuIpcGetMemHandle(&m->handle[0], p));
    post(&m->step, 1);
    await(&m->step, 2);
    OK(cuMemFree(p));
    snprintf(text, sizeof(text), "process %d still has it open", (int)pid);
    expect_report(text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

Test(ipc, a_dead_importer_does_not_count)
{
    struct mail *m = shared_page();
    CUdeviceptr p;
    watch_reports();
    pid_t pid = spawn(importer, m);
    start(0);
    OK(cuMemAlloc(&p, 4096));
    OK(cuIpcGetMemHandle(&m->handle[0], p));
    post(&m->step, 1);
    await(&m->step, 2);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    OK(cuMemFree(p));
    expect_no_report();
}

static void ping(struct mail *m)
{
    CUdeviceptr p, mine;
    CUstream s;
    start(1);
    OK(cuMemAlloc(&mine, 4096));
    OK(cuMemsetD32(mine, 0, 1024));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&m->handle[1], mine));
    await(&m->step, 1);
    OK(cuIpcOpenMemHandle(&p, m->handle[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    post(&m->step, 2);
    for (uint32_t i = 1; i <= 200; i++) {
        OK(cuStreamWaitValue32(s, mine, i, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuStreamWriteValue32(s, p, i, 0));
    }
    OK(cuStreamSynchronize(s));
    await(&m->step, 3);
    OK(cuIpcCloseMemHandle(p));
    post(&m->step, 4);
    await(&m->step, 5);
}

Test(ipc, streams_of_two_processes_play_ping_pong)
{
    struct mail *m = shared_page();
    CUdeviceptr p, mine;
    CUstream s;
    watch_reports();
    pid_t pid = spawn(ping, m);
    start(0);
    OK(cuMemAlloc(&mine, 4096));
    OK(cuMemsetD32(mine, 0, 1024));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    OK(cuIpcGetMemHandle(&m->handle[0], mine));
    post(&m->step, 1);
    await(&m->step, 2);
    OK(cuIpcOpenMemHandle(&p, m->handle[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    for (uint32_t i = 1; i <= 200; i++) {
        OK(cuStreamWriteValue32(s, p, i, 0));
        OK(cuStreamWaitValue32(s, mine, i, CU_STREAM_WAIT_VALUE_GEQ));
    }
    OK(cuStreamSynchronize(s));
    OK(cuIpcCloseMemHandle(p));
    post(&m->step, 3);
    await(&m->step, 4);
    OK(cuMemFree(mine));
    expect_no_report();
    post(&m->step, 5);
    join_child(pid);
}

static void event_owner(struct mail *m)
{
    CUipcEventHandle h;
    CUevent e, plain;
    CUstream s;
    CUdeviceptr flag;
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    RC(cuIpcGetEventHandle(&h, plain), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuIpcGetEventHandle(&h, e));
    memcpy(&m->handle[0], &h, sizeof(h));
    OK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(e, s));
    post(&m->step, 1);
    await(&m->step, 2);
    set_flag(w, 1);
    await(&m->step, 3);
}

Test(ipc, events_of_another_process)
{
    struct mail *m = shared_page();
    CUipcEventHandle h;
    CUevent e;
    CUstream s;
    watch_reports();
    pid_t pid = spawn(event_owner, m);
    start(1);
    await(&m->step, 1);
    memcpy(&h, &m->handle[0], sizeof(h));
    OK(cuIpcOpenEventHandle(&e, h));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitEvent(s, e, 0));
    usleep(10000);
    RC(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    RC(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    post(&m->step, 2);
    OK(cuStreamSynchronize(s));
    OK(cuEventSynchronize(e));
    OK(cuEventDestroy(e));
    post(&m->step, 3);
    join_child(pid);
    expect_no_report();
}

/* The latest record counts, and one before it that completes behind it changes nothing. */
Test(ipc, records_that_overtake)
{
    CUevent e;
    CUstream late, early;
    CUdeviceptr flag;
    watch_reports();
    start(0);
    uint32_t *w = flag_word(&flag);
    OK(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&early, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    OK(cuStreamWaitValue32(late, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(e, late));
    OK(cuEventRecord(e, early));
    OK(cuStreamSynchronize(early));
    set_flag(w, 1);
    OK(cuStreamSynchronize(late));
    OK(cuStreamWaitEvent(early, e, 0));
    for (int i = 0; i < 1000 && cuStreamQuery(early) == CUDA_ERROR_NOT_READY; i++)
        usleep(1000);
    OK(cuStreamQuery(early));
    OK(cuEventQuery(e));
    OK(cuEventDestroy(e));
    expect_no_report();
}
