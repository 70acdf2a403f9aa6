/* SPDX-License-Identifier: Apache-2.0 */
/* Making, splitting and ending communicators; groups; argument checks. */
#include "ranks.h"

#include "../nccl_api.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

static void gather_ints(struct rank *r, ncclComm_t comm, int n, const int *want)
{
    CUdeviceptr mem;
    int got[MAX_RANKS];
    OK(r->cu.cuMemAlloc(&mem, sizeof got + sizeof(int)));
    OK(r->cu.cuMemcpyHtoD(mem + sizeof got, &r->rank, sizeof(int)));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(ncclAllGather((void *)(mem + sizeof got), (void *)mem, 1, ncclInt32, comm, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(r->cu.cuMemcpyDtoH(got, mem, (size_t)n * sizeof(int)));
    CHECK(!memcmp(got, want, (size_t)n * sizeof(int)));
    OK(r->cu.cuMemFree(mem));
}

static void late_last_rank(struct rank *r)
{
    _Atomic int *entered = (_Atomic int *)(void *)r->shared;
    if (r->rank == r->nranks - 1)
        usleep(200000);
    atomic_fetch_add(entered, 1);
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    CHECK(atomic_load(entered) == r->nranks);
    int n = -1, me = -1, dev = -1;
    OK(ncclCommCount(r->comm, &n));
    OK(ncclCommUserRank(r->comm, &me));
    OK(ncclCommCuDevice(r->comm, &dev));
    CHECK(n == r->nranks && me == r->rank && dev == r->rank);
    OK(ncclCommDestroy(r->comm));
}

Test(comm, no_rank_returns_before_all_entered)
{
    for (int n = 1; n <= 4; n++)
        cr_expect_eq(run_ranks(n, 0, late_last_rank), 0, "%d ranks", n);
}

static void splits(struct rank *r)
{
    static const int reversed[] = {3, 2, 1, 0}, even[] = {0, 2}, odd[] = {1, 3};
    ncclComm_t sub = NULL;
    for (int i = 0; i < 5; i++) {
        OK(ncclCommSplit(r->comm, 7, -r->rank, &sub, NULL));
        gather_ints(r, sub, 4, reversed);
        OK(ncclCommDestroy(sub));
        OK(ncclCommSplit(r->comm, r->rank & 1, 0, &sub, NULL));
        gather_ints(r, sub, 2, r->rank & 1 ? odd : even);
        OK(ncclCommDestroy(sub));
        OK(ncclCommSplit(r->comm, r->rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, r->rank, &sub, NULL));
        CHECK((sub == NULL) == (r->rank == 1));
        OK(ncclCommDestroy(sub));
    }
    CHECK(ncclCommSplit(r->comm, -5, 0, &sub, NULL) == ncclInvalidArgument);
}

Test(comm, split)
{
    cr_expect_eq(run_ranks(4, 1, splits), 0);
}

static void shrinks(struct rank *r)
{
    static const int rest[] = {0, 2};
    int excluded = 1;
    ncclComm_t sub;
    if (r->rank == 1)
        return;
    OK(ncclCommShrink(r->comm, &excluded, 1, &sub, NULL, NCCL_SHRINK_ABORT));
    gather_ints(r, sub, 2, rest);
    OK(ncclCommDestroy(sub));
}

Test(comm, shrink)
{
    cr_expect_eq(run_ranks(3, 1, shrinks), 0);
}

/* The first `before` ranks have a communicator, and the others join it; rank `by` makes the id. */
static void grow_by(struct rank *r, int before, int by, int nonblocking)
{
    static const int all[] = {0, 1, 2, 3};
    struct {
        _Atomic int there;
        ncclUniqueId id;
    } *told = (void *)r->shared;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t old = NULL, grown = NULL;
    const int joins = r->rank >= before;
    int n = 0;
    ncclUniqueId id, none;
    config.blocking = !nonblocking;
    if (!joins)
        OK(ncclCommInitRank(&old, before, r->id, r->rank));
    if (r->rank == by) {
        usleep(50000);
        OK(ncclCommGetUniqueId(old, &id));
        CHECK(ncclCommGetUniqueId(old, &none) == ncclInvalidUsage);
        told->id = id;
        atomic_store(&told->there, 1);
    }
    while (joins && !atomic_load(&told->there))
        usleep(1000);
    id = told->id;
    OK(ncclCommGrow(old, r->nranks, joins ? &id : NULL, joins ? r->rank : -1, &grown, &config));
    CHECK(grown != NULL);
    CHECK(wait_async_error(grown, ncclInProgress, 10000) == ncclSuccess);
    OK(ncclCommCount(grown, &n));
    CHECK(n == r->nranks);
    if (!nonblocking)
        gather_ints(r, grown, r->nranks, all);
    if (!joins && before > 1)
        gather_ints(r, old, before, all);
    OK(ncclCommDestroy(grown));
    OK(ncclCommDestroy(old));
}

static void grows(struct rank *r)
{
    ncclComm_t none = NULL;
    CHECK(ncclCommGrow(NULL, 4, NULL, 1, &none, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGrow(NULL, 4, &r->id, 4, &none, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGrow(NULL, 4, &r->id, -1, &none, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGetUniqueId(NULL, &r->id) == ncclInvalidArgument);
    grow_by(r, 3, 1, 0);
}

static void grows_from_one(struct rank *r)
{
    grow_by(r, 1, 0, 0);
}

static void grows_later(struct rank *r)
{
    grow_by(r, 2, 0, 1);
}

static void grows_wrongly(struct rank *r)
{
    ncclComm_t none = NULL;
    CHECK(ncclCommGrow(r->comm, r->nranks + 1, NULL, r->rank, &none, NULL) == ncclInvalidArgument);
    CHECK(ncclCommGrow(r->comm, r->nranks, NULL, -1, &none, NULL) == ncclInvalidArgument);
    CHECK(none == NULL);
}

Test(comm, grow)
{
    cr_expect_eq(run_ranks(4, 0, grows), 0);
    cr_expect_eq(run_ranks(4, 0, grows_from_one), 0);
    cr_expect_eq(run_ranks(4, 0, grows_later), 0);
    cr_expect_eq(run_ranks(2, 1, grows_wrongly), 0);
}

static void same_gpu(struct rank *r)
{
    cu_use(&r->cu, 0);
    r->comm = (ncclComm_t)1;
    CHECK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == ncclInvalidUsage);
    CHECK(r->comm == NULL && strstr(ncclGetLastError(NULL), "Duplicate GPU detected"));
}

static void same_gpu_other_host(struct rank *r)
{
    char id[8];
    snprintf(id, sizeof id, "h%d", r->rank);
    setenv("NCCL_HOSTID", id, 1);
    cu_use(&r->cu, 0);
    OK(r->cu.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    gather_ints(r, r->comm, 2, (int[]){0, 1});
    OK(ncclCommDestroy(r->comm));
}

static void same_gpu_allowed(struct rank *r)
{
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    cu_use(&r->cu, 0);
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    OK(ncclCommDestroy(r->comm));
}

Test(comm, duplicate_gpu)
{
    cr_expect_eq(run_ranks(2, 0, same_gpu), 0);
    cr_expect_eq(run_ranks(2, 0, same_gpu_other_host), 0);
    cr_expect_eq(run_ranks(2, 0, same_gpu_allowed), 0);
}

static void wrong_count(struct rank *r)
{
    ncclResult_t rc = ncclCommInitRank(&r->comm, r->nranks + (r->rank == 1), r->id, r->rank);
    CHECK(rc == ncclInvalidArgument || rc == ncclRemoteError);
}

static void same_rank(struct rank *r)
{
    ncclResult_t rc = ncclCommInitRank(&r->comm, 2, r->id, 0);
    CHECK(rc == ncclInvalidUsage || rc == ncclRemoteError);
}

Test(comm, ranks_that_disagree)
{
    cr_expect_eq(run_ranks(2, 0, wrong_count), 0);
    cr_expect_eq(run_ranks(2, 0, same_rank), 0);
}

/* One thread, four ranks, four devices: everything must go through groups. */
static void init_all(struct rank *r)
{
    ncclComm_t comms[4], subs[4];
    CUdeviceptr mem[4];
    CUstream streams[4];
    OK(ncclCommInitAll(comms, 4, NULL));
    for (int i = 0; i < 4; i++) {
        cu_use(&r->cu, i);
        OK(r->cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(r->cu.cuMemAlloc(&mem[i], 4 * sizeof(int)));
        OK(r->cu.cuMemcpyHtoD(mem[i] + (size_t)i * sizeof(int), &i, sizeof i));
        OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    }
    cu_use(&r->cu, 0);
    OK(ncclGroupStart());
    for (int i = 0; i < 4; i++)
        OK(ncclAllGather((char *)mem[i] + (size_t)i * sizeof(int), (void *)mem[i], 1, ncclInt32, comms[i], streams[i]));
    OK(ncclGroupEnd());
    for (int i = 0; i < 4; i++) {
        int got[4];
        OK(r->cu.cuStreamSynchronize(streams[i]));
        OK(r->cu.cuMemcpyDtoH(got, mem[i], sizeof got));
        for (int p = 0; p < 4; p++)
            CHECK(got[p] == p);
    }
    OK(ncclGroupStart());
    for (int i = 0; i < 4; i++)
        OK(ncclCommSplit(comms[i], i / 2, i, &subs[i], NULL));
    OK(ncclGroupEnd());
    for (int i = 0; i < 4; i++) {
        int n = 0;
        OK(ncclCommCount(subs[i], &n));
        CHECK(n == 2);
        OK(ncclCommDestroy(subs[i]));
        OK(ncclCommDestroy(comms[i]));
    }
    CHECK(ncclCommInitAll(comms, 2, (int[]){1, 1}) == ncclInvalidUsage);
    CHECK(ncclCommInitAll(comms, 2, (int[]){1, 77}) == ncclInvalidArgument);
}

Test(comm, init_all)
{
    cr_expect_eq(run_ranks(1, 0, init_all), 0);
}

/* Two processes with two ranks each, every rank a thread. */
struct member {
    struct rank r;
    pthread_t thread;
};

static void *be_member(void *arg)
{
    struct rank *r = &((struct member *)arg)->r;
    cu_use(&r->cu, r->rank);
    OK(r->cu.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    OK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank));
    for (int i = 0; i < 20; i++)
        gather_ints(r, r->comm, 4, (int[]){0, 1, 2, 3});
    OK(ncclCommDestroy(r->comm));
    return NULL;
}

static void two_members(struct rank *r)
{
    struct member m[2] = {{.r = *r}, {.r = *r}};
    for (int i = 0; i < 2; i++) {
        m[i].r.rank = 2 * r->rank + i;
        m[i].r.nranks = 4;
        OK(pthread_create(&m[i].thread, NULL, be_member, &m[i]));
    }
    for (int i = 0; i < 2; i++)
        OK(pthread_join(m[i].thread, NULL));
}

Test(comm, threads_and_processes_mixed)
{
    cr_expect_eq(run_ranks(2, 0, two_members), 0);
}

/* Two streams in one group wait for each other; nothing runs before the outermost end. */
static void two_streams(struct rank *r)
{
    CUstream other;
    CUdeviceptr gate, a = device_bytes(r, 8, 1), b = device_bytes(r, 8, 2);
    uint32_t zero = 0, one = 1;
    OK(r->cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(r->cu.cuMemAlloc(&gate, sizeof zero));
    OK(r->cu.cuMemcpyHtoD(gate, &zero, sizeof zero));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(r->cu.cuStreamWaitValue32(other, gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    OK(ncclAllReduce((void *)a, (void *)a, 8, ncclUint8, ncclSum, r->comm, r->stream));
    OK(ncclGroupEnd());
    OK(r->cu.cuStreamQuery(r->stream)); /* still empty */
    OK(ncclAllReduce((void *)b, (void *)b, 8, ncclUint8, ncclSum, r->comm, other));
    OK(ncclGroupEnd());
    usleep(30000);
    CHECK(r->cu.cuStreamQuery(r->stream) == CUDA_ERROR_NOT_READY); /* held back by the other stream */
    OK(r->cu.cuMemcpyHtoD(gate, &one, sizeof one));
    OK(r->cu.cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(r->cu.cuStreamSynchronize(other));
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

Test(comm, groups)
{
    cr_expect_eq(run_ranks(2, 1, two_streams), 0);
}

/* The same communicator on two streams without a group: operations match in the order of the calls. */
static void streams_in_call_order(struct rank *r)
{
    CUstream other;
    CUdeviceptr a = device_bytes(r, 1 << 20, 1), b = device_bytes(r, 2 << 20, 2);
    OK(r->cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 20; i++) {
        OK(ncclAllReduce((void *)a, (void *)a, 1 << 20, ncclUint8, ncclMax, r->comm, r->stream));
        OK(ncclAllReduce((void *)b, (void *)b, 2 << 20, ncclUint8, ncclMax, r->comm, other));
    }
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(r->cu.cuStreamSynchronize(other));
    ncclResult_t async;
    OK(ncclCommGetAsyncError(r->comm, &async));
    CHECK(async == ncclSuccess);
    CHECK(same_bytes(r, a, 1 << 20, 1) && same_bytes(r, b, 2 << 20, 2));
}

Test(comm, two_streams_without_group)
{
    cr_expect_eq(run_ranks(3, 1, streams_in_call_order), 0);
}

static void arguments(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 64, 1);
    void *p = (void *)mem;
    int version = 0;
    ncclComm_t old = NULL;
    const ncclCollConfig_t none = {0};
    OK(ncclGetVersion(&version));
    CHECK(version == NCCL_VERSION_CODE);
    OK(pncclGetVersion(&version));
    CHECK(ncclAllGather(p, p, 1, ncclInt8, NULL, r->stream) == ncclInvalidArgument);
    CHECK(ncclAllGather(NULL, p, 1, ncclInt8, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclAllGather(p, NULL, 1, ncclInt8, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclAllGather(NULL, NULL, 0, ncclInt8, r->comm, r->stream) == ncclSuccess);
    CHECK(ncclAllGather(p, p, 1, ncclNumTypes, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclAllReduce(p, p, 1, ncclInt8, ncclNumOps, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclBroadcast(p, p, 1, ncclInt8, r->nranks, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclSend(p, 1, ncclInt8, -1, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclAllGatherConfig(p, p, 1, ncclInt8, r->comm, r->stream, &none) == ncclInvalidArgument);
    OK(ncclGroupStart());
    CHECK(ncclAllGather(p, p, 1, ncclNumTypes, r->comm, r->stream) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(ncclCommInitRank(&old, 2, r->id, 2) == ncclInvalidArgument);
    CHECK(ncclCommInitRank(NULL, 2, r->id, 0) == ncclInvalidArgument);
    OK(ncclCommSplit(r->comm, 0, 0, &old, NULL));
    OK(ncclCommDestroy(old));
    CHECK(ncclAllGather(p, p, 1, ncclInt8, old, r->stream) == ncclInvalidArgument);
    CHECK(ncclCommDestroy(old) == ncclInvalidArgument);
    CHECK(ncclCommDestroy(NULL) == ncclSuccess);
}

Test(comm, arguments)
{
    cr_expect_eq(run_ranks(2, 1, arguments), 0);
}

static int open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void make_and_destroy(struct rank *r)
{
    static const int all[] = {0, 1};
    ncclComm_t sub;
    int before = 0;
    for (int i = 0; i < 10; i++) {
        OK(ncclCommSplit(r->comm, 0, r->rank, &sub, NULL));
        gather_ints(r, sub, 2, all);
        OK(ncclCommDestroy(sub));
        if (i == 1)
            before = open_fds();
    }
    CHECK(open_fds() <= before + 1); /* the last offer may not have been swept yet */
}

Test(comm, descriptors_do_not_pile_up)
{
    cr_expect_eq(run_ranks(2, 1, make_and_destroy), 0);
}
