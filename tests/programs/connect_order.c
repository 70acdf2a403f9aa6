/* SPDX-License-Identifier: Apache-2.0 */
/* First gathers of two ranks that come in whatever order; every byte is checked.
 *
 *   alone     rank 1 makes its first call only when rank 0's has returned
 *   crossed   rank 0 gathers on A and then on B, rank 1 on B and then on A
 *   threads   rank 0 uses A and B from two threads at once, rank 1 one after the other
 *   grouped   rank 0 makes both calls in one group, rank 1 calls B and then A
 *   refused   two calls on A, of which the second is too small for the ring; rank 0 makes them in one group. The ranks
 *             can not connect: NCCL gets both in this order on both ranks
 *   abort     rank 1 is stopped; rank 0's first call waits for it, and another thread aborts the communicator
 */
#include "../faults/player.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define SHARD 300001

static struct rank r;
static ncclComm_t comm[2];
static struct buffers b[2];
static cudaStream_t stream[2];

static struct rank on(int i)
{
    struct rank at = r;
    at.comm = comm[i];
    at.stream = stream[i];
    return at;
}

static void fill(void)
{
    for (int i = 0; i < 2; i++) {
        struct rank at = on(i);
        buffers_fill(&b[i], &at, (unsigned)i);
    }
}

static ncclResult_t call(int i)
{
    return ncclAllGather(b[i].send, b[i].recv, b[i].shard, ncclInt8, comm[i], stream[i]);
}

static void check(int i)
{
    struct rank at = on(i);
    NCCL(player_wait(&at, 20000));
    buffers_check(&b[i], &at, (unsigned)i);
}

static void in_order(int first)
{
    NCCL(call(first));
    NCCL(call(1 - first));
    check(0);
    check(1);
}

static void alone(void)
{
    if (r.rank == 1)
        CHECK(board_wait(&board()->mark[0], 1, 10000), "rank 0's call does not return without rank 1's");
    NCCL(call(0));
    atomic_store(&board()->mark[r.rank], 1);
    check(0);
}

static void crossed(void)
{
    in_order(r.rank);
}

static void *one_call(void *arg)
{
    CUDA(cudaSetDevice(r.rank));
    NCCL(call((int)(intptr_t)arg));
    check((int)(intptr_t)arg);
    return NULL;
}

static void threads(void)
{
    pthread_t t[2];
    if (r.rank == 1) {
        in_order(1);
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, one_call, (void *)(intptr_t)i) == 0, "no thread");
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

static void grouped(void)
{
    if (r.rank == 1) {
        in_order(1);
        return;
    }
    NCCL(ncclGroupStart());
    NCCL(call(0));
    NCCL(call(1));
    NCCL(ncclGroupEnd());
    check(0);
    check(1);
}

static void refused(void)
{
    NCCL(ncclCommDestroy(comm[1]));
    buffers_free(&b[1]);
    buffers_make(&b[1], &r, 1000);
    comm[1] = comm[0];
    stream[1] = stream[0];
    fill();
    if (r.rank == 1) {
        in_order(0);
        return;
    }
    grouped();
}

static _Atomic int answer = -1;

static void *waiting_call(void *arg)
{
    CUDA(cudaSetDevice(r.rank));
    atomic_store(&answer, (int)call(0));
    return arg;
}

static void abort_waiting(void)
{
    pthread_t t;
    if (r.rank == 1) {
        atomic_store(&board()->mark[1], 1);
        raise(SIGSTOP); /* launch continues it after a while */
        NCCL(ncclCommAbort(comm[0]));
        return;
    }
    CHECK(board_wait(&board()->mark[1], 1, 10000), "rank 1 has not come");
    board_sleep_ms(200);
    CHECK(pthread_create(&t, NULL, waiting_call, NULL) == 0, "no thread");
    board_sleep_ms(300);
    CHECK(atomic_load(&answer) == -1, "the call does not wait for its peers");
    int64_t start = player_ms();
    NCCL(ncclCommAbort(comm[0]));
    CHECK(player_ms() - start < 2000, "ncclCommAbort took %d ms", (int)(player_ms() - start));
    pthread_join(t, NULL);
    CHECK(atomic_load(&answer) > 0, "the call that was aborted answers %d", atomic_load(&answer));
}

static const struct {
    const char *name;
    void (*play)(void);
} scenarios[] = {{"alone", alone},     {"crossed", crossed}, {"threads", threads},
                 {"grouped", grouped}, {"refused", refused}, {"abort", abort_waiting}};

int main(int argc, char **argv)
{
    CHECK(argc == 2, "usage: order SCENARIO");
    alarm(60);
    r = player_start();
    NCCL(ncclCommInitRank(&comm[0], r.nranks, r.id, r.rank));
    NCCL(ncclCommSplit(comm[0], 0, r.rank, &comm[1], NULL));
    for (int i = 0; i < 2; i++) {
        CUDA(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        buffers_make(&b[i], &r, SHARD);
    }
    fill();
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argv[1], scenarios[i].name))
            scenarios[i].play();
    if (comm[1] != comm[0])
        NCCL(ncclCommDestroy(comm[1]));
    if (strcmp(argv[1], "abort"))
        NCCL(ncclCommDestroy(comm[0]));
    return 0;
}
