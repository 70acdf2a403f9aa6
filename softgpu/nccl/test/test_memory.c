/* SPDX-License-Identifier: Apache-2.0 */
/* ncclMemAlloc's memory in operations, registration, and windows. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define BYTES ((size_t)5 << 20) /* not a multiple of the granularity */

static int legacy_capable(struct rank *r, const void *p)
{
    unsigned yes = 9;
    OK(r->cu.cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, (CUdeviceptr)p));
    return (int)yes;
}

static size_t used(struct rank *r)
{
    size_t free_bytes, total;
    OK(r->cu.cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

static void *filled(struct rank *r, size_t bytes, unsigned seed)
{
    unsigned char *host = malloc(bytes);
    void *mem;
    fill_bytes(host, bytes, seed);
    OK(ncclMemAlloc(&mem, bytes));
    OK(r->cu.cuMemcpyHtoD((CUdeviceptr)mem, host, bytes));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    free(host);
    return mem;
}

/* It can be exported, and every device may write it. */
static void check_kind(struct rank *r, const void *p)
{
    unsigned long long types = 0;
    CHECK(!legacy_capable(r, p));
    OK(r->cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, (CUdeviceptr)p));
    CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    cu_use(&r->cu, 3 - r->rank);
    OK(r->cu.cuMemcpyHtoD((CUdeviceptr)p, "", 1));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    cu_use(&r->cu, r->rank);
}

static void move(struct rank *r)
{
    size_t before = used(r);
    float got, want = (float)(r->nranks * (r->nranks + 1) / 2), mine = (float)(r->rank + 1);
    char *all;
    char *shard = filled(r, BYTES, (unsigned)r->rank);
    CHECK(used(r) - before == (size_t)6 << 20);
    OK(ncclMemAlloc((void **)&all, BYTES * (size_t)r->nranks));
    check_kind(r, all);
    OK(ncclAllGather(shard, all, BYTES, ncclUint8, r->comm, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    for (int i = 0; i < r->nranks; i++)
        CHECK(same_bytes(r, (CUdeviceptr)all + BYTES * (size_t)i, BYTES, (unsigned)i));
    int next = (r->rank + 1) % r->nranks, last = (r->rank + r->nranks - 1) % r->nranks;
    OK(ncclGroupStart());
    OK(ncclSend(shard, BYTES, ncclUint8, next, r->comm, r->stream));
    OK(ncclRecv(all, BYTES, ncclUint8, last, r->comm, r->stream));
    OK(ncclGroupEnd());
    OK(r->cu.cuStreamSynchronize(r->stream));
    CHECK(same_bytes(r, (CUdeviceptr)all, BYTES, (unsigned)last));
    OK(r->cu.cuMemcpyHtoD((CUdeviceptr)shard, &mine, sizeof mine));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(ncclAllReduce(shard, all, 1, ncclFloat32, ncclSum, r->comm, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(r->cu.cuMemcpyDtoH(&got, (CUdeviceptr)all, sizeof got));
    CHECK(got == want);
    OK(ncclMemFree(all));
    OK(ncclMemFree(shard));
    CHECK(used(r) == before);
    CHECK(ncclMemFree(shard) == ncclUnhandledCudaError);
    OK(ncclMemFree(NULL));
}

Test(memory, buffers_of_the_virtual_memory_management)
{
    cr_expect_eq(run_ranks(2, 1, move), 0);
}

static void plain(struct rank *r)
{
    void *p;
    OK(ncclMemAlloc(&p, BYTES));
    CHECK(legacy_capable(r, p));
    OK(ncclMemFree(p));
    CHECK(ncclMemAlloc(&p, 0) == ncclInvalidArgument);
    CHECK(ncclMemAlloc(NULL, 1) == ncclInvalidArgument);
}

Test(memory, the_switch_for_plain_memory)
{
    setenv("SOFTGPU_NCCL_MEM", "legacy", 1);
    cr_expect_eq(run_ranks(1, 0, plain), 0);
    unsetenv("SOFTGPU_NCCL_MEM");
    setenv("NCCL_CUMEM_ENABLE", "0", 1);
    cr_expect_eq(run_ranks(1, 0, plain), 0);
}

/* No memory is left behind by a call that fails on the way. */
static void fails(struct rank *r)
{
    void *p;
    CHECK(ncclMemAlloc(&p, BYTES) == ncclUnhandledCudaError);
    CHECK(ncclMemAlloc(&p, BYTES) == ncclUnhandledCudaError);
    CHECK(ncclMemAlloc(&p, BYTES) == ncclUnhandledCudaError);
    CHECK(ncclMemAlloc(&p, BYTES) == ncclUnhandledCudaError);
    CHECK(used(r) == 0);
}

Test(memory, a_failed_allocation_leaves_nothing)
{
    setenv("SOFTGPU_FAIL", "cuMemCreate:1,cuMemAddressReserve:1,cuMemMap:1,cuMemSetAccess:1", 1);
    cr_expect_eq(run_ranks(1, 0, fails), 0);
}

/* Rank 0 comes late; nobody returns before it has come. */
static void meet(struct rank *r)
{
    void *mem = filled(r, BYTES, 1);
    ncclWindow_t win[3] = {NULL};
    if (r->rank == 0) {
        usleep(100000);
        r->shared[0] = 1;
    }
    OK(ncclCommWindowRegister(r->comm, mem, BYTES, &win[0], NCCL_WIN_COLL_SYMMETRIC));
    CHECK(r->shared[0] == 1 && win[0]);
    OK(ncclGroupStart()); /* in a group nothing waits before its end */
    OK(ncclCommWindowRegister(r->comm, mem, BYTES, &win[1], 0));
    OK(ncclCommWindowRegister(r->comm, mem, 4096, &win[2], 0));
    CHECK(!win[1] && !win[2]);
    if (r->rank == 0) {
        usleep(100000);
        r->shared[1] = 1;
    }
    OK(ncclGroupEnd());
    CHECK(r->shared[1] == 1 && win[1] && win[2] && win[1] != win[2]);
    for (int i = 0; i < 3; i++)
        OK(ncclCommWindowDeregister(r->comm, win[i]));
    OK(ncclMemFree(mem));
}

Test(memory, window_registration_meets)
{
    cr_expect_eq(run_ranks(3, 1, meet), 0);
}

static void peer_dies(struct rank *r)
{
    void *mem = filled(r, BYTES, 1);
    ncclWindow_t win = NULL;
    if (r->rank == 1)
        raise(SIGKILL);
    CHECK(ncclCommWindowRegister(r->comm, mem, BYTES, &win, 0) == ncclRemoteError);
    CHECK(!win);
    OK(ncclCommAbort(r->comm));
    exit(0);
}

Test(memory, window_registration_hears_of_a_dead_peer)
{
    pid_t pids[2];
    start_ranks(pids, 2, 1, peer_dies);
    cr_expect_eq(wait_ranks(pids, 1), 0);
    waitpid(pids[1], NULL, 0);
}

static char report[64];

static int reported(const char *text)
{
    char all[4096] = "";
    FILE *f = fopen(report, "r");
    size_t n = f ? fread(all, 1, sizeof all - 1, f) : 0;
    if (f)
        fclose(f);
    unlink(report);
    all[n] = 0;
    return text ? strstr(all, text) != NULL : n != 0;
}

static void misuse(struct rank *r)
{
    char *mem = filled(r, BYTES, 1);
    ncclWindow_t win;
    void *handle;
    CHECK(ncclCommWindowRegister(NULL, mem, BYTES, &win, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, mem, 0, &win, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, NULL, BYTES, &win, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, mem + 16, 16, &win, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(r->comm, mem, BYTES, &win, 64) == ncclInvalidArgument);
    OK(ncclCommRegister(r->comm, mem, BYTES, &handle));
    OK(pncclCommWindowRegister(r->comm, mem, BYTES, &win, 0));
    OK(ncclCommDeregister(r->comm, handle));
    CHECK(!reported(NULL));
    CHECK(ncclCommDeregister(r->comm, handle) == ncclInvalidArgument);
    CHECK(reported("was deregistered before"));
    CHECK(ncclCommDeregister(r->comm, win) == ncclInvalidArgument);
    CHECK(reported("or belongs to another communicator or call"));
    CHECK(ncclCommWindowDeregister(r->comm, (ncclWindow_t)mem) == ncclInvalidArgument);
    CHECK(reported("was never given out"));
    OK(ncclMemFree(mem));
    CHECK(reported("which is still registered in a window"));
    OK(pncclCommWindowDeregister(r->comm, win));
    CHECK(ncclCommWindowDeregister(r->comm, win) == ncclInvalidArgument);
    CHECK(reported("was deregistered before"));
    mem = filled(r, BYTES, 1);
    OK(ncclCommWindowRegister(r->comm, mem, BYTES, &win, 0));
    OK(ncclCommDestroy(r->comm)); /* a warning */
    CHECK(strstr(ncclGetLastError(NULL), "1 windows"));
    OK(ncclMemFree(mem));
    CHECK(!reported(NULL));
    exit(0);
}

Test(memory, wrong_use_is_named)
{
    snprintf(report, sizeof report, "/tmp/softgpu-nccl-%d", (int)getpid());
    setenv("SOFTGPU_REPORT", report, 1);
    cr_expect_eq(run_ranks(1, 1, misuse), 0);
}
