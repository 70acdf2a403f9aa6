/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that are not blocking: what a call may be followed by, and when it is over. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>

#define LATE "200000" /* us: until then nothing of a call has happened */

static ncclResult_t settle(ncclComm_t comm)
{
    return wait_async_error(comm, ncclInProgress, 10000);
}

static ncclResult_t state(ncclComm_t comm)
{
    ncclResult_t now;
    OK(ncclCommGetAsyncError(comm, &now));
    return now;
}

static ncclComm_t begin(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, r->nranks, r->id, r->rank, &config) == ncclInProgress && comm);
    return comm;
}

static ncclComm_t make(struct rank *r)
{
    ncclComm_t comm = begin(r);
    CHECK(settle(comm) == ncclSuccess);
    return comm;
}

static void gather(struct rank *r, ncclComm_t comm)
{
    CUdeviceptr mem;
    int got[MAX_RANKS + 1] = {0};
    OK(r->cu.cuMemAlloc(&mem, sizeof got));
    OK(r->cu.cuMemcpyHtoD(mem + MAX_RANKS * sizeof(int), &r->rank, sizeof(int)));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    CHECK(ncclAllGather((void *)(mem + MAX_RANKS * sizeof(int)), (void *)mem, 1, ncclInt32, comm, r->stream) ==
          ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(r->cu.cuMemcpyDtoH(got, mem, sizeof got));
    for (int i = 0; i < r->nranks; i++)
        CHECK(got[i] == i);
    OK(r->cu.cuMemFree(mem));
}

static void made(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int n;
    setenv("SOFTGPU_NCCL_LATER_US", LATE, 1);
    ncclComm_t comm = begin(r);
    CHECK(state(comm) == ncclInProgress);
    CHECK(ncclCommCount(comm, &n) == ncclInvalidArgument && ncclCommDestroy(comm) == ncclInvalidArgument);
    CHECK(ncclAllGather(NULL, NULL, 0, ncclInt8, comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
    CHECK(settle(comm) == ncclSuccess);
    setenv("SOFTGPU_NCCL_LATER_US", "0", 1);
    OK(ncclCommCount(comm, &n));
    CHECK(n == r->nranks);
    gather(r, comm);
    OK(ncclCommDestroy(comm));
    config.magic = 1;
    CHECK(ncclCommInitRankConfig(&comm, r->nranks, r->id, r->rank, &config) == ncclInvalidArgument);
}

Test(later, init)
{
    cr_expect_eq(run_ranks(2, 0, made), 0);
}

/* The stream has the work when the state says so. */
static void called(struct rank *r)
{
    ncclComm_t comm = make(r);
    CUdeviceptr mem = device_bytes(r, 64, 1);
    gather(r, comm);
    setenv("SOFTGPU_NCCL_LATER_US", LATE, 1);
    CHECK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, comm, r->stream) == ncclInProgress);
    OK(r->cu.cuStreamQuery(r->stream));
    CHECK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, comm, r->stream) == ncclInvalidArgument);
    CHECK(settle(comm) == ncclSuccess);
    OK(ncclGroupStart());
    OK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, comm, r->stream));
    CHECK(ncclGroupEnd() == ncclInProgress);
    CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
    CHECK(settle(comm) == ncclSuccess);
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
    CHECK(settle(comm) == ncclSuccess);
    OK(r->cu.cuStreamQuery(r->stream));
    OK(ncclCommDestroy(comm));
}

Test(later, calls_and_finalize)
{
    cr_expect_eq(run_ranks(2, 0, called), 0);
}

/* It is the parent that tells, and the new handle is not there before. */
static void split(struct rank *r)
{
    ncclConfig_t blocks = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = make(r), child = comm, other = comm;
    setenv("SOFTGPU_NCCL_LATER_US", LATE, 1);
    OK(ncclCommSplit(comm, 0, r->rank, &child, NULL));
    CHECK(!__atomic_load_n(&child, __ATOMIC_ACQUIRE) && state(comm) == ncclInProgress);
    CHECK(ncclCommSplit(comm, 0, r->rank, &other, NULL) == ncclInvalidArgument);
    CHECK(settle(comm) == ncclSuccess && child && state(child) == ncclSuccess);
    setenv("SOFTGPU_NCCL_LATER_US", "0", 1);
    gather(r, child);
    OK(ncclGroupStart());
    OK(ncclCommSplit(comm, 0, r->rank, &other, &blocks)); /* its own, which blocks where nothing is said */
    CHECK(ncclGroupEnd() == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess && other);
    CUdeviceptr mem = device_bytes(r, 64, 1);
    OK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, other, r->stream));
    OK(ncclCommDestroy(other));
    OK(ncclCommDestroy(child));
    OK(ncclCommDestroy(comm));
}

Test(later, split)
{
    cr_expect_eq(run_ranks(2, 0, split), 0);
}

/* The others never come. */
static void aborted(struct rank *r)
{
    ncclComm_t comm = begin(r);
    ncclResult_t now;
    usleep(20000);
    CHECK(state(comm) == ncclInProgress);
    OK(ncclCommAbort(comm));
    CHECK(ncclCommGetAsyncError(comm, &now) == ncclInvalidArgument);
}

static void only_one_comes(struct rank *r)
{
    if (r->rank == 0)
        aborted(r);
}

static void split_is_aborted(struct rank *r)
{
    _Atomic int *over = (_Atomic int *)(void *)r->shared;
    ncclComm_t comm = make(r), child = NULL;
    while (r->rank && !atomic_load(over))
        usleep(1000);
    if (r->rank == 0) {
        OK(ncclCommSplit(comm, 0, 0, &child, NULL));
        usleep(20000);
        CHECK(state(comm) == ncclInProgress);
    }
    OK(ncclCommAbort(comm));
    CHECK(!child);
    atomic_store(over, 1);
}

Test(later, abort)
{
    cr_expect_eq(run_ranks(2, 0, only_one_comes), 0);
    cr_expect_eq(run_ranks(2, 0, split_is_aborted), 0);
}

static void mixed(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t later;
    CUdeviceptr mem = device_bytes(r, 64, 1);
    config.blocking = 0;
    OK(ncclCommSplit(r->comm, 0, r->rank, &later, &config)); /* it is the parent that blocks */
    OK(ncclGroupStart());
    OK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, later, r->stream));
    CHECK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    OK(ncclCommDestroy(later));
}

Test(later, never_with_blocking_ones)
{
    cr_expect_eq(run_ranks(2, 1, mixed), 0);
}

/* A group whose ranks are one thread's: with blocking communicators it would need the group. */
static void one_thread(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm[2];
    config.blocking = 0;
    for (int i = 0; i < 2; i++) {
        cu_use(&r->cu, i);
        CHECK(ncclCommInitRankConfig(&comm[i], 2, r->id, i, &config) == ncclInProgress);
    }
    for (int i = 0; i < 2; i++)
        CHECK(settle(comm[i]) == ncclSuccess);
    for (int i = 0; i < 2; i++)
        OK(ncclCommDestroy(comm[i]));
}

Test(later, ranks_of_one_thread)
{
    cr_expect_eq(run_ranks(1, 0, one_thread), 0);
}

static void *ask(void *arg)
{
    (void)settle(arg);
    return NULL;
}

/* Two threads that ask one communicator when its operation has ended: while the first one joins it. */
static void two_ask(struct rank *r)
{
    ncclComm_t comm = make(r);
    CUdeviceptr mem = device_bytes(r, 64, 1);
    pthread_t other;
    setenv("SOFTGPU_NCCL_JOIN_US", LATE, 1);
    CHECK(ncclAllReduce((void *)mem, (void *)mem, 8, ncclUint8, ncclMax, comm, r->stream) == ncclInProgress);
    OK(pthread_create(&other, NULL, ask, comm));
    CHECK(settle(comm) == ncclSuccess);
    OK(pthread_join(other, NULL));
    CHECK(strstr(ncclGetLastError(NULL), "two threads at once ask"));
    OK(ncclCommDestroy(comm));
}

Test(later, asked_by_two_threads)
{
    cr_expect_eq(run_ranks(2, 0, two_ask), 0);
}
