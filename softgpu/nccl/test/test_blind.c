/* SPDX-License-Identifier: Apache-2.0 */
/* SOFTGPU_NCCL_BLIND: NCCL's kernels do not notice that a peer is dead. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define LONG_MS 400  /* stands for ever */
#define SOON_MS 5000 /* what does end has ended by then */

static void gather(struct rank *r, CUdeviceptr mem)
{
    OK(ncclAllGather((char *)mem + (size_t)r->rank, (void *)mem, 1, ncclUint8, r->comm, r->stream));
}

/* Rank 1 does `leave` instead of its second collective; rank 0's must stay until it aborts. */
static void left_alone(struct rank *r, void (*leave)(struct rank *r))
{
    CUdeviceptr mem = device_bytes(r, 4096, 1);
    gather(r, mem);
    OK(r->cu.cuStreamSynchronize(r->stream));
    if (r->rank == 1)
        leave(r);
    gather(r, mem);
    gather(r, mem);
    CHECK(wait_async_error(r->comm, ncclSuccess, LONG_MS) == ncclSuccess);
    CHECK(r->cu.cuStreamQuery(r->stream) == CUDA_ERROR_NOT_READY);
    OK(ncclCommAbort(r->comm));
    OK(r->cu.cuStreamSynchronize(r->stream));
    exit(0);
}

static void die(struct rank *r)
{
    (void)r;
    raise(SIGKILL);
}

static void abort_and_go(struct rank *r)
{
    OK(ncclCommAbort(r->comm));
    _exit(0);
}

static void one_dies(struct rank *r)
{
    left_alone(r, die);
}

static void one_aborts(struct rank *r)
{
    left_alone(r, abort_and_go);
}

static int first_of_two(rank_fn fn)
{
    pid_t pids[2];
    start_ranks(pids, 2, 1, fn);
    int bad = wait_ranks(pids, 1);
    waitpid(pids[1], NULL, 0);
    return bad;
}

Test(blind, a_collective_with_a_dead_peer_stays_until_it_is_aborted)
{
    setenv("SOFTGPU_NCCL_BLIND", "1", 1);
    cr_expect_eq(first_of_two(one_dies), 0);
    cr_expect_eq(first_of_two(one_aborts), 0);
}

/* Off: the collective fails and its stream completes. */
static void hears_of_it(struct rank *r)
{
    CUdeviceptr mem = device_bytes(r, 4096, 1);
    gather(r, mem); /* connects */
    OK(r->cu.cuStreamSynchronize(r->stream));
    if (r->rank == 1)
        raise(SIGKILL);
    gather(r, mem);
    CHECK(wait_async_error(r->comm, ncclSuccess, SOON_MS) == ncclRemoteError);
    OK(r->cu.cuStreamSynchronize(r->stream));
    OK(ncclCommAbort(r->comm));
    exit(0);
}

Test(blind, off_means_that_a_dead_peer_is_an_error)
{
    setenv("SOFTGPU_NCCL_BLIND", "0", 1);
    cr_expect_eq(first_of_two(hears_of_it), 0);
}
