/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that die, disagree or give up: an error, never a hang. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define SOON_MS 5000

static void gather(struct rank *r, CUdeviceptr mem, size_t bytes)
{
    OK(ncclAllGather((char *)mem + bytes * (size_t)r->rank, (void *)mem, bytes, ncclUint8, r->comm, r->stream));
}

static int all_have_gathered(struct rank *r)
{
    const volatile char *done = r->shared;
    return done[0] && done[1] && done[2];
}

/* Rank 1 dies instead of taking part; nobody reaps it before the others have noticed, so it is a zombie. */
static void one_dies(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 3 << 20, 1);
    gather(r, mem, 1 << 20);
    OK(r->cu.cuStreamSynchronize(r->stream));
    *(volatile char *)&r->shared[r->rank] = 1;
    for (int i = 0; i < SOON_MS && r->rank == 1 && !all_have_gathered(r); i++)
        usleep(1000); /* the first gather is not what fails */
    if (r->rank == 1)
        raise(SIGKILL);
    gather(r, mem, 1 << 20);
    CHECK(wait_async_error(r->comm, ncclSuccess, SOON_MS) == ncclRemoteError);
    OK(r->cu.cuStreamSynchronize(r->stream));
    CHECK(ncclAllGather((void *)mem, (void *)mem, 1, ncclUint8, r->comm, r->stream) == ncclRemoteError);
    OK(ncclCommAbort(r->comm));
    exit(0);
}

Test(fault, peer_dies_before_a_collective)
{
    pid_t pids[3];
    setenv("SOFTGPU_NCCL_BLIND", "0", 1);
    start_ranks(pids, 3, 1, one_dies);
    pid_t rest[2] = {pids[0], pids[2]};
    cr_expect_eq(wait_ranks(rest, 2), 0);
    waitpid(pids[1], NULL, 0);
}

/* Rank 1 waits for rank 2, which never comes, and is killed; rank 0 must hear of it. */
static void dies_while_joining(struct rank *r)
{
    if (r->rank == 2)
        _exit(0);
    r->shared[r->rank] = 1;
    CHECK(ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank) == ncclRemoteError);
    CHECK(r->comm == NULL);
}

Test(fault, peer_dies_while_the_communicator_is_made)
{
    pid_t pids[3];
    start_ranks(pids, 3, 0, dies_while_joining);
    usleep(500000);
    kill(pids[1], SIGKILL);
    cr_expect_eq(wait_ranks(&pids[0], 1), 0);
    waitpid(pids[1], NULL, 0);
    waitpid(pids[2], NULL, 0);
}

struct aborter {
    ncclComm_t comm;
    pthread_t thread;
};

static void *abort_later(void *arg)
{
    usleep(200000);
    OK(ncclCommAbort(((struct aborter *)arg)->comm));
    return NULL;
}

static void abort_from_thread(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 2 << 20, 1);
    gather(r, mem, 1 << 20); /* connects */
    OK(r->cu.cuStreamSynchronize(r->stream));
    if (r->rank == 1) { /* never takes part */
        sleep(1);
        OK(ncclCommAbort(r->comm));
        _exit(0);
    }
    struct aborter a = {.comm = r->comm};
    gather(r, mem, 1 << 20);
    gather(r, mem, 1 << 20);
    CHECK(r->cu.cuStreamQuery(r->stream) == CUDA_ERROR_NOT_READY);
    OK(pthread_create(&a.thread, NULL, abort_later, &a));
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(pthread_join(a.thread, NULL));
    CHECK(ncclCommAbort(r->comm) == ncclInvalidArgument);
    OK(r->cu.cuMemFree(mem));
    exit(0);
}

Test(fault, abort_ends_running_kernels)
{
    cr_expect_eq(run_ranks(2, 1, abort_from_thread), 0);
}

/* In the first collective rank 0 waits for rank 1 inside of the call. */
static void meets(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 8192, 1);
    volatile char *come = &r->shared[1];
    if (r->rank == 1) {
        usleep(200000);
        *come = 1;
    }
    gather(r, mem, 4096);
    CHECK(*come);
    OK(ncclAllReduce((void *)mem, (void *)mem, 1, ncclFloat, ncclSum, r->comm, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
}

Test(fault, the_first_collective_meets_its_peers_on_the_host)
{
    setenv("SOFTGPU_NCCL_CONNECT", "1", 1);
    cr_expect_eq(run_ranks(2, 1, meets), 0);
}

/* Rank 1 does not come before the call of rank 0 has returned. */
static void meets_nobody(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 8192, 1);
    volatile char *called = &r->shared[1];
    while (r->rank == 1 && !*called)
        usleep(1000);
    gather(r, mem, 4096);
    *called = 1;
    OK(r->cu.cuStreamSynchronize(r->stream));
}

Test(fault, a_communicator_connects_when_it_is_made_if_told_to)
{
    setenv("SOFTGPU_NCCL_CONNECT", "1", 1);
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    cr_expect_eq(run_ranks(2, 1, meets_nobody), 0);
}

static void *revoke_later(void *arg)
{
    usleep(200000);
    OK(ncclCommRevoke(((struct aborter *)arg)->comm, NCCL_REVOKE_DEFAULT));
    return NULL;
}

/* Rank 1 does not come: the call stays until another thread ends it. */
static void alone_in_a_call(struct rank *r, void *(*end)(void *aborter), int aborted)
{
    CUdeviceptr mem = device_bytes(r, 8192, 1);
    if (r->rank == 1)
        raise(SIGKILL);
    struct aborter a = {.comm = r->comm};
    OK(pthread_create(&a.thread, NULL, end, &a));
    CHECK(ncclAllGather((void *)mem, (void *)mem, 1, ncclUint8, r->comm, r->stream) != ncclSuccess);
    OK(pthread_join(a.thread, NULL));
    OK(r->cu.cuStreamSynchronize(r->stream));
    if (!aborted)
        OK(ncclCommAbort(r->comm));
    exit(0);
}

static void revoked_in_a_call(struct rank *r)
{
    alone_in_a_call(r, revoke_later, 0);
}

static void aborted_in_a_call(struct rank *r)
{
    alone_in_a_call(r, abort_later, 1);
}

Test(fault, a_first_collective_without_its_peer_stays_until_it_is_ended)
{
    const rank_fn ends[] = {revoked_in_a_call, aborted_in_a_call};
    setenv("SOFTGPU_NCCL_CONNECT", "1", 1);
    for (int i = 0; i < 2; i++) {
        pid_t pids[2];
        start_ranks(pids, 2, 1, ends[i]);
        cr_expect_eq(wait_ranks(pids, 1), 0);
        waitpid(pids[1], NULL, 0);
    }
}

static void abort_while_joining(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (r->rank == 1)
        _exit(0);
    CHECK(ncclCommInitRankConfig(&r->comm, r->nranks, r->id, r->rank, &config) == ncclInProgress);
    usleep(50000);
    OK(ncclCommAbort(r->comm));
}

Test(fault, abort_ends_the_making_of_a_communicator)
{
    cr_expect_eq(run_ranks(2, 0, abort_while_joining), 0);
}

static void sizes_differ(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 4096, 1);
    gather(r, mem, r->rank ? 1000 : 2000);
    ncclResult_t rc = wait_async_error(r->comm, ncclSuccess, SOON_MS);
    CHECK(rc == ncclInvalidUsage || rc == ncclRemoteError);
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(ncclCommAbort(r->comm));
    exit(0);
}

Test(fault, different_sizes_are_named)
{
    cr_expect_eq(run_ranks(2, 1, sizes_differ), 0);
}

/* The first chunk is alike, only the message's size tells the difference. The rank that calls less must hear of it,
 * too: by its data it would be satisfied. */
static void first_chunks_agree(struct rank *r)
{
    const size_t bytes[] = {128 << 10, 256 << 10};
    CUdeviceptr mem = device_bytes(r, 512 << 10, 1);
    char want[64];
    gather(r, mem, bytes[r->rank]);
    ncclResult_t rc = wait_async_error(r->comm, ncclSuccess, SOON_MS);
    CHECK(rc == ncclInvalidUsage || rc == ncclRemoteError);
    OK(r->cu.cuStreamSynchronize(r->stream));
    snprintf(want, sizeof want, "expects %zu bytes of operation", bytes[r->rank]);
    CHECK(rc != ncclInvalidUsage || strstr(ncclGetLastError(r->comm), want));
    r->shared[r->rank] = rc == ncclInvalidUsage ? 1 : 2;
    for (int i = 0; i < SOON_MS && !*(volatile char *)&r->shared[1 - r->rank]; i++)
        usleep(1000); /* that the peer left must not be what is noticed */
    CHECK(r->shared[0] == 1 || r->shared[1] == 1);
    OK(ncclCommAbort(r->comm));
    exit(0);
}

Test(fault, different_sizes_with_equal_first_chunks_are_named)
{
    cr_expect_eq(run_ranks(2, 1, first_chunks_agree), 0);
    setenv("SOFTGPU_COMPUTE", "0", 1); /* then no chunk has data */
    cr_expect_eq(run_ranks(2, 1, first_chunks_agree), 0);
}

/* A rank may finish, destroy and exit while the other still reads what it sent. */
static void leaves_early(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 400000, 5 + (unsigned)r->rank);
    if (r->rank == 0) {
        OK(ncclSend((void *)mem, 400000, ncclUint8, 1, r->comm, r->stream));
        OK(r->cu.cuStreamSynchronize(r->stream));
        return;
    }
    usleep(300000);
    OK(ncclRecv((void *)mem, 400000, ncclUint8, 0, r->comm, r->stream));
    OK(r->cu.cuStreamSynchronize(r->stream));
    CHECK(same_bytes(r, mem, 400000, 5));
}

Test(fault, data_of_a_rank_that_has_left)
{
    cr_expect_eq(run_ranks(2, 1, leaves_early), 0);
}

static void stale_id(struct rank *r)
{
    ncclComm_t again;
    ncclUniqueId junk;
    memset(&junk, 3, sizeof junk);
    CHECK(ncclCommInitRank(&again, 2, junk, r->rank) == ncclInvalidArgument);
    ncclResult_t rc = ncclCommInitRank(&again, 2, r->id, r->rank);
    CHECK(rc == ncclRemoteError || rc == ncclInvalidUsage);
}

Test(fault, used_or_invalid_unique_id)
{
    cr_expect_eq(run_ranks(2, 1, stale_id), 0);
}
